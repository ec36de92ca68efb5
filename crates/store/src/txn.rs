//! One operation while it is being applied: it sees the index with its own changes, and none of
//! these is seen by anybody else before [`crate::index::Index::commit`]. A refused operation is
//! dropped.

use crate::acl;
use crate::error::StoreError;
use crate::index::{Changes, Index};
use crate::key::{self, Key};
use crate::log::Place;
use crate::permission::{self, Want};
use crate::value::{self, Borrower, Extent, Named, Object, Placed};
use wire::{Attr, Caller, Chosen, Fid, Kind, Name, Refusal, Time};

/// Most names of an object.
pub(crate) const LINKS_MAX: u32 = 65_000;

/// The circumstances of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) now: Time,
    /// The bytes of a write.
    pub(crate) data: &'a [u8],
    /// Their checksums.
    pub(crate) checks: &'a [u32],
    /// Where in the log they lie.
    pub(crate) place: Place,
    /// Files up to this size lie in the index.
    pub(crate) inline_bytes: u32,
    /// Numbers of a new object and of its name, where the client has chosen them already.
    pub(crate) chosen: Chosen,
}

/// An operation being applied.
#[derive(Debug)]
pub(crate) struct Txn<'a> {
    pub(crate) index: &'a Index,
    pub(crate) context: Context<'a>,
    pub(crate) changes: Changes,
}

/// The refusal that a caller gets when the store itself is in trouble.
pub(crate) fn trouble(error: StoreError) -> Refusal {
    match error {
        // Told to everybody who writes: a line for each of them would fill the next disk.
        StoreError::NoSpace => tracing::debug!("{error}"),
        _ => tracing::error!("{error}"),
    }
    error.refusal()
}

impl<'a> Txn<'a> {
    pub(crate) fn new(index: &'a Index, context: Context<'a>) -> Self {
        Self {
            index,
            context,
            changes: Changes::default(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.context.now
    }

    /// The number of a new object.
    pub(crate) fn number(&mut self, volume: u32) -> Result<u64, Refusal> {
        let (next, reserved) = (self.index.counters.next_vnode, self.context.chosen.vnode);
        if reserved == 0 {
            self.changes.made += 1;
            return Ok(next);
        }
        let fid = Fid {
            vnode: reserved,
            ..Fid::root(volume)
        };
        let taken = reserved >= next || self.index.object(fid).map_err(trouble)?.is_some();
        // The client that reserved it has used it already, or it never was reserved.
        if taken {
            Err(Refusal::Invalid)
        } else {
            Ok(reserved)
        }
    }

    /// The position of a new name in a directory: behind all others, or the one that was chosen if
    /// no name has it.
    pub(crate) fn new_position(&self, fid: Fid, dir: &Object) -> Result<u64, Refusal> {
        let (next, chosen) = (dir.next_position, self.context.chosen.position);
        if chosen == 0 || chosen >= wire::limits::POSITIONS {
            return Ok(next);
        }
        let taken = chosen < next && self.get(&key::position(fid, chosen))?.is_some();
        Ok(if taken { next } else { chosen })
    }

    /// An object as it is for this operation.
    pub(crate) fn object(&self, fid: Fid) -> Result<Object, Refusal> {
        let mut own = self.changes.objects.iter();
        let found = match own.find(|(of, _)| *of == fid) {
            Some((_, object)) => object.clone(),
            None => self.index.object(fid).map_err(trouble)?,
        };
        let found = found.filter(|object| object.uniq == fid.uniq);
        let shown = found.map(|object| self.index.volumes.show(fid, object));
        shown.ok_or(Refusal::Stale)
    }

    /// A directory.
    pub(crate) fn dir(&self, fid: Fid) -> Result<Object, Refusal> {
        let object = self.object(fid)?;
        match object.attr.kind {
            Kind::Directory => Ok(object),
            _ => Err(Refusal::NotDirectory),
        }
    }

    /// A regular file.
    pub(crate) fn file(&self, fid: Fid) -> Result<Object, Refusal> {
        let object = self.object(fid)?;
        match object.attr.kind {
            Kind::File => Ok(object),
            Kind::Directory => Err(Refusal::IsDirectory),
            _ => Err(Refusal::Invalid),
        }
    }

    pub(crate) fn put_object(&mut self, fid: Fid, object: Object) {
        self.set_object(fid, Some(object));
    }

    pub(crate) fn remove_object(&mut self, fid: Fid) {
        self.set_object(fid, None);
    }

    fn set_object(&mut self, fid: Fid, object: Option<Object>) {
        let mut own = self.changes.objects.iter_mut();
        match own.find(|(of, _)| *of == fid) {
            Some((_, old)) => *old = object,
            None => self.changes.objects.push((fid, object)),
        }
    }

    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.changes.puts.insert(key, Some(value));
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.changes.puts.insert(key, None);
    }

    /// A value as it was before this operation.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        self.index.get(key).map_err(trouble)
    }

