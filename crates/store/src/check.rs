//! Walks the whole index and proves what `docs/format.md` says of it: entries and objects name each
//! other, counts are right, extents do not overlap and their bytes have the right checksums; and
//! that the index could be made again.
//!
//! Nothing is changed. Damage is reported and passed over. Memory is bounded however large
//! the tree is: the keys of an object lie together, and keys that do not (names and what they name,
//! extents and the records they lie in) are compared in several rounds over all keys, each of them
//! for a part of the objects and of the log.

mod compare;
mod names;
mod places;
mod versions;

use crate::error::StoreError;
use crate::image::Image;
use crate::index::Index;
use crate::key::{self, Key, Parts};
use crate::log::Place;
use crate::report::{Damage, Report};
use crate::segments::{Bytes, Segments};
use crate::state::Core;
use crate::value::{self, Borrower, Extent, Named, Object, Placed};
use compare::{compare, compare_dir};
use names::Names;
use places::Places;
use std::collections::{BTreeMap, BTreeSet};
use versions::bytes_of;
use wire::{Fid, Kind};

/// The content of one object's keys.
#[derive(Debug, Default)]
struct Seen {
    vnode: u64,
    object: Option<Object>,
    entries: u64,
    entry_bytes: u64,
    subdirs: u32,
    positions: u64,
    extents: u64,
    /// Where the last extent ends.
    end: u64,
    used: u64,
    inline: Option<u64>,
    target: Option<u64>,
    xattrs: u32,
    acl: bool,
    orphan: bool,
}

/// How much is in memory at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Objects that are compared with their names.
    pub(crate) objects: u64,
    /// Records that extents are compared with.
    pub(crate) records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            objects: 512 << 10,
            records: 1 << 20,
        }
    }
}

/// The log of a partition that is checked.
pub(crate) struct Logged<'a> {
    pub(crate) segments: &'a Segments,
    /// Later records are not looked at.
    pub(crate) end: Place,
    /// The image of the index, if there is one.
    pub(crate) image: Option<&'a Image>,
    /// The index is a file, so there has to be one if the log is not whole.
    pub(crate) needs_image: bool,
}

/// Called with how many bytes were looked at; says whether to go on.
pub(crate) type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Ends a check that was told to.
struct Stopped;

/// A check under way.
struct Walk<'a> {
    bytes: &'a dyn Bytes,
    core: &'a Core,
    pace: Pace<'a>,
    /// How often all keys have been read, and will be for the names.
    round: u64,
    rounds: u64,
    names: Names,
    places: Places<'a>,
    /// The object whose keys are being read.
    current: Option<Seen>,
    volume: u32,
    live: BTreeMap<u32, u64>,
    /// Not everything could be read.
    partial: bool,
    report: Report,
}

