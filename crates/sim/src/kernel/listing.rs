//! Listings: readdir(2) with attributes, and the kernel's cache of a directory's listing.
//!
//! A program that reads from the beginning fills the cache, entry by entry; it counts as complete
//! when an end was seen that follows the last entry cached. A notification drops its pages, and
//! nothing keeps an answer that was under way from being entered afterwards. The front puts `.` and
//! `..` before the entries of the first answer, so that a cached listing always has a page; behind
//! them the listing goes on where the client says that it begins.

use super::attrs::Began;
use super::{Kernel, Pin, Result, refused};
use crate::disk::Units;
use crate::history::Entry;
use crate::wrong::wrong;
use logic::client::{Call, Done, Lifetime, Listed};
use std::rc::Rc;
use wire::{Fid, Name, Time};

/// Entries and the position after each; `.` and `..` are one entry without a name.
type Part = Vec<(Option<(Name, Fid)>, u64)>;

/// The cache of a listing.
#[derive(Default)]
pub(super) struct Rdc {
    entries: Part,
    /// Position after the last entry; 0: nothing is cached, not even `.` and `..`.
    position: u64,
    complete: bool,
    page: bool,
    mtime: Time,
    iversion: u64,
}

impl Rdc {
    /// A notification drops its pages.
    pub(super) fn drop_page(&mut self) {
        self.page = false;
    }

    fn add(&mut self, at: u64, after: u64, entry: Option<(Name, Fid)>) {
        if self.complete || self.position != at {
            return;
        }
        if self.position == 0 {
            self.page = true;
        } else if !self.page {
            return;
        }
        self.entries.push((entry, after));
        self.position = after;
    }
}

impl Kernel {
    /// Lists a directory from the beginning to the end, with one getdents(2) after the other.
    pub(crate) async fn list(self: &Rc<Self>, dir: &Pin, max: u32) -> Result<Vec<(Name, Fid)>> {
        let mut all = Vec::new();
        let mut at = 0;
        loop {
            let part = self.getdents(dir, at, max).await?;
            let Some(&(.., last)) = part.last() else {
                return Ok(all);
            };
            at = last;
            let named = part.into_iter().filter_map(|(entry, _)| entry);
            all.extend(named);
            if all.len() > 10_000 {
                self.world
                    .fail(wrong!("the listing of {} has no end", dir.fid()));
                return Ok(all);
            }
        }
    }

    /// Entries after a position and the position after each; none at the end. `.` and `..` are one
    /// entry without a name.
    async fn getdents(self: &Rc<Self>, dir: &Pin, at: u64, max: u32) -> Result<Part> {
        let _shared = dir.inode.lock.lock(&self.world.sched, false).await;
        if let Some(entries) = self.listing_cached(dir, at) {
            return Ok(entries);
        }
        let began = self.began();
        let call = Call::List {
            dir: dir.fid(),
            after: at,
            max,
            plus: true,
        };
        let reply = self.ask(call, Units::new()).await;
        let Done::Listing { start, entries } = &reply.done else {
            return refused(&self.world, &reply);
        };
        let rdc = || dir.inode.rdc.borrow_mut();
        let mut part = Vec::new();
        let mut at = at;
        if at == 0 {
            rdc().add(0, *start, None);
            part.push((None, *start));
            at = *start;
        } else if entries.is_empty() {
            let mut rdc = rdc();
            rdc.complete |= rdc.position == at;
        }
        for entry in entries {
            let named = (entry.name.clone(), entry.fid);
            self.world.history.listed.borrow_mut().push(Entry {
                dir: dir.fid(),
                name: entry.name.clone(),
                fid: entry.fid,
                position: entry.position,
            });
            rdc().add(at, entry.position, Some(named.clone()));
            at = entry.position;
            part.push((Some(named), at));
            self.link_entry(dir, entry, began).await;
        }
        Ok(part)
    }

    fn listing_cached(&self, dir: &Pin, at: u64) -> Option<Part> {
        let mut rdc = dir.inode.rdc.borrow_mut();
        let mtime = dir.inode.attr.borrow().mtime;
        let iversion = dir.inode.iversion.get();
        if rdc.complete {
            let same = at != 0 || (rdc.iversion == iversion && rdc.mtime == mtime);
            if same && rdc.position == at {
                return Some(Vec::new());
            }
            if same && rdc.page {
                return rdc.from(at);
            }
            *rdc = Rdc::default();
        }
        if at == 0 && rdc.position == 0 {
            (rdc.mtime, rdc.iversion) = (mtime, iversion);
        }
        None
    }

    /// An entry with attributes is a look-up as well. The kernel takes the epoch of this moment,
    /// not that of the question.
    async fn link_entry(self: &Rc<Self>, dir: &Pin, entry: &Listed, began: Began) {
        let Some((attr, lifetime)) = &entry.known else {
            return;
        };
        let epoch = self.epoch.get();
        let pin = self.iget(entry.fid, (attr, *lifetime), began).await;
        let key = (dir.fid(), entry.name.clone());
        let same = |d: &super::Dentry| d.target == Some(entry.fid);
        let known = self.dentries.borrow().get(&key).is_some_and(same);
        if known {
            if let Some(dentry) = self.dentries.borrow_mut().get_mut(&key) {
                dentry.valid = true;
                dentry.epoch = epoch;
            }
        } else if self.may_come_to(&pin, dir.fid()) {
            self.enter(
                dir.fid(),
                &entry.name,
                Some(&pin),
                (Lifetime::Forever, epoch),
            );
        }
    }
}

impl Rdc {
    fn from(&self, at: u64) -> Option<Part> {
        let skip = match at {
            0 => 0,
            at => self.entries.iter().position(|entry| entry.1 == at)? + 1,
        };
        Some(self.entries[skip..].to_vec())
    }
}
