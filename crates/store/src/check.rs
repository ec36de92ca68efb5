//! Walks the whole index and proves what `docs/format.md` says of it: entries and objects name each
//! other, counts are right, extents do not overlap and their bytes have the right checksums.
//!
//! Nothing is changed. What is damaged is reported and passed over.

mod compare;

use crate::error::StoreError;
use crate::index::Index;
use crate::key::{self, Parts};
use crate::reading::read_extent;
use crate::report::{Damage, Report};
use crate::state::Core;
use crate::store::Store;
use crate::value::{self, Borrower, Extent, Named, Object, Placed};
use compare::{compare, compare_dir};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use wire::{Fid, Kind};

/// Where in the segments file bytes lie, and whose: what fsck found in the log.
pub(crate) type Places = BTreeMap<u32, Vec<(Range<u64>, Fid)>>;

/// What the keys of one object say.
#[derive(Debug, Default)]
struct Seen {
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
    /// Names that lead here.
    names: u32,
    /// One of them.
    home: (u64, u64),
    homes_found: bool,
}

/// Files that have bytes of a segment by copies, and in which part of them.
type Borrowers = HashMap<(u32, u64), Range<u64>>;

struct Walk<'a> {
    store: &'a Store,
    core: &'a Core,
    places: Option<&'a Places>,
    volume: u32,
    seen: HashMap<u64, Seen>,
    live: BTreeMap<u32, u64>,
    borrowers: Borrowers,
    /// Not everything could be read.
    partial: bool,
    report: Report,
}

impl Store {
    /// Checks everything: the index, and the bytes of all files. May run while the store is open.
    pub fn check(&self) -> Report {
        self.check_with(None)
    }

    pub(crate) fn check_with(&self, places: Option<&Places>) -> Report {
        let mut walk = Walk {
            store: self,
            core: &self.core,
            places,
            volume: self.core.index.counters.volume,
            seen: HashMap::new(),
            live: BTreeMap::new(),
            borrowers: Borrowers::new(),
            partial: false,
            report: Report::default(),
        };
        walk.keys();
        if !walk.partial {
            walk.objects();
            walk.reach();
            walk.counts();
        }
        walk.report
    }
}

