//! Listings of directories.
//!
//! The kernel caches a listing by itself, piece by piece, and believes it once it has been told the
//! end. It drops what it has when it is told to, but a piece on its way then comes in afterwards.
//! So each position carries the generation of the listing that it belongs to, the one behind `.`
//! and `..` too; every change of names begins a new generation, and a listing whose first piece
//! nothing vouches for has one of its own. At the end of a listing whose generation is not the
//! current one the kernel is made to drop its pieces before it is told the end.
//!
//! Names made while a listing goes on get positions behind all others. It ends at the position that
//! was the last one when it began: else a program that renames what it lists would list for ever.
//!
//! A listing in a replica that a release has overtaken goes on in the release in which it began:
//! no program sees names of two releases in one listing.

use crate::Ticket;
use crate::client::api::{Call, Done, Listed};
use crate::client::data::inline_data;
use crate::client::node::{GENERATION_SHIFT, Node, bare};
use crate::client::notices::Invalidate;
use crate::client::session::asked::Why;
use crate::client::{After, Client, Running, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{DirEntry, Fid, Hold, Op, Right, volume_numbers};

pub(crate) const POSITION: u64 = (1 << GENERATION_SHIFT) - 1;

/// A part of a listing.
pub(crate) struct ListingPart {
    pub(crate) entries: Vec<DirEntry>,
    /// Nothing follows.
    pub(crate) end: bool,
    /// The last position of the directory, with the release of a replica.
    pub(crate) last: u64,
    /// It is known under a token.
    pub(crate) vouched: bool,
}

impl Node {
    /// The directory of a replica as it was when a listing began that is to go on behind a
    /// position, if a release has changed it since.
    fn began_in(&self, dir: Fid, after: u64) -> Option<Fid> {
        let generation = after >> GENERATION_SHIFT;
        let release = self.release_of(generation);
        if after == 0 || release == 0 || generation == self.dir.generation {
            return None;
        }
        let volume = volume_numbers::release(dir.volume, release)?;
        Some(Fid { volume, ..dir })
    }
}

impl Client {
    pub(crate) fn list(&mut self, step: &mut Step<'_>, ticket: Ticket, running: Running) {
        let Call::List {
            dir, after, max, ..
        } = running.call
        else {
            return;
        };
        let node = self.node(dir);
        let over = after & POSITION >= node.last_of(after >> GENERATION_SHIFT);
        if after != 0 && (over || node.dir.end == Some(after)) {
            return self.end_listing(step, ticket, (dir, after));
        }
        let begun_in = self.node(dir).began_in(dir, after);
        if begun_in.is_none() && self.list_here(step, ticket, &running) {
            return;
        }
        if after == 0 && self.node(dir).token.right == Right::Exclusive {
            self.missed_name(step, dir, &running.caller);
        }
        let max = max.clamp(1, wire::limits::DIR_ENTRIES as u32);
        let dir = begun_in.unwrap_or(dir);
        let node = self.node(dir);
        let op = Op::ReadDir {
            dir,
            after: after & POSITION,
            max,
        };
        node.dir.busy += 1;
        node.directory = true;
        self.request(
            step,
            (op, running.caller, Hold::default()),
            Vec::new(),
            Why::Call(ticket),
        );
    }

    /// Is it this directory that a call lists, and none of an earlier release?
    pub(crate) fn lists(&self, ticket: Ticket, of: Fid) -> bool {
        let running = self.callers.calls.get(&ticket);
        let call = running.map(|running| &running.call);
        matches!(call, Some(Call::List { dir, .. }) if *dir == of)
    }

    fn end_listing(&mut self, step: &mut Step<'_>, ticket: Ticket, (dir, after): (Fid, u64)) {
        let serves = self.serves();
        let node = self.node(dir);
        let believed = serves && node.lasting() && after >> GENERATION_SHIFT == node.dir.generation;
        let done = Done::Listing {
            start: 0,
            entries: Vec::new(),
        };
        if believed {
            self.finish(step, ticket, done);
        } else {
            self.invalidate(
                step,
                Invalidate::Listing { dir },
                After::Answer(ticket, done),
            );
        }
    }

    /// Entries have come. `vouched`: a grant came with them that no recall has overtaken.
    pub(crate) fn on_listed(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        part: ListingPart,
        (granted, bytes): (&BTreeSet<Fid>, u32),
    ) {
        let Some(Call::List { dir, after, .. }) = self.callers.calls.get(&ticket).map(|r| &r.call)
        else {
            return;
        };
        let (dir, after) = (*dir, *after & POSITION);
        let mut brought = inline_data::listed(&part.entries, bytes);
        let reach = inline_data::reach(&part.entries, part.end);
        let vouched = part.vouched;
        let known = |fid: Fid| vouched && granted.contains(&fid);
        if self.answer_listing(step, ticket, part, &known) {
            brought.retain(|brought| known(brought.fid));
            self.listed_bytes(step, (dir, after), brought, reach);
        }
    }

    /// Answers with a part of a listing. Attributes of what is `known` go with it. False if that
    /// was the end.
    pub(crate) fn answer_listing(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        part: ListingPart,
        known: &dyn Fn(Fid) -> bool,
    ) -> bool {
        let ListingPart {
            mut entries,
            end,
            last,
            vouched,
        } = part;
        let Some(Call::List {
            dir, after, plus, ..
        }) = self.callers.calls.get(&ticket).map(|r| &r.call)
        else {
            return false;
        };
        let (dir, after, plus) = (*dir, *after, *plus);
        // Near the end of the lease the kernel has dropped everything, and is to keep nothing.
        let keeps = plus && self.serves();
        let node = self.node(dir);
        if plus {
            node.kernel.is_told_attr(step.now);
        }
        if after == 0 && !vouched {
            // One of its own: it may be older than those that have begun.
            node.renew_listing();
        }
        let generation = match after {
            0 => node.dir.generation,
            after => after >> GENERATION_SHIFT,
        };
        if after == 0 {
            node.begin_listing(generation, last);
            if !vouched {
                node.renew_listing();
            }
        }
        let bound = node.last_of(generation);
        let all = entries.len();
        entries.retain(|entry| entry.position <= bound);
        let end = end || entries.len() < all;
        let position = |at: u64| (generation << GENERATION_SHIFT) | at;
        let start = position(0);
        if entries.is_empty() && after != 0 {
            self.end_listing(step, ticket, (dir, after));
            return false;
        }
        if end && generation == node.dir.generation {
            node.dir.end = Some(entries.last().map_or(start, |last| position(last.position)));
        }
        let listed = entries
            .into_iter()
            .map(|entry| {
                let position = position(entry.position);
                if keeps && known(entry.fid) && self.node(dir).dir.doubtful == 0 {
                    self.known_entry(step, dir, entry, position)
                } else {
                    bare(entry, position)
                }
            })
            .collect();
        let entries = listed;
        self.finish(step, ticket, Done::Listing { start, entries });
        true
    }

    fn known_entry(
        &mut self,
        step: &mut Step<'_>,
        dir: Fid,
        entry: DirEntry,
        position: u64,
    ) -> Listed {
        let fid = entry.fid;
        let node = self.node(fid);
        let Some(attr) = node.tellable().cloned() else {
            return bare(entry, position);
        };
        let lifetime = Self::lifetime(node.attr_lasting());
        node.is_in(dir);
        node.kernel.is_told(step.now);
        node.directory |= entry.kind == wire::Kind::Directory;
        if entry.bare {
            node.has_no_xattrs();
        }
        let node = self.node(dir);
        let news = !node.dir.names.contains_key(&entry.name);
        node.set_name(&entry.name, Some((fid, entry.kind)));
        node.stands(&entry);
        if news {
            self.count_name();
        }
        Listed {
            name: entry.name,
            fid,
            kind: entry.kind,
            position,
            known: Some((attr, lifetime)),
        }
    }
}