    /// All keys of a range, as they were before this operation.
    pub(crate) fn all(&self, from: Key, to: &[u8]) -> Result<Vec<(Key, Vec<u8>)>, Refusal> {
        let mut all = Vec::new();
        let mut from = from;
        loop {
            let part = self.index.scan(&from, to, 256).map_err(trouble)?;
            let Some((last, _)) = part.last() else {
                return Ok(all);
            };
            from = key::after(last);
            all.extend(part);
        }
    }

    /// An entry of a directory, as it was before this operation.
    pub(crate) fn entry(&self, dir: Fid, name: &Name) -> Result<Option<Named>, Refusal> {
        self.index.named(dir, name).map_err(trouble)
    }

    /// Counts objects and bytes of all volumes together, where no volume gains or loses any.
    pub(crate) fn count_all(&mut self, objects: i64, bytes: i64) {
        self.changes.all.0 += objects;
        self.changes.all.1 += bytes;
    }

    /// May the caller do this with the object?
    pub(crate) fn allowed(&self, fid: Fid, object: &Object, want: Want) -> Result<(), Refusal> {
        if let Some(list) = self.governing(fid, object)? {
            return match want.by(&list, self.context.caller, &object.attr) {
                true => Ok(()),
                false => Err(Refusal::Denied),
            };
        }
        let list = match object.acl {
            true => self.get(&key::xattr(fid, acl::ACCESS))?,
            false => None,
        };
        match permission::allowed(self.context.caller, &object.attr, want, list.as_deref()) {
            true => Ok(()),
            false => Err(Refusal::Denied),
        }
    }

    /// Writes an entry of a directory in both orders, and the object's note of it.
    pub(crate) fn put_entry(&mut self, dir: Fid, name: &Name, entry: &Named) {
        let placed = Placed {
            name: name.clone(),
            fid: entry.fid,
            kind: entry.kind,
        };
        self.put(key::name(dir, name.as_bytes()), value::encode(entry));
        self.put(key::position(dir, entry.position), value::encode(&placed));
    }

    pub(crate) fn remove_entry(&mut self, dir: Fid, name: &Name, entry: &Named) {
        self.remove(key::name(dir, name.as_bytes()));
        self.remove(key::position(dir, entry.position));
    }

    /// Notes that the content of a directory changed.
    pub(crate) fn touch_dir(
        &mut self,
        fid: Fid,
        change: impl FnOnce(&mut Object),
    ) -> Result<Attr, Refusal> {
        let mut dir = self.object(fid)?;
        change(&mut dir);
        dir.attr.mtime = self.now();
        dir.attr.ctime = dir.attr.ctime.max(self.now());
        dir.attr.version += 1;
        let attr = dir.attr.clone();
        self.put_object(fid, dir);
        Ok(attr)
    }

    /// Adds an extent to a file.
    pub(crate) fn put_extent(
        &mut self,
        fid: Fid,
        object: &mut Object,
        start: u64,
        extent: &Extent,
    ) {
        let len = u64::from(extent.len);
        object.extents += 1;
        object.attr.used_bytes += len;
        self.changes.bytes_more += len as i64;
        self.count_live(extent, 1);
        self.put(key::extent(fid, start + len), extent.encode());
    }

    /// Notes that a file has an extent in a segment whose record is not of it.
    pub(crate) fn note_borrower(
        &mut self,
        segment: u32,
        fid: Fid,
        start: u64,
        len: u64,
    ) -> Result<(), Refusal> {
        let key = key::shared(segment, fid.vnode);
        let noted = match self.changes.puts.get(&key) {
            Some(own) => own.clone(),
            None => self.get(&key)?,
        };
        let noted: Option<Borrower> = noted.and_then(|bytes| value::decode(&bytes));
        let mut borrower = noted.unwrap_or(Borrower {
            fid,
            from: start,
            to: start + len,
        });
        borrower.from = borrower.from.min(start);
        borrower.to = borrower.to.max(start + len);
        self.put(key, value::encode(&borrower));
        Ok(())
    }

    /// Removes an extent of a file. Its bytes stay in use if another version of the file has it.
    pub(crate) fn drop_extent(
        &mut self,
        fid: Fid,
        object: &mut Object,
        end: u64,
        extent: &Extent,
    ) -> Result<(), Refusal> {
        self.drop_extent_of(fid, object, (end, extent), false)
    }

    /// The same, of an extent that this operation has put there.
    pub(crate) fn drop_extent_of(
        &mut self,
        fid: Fid,
        object: &mut Object,
        (end, extent): (u64, &Extent),
        new: bool,
    ) -> Result<(), Refusal> {
        let key = key::extent(fid, end);
        let len = u64::from(extent.len);
        object.extents = object.extents.saturating_sub(1);
        object.attr.used_bytes = object.attr.used_bytes.saturating_sub(len);
        self.changes.bytes_more -= len as i64;
        if new || self.index.is_own(&key).map_err(trouble)? {
            self.count_live(extent, -1);
        }
        self.remove(key);
        Ok(())
    }

    /// Counts the bytes of a segment that an extent uses.
    pub(crate) fn count_live(&mut self, extent: &Extent, times: i64) {
        if !extent.is_lost() {
            let live = self.changes.live.entry(extent.segment).or_default();
            *live += times * i64::from(extent.stored);
        }
    }
}
