//! Files that have gone before the server has heard of them, and that a program still reaches: it
//! had walked to the file before, or has a descriptor that is no open file.
//!
//! Guarantee: the size of such a file changes here alone, and what only the server could do is
//! refused as not supported. No call waits until its bytes are written back, as they never are.

use crate::Ticket;
use crate::client::api::Done;
use crate::client::data::cache::BlockState;
use crate::client::{Client, Output, Step};
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Caller, Fid, Op, Refusal, Set, SetTime};

impl Client {
    pub(crate) fn is_gone_unheard(&self, fid: Fid) -> bool {
        self.nodes
            .get(&fid)
            .is_some_and(|node| node.untold.stillborn)
    }

    /// Ends an operation on the bytes of such a file; `false`: it is about another one.
    pub(crate) fn done_without_server(
        &mut self,
        step: &mut Step<'_>,
        (ticket, caller): (Ticket, &Caller),
        op: &Op,
    ) -> bool {
        match op {
            Op::SetAttr { fid, set } if self.is_gone_unheard(*fid) => {
                let Some(size) = set.size else {
                    return false;
                };
                let (attr, lifetime) = match self.with_size(step, *fid, (set, size), caller) {
                    Some(attr) => self.to_say(*fid, attr),
                    None => {
                        self.finish(step, ticket, Done::Refused(Refusal::Stale));
                        return true;
                    }
                };
                let done = Done::Attr { attr, lifetime };
                self.answer_resize(step, (ticket, *fid), size, done);
                self.feed_starved(step);
            }
            Op::Allocate { .. } | Op::Copy { .. } | Op::Find { .. } => {
                let mut files = op.edits().into_iter().chain(op.draws_on());
                if !files.any(|fid| self.is_gone_unheard(fid)) {
                    return false;
                }
                self.finish(step, ticket, Done::Refused(Refusal::NotSupported));
            }
            _ => return false,
        }
        true
    }

    /// Its attributes with this size, which count from now on.
    fn with_size(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (set, size): (&Set, u64),
        caller: &Caller,
    ) -> Option<Attr> {
        let mut attr = self.nodes.get(&fid)?.attr.clone()?;
        let rest = Set {
            size: None,
            mtime: set.mtime.or(Some(SetTime::Now)),
            ..set.clone()
        };
        match self.predict_set(step.now, fid, &rest, caller) {
            Some(prediction) => attr = prediction.after.into_iter().next()?.1,
            // A program that may write may set the size, but no time.
            None => {
                let now = self.clock.shows_after(step.now, attr.ctime);
                (attr.mtime, attr.ctime) = (now, now);
            }
        }
        attr.size = size;
        self.cut(step, fid, size);
        self.node(fid).attr = Some(attr.clone());
        self.count_used(fid);
        Some(attr)
    }

    /// Of such a file what is not here was never written: these blocks become zeros.
    pub(crate) fn fill_with_zeros(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        missing: &[u64],
    ) -> bool {
        let gone = self.is_gone_unheard(fid);
        for block in missing.iter().filter(|_| gone) {
            if let Some(slot) = self.cache.take(fid, *block, BlockState::Clean) {
                let len = BLOCK_BYTES;
                step.out.push(Output::Zero { slot, at: 0, len });
            }
        }
        gone
    }
}
