//! A part of a snapshot that is being received.
//!
//! All pieces of a part are one operation, so later ones see what earlier ones have changed: what
//! is asked of the index is asked of the changes first. Nothing of a stream is believed that the
//! index depends on: what is counted is counted here, and what does not fit is refused.

mod names;
mod numbers;

use super::Applied;
use super::bytes::{extents_of, put_inline};
use crate::acl;
use crate::key::{self, Key};
use crate::provenance::Half;
use crate::txn::{Txn, trouble};
use crate::value::{self, Extent, Named, Object, Placed};
use std::collections::BTreeMap;
use wire::{Attr, Blob, Child, Fid, Kind, Op, Outcome, Refusal, StreamChunk, StreamPiece};

/// The state while the pieces of a part are applied.
struct Restore<'t, 'a> {
    txn: &'t mut Txn<'a>,
    volume: u32,
    half: Half,
    /// The release of a replica that it is. The objects of a replica have the numbers of the
    /// source.
    release: Option<u32>,
    ranges: Vec<u64>,
    /// Objects as they are behind the pieces so far; `None`: gone.
    objects: BTreeMap<u64, Option<Object>>,
    /// Where in the bytes of the part those of the next piece begin.
    at: usize,
}

/// Applies the next part of a snapshot.
pub(super) fn restore(txn: &mut Txn<'_>, op: &Op) -> Applied {
    let Op::Restore {
        volume,
        number,
        after,
        chunk,
    } = op
    else {
        return Err(Refusal::Invalid);
    };
    if txn.context.caller.uid != 0 {
        return Err(Refusal::NotPermitted);
    }
    let mut snapshot = txn
        .index
        .volumes
        .get(*volume)
        .cloned()
        .ok_or(Refusal::NotFound)?;
    let half = snapshot.copied.half.clone().ok_or(Refusal::NotFound)?;
    if half.undo.is_some() {
        return Err(Refusal::Invalid);
    }
    if half.receiving.chunks != *number {
        return Err(Refusal::Invalid);
    }
    let mut restore = Restore {
        release: txn.index.volumes.release_received(&snapshot),
        ranges: snapshot.copied.ranges.clone(),
        txn,
        volume: *volume,
        half,
        objects: BTreeMap::new(),
        at: 0,
    };
    restore.all(chunk)?;
    let Restore { ranges, half, .. } = restore.end(after);
    snapshot.copied.ranges = ranges;
    snapshot.copied.half = Some(half);
    txn.changes.volumes.push((*volume, Some(snapshot)));
    // The partition counts the snapshot when it is there, not while it comes.
    txn.count_all(-txn.changes.objects_more, -txn.changes.bytes_more);
    Ok(Outcome::Done)
}

impl Restore<'_, '_> {
    fn all(&mut self, chunk: &StreamChunk) -> Result<(), Refusal> {
        for piece in &chunk.pieces {
            self.piece(piece)?;
        }
        match self.at == self.txn.context.data.len() {
            true => Ok(()),
            false => Err(Refusal::Invalid),
        }
    }

    fn end(mut self, after: &Blob) -> Self {
        for (vnode, object) in std::mem::take(&mut self.objects) {
            let fid = self.fid(vnode);
            self.txn.changes.objects.push((fid, object));
        }
        self.half.receiving.chunks += 1;
        self.half.receiving.after = after.clone();
        self
    }

    fn fid(&self, vnode: u64) -> Fid {
        Fid {
            vnode,
            ..Fid::root(self.volume)
        }
    }

    fn piece(&mut self, piece: &StreamPiece) -> Result<(), Refusal> {
        match piece {
            StreamPiece::Object { .. } => self.object(piece),
            StreamPiece::Gone { vnode } => self.gone(*vnode),
            StreamPiece::Place {
                dir,
                position,
                child,
            } => self.place(*dir, *position, child.as_ref()),
            StreamPiece::Xattr { vnode, name, value } => {
                let value = value.as_ref().map(|value| value.0.clone());
                self.xattr(*vnode, name, value)
            }
            StreamPiece::Target { vnode, target } => self.target(*vnode, &target.0),
            StreamPiece::Bytes {
                vnode,
                offset,
                len,
                inline,
            } => self.bytes(*vnode, (*offset, *len), *inline),
            StreamPiece::Hole { vnode, from, to } => {
                let (vnode, mut object) = self.file(*vnode)?;
                self.punch(vnode, &mut object, (*from, *to))?;
                self.punch_inline(vnode, &mut object, (*from, *to))?;
                self.objects.insert(vnode, Some(object));
                Ok(())
            }
        }
    }

