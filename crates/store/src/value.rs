//! Values of the index. On the disk each is followed by the crc32c of its key and itself, so that a
//! value that was damaged, or belongs to another key, is known to be bad.

use serde::{Deserialize, Serialize};
use wire::{Attr, Fid, Kind, Name, Time};

/// Bytes that one checksum covers.
pub(crate) const PIECE_BYTES: usize = wire::limits::BLOCK_BYTES as usize;

/// The value of an object's own key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) attr: Attr,
    /// Tells two uses of the vnode number apart.
    pub(crate) uniq: u32,
    /// Vnode of the directory that has its name. Of a file with several names: of one of them, the
    /// others have keys of their own; of one that has lost its last name: of that. 0: the root, or
    /// nothing is known.
    pub(crate) parent: u64,
    /// The position of that name.
    pub(crate) home: u64,
    /// Of a directory: the position that the next name gets.
    pub(crate) next_position: u64,
    /// Of a directory: how many names are in it.
    pub(crate) entries: u64,
    /// How many extents it has.
    pub(crate) extents: u64,
    /// How many of its first bytes lie in the index, below what the extents say.
    pub(crate) inline: u32,
    /// How many extended attributes it has.
    pub(crate) xattrs: u32,
    /// One of these is an access control list.
    pub(crate) acl: bool,
}

impl Object {
    /// One that has nothing but attributes, and no name yet.
    pub(crate) fn new(attr: Attr) -> Self {
        Self {
            attr,
            uniq: 1,
            parent: 0,
            home: 0,
            next_position: 1,
            entries: 0,
            extents: 0,
            inline: 0,
            xattrs: 0,
            acl: false,
        }
    }
}

/// The root of a new volume.
pub(crate) fn root_object((uid, gid): (u32, u32), mode: u16, now: Time) -> Object {
    Object::new(Attr {
        uid,
        gid,
        ..Attr::new(Kind::Directory, mode, now)
    })
}

/// An entry of a directory, under its name. The volume of the fid is the one that it was made in:
/// a look-up shows that of the directory instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) fid: Fid,
    pub(crate) kind: Kind,
    pub(crate) position: u64,
}

/// An entry of a directory, under its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) name: Name,
    pub(crate) fid: Fid,
    pub(crate) kind: Kind,
}

/// A file that has extents in a segment by copies, and the part of the file in which all of them
/// are. Some of them may be gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Borrower {
    pub(crate) fid: Fid,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Named {
    /// As it is seen in a directory of this volume.
    pub(crate) fn within(mut self, volume: u32) -> Self {
        self.fid.volume = volume;
        self
    }
}

impl Placed {
    /// As it is seen in a directory of this volume.
    pub(crate) fn within(mut self, volume: u32) -> Self {
        self.fid.volume = volume;
        self
    }
}

/// Numbers of the whole partition, and up to where of the log the index has it all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// The volume that it began with.
    pub(crate) volume: u32,
    pub(crate) next_vnode: u64,
    /// Objects of all volumes that are there and may change: an object that clones share is counted
    /// in each.
    pub(crate) objects: u64,
    /// Bytes of files and symbolic links, likewise.
    pub(crate) bytes: u64,
    pub(crate) boot: u64,
    /// The segment, the offset in it and the number of the first record that the index does not
    /// have.
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
}

/// The segment of bytes that were lost: none has this number.
const LOST: u32 = 0;

/// A piece of a file: where its bytes lie in the log, and their checksums. Never changed, only
/// replaced by a narrower one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The segment that has the bytes.
    pub(crate) segment: u32,
    /// Where in it the first checked piece begins.
    pub(crate) position: u32,
    /// Bytes of all checked pieces.
    pub(crate) stored: u32,
    /// Where in them the extent begins, less than a piece.
    pub(crate) skip: u32,
    /// Length of the extent.
    pub(crate) len: u32,
    /// The crc32c of each piece.
    pub(crate) checks: Vec<u32>,
}

impl Extent {
    /// All of what was written at once.
    pub(crate) fn whole(segment: u32, position: u32, len: u32, checks: Vec<u32>) -> Self {
        Self {
            segment,
            position,
            stored: len,
            skip: 0,
            len,
            checks,
        }
    }

