//! Keys of the index: (volume, vnode, kind, detail, ~birth), in an order in which everything of one
//! object lies together, its attributes first.
//!
//! No key is the beginning of another one, so that the versions of one thing lie together too, the
//! newest first. Volume 0 holds what belongs to the whole partition.
//!
//! The functions here give the key of a thing as if its volume had no versions; [`version`] makes
//! of it the key of one of them, see [`crate::versions`].

use wire::{Fid, RequestId, SessionId};

/// A key of the index.
pub(crate) type Key = Vec<u8>;

/// The birth in the key of a thing, as long as it is not said which version of it is meant.
const BIRTH: u32 = crate::volumes::FIRST_BIRTH;

/// The attributes of an object.
pub(crate) const OBJECT: u8 = 0;
/// A directory's entry by name.
pub(crate) const NAME: u8 = 1;
/// A directory's entry by position.
pub(crate) const POSITION: u8 = 2;
/// A piece of a file, by the offset of its end: then the first key above an offset is the piece
/// that covers it.
pub(crate) const EXTENT: u8 = 3;
/// The bytes of a small file.
pub(crate) const INLINE: u8 = 4;
/// An extended attribute, by name.
pub(crate) const XATTR: u8 = 5;
/// The target of a symbolic link.
pub(crate) const TARGET: u8 = 6;
/// An object without a name (under vnode 0 of its volume, so that they lie together).
pub(crate) const ORPHAN: u8 = 7;
/// A name of an object beside the one that is noted with it, by directory and position.
pub(crate) const LINK: u8 = 8;
/// Numbers of the partition.
pub(crate) const COUNTERS: u8 = 16;
/// A session (the vnode is its id).
pub(crate) const SESSION: u8 = 17;
/// An answer kept for exactly once (the vnode is the session, the detail the request).
pub(crate) const ANSWER: u8 = 18;
/// Bytes in use of a segment (the vnode is its number).
pub(crate) const SEGMENT: u8 = 19;

/// A file that has bytes of a segment by copies (the vnode is the segment's number, the detail the
/// file's vnode).
pub(crate) const SHARED: u8 = 20;

/// The latest time of any change.
pub(crate) const NEWEST: u8 = 21;

/// A volume (the vnode is its number; under 0: the number of the next one).
pub(crate) const VOLUME: u8 = 22;

/// That a thing was born, under vnode 0 of its volume: the birth, and what a key says of the thing.
/// So what was born after some birth is found without looking at anything else.
pub(crate) const BORN: u8 = 23;

/// Bytes before the detail.
pub(crate) const HEAD_BYTES: usize = 13;
/// Bytes after it.
const BIRTH_BYTES: usize = 4;

