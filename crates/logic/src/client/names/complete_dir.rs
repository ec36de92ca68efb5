//! Whole directories: which names there are not.
//!
//! Under a token of a directory the client's knowledge of a name stays true, but of a name that
//! nobody has asked for it knows nothing. A program that asks for such names one after the other (a
//! compiler that looks for headers in many places, or one that makes files) would wait for the
//! server each time. So after some that did not exist the client asks for all names of the
//! directory, without attributes and tokens. A listing of an own directory that could not be
//! answered here counts as one of them: the next one then can. Once the last of them has come, a
//! name that is not known does not exist ([`crate::client::node::Node::whole`]), until somebody
//! else changes one.
//!
//! Guarantees: it is whole only if no name of it was taken back, forgotten or doubted between the
//! first question and the last answer; an own change of a name meanwhile counts more than the
//! listing. Long directories are not asked for; one in which others change names is asked for again
//! only after twice as many questions in vain each time.

use super::listing::ListingPart;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::{Caller, Fid, Hold, Op, Outcome, Reply, Request, Right};

/// Names that did not exist, before all are asked for: of a directory that is this client's own,
/// and of others.
const MISSES_OWN_DIR: u32 = 2;
const MISSES_OTHER_DIR: u32 = 8;
/// So often at most the number is doubled.
const DOUBLINGS_MAX: u32 = 10;
/// Directories whose names take more bytes are not asked for.
const DIR_BYTES_MAX: u64 = 512 << 10;

impl Client {
    /// The server had to be asked for a name, and there is none.
    pub(crate) fn missed_name(&mut self, step: &mut Step<'_>, dir: Fid, caller: &Caller) {
        let Some(node) = self.nodes.get_mut(&dir) else {
            return;
        };
        let own = node.token.right == Right::Exclusive;
        node.dir.missed += 1;
        let patience = if own {
            MISSES_OWN_DIR
        } else {
            MISSES_OTHER_DIR
        } << node.dir.gathers.min(DOUBLINGS_MAX);
        let short = node
            .attr
            .as_ref()
            .is_some_and(|attr| attr.size <= DIR_BYTES_MAX);
        let free = (!node.dir.whole || node.dir.last.is_none()) && node.dir.gathering == 0;
        if node.dir.missed < patience || !short || !free || !node.lasting() {
            return;
        }
        (node.dir.missed, node.dir.gathers) = (0, node.dir.gathers + 1);
        self.ask_for_names(step, (dir, 0), caller.clone());
    }

    fn ask_for_names(&mut self, step: &mut Step<'_>, (dir, after): (Fid, u64), caller: Caller) {
        let max = wire::limits::DIR_ENTRIES as u32;
        let op = Op::ReadDir { dir, after, max };
        self.note_sent(&op);
        let id = self.request(step, (op, caller, Hold::default()), Vec::new(), Why::Names);
        self.node(dir).dir.gathering = id;
    }

    /// Names of a directory have come, or cannot.
    pub(crate) fn on_gathered(&mut self, step: &mut Step<'_>, request: &Request, reply: Reply) {
        self.unsend(&request.op);
        let Op::ReadDir { dir, .. } = request.op else {
            return;
        };
        let Reply {
            outcome, grants, ..
        } = reply;
        let mut vouched = false;
        for grant in grants.iter().filter(|grant| grant.fid == dir) {
            vouched = self.vouches(*grant, request.id);
        }
        let node = self.node(dir);
        let undisturbed = node.dir.gathering == request.id && node.lasting();
        node.dir.gathering = 0;
        if let Outcome::Dir {
            entries,
            end,
            last,
            dir: attr,
        } = outcome
            && vouched
            && undisturbed
        {
            self.learn(dir, attr, true);
            let part = ListingPart {
                entries,
                end,
                last,
                vouched,
            };
            self.take_names(step, (dir, request), part);
        }
        self.retire(step, dir);
    }

    fn take_names(
        &mut self,
        step: &mut Step<'_>,
        (dir, request): (Fid, &Request),
        part: ListingPart,
    ) {
        for entry in &part.entries {
            let node = self.node(dir);
            if !node.dir.names.contains_key(&entry.name) {
                node.set_name(&entry.name, Some((entry.fid, entry.kind)));
            }
            self.count_name();
        }
        self.learn_positions((dir, request.id), &part);
        match part.entries.last() {
            _ if part.end => self.node(dir).dir.whole = true,
            Some(last) => {
                self.ask_for_names(step, (dir, last.position), request.caller.clone());
            }
            // No names, and not the end of them: a server that lies.
            None => {}
        }
    }
}