    /// In its place: bytes that were lost, and are refused until they are written again.
    pub(crate) fn lost(&self) -> Self {
        Self {
            segment: LOST,
            position: 0,
            ..self.clone()
        }
    }

    /// Are its bytes lost?
    pub(crate) fn is_lost(&self) -> bool {
        self.segment == LOST
    }

    /// Without its first bytes.
    pub(crate) fn without_front(&self, bytes: u32) -> Self {
        let skip = self.skip + bytes;
        let pieces = skip as usize / PIECE_BYTES;
        let gone = (pieces * PIECE_BYTES) as u32;
        Self {
            segment: self.segment,
            position: self.position + gone,
            stored: self.stored - gone,
            skip: skip - gone,
            len: self.len - bytes,
            checks: self.checks[pieces..].to_vec(),
        }
    }

    /// Its first bytes only.
    pub(crate) fn first(&self, len: u32) -> Self {
        let pieces = ((self.skip + len) as usize).div_ceil(PIECE_BYTES);
        Self {
            stored: self.stored.min((pieces * PIECE_BYTES) as u32),
            len,
            checks: self.checks[..pieces].to_vec(),
            ..*self
        }
    }

    /// As it lies in the index.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20 + 4 * self.checks.len());
        for number in [
            self.segment,
            self.position,
            self.stored,
            self.skip,
            self.len,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for check in &self.checks {
            bytes.extend_from_slice(&check.to_le_bytes());
        }
        bytes
    }

    /// From the index; `None`: not an extent.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let extent = Self {
            segment: words.next()?,
            position: words.next()?,
            stored: words.next()?,
            skip: words.next()?,
            len: words.next()?,
            checks: words.collect(),
        };
        let pieces = (extent.stored as usize).div_ceil(PIECE_BYTES);
        let sound = rest.is_empty()
            && extent.len > 0
            && (extent.skip as usize) < PIECE_BYTES
            && extent.position.checked_add(extent.stored).is_some()
            && extent
                .skip
                .checked_add(extent.len)
                .is_some_and(|end| end <= extent.stored)
            && extent.checks.len() == pieces;
        sound.then_some(extent)
    }
}

/// The checksums of bytes, one for each piece.
pub(crate) fn checks(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(PIECE_BYTES).map(crc32c::crc32c).collect()
}

/// A value as it lies in the index.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Numbers mostly take fewer bytes than in memory, names more.
    wire::encode_about(value, size_of::<T>())
}

/// A value from the index; `None`: not one.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

/// Adds the checksum.
pub(crate) fn seal(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(value.len() + 4);
    sealed.extend_from_slice(value);
    let check = crc32c::crc32c_append(crc32c::crc32c(key), value);
    sealed.extend_from_slice(&check.to_le_bytes());
    sealed
}

/// Takes the checksum off; `None`: it is wrong.
pub(crate) fn unseal(key: &[u8], mut sealed: Vec<u8>) -> Option<Vec<u8>> {
    let at = sealed.len().checked_sub(4)?;
    let (value, check) = sealed.split_at(at);
    let right = crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes();
    if check != right {
        return None;
    }
    sealed.truncate(at);
    Some(sealed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_narrowed_extent_keeps_the_pieces_that_it_needs() {
        let data = vec![7; 10_000];
        let whole = Extent::whole(1, 40, 10_000, checks(&data));
        let tail = whole.without_front(5_000);
        assert_eq!((tail.position, tail.stored), (40 + 4096, 10_000 - 4096));
        assert_eq!((tail.skip, tail.len, tail.checks.len()), (904, 5_000, 2));
        let head = tail.first(100);
        assert_eq!((head.stored, head.len, head.checks.len()), (4096, 100, 1));
        assert_eq!(Extent::decode(&head.encode()), Some(head));
        assert_eq!(Extent::decode(&[0; 24]), None);
    }

    #[test]
    fn a_value_under_another_key_is_bad() {
        let sealed = seal(b"a", b"value");
        assert_eq!(unseal(b"a", sealed.clone()).unwrap(), b"value");
        assert_eq!(unseal(b"b", sealed), None);
        assert_eq!(unseal(b"a", vec![1]), None);
    }
}