impl Walk<'_> {
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
        self.report.damages.push(damage);
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

    /// Something could not be read: what was not seen is not known to be missing.
    fn unread(&mut self, error: &StoreError) {
        let what = error.to_string();
        self.partial = true;
        self.damage(Damage::Engine { what });
    }

    /// What the index has under a key, `Some(None)`: nothing, or something damaged, which is
    /// reported where it is met; `None`: the disk could not say.
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

    /// Reads every key of the partition and of its volume.
    fn keys(&mut self) {
        let ranges = [key::partition(), key::volume(self.volume)];
        for (mut from, to) in ranges {
            loop {
                let part = match self.index().scan_all(&from, &to, 1024) {
                    Ok(part) => part,
                    Err(error) => {
                        self.unread(&error);
                        break;
                    }
                };
                let Some((last, _)) = part.last() else {
                    break;
                };
                from = key::after(last);
                for (key, value) in part {
                    self.key(&key, value);
                }
            }
        }
    }

    fn key(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        let Some(parts) = key::parts(key) else {
            return self.damage(Damage::Entry {
                entry: format!("{key:02x?}"),
                what: "it is not a key".to_owned(),
            });
        };
        let Some(value) = value else {
            return self.entry_damage(parts, "its checksum is wrong");
        };
        if parts.volume == 0 {
            if parts.kind == key::SHARED && self.borrower(parts, &value).is_none() {
                self.entry_damage(parts, "it cannot be decoded");
            }
            return;
        }
        let sound = match parts.kind {
            key::OBJECT => self.object(parts, &value),
            key::NAME => self.name(parts, &value),
            key::POSITION => self.position(parts, &value),
            key::EXTENT => self.extent(parts, &value),
            key::ORPHAN => self.orphan(parts),
            _ => self.small(parts, &value),
        };
        if sound.is_none() {
            self.entry_damage(parts, "it cannot be decoded");
        }
    }

    fn borrower(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let borrower: Borrower = value::decode(value)?;
        let (segment, vnode) = (u32::try_from(parts.vnode).ok()?, parts.number()?);
        let range = borrower.from..borrower.to;
        (borrower.fid.vnode == vnode).then_some(())?;
        self.borrowers.insert((segment, vnode), range);
        Some(())
    }

    fn seen(&mut self, vnode: u64) -> &mut Seen {
        self.seen.entry(vnode).or_default()
    }

    fn object(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let object: Object = value::decode(value)?;
        self.report.objects += 1;
        self.seen(parts.vnode).object = Some(object);
        Some(())
    }

    fn name(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let entry: Named = value::decode(value)?;
        let dir = self.fid(parts.vnode);
        let key = key::position(dir, entry.position);
        let placed: Option<Option<Placed>> = self.known(self.index().get_as(&key));
        let agrees = placed.is_none_or(|placed| {
            placed.is_some_and(|placed| {
                placed.name.as_bytes() == parts.detail
                    && placed.fid == entry.fid
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
        let of = self.seen(parts.vnode);
        of.entries += 1;
        of.entry_bytes += parts.detail.len() as u64 + 24;
        of.subdirs += u32::from(entry.kind == Kind::Directory);
        let named = self.seen(entry.fid.vnode);
        named.names += 1;
        if !named.homes_found {
            named.home = (parts.vnode, entry.position);
            named.homes_found = true;
        }
        Some(())
    }

    fn position(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let placed: Placed = value::decode(value)?;
        let position = parts.number()?;
        let dir = self.fid(parts.vnode);
        let key = key::name(dir, placed.name.as_bytes());
        let entry: Option<Option<Named>> = self.known(self.index().get_as(&key));
        let elsewhere = entry.is_some_and(|entry| {
            entry.is_none_or(|entry| entry.position != position || entry.fid != placed.fid)
        });
        if elsewhere {
            let what = format!("position {position} has a name that is elsewhere");
            self.object_damage(parts.vnode, what);
        }
        let of = self.seen(parts.vnode);
        of.positions += 1;
        let next = of.object.as_ref().map(|object| object.next_position);
        if position == 0 || next.is_some_and(|next| position >= next) {
            self.object_damage(parts.vnode, "a position was never given");
        }
        Some(())
    }

    fn extent(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
        let extent = Extent::decode(value)?;
        let end = parts.number()?;
        let begin = end.checked_sub(u64::from(extent.len))?;
        let of = self.seen(parts.vnode);
        let overlaps = begin < of.end;
        of.extents += 1;
        of.end = end;
        of.used += u64::from(extent.len);
        if overlaps {
            self.object_damage(parts.vnode, "two of its extents overlap");
        }
        *self.live.entry(extent.segment).or_default() += u64::from(extent.stored);
        if let Some(what) = self.extent_damage(parts.vnode, (begin, end), &extent) {
            let file = self.core.describe(self.fid(parts.vnode));
            self.damage(Damage::Bytes {
                file,
                from: begin,
                to: end,
                what,
            });
        }
        Some(())
    }

    fn extent_damage(
        &self,
        vnode: u64,
        (begin, end): (u64, u64),
        extent: &Extent,
    ) -> Option<String> {
        let span =
            u64::from(extent.position)..u64::from(extent.position) + u64::from(extent.stored);
        if let Some(places) = self.places.and_then(|places| places.get(&extent.segment)) {
            let at = places.partition_point(|(place, _)| place.end < span.end);
            let inside = places.get(at).is_some_and(|(place, fid)| {
                let borrowed = self.borrowers.get(&(extent.segment, vnode));
                let borrows = |range: &Range<u64>| range.start <= begin && end <= range.end;
                let known = fid.vnode == vnode || borrowed.is_some_and(borrows);
                place.start <= span.start && span.end <= place.end && known
            });
            if !inside {
                return Some("no record of the file lies there in the log".to_owned());
            }
        }
        let mut bytes = vec![0; extent.len as usize];
        let read = read_extent(&self.store.log, extent, 0, &mut bytes);
        read.err().map(|error| error.to_string())
    }

    fn orphan(&mut self, parts: Parts<'_>) -> Option<()> {
        let vnode = parts.number()?;
        self.seen(vnode).orphan = true;
        let fid = self.fid(vnode);
        self.report.orphans.push(fid);
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

    /// Compares what objects say of themselves with what is there.
    fn objects(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        for (vnode, seen) in &seen {
            let Some(object) = &seen.object else {
                self.object_damage(*vnode, "there are index entries of it but not itself");
                continue;
            };
            if object.attr.kind != Kind::Directory {
                self.report.bytes += object.attr.used_bytes;
            }
            let mut wrong = Vec::new();
            compare(object, seen, &mut wrong);
            let root = Fid::root(self.volume).vnode == *vnode;
            if object.attr.kind == Kind::Directory {
                compare_dir(object, seen, root, &mut wrong);
            } else if object.attr.nlink != seen.names {
                wrong.push("it has another number of names than it says");
            }
            for what in wrong {
                self.object_damage(*vnode, what);
            }
        }
        self.seen = seen;
    }

    /// Every directory that has a name is below the root.
    fn reach(&mut self) {
        let mut good = BTreeSet::from([Fid::root(self.volume).vnode]);
        let mut lost = Vec::new();
        for (vnode, seen) in &self.seen {
            let dir = |seen: &Seen| {
                let object = seen.object.as_ref()?;
                let named = object.attr.kind == Kind::Directory && object.attr.nlink > 0;
                named.then_some(object.parent)
            };
            let mut path = Vec::new();
            let mut at = *vnode;
            let mut next = dir(seen);
            while let Some(parent) = next
                && !good.contains(&at)
                && !path.contains(&at)
            {
                path.push(at);
                at = parent;
                next = self.seen.get(&at).and_then(dir);
            }
            if good.contains(&at) {
                good.extend(path);
            } else if !path.is_empty() {
                lost.push(*vnode);
            }
        }
        for vnode in lost {
            self.object_damage(vnode, "the directory cannot be reached from the root");
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
        let top = self.seen.keys().max().copied().unwrap_or(0);
        if top >= counters.next_vnode {
            self.object_damage(top, "its number was never given");
        }
    }
}
