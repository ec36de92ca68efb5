//! One view (a volume, clone or snapshot) by itself: each damage in it is told, object by object.
//! The survey ([`super::survey`]) chooses the views.

use super::compare::{compare, compare_dir};
use super::names::Names;
use super::versions::bytes_of;
use super::{Stopped, Walk};
use crate::key::{self, Key, Parts};
use crate::report::Damage;
use crate::value::{self, Borrower, Extent, Named, Object, Placed};
use wire::Kind;

/// The content of one object's keys.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) vnode: u64,
    pub(super) object: Option<Object>,
    pub(super) entries: u64,
    pub(super) entry_bytes: u64,
    pub(super) subdirs: u32,
    pub(super) positions: u64,
    pub(super) extents: u64,
    /// Where the last extent ends.
    pub(super) end: u64,
    pub(super) used: u64,
    pub(super) inline: Option<u64>,
    pub(super) target: Option<u64>,
    pub(super) xattrs: u32,
    pub(super) acl: bool,
    pub(super) orphan: bool,
}

impl Walk<'_> {
    /// Goes through a view, as often as its objects need, and says what is wrong there. Returns its
    /// objects and bytes.
    pub(super) fn view(&mut self, volume: u32) -> Result<(u64, u64), Stopped> {
        let elsewhere = std::mem::take(&mut self.partial);
        self.volume = volume;
        self.found = (0, 0);
        for round in 0..self.rounds {
            self.round = round;
            self.range(key::volume(volume))?;
            self.finish();
            if !self.partial {
                self.compare_names();
            }
        }
        self.round = 0;
        self.names = Names::default();
        self.partial |= elsewhere;
        Ok(self.found)
    }

    /// Reads the things of a range.
    pub(super) fn range(&mut self, (mut from, to): (Key, Key)) -> Result<(), Stopped> {
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
            (_, key::EXTENT) => self.extent(parts, &value),
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
    pub(super) fn seen(&mut self, vnode: u64) -> &mut Seen {
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
            self.suspect(entry.fid.vnode);
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

    fn extent(&mut self, parts: Parts<'_>, value: &[u8]) -> Option<()> {
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
        Some(())
    }

    fn orphan(&mut self, parts: Parts<'_>) -> Option<()> {
        let fid = self.fid(parts.number()?);
        if self.is_first() {
            let found = self.known(self.index().object(fid));
            if matches!(found, Some(None)) {
                self.suspect(fid.vnode);
                self.object_damage(fid.vnode, "it is listed as nameless and does not exist");
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
        self.found.0 += 1;
        if object.attr.kind != Kind::Directory {
            self.found.1 = self.found.1.wrapping_add(object.attr.used_bytes);
        }
        let orphan = self.index().get(&key::orphan(self.fid(seen.vnode)));
        seen.orphan = match self.known(orphan) {
            Some(orphan) => orphan.is_some(),
            None => object.attr.nlink == 0,
        };
        if seen.orphan != (object.attr.nlink == 0) {
            self.suspect(seen.vnode);
        }
        let mut wrong = Vec::new();
        compare(&object, &seen, &mut wrong);
        if object.attr.kind == Kind::Directory {
            compare_dir(&object, &seen, &mut wrong);
        }
        for what in wrong {
            self.object_damage(seen.vnode, what);
        }
    }
}

/// Is it the note of a segment's borrower?
fn borrower(parts: Parts<'_>, value: &[u8]) -> Option<()> {
    let borrower: Borrower = value::decode(value)?;
    (borrower.fid.vnode == parts.number()?).then_some(())
}