    /// The target of a link, or the name of the volume behind a mount point.
    fn target(&mut self, vnode: u64, target: &[u8]) -> Result<(), Refusal> {
        let (vnode, mut object) = self.known(vnode)?;
        match object.attr.kind {
            Kind::Symlink if object.attr.size == target.len() as u64 => {
                self.txn.put(key::target(self.fid(vnode)), target.to_vec());
            }
            Kind::Mount if self.release.is_some() => {}
            Kind::Mount => object.attr.rdev = self.txn.index.volumes.named_in_stream(target),
            _ => return Err(Refusal::Invalid),
        }
        self.objects.insert(vnode, Some(object));
        Ok(())
    }

    /// An object as it is by now, whatever its number at the sender.
    fn now(&self, vnode: u64) -> Result<Option<Object>, Refusal> {
        match self.objects.get(&vnode) {
            Some(object) => Ok(object.clone()),
            None => self.txn.index.object(self.fid(vnode)).map_err(trouble),
        }
    }

    /// One that must be there: its number, and itself.
    fn known(&mut self, vnode: u64) -> Result<(u64, Object), Refusal> {
        let vnode = self.number(vnode)?;
        let object = self.now(vnode)?.ok_or(Refusal::Invalid)?;
        Ok((vnode, object))
    }

    fn file(&mut self, vnode: u64) -> Result<(u64, Object), Refusal> {
        let (vnode, object) = self.known(vnode)?;
        match object.attr.kind {
            Kind::File => Ok((vnode, object)),
            _ => Err(Refusal::Invalid),
        }
    }