fn key(volume: u32, vnode: u64, kind: u8, detail: &[u8]) -> Key {
    let mut key = Vec::with_capacity(HEAD_BYTES + detail.len() + 1 + BIRTH_BYTES);
    key.extend_from_slice(&volume.to_be_bytes());
    key.extend_from_slice(&vnode.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(detail);
    if matches!(kind, NAME | XATTR) {
        key.push(0);
    }
    key.extend_from_slice(&(!BIRTH).to_be_bytes());
    key
}

/// The first key that is not below this one: for ranges.
fn bound(volume: u32, vnode: u64, kind: u8, detail: &[u8]) -> Key {
    let mut key = key(volume, vnode, kind, detail);
    key.truncate(HEAD_BYTES + detail.len());
    key
}

pub(crate) fn object(fid: Fid) -> Key {
    key(fid.volume, fid.vnode, OBJECT, &[])
}

pub(crate) fn name(dir: Fid, name: &[u8]) -> Key {
    key(dir.volume, dir.vnode, NAME, name)
}

pub(crate) fn position(dir: Fid, position: u64) -> Key {
    key(dir.volume, dir.vnode, POSITION, &position.to_be_bytes())
}

pub(crate) fn extent(fid: Fid, end: u64) -> Key {
    key(fid.volume, fid.vnode, EXTENT, &end.to_be_bytes())
}

pub(crate) fn inline(fid: Fid) -> Key {
    key(fid.volume, fid.vnode, INLINE, &[])
}

pub(crate) fn xattr(fid: Fid, name: &[u8]) -> Key {
    key(fid.volume, fid.vnode, XATTR, name)
}

pub(crate) fn target(fid: Fid) -> Key {
    key(fid.volume, fid.vnode, TARGET, &[])
}

pub(crate) fn orphan(fid: Fid) -> Key {
    key(fid.volume, 0, ORPHAN, &fid.vnode.to_be_bytes())
}

/// The key of a further name: its directory, and its position there.
pub(crate) fn link(fid: Fid, (dir, position): (Fid, u64)) -> Key {
    let detail = [dir.vnode.to_be_bytes(), position.to_be_bytes()].concat();
    key(fid.volume, fid.vnode, LINK, &detail)
}

pub(crate) fn counters() -> Key {
    key(0, 0, COUNTERS, &[])
}

pub(crate) fn newest() -> Key {
    key(0, 0, NEWEST, &[])
}

pub(crate) fn volume_of(id: u32) -> Key {
    key(0, u64::from(id), VOLUME, &[])
}

pub(crate) fn session(session: SessionId) -> Key {
    key(0, session, SESSION, &[])
}

pub(crate) fn answer(session: SessionId, request: RequestId) -> Key {
    key(0, session, ANSWER, &request.to_be_bytes())
}

pub(crate) fn segment(segment: u32) -> Key {
    key(0, u64::from(segment), SEGMENT, &[])
}

pub(crate) fn shared(segment: u32, vnode: u64) -> Key {
    key(0, u64::from(segment), SHARED, &vnode.to_be_bytes())
}

/// The keys of the borrowers of a segment from this vnode on.
pub(crate) fn shared_from(segment: u32, vnode: u64) -> (Key, Key) {
    (
        bound(0, u64::from(segment), SHARED, &vnode.to_be_bytes()),
        bound(0, u64::from(segment), SHARED + 1, &[]),
    )
}

/// The keys of one kind of one object whose detail is at least this.
pub(crate) fn range_from(fid: Fid, kind: u8, detail: &[u8]) -> (Key, Key) {
    (
        bound(fid.volume, fid.vnode, kind, detail),
        bound(fid.volume, fid.vnode, kind + 1, &[]),
    )
}

/// The keys of one kind of one object.
pub(crate) fn range(fid: Fid, kind: u8) -> (Key, Key) {
    range_from(fid, kind, &[])
}

/// All keys of the partition itself.
pub(crate) fn partition() -> (Key, Key) {
    (Vec::new(), bound(1, 0, 0, &[]))
}

/// All keys of a volume.
pub(crate) fn volume(volume: u32) -> (Key, Key) {
    (bound(volume, 0, 0, &[]), bound(volume + 1, 0, 0, &[]))
}

/// All keys.
pub(crate) fn all() -> (Key, Key) {
    (Vec::new(), vec![u8::MAX; HEAD_BYTES])
}

/// The first key above this one.
pub(crate) fn after(key: &[u8]) -> Key {
    let mut after = key.to_vec();
    after.push(0);
    after
}

/// Bytes of the volume in a key.
const VOLUME_BYTES: usize = 4;

/// The volume of a key, or of a bound.
pub(crate) fn volume_in(key: &[u8]) -> u32 {
    let bytes = key.first_chunk::<VOLUME_BYTES>();
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The part of a bound behind the volume.
pub(crate) fn behind_volume(bound: &[u8]) -> &[u8] {
    bound.get(VOLUME_BYTES..).unwrap_or_default()
}

/// A bound in another volume.
pub(crate) fn bound_in(volume: u32, behind: &[u8]) -> Key {
    [&volume.to_be_bytes(), behind].concat()
}

/// The thing that a key names, without the volume and the birth.
pub(crate) fn thing(key: &[u8]) -> &[u8] {
    let behind = behind_volume(key);
    &behind[..behind.len().saturating_sub(BIRTH_BYTES)]
}

/// The bound behind a thing and all its versions, where keys are compared without the volume.
pub(crate) fn behind(thing: &[u8]) -> Vec<u8> {
    [thing, &[u8::MAX; BIRTH_BYTES + 1]].concat()
}

/// The birth of a key.
pub(crate) fn birth(key: &[u8]) -> u32 {
    let bytes = key.last_chunk::<BIRTH_BYTES>();
    bytes.map_or(0, |bytes| !u32::from_be_bytes(*bytes))
}

/// The key of a version of a thing.
pub(crate) fn version(volume: u32, thing: &[u8], birth: u32) -> Key {
    [&volume.to_be_bytes(), thing, &(!birth).to_be_bytes()].concat()
}

/// The key of a thing in a volume, of no version.
pub(crate) fn plain(volume: u32, thing: &[u8]) -> Key {
    version(volume, thing, BIRTH)
}

/// The keys of the versions of a thing of at most this birth.
pub(crate) fn versions(volume: u32, thing: &[u8], birth: u32) -> (Key, Key) {
    (version(volume, thing, birth), version(volume, thing, 0))
}

/// The key that says of a thing of a volume that it was born then. `None`: nobody asks for that,
/// since the first birth is that of all, and names and what has none follow from other things.
pub(crate) fn born(volume: u32, birth: u32, thing: &[u8]) -> Option<Key> {
    const KIND_AT: usize = HEAD_BYTES - VOLUME_BYTES - 1;
    let told = thing
        .get(KIND_AT)
        .is_some_and(|kind| !matches!(*kind, NAME | ORPHAN | BORN));
    if birth <= BIRTH || volume == 0 || !told {
        return None;
    }
    let detail = [&birth.to_be_bytes(), thing].concat();
    Some(key(volume, 0, BORN, &detail))
}

/// The keys that say what was born then, of things from this one on.
pub(crate) fn born_from(volume: u32, birth: u32, thing: &[u8]) -> (Key, Key) {
    let detail = [&birth.to_be_bytes(), thing].concat();
    let end = bound(volume, 0, BORN, &birth.saturating_add(1).to_be_bytes());
    (bound(volume, 0, BORN, &detail), end)
}

/// The birth and the thing that such a key tells of.
pub(crate) fn told_born(detail: &[u8]) -> Option<(u32, &[u8])> {
    let (birth, thing) = detail.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*birth), thing))
}