/// Checks an index, the bytes that it names, and the log if there is one. `None`: it was stopped.
pub(crate) fn check(
    core: &Core,
    bytes: &dyn Bytes,
    log: Option<Logged<'_>>,
    (limits, pace): (Limits, Pace<'_>),
) -> Option<Report> {
    let counters = &core.index.counters;
    let volumes = &core.index.volumes;
    let most = volumes.iter().map(|(_, volume)| volume.objects).max();
    let most = most.unwrap_or(0);
    let mut walk = Walk {
        bytes,
        core,
        pace,
        round: 0,
        rounds: most / limits.objects.max(1) + 1,
        names: Names::default(),
        places: Places::new(log, limits.records),
        current: None,
        volume: counters.volume,
        live: BTreeMap::new(),
        partial: false,
        report: Report::default(),
    };
    walk.run().ok()?;
    Some(walk.report)
}

impl<'a> Walk<'a> {
    fn run(&mut self) -> Result<(), Stopped> {
        self.image()?;
        loop {
            self.load_places()?;
            self.keys()?;
            self.round += 1;
            if self.round >= self.rounds && self.places.is_done() {
                break;
            }
        }
        if !self.partial {
            self.counts();
        }
        Ok(())
    }

    /// In the first round all is looked at that is not divided into rounds.
    fn is_first(&self) -> bool {
        self.round == 0
    }

    fn went_on(&mut self, bytes: u64) -> Result<(), Stopped> {
        match (self.pace)(bytes) {
            true => Ok(()),
            false => Err(Stopped),
        }
    }

    fn index(&self) -> &Index {
        &self.core.index
    }

    fn fid(&self, vnode: u64) -> Fid {
        Fid {
            volume: self.volume,
            vnode,
            uniq: 1,
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.report.add(damage);
    }

    fn object_damage(&mut self, vnode: u64, what: impl Into<String>) {
        let file = self.core.describe(self.fid(vnode));
        self.damage(Damage::Object {
            file,
            what: what.into(),
        });
    }

    fn entry_damage(&mut self, parts: Parts<'_>, what: &str) {
        let file = self.core.describe(self.fid(parts.vnode));
        self.damage(Damage::Entry {
            entry: format!("of kind {} of {file}", parts.kind),
            what: what.to_owned(),
        });
    }

    /// Something could not be read: objects that were not seen are not known to be missing.
    fn unread(&mut self, error: &StoreError) {
        let what = error.to_string();
        self.partial = true;
        self.damage(Damage::Engine { what });
    }

    /// The value of a key in the index; `Some(None)`: none, or a damaged one, which is reported
    /// where it is met; `None`: the disk could not say.
    fn known<T>(&mut self, got: Result<Option<T>, StoreError>) -> Option<Option<T>> {
        match got {
            Ok(found) => Some(found),
            Err(StoreError::Damaged(_)) => Some(None),
            Err(error) => {
                self.unread(&error);
                None
            }
        }
    }

    /// Reads every key of the partition, all that each volume sees, and all versions.
    fn keys(&mut self) -> Result<(), Stopped> {
        self.range(key::partition())?;
        for volume in self.seen_volumes() {
            self.volume = volume;
            let before = (self.report.objects, self.report.bytes);
            self.range(key::volume(volume))?;
            self.finish();
            if !self.partial {
                self.compare_names();
                self.compare_counts(before);
            }
        }
        match self.index().volumes.is_plain() {
            true => Ok(()),
            false => self.all_versions(),
        }
    }

    /// Reads the things of a range.
    fn range(&mut self, (mut from, to): (Key, Key)) -> Result<(), Stopped> {
        loop {
            let part = match self.index().scan_all(&from, &to, 256) {
                Ok(part) => part,
                Err(error) => {
                    self.unread(&error);
                    return Ok(());
                }
            };
            let Some((last, _)) = part.last() else {
                return Ok(());
            };
            from = key::after(last);
            self.went_on(bytes_of(&part))?;
            for (key, value) in part {
                self.key(&key, value)?;
            }
        }
    }

    fn key(&mut self, key: &[u8], value: Option<Vec<u8>>) -> Result<(), Stopped> {
        let first = self.is_first();
        let Some(parts) = key::parts(key) else {
            if first {
                self.damage(Damage::Entry {
                    entry: format!("{key:02x?}"),
                    what: "it is not a key".to_owned(),
                });
            }
            return Ok(());
        };
        let Some(value) = value else {
            if first {
                self.entry_damage(parts, "its checksum is wrong");
            }
            return Ok(());
        };
        let sound = match (parts.volume, parts.kind) {
            (0, key::SHARED) => borrower(parts, &value),
            (0, _) => Some(()),
            (_, key::OBJECT) => self.object(parts, &value),
            (_, key::NAME) => self.name(parts, &value),
            (_, key::POSITION) => self.position(parts, &value),
            (_, key::EXTENT) => match self.extent(parts, &value) {
                Some(len) => Some(self.went_on(len)?),
                None => None,
            },
            (_, key::LINK) => self.link(parts),
            (_, key::ORPHAN) => self.orphan(parts),
            (_, key::BORN) => key::told_born(parts.detail).map(|_| ()),
            _ => self.small(parts, &value),
        };
        if sound.is_none() && first {
            self.entry_damage(parts, "it cannot be decoded");
        }
        Ok(())
    }

    /// The object whose keys are being read.
    fn seen(&mut self, vnode: u64) -> &mut Seen {
        if self
            .current
            .as_ref()
            .is_some_and(|seen| seen.vnode != vnode)
        {
            self.finish();
        }
        self.current.get_or_insert_with(|| Seen {
            vnode,
            ..Seen::default()
        })
    }

    fn object(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let object: Object = value::decode(value)?;
        self.seen(parts.vnode).object = Some(object);
        Some(())
    }

    fn name(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let entry: Named = value::decode(value)?;
        let entry = entry.within(self.volume);
        let dir = self.fid(parts.vnode);
        let of = self.seen(parts.vnode);
        of.entries += 1;
        of.entry_bytes += parts.detail.len() as u64 + 24;
        of.subdirs += u32::from(entry.kind.looks_like_directory());
        if self.is_of_round(entry.fid.vnode) {
            self.names
                .name(entry.fid.vnode, (parts.vnode, entry.position));
        }
        if !self.is_first() {
            return Some(());
        }
        let key = key::position(dir, entry.position);
        let placed: Option<Option<Placed>> = self.known(self.index().get_as(&key));
        let agrees = placed.is_none_or(|placed| {
            placed.is_some_and(|placed| {
                placed.name.as_bytes() == parts.detail
                    && placed.fid.vnode == entry.fid.vnode
                    && placed.fid.uniq == entry.fid.uniq
                    && placed.kind == entry.kind
            })
        });
        let there = self.known(self.index().object(entry.fid));
        let there = there.is_none_or(|object| {
            object.is_some_and(|object| {
                object.uniq == entry.fid.uniq && object.attr.kind == entry.kind
            })
        });
        let name = String::from_utf8_lossy(parts.detail).into_owned();
        if !agrees {
            self.object_damage(parts.vnode, format!("{name} is not at its position"));
        }
        if !there {
            self.object_damage(parts.vnode, format!("{name} names nothing of its kind"));
        }
        Some(())
    }

    fn position(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let placed: Placed = value::decode(value)?;
        let position = parts.number()?;
        let dir = self.fid(parts.vnode);
        let of = self.seen(parts.vnode);
        of.positions += 1;
        let next = of.object.as_ref().map(|object| object.next_position);
        if !self.is_first() {
            return Some(());
        }
        if position == 0 || next.is_some_and(|next| position >= next) {
            self.object_damage(parts.vnode, "a position was never given");
        }
        let key = key::name(dir, placed.name.as_bytes());
        let entry: Option<Option<Named>> = self.known(self.index().get_as(&key));
        let elsewhere = entry.is_some_and(|entry| {
            entry.is_none_or(|entry| {
                entry.position != position || entry.fid.vnode != placed.fid.vnode
            })
        });
        if elsewhere {
            let what = format!("position {position} has a name that is elsewhere");
            self.object_damage(parts.vnode, what);
        }
        Some(())
    }

    /// How many bytes of it were read.
    fn extent(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<u64> {
        let extent = Extent::decode(value)?;
        let end = parts.number()?;
        let begin = end.checked_sub(u64::from(extent.len))?;
        let of = self.seen(parts.vnode);
        let overlaps = begin < of.end;
        of.extents += 1;
        of.end = end;
        of.used += u64::from(extent.len);
        if self.is_first() && overlaps {
            self.object_damage(parts.vnode, "two of its extents overlap");
        }
        match self.index().volumes.is_plain() {
            true => Some(self.extent_bytes(parts.vnode, (begin, end), &extent)),
            // Versions share extents: each is looked at by itself.
            false => Some(0),
        }
    }

    fn orphan(&mut self, parts: Parts<'_>) -> Option<()> {
        let fid = self.fid(parts.number()?);
        if self.is_first() {
            let found = self.known(self.index().object(fid));
            if matches!(found, Some(None)) {
                self.object_damage(fid.vnode, "it is listed as nameless and does not exist");
            }
            if !self.index().volumes.is_frozen(self.volume) {
                self.report.orphans.push(fid);
            }
        }
        Some(())
    }

    fn small(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let len = value.len() as u64;
        let of = self.seen(parts.vnode);
        match parts.kind {
            key::INLINE => {
                of.inline = Some(len);
                of.used += len;
            }
            key::TARGET => of.target = Some(len),
            key::XATTR => {
                of.xattrs += 1;
                of.acl |= parts.detail == crate::acl::ACCESS;
            }
            _ => return None,
        }
        Some(())
    }

    /// All keys of an object have been read: compares what it says of itself with what is there.
    fn finish(&mut self) {
        let Some(mut seen) = self.current.take() else {
            return;
        };
        let Some(object) = seen.object.take() else {
            if self.is_first() {
                self.object_damage(seen.vnode, "there are index entries of it but not itself");
            }
            return;
        };
        if self.is_of_round(seen.vnode) {
            self.names.object(seen.vnode, &object);
        }
        if !self.is_first() {
            return;
        }
        self.report.objects += 1;
        self.note_number(seen.vnode);
        if object.attr.kind != Kind::Directory {
            self.report.bytes += object.attr.used_bytes;
        }
        let orphan = self.index().get(&key::orphan(self.fid(seen.vnode)));
        seen.orphan = match self.known(orphan) {
            Some(orphan) => orphan.is_some(),
            None => object.attr.nlink == 0,
        };
        let mut wrong = Vec::new();
        compare(&object, &seen, &mut wrong);
        if object.attr.kind == Kind::Directory {
            compare_dir(&object, &seen, &mut wrong);
        }
        for what in wrong {
            self.object_damage(seen.vnode, what);
        }
    }

    fn counts(&mut self) {
        let counters = self.index().counters.clone();
        let mut counts = vec![
            ("objects".to_owned(), counters.objects, self.report.objects),
            ("bytes".to_owned(), counters.bytes, self.report.bytes),
        ];
        let kept = self.index().live();
        for segment in kept.keys().chain(self.live.keys()).collect::<BTreeSet<_>>() {
            let name = crate::log::segment_name(*segment);
            let of = |live: &BTreeMap<u32, u64>| live.get(segment).copied().unwrap_or(0);
            counts.push((format!("bytes in use of {name}"), of(kept), of(&self.live)));
        }
        for (name, kept, found) in counts {
            if kept != found {
                self.damage(Damage::Count { name, kept, found });
            }
        }
        let top = self.report.top;
        if top >= counters.next_vnode {
            self.object_damage(top, "its number was never given");
        }
    }
}

/// Is it the note of a segment's borrower?
fn borrower(parts: Parts<'_>, value: &[u8]) -> Option<()> {
    let borrower: Borrower = value::decode(value)?;
    (borrower.fid.vnode == parts.number()?).then_some(())
}