    /// A value as it is by now.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Refusal> {
        match self.txn.changes.puts.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.txn.get(key),
        }
    }

    fn object(&mut self, piece: &StreamPiece) -> Result<(), Refusal> {
        let StreamPiece::Object {
            vnode,
            uniq,
            attr,
            parent,
            home,
            next_position,
            inline,
        } = piece
        else {
            return Err(Refusal::Invalid);
        };
        let (vnode, parent) = (self.number(*vnode)?, self.number(*parent)?);
        if vnode == 0 || (vnode == Fid::root(0).vnode && attr.kind != Kind::Directory) {
            return Err(Refusal::Invalid);
        }
        let old = self.now(vnode)?;
        if old.as_ref().is_some_and(|old| old.attr.kind != attr.kind) {
            return Err(Refusal::Invalid);
        }
        let mut object = match old {
            Some(old) => Object {
                attr: Attr {
                    used_bytes: old.attr.used_bytes,
                    // A client must notice that its copy of an older version is old.
                    version: attr.version.max(old.attr.version + 1),
                    ..attr.clone()
                },
                ..old
            },
            None => {
                self.txn.changes.objects_more += 1;
                let mut object = Object::new(attr.clone());
                object.attr.used_bytes = 0;
                if attr.kind == Kind::Symlink {
                    object.attr.used_bytes = attr.used_bytes;
                    self.txn.changes.bytes_more += attr.size as i64;
                }
                object
            }
        };
        if attr.kind == Kind::Mount && self.release.is_none() {
            // The volumes of the sender have other numbers: a piece with the name follows. A
            // replica is in the cell of its source.
            object.attr.rdev = 0;
        }
        self.note_name((vnode, &mut object), (parent, *home))?;
        object.uniq = *uniq;
        object.next_position = self.next_position(attr, *next_position);
        if object.inline > *inline {
            // The bytes it had there before are gone, or come from elsewhere.
            let mut bytes = self.inline(vnode, &object)?;
            bytes.truncate(*inline as usize);
            self.put_inline(vnode, &mut object, bytes);
        }
        self.objects.insert(vnode, Some(object));
        Ok(())
    }

    /// Most of what it had is gone by pieces of its own.
    fn gone(&mut self, vnode: u64) -> Result<(), Refusal> {
        let (vnode, mut object) = self.known(vnode)?;
        let fid = self.fid(vnode);
        if object.attr.kind == Kind::File {
            self.punch(vnode, &mut object, (0, u64::MAX))?;
            self.put_inline(vnode, &mut object, Vec::new());
        }
        if object.attr.kind == Kind::Symlink {
            self.txn.changes.bytes_more -= object.attr.size as i64;
            self.txn.remove(key::target(fid));
        }
        for kind in [key::NAME, key::POSITION, key::XATTR, key::LINK] {
            let (from, to) = key::range(fid, kind);
            for key in self.keys((from, to))? {
                self.txn.remove(key);
            }
        }
        self.txn.changes.objects_more -= 1;
        self.objects.insert(vnode, None);
        Ok(())
    }

    /// The keys of a range that are there by now.
    fn keys(&self, (from, to): (Key, Key)) -> Result<Vec<Key>, Refusal> {
        let before = self.txn.all(from.clone(), &to)?;
        let mut keys: Vec<Key> = before.into_iter().map(|(key, _)| key).collect();
        let own = self.txn.changes.puts.range(from..to);
        for (key, value) in own {
            match value {
                Some(_) => keys.push(key.clone()),
                None => keys.retain(|of| of != key),
            }
        }
        Ok(keys)
    }

    fn place(&mut self, dir: u64, position: u64, child: Option<&Child>) -> Result<(), Refusal> {
        let (dir, mut object) = self.known(dir)?;
        if object.attr.kind != Kind::Directory {
            return Err(Refusal::Invalid);
        }
        let fid = self.fid(dir);
        let at = key::position(fid, position);
        let old: Option<Placed> = self.decoded(&at)?;
        if let Some(old) = &old {
            let of = self.fid(old.fid.vnode);
            self.drop_key(key::link(of, (fid, position)))?;
            let name = key::name(fid, old.name.as_bytes());
            let named: Option<Named> = self.decoded(&name)?;
            // Its name may have come to another position before.
            if named.is_some_and(|named| named.position == position) {
                self.txn.remove(name);
            }
        }
        match child {
            None => self.txn.remove(at),
            Some(child) => {
                let vnode = self.number(child.vnode)?;
                let named = Named {
                    fid: Fid {
                        vnode,
                        uniq: child.uniq,
                        ..fid
                    },
                    kind: child.kind,
                    position,
                };
                self.add_name(&named, (fid, position))?;
                self.txn.put_entry(fid, &child.name, &named);
            }
        }
        let more = i64::from(child.is_some()) - i64::from(old.is_some());
        object.entries = object.entries.saturating_add_signed(more);
        self.objects.insert(dir, Some(object));
        Ok(())
    }

    fn decoded<T: for<'d> serde::Deserialize<'d>>(&self, key: &Key) -> Result<Option<T>, Refusal> {
        match self.get(key)? {
            None => Ok(None),
            Some(bytes) => value::decode(&bytes).map(Some).ok_or(Refusal::Damaged),
        }
    }

    fn xattr(&mut self, vnode: u64, name: &[u8], value: Option<Vec<u8>>) -> Result<(), Refusal> {
        let (vnode, mut object) = self.known(vnode)?;
        let key = key::xattr(self.fid(vnode), name);
        let there = self.get(&key)?.is_some();
        let more = i32::from(value.is_some()) - i32::from(there);
        object.xattrs = object.xattrs.saturating_add_signed(more);
        if name == acl::ACCESS {
            object.acl = value.is_some();
        }
        match value {
            Some(value) => self.txn.put(key, value),
            None => self.txn.remove(key),
        }
        self.objects.insert(vnode, Some(object));
        Ok(())
    }

    fn bytes(
        &mut self,
        vnode: u64,
        (offset, len): (u64, u32),
        inline: bool,
    ) -> Result<(), Refusal> {
        let (vnode, mut object) = self.file(vnode)?;
        let end = offset + u64::from(len);
        let data = self.txn.context.data;
        let data = data
            .get(self.at..self.at + len as usize)
            .ok_or(Refusal::Invalid)?;
        let begin = self.at as u32;
        self.at += len as usize;
        if len == 0 || end > object.attr.size {
            return Err(Refusal::Invalid);
        }
        self.punch(vnode, &mut object, (offset, end))?;
        let small = object.attr.size <= u64::from(self.txn.context.inline_bytes);
        let follows = offset <= u64::from(object.inline);
        if inline && small && follows && object.extents == 0 {
            let mut bytes = self.inline(vnode, &object)?;
            if bytes.len() < end as usize {
                bytes.resize(end as usize, 0);
            }
            bytes[offset as usize..end as usize].copy_from_slice(data);
            self.put_inline(vnode, &mut object, bytes);
        } else {
            if offset < u64::from(object.inline) && u64::from(object.inline) <= end {
                self.punch_inline(vnode, &mut object, (offset, end))?;
            }
            let fid = self.fid(vnode);
            let (context, place) = (self.txn.context, self.txn.context.place);
            let all = context.data.len() as u32;
            let whole = Extent::whole(
                place.segment,
                place.offset as u32,
                all,
                context.checks.to_vec(),
            );
            let extent = whole.without_front(begin).first(len);
            self.txn.put_extent(fid, &mut object, offset, &extent);
            self.txn
                .note_borrower(extent.segment, fid, offset, u64::from(len))?;
        }
        self.objects.insert(vnode, Some(object));
        Ok(())
    }

    fn inline(&self, vnode: u64, object: &Object) -> Result<Vec<u8>, Refusal> {
        match object.inline {
            0 => Ok(Vec::new()),
            _ => self
                .get(&key::inline(self.fid(vnode)))?
                .ok_or(Refusal::Damaged),
        }
    }

    fn put_inline(&mut self, vnode: u64, object: &mut Object, bytes: Vec<u8>) {
        put_inline(self.txn, self.fid(vnode), object, bytes);
    }

    /// Takes a part out of the bytes that lie in the index: zeros, where others follow.
    fn punch_inline(
        &mut self,
        vnode: u64,
        object: &mut Object,
        (from, to): (u64, u64),
    ) -> Result<(), Refusal> {
        let inline = u64::from(object.inline);
        if from >= inline {
            return Ok(());
        }
        let mut bytes = self.inline(vnode, object)?;
        if to >= inline {
            bytes.truncate(from as usize);
        } else {
            bytes[from as usize..to as usize].fill(0);
        }
        self.put_inline(vnode, object, bytes);
        Ok(())
    }

    /// Takes a part out of the extents of a file.
    fn punch(
        &mut self,
        vnode: u64,
        object: &mut Object,
        (from, to): (u64, u64),
    ) -> Result<(), Refusal> {
        if object.extents == 0 || from >= to {
            return Ok(());
        }
        let fid = self.fid(vnode);
        for (begin, extent) in self.extents(fid, (from, to))? {
            let end = begin + u64::from(extent.len);
            self.drop_extent(fid, object, end, &extent)?;
            if begin < from {
                let head = extent.first((from - begin) as u32);
                self.txn.put_extent(fid, object, begin, &head);
            }
            if end > to {
                let tail = extent.without_front((to - begin) as u32);
                self.txn.put_extent(fid, object, to, &tail);
            }
        }
        Ok(())
    }

    /// The extents of a file, as they are by now, that overlap a part of it.
    fn extents(&self, fid: Fid, (from, to): (u64, u64)) -> Result<Vec<(u64, Extent)>, Refusal> {
        let puts = &self.txn.changes.puts;
        let mut all = extents_of(self.txn.index, fid, from, to)?;
        all.retain(|(begin, extent)| {
            !puts.contains_key(&key::extent(fid, begin + u64::from(extent.len)))
        });
        let detail = from.saturating_add(1).to_be_bytes();
        let (first, last) = key::range_from(fid, key::EXTENT, &detail);
        let own = puts.range(first..last);
        for (key, value) in own.filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            let end = key::parts(key).and_then(|parts| parts.number());
            let (Some(end), Some(extent)) = (end, Extent::decode(value)) else {
                return Err(Refusal::Damaged);
            };
            let begin = end.saturating_sub(u64::from(extent.len));
            if begin >= to {
                break;
            }
            all.push((begin, extent));
        }
        Ok(all)
    }

    fn drop_extent(
        &mut self,
        fid: Fid,
        object: &mut Object,
        end: u64,
        extent: &Extent,
    ) -> Result<(), Refusal> {
        let own = self.txn.changes.puts.contains_key(&key::extent(fid, end));
        self.txn.drop_extent_of(fid, object, (end, extent), own)
    }
}
