//! Listings of directories.
//!
//! The kernel caches a listing by itself, piece by piece, and believes it once it has been told the
//! end. It drops what it has when it is told to, but a piece on its way then comes in afterwards.
//! So each position carries the generation of the listing that it belongs to; every change of names
//! begins a new generation, and at the end of a listing whose generation is not the current one the
//! kernel is made to drop its pieces before it is told the end.

use super::api::{Call, Done, Invalidate, Listed};
use super::node::{DOUBTFUL, GENERATION_SHIFT, bare};
use super::session::Why;
use super::{After, Client, Running, Step};
use crate::Ticket;
use alloc::vec::Vec;
use wire::{DirEntry, Fid, Hold, Op};

const POSITION: u64 = (1 << GENERATION_SHIFT) - 1;

impl Client {
    pub(super) fn list(&mut self, step: &mut Step<'_>, ticket: Ticket, running: Running) {
        let Call::List {
            dir, after, max, ..
        } = running.call
        else {
            return;
        };
        let node = self.node(dir);
        if after != 0 && node.end == Some(after) {
            return self.end_listing(step, ticket, (dir, after));
        }
        let max = max.clamp(1, wire::limits::DIR_ENTRIES as u32);
        let op = Op::ReadDir {
            dir,
            after: after & POSITION,
            max,
        };
        node.busy += 1;
        node.directory = true;
        self.request(
            step,
            (op, running.caller, Hold::default()),
            Vec::new(),
            Why::Call(ticket),
        );
    }

    fn end_listing(&mut self, step: &mut Step<'_>, ticket: Ticket, (dir, after): (Fid, u64)) {
        let node = self.node(dir);
        let believed = node.lasting() && after >> GENERATION_SHIFT == node.generation;
        let done = Done::Listing {
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
    pub(super) fn on_listed(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (entries, end): (Vec<DirEntry>, bool),
        (vouched, granted): (bool, Vec<Fid>),
    ) {
        let Some(Call::List {
            dir, after, plus, ..
        }) = self.calls.get(&ticket).map(|r| &r.call)
        else {
            return;
        };
        let (dir, after, plus) = (*dir, *after, *plus);
        let node = self.node(dir);
        if plus {
            (node.listed, node.asked) = (step.now, step.now);
        }
        let generation = match after {
            0 if vouched => node.generation,
            0 => DOUBTFUL,
            after => after >> GENERATION_SHIFT,
        };
        let position = |at: u64| (generation << GENERATION_SHIFT) | at;
        if entries.is_empty() {
            let believed = if after == 0 { position(0) } else { after };
            return self.end_listing(step, ticket, (dir, believed));
        }
        // Positions of a doubtful listing are those of the next one, which may go on.
        let current = generation == node.generation;
        if let Some(last) = entries.last().filter(|_| end && current) {
            node.end = Some(position(last.position));
        }
        let listed = entries
            .into_iter()
            .map(|entry| {
                let position = position(entry.position);
                let known = plus && vouched && granted.contains(&entry.fid);
                if known {
                    self.known_entry(step, dir, entry, position)
                } else {
                    bare(entry, position)
                }
            })
            .collect();
        self.finish(step, ticket, Done::Listing { entries: listed });
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
        let Some(attr) = node.held().cloned() else {
            return bare(entry, position);
        };
        let lifetime = Self::lifetime(node.lasting());
        node.lookups += 1;
        node.directory |= entry.kind == wire::Kind::Directory;
        node.told = step.now;
        self.node(dir).names.insert(entry.name.clone(), Some(fid));
        Listed {
            name: entry.name,
            fid,
            kind: entry.kind,
            position,
            known: Some((attr, lifetime)),
        }
    }
}