/// The fields of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    pub(crate) volume: u32,
    pub(crate) vnode: u64,
    pub(crate) kind: u8,
    pub(crate) detail: &'a [u8],
}

impl Parts<'_> {
    /// The detail as a number, where it is one.
    pub(crate) fn number(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.detail.try_into().ok()?))
    }

    /// Where the further name is that such a key tells of: its directory, and its position there.
    pub(crate) fn spot(&self) -> Option<(Fid, u64)> {
        let (dir, position) = self.detail.split_first_chunk::<8>()?;
        let dir = Fid {
            vnode: u64::from_be_bytes(*dir),
            ..Fid::root(self.volume)
        };
        Some((dir, u64::from_be_bytes(position.try_into().ok()?)))
    }
}

/// Takes a key apart; `None`: not a key.
pub(crate) fn parts(key: &[u8]) -> Option<Parts<'_>> {
    let (head, rest) = key.split_at_checked(HEAD_BYTES)?;
    let kind = head[12];
    let named = usize::from(matches!(kind, NAME | XATTR));
    let detail = rest.get(..rest.len().checked_sub(BIRTH_BYTES + named)?)?;
    Some(Parts {
        volume: u32::from_be_bytes(head[..4].try_into().ok()?),
        vnode: u64::from_be_bytes(head[4..12].try_into().ok()?),
        kind,
        detail,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_come_apart_and_keep_the_order_of_their_numbers() {
        let fid = Fid::root(7);
        let a = extent(fid, 255);
        let b = extent(fid, 256);
        assert!(a < b && object(fid) < a);
        let (from, to) = range_from(fid, EXTENT, &256u64.to_be_bytes());
        assert!(a < from && from <= b && b < to);
        let parts = parts(&b).unwrap();
        assert_eq!((parts.volume, parts.vnode, parts.kind), (7, 1, EXTENT));
        assert_eq!(parts.number(), Some(256));
        assert_eq!(super::parts(&name(fid, b"ab")).unwrap().detail, b"ab");
        assert_eq!(super::parts(b"short"), None);
    }
}
