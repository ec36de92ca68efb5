//! Answers that the answer to an own change has overtaken.
//!
//! The network may bring the answer to a question after the answer to a change of the same object,
//! although the server gave it before: then it says how things were. Grants tell their order by
//! their epochs, but a change may be answered without a grant. So once it is, an answer to an
//! earlier question vouches for nothing any more: it may bring a right, but neither attributes nor
//! a name nor pages are kept by it.

use crate::Ticket;
use crate::client::node::Node;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use crate::footprint::Footprint;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::{Attr, Caller, Fid, Grant, Kind, Op, Outcome, RequestId, Right};

impl Client {
    /// Noted even if they are not used (a repeated reply, a block): a token is given back with the
    /// latest grant that the server may count. Of a repeated reply that is all that they are for.
    pub(crate) fn note_grants(&mut self, grants: &mut Vec<Grant>) {
        for grant in &*grants {
            self.granted = self.granted.max(grant.epoch);
            if let Some(node) = self.nodes.get_mut(&grant.fid) {
                node.token.seen = node.token.seen.max(grant.epoch);
            }
        }
        grants.retain(|grant| grant.right > Right::None);
    }

    /// The objects that the answer to an own change is about.
    pub(crate) fn changed_by(op: &Op, outcome: &Outcome) -> Vec<Fid> {
        if !op.changes() || matches!(outcome, Outcome::Refused(_)) {
            return Vec::new();
        }
        let footprint = Footprint::new(op);
        let dirs = footprint.dirs().into_iter().flatten();
        let mut fids: Vec<Fid> = dirs.chain(footprint.changed_object()).collect();
        match outcome {
            Outcome::Removed { fid, .. } => fids.push(*fid),
            Outcome::Renamed { fid, victim, .. } => {
                fids.push(*fid);
                fids.extend(victim.as_ref().map(|(fid, _)| *fid));
            }
            _ => {}
        }
        fids
    }

    /// The answer to an own change of these has come: answers to questions up to the last one that
    /// was asked before may be older.
    pub(crate) fn note_changed(&mut self, fids: &[Fid], last: RequestId) {
        for fid in fids {
            match self.nodes.get_mut(fid) {
                Some(node) => node.marks.changed = last,
                None => self.forgotten.changed = last,
            }
        }
    }

    /// An own change was applied by the server: these are the attributes after it.
    pub(crate) fn changed(&mut self, fid: Fid, attr: Attr, vouched: bool) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let overtaken = node.is_overtaken(&attr);
        if node.token.right == Right::Exclusive
            && let Some(own) = node.attr.as_mut()
        {
            if overtaken {
                return;
            }
            // Attributes that the server sent before it had heard of a change made here are
            // overtaken.
            if self.asked.answering >= node.untold.told_by {
                (own.mode, own.uid, own.gid) = (attr.mode, attr.uid, attr.gid);
                (own.nlink, own.atime) = (attr.nlink, attr.atime);
            }
            own.ctime = own.ctime.max(attr.ctime);
        } else {
            self.learn(fid, attr, vouched);
        }
    }

    /// Takes over a grant that came with the answer to this request, if it counts; does it vouch
    /// for what the answer says?
    pub(crate) fn vouches(&mut self, grant: Grant, id: RequestId) -> bool {
        let accepted = self.accept(grant);
        let node = self.node(grant.fid);
        let vouches = accepted && id > node.marks.changed;
        if vouches && grant.bare && node.token.right >= Right::Shared {
            node.has_no_xattrs();
        }
        vouches
    }

    /// Asks for the attributes once more if the server answered a change of them without what was
    /// written back since: the kernel would take the size over. True: it is asked.
    pub(crate) fn asked_again_after_set(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id, fid): (Ticket, RequestId, Fid),
        attr: &Attr,
    ) -> bool {
        let node = self.node(fid);
        // Of a later version this client has heard, whatever it holds of the file now.
        let overtaken = node.token.right < Right::Exclusive && node.version > attr.version;
        let outdated = overtaken || (node.held().is_none() && id <= node.marks.recalled);
        if attr.kind != Kind::File || !outdated {
            return false;
        }
        if overtaken {
            node.attr = None; // it may be without what was set
        }
        let (caller, hold) = (Caller::default(), node.hold(0));
        if let Some(running) = self.callers.calls.get_mut(&ticket) {
            running.set = Some(Box::new(attr.clone()));
        }
        let op = Op::GetAttr { fid };
        self.note_sent(&op);
        self.request(step, (op, caller, hold), Vec::new(), Why::Call(ticket));
        self.show_before_answer(step, id);
        true
    }
}

impl Node {
    /// An own change was answered with these attributes: did later ones come with a grant before?
    /// Then the change is in them already, and so may others be that came behind it.
    pub(crate) fn was_given_later(&self, attr: &Attr) -> bool {
        attr.ctime < self.marks.given
    }

    /// Takes note of the answer to an own change: has the answer to a later one come before, or
    /// a grant with later attributes?
    pub(crate) fn is_overtaken(&mut self, attr: &Attr) -> bool {
        let overtaken = attr.ctime < self.marks.answered || self.was_given_later(attr);
        self.marks.answered = self.marks.answered.max(attr.ctime);
        overtaken
    }

    /// Takes note of the answer to an own change that sets the size or the time of modification:
    /// has the answer to a later one of that sort come before? Other changes say nothing of these.
    pub(crate) fn is_set_overtaken(&mut self, attr: &Attr) -> bool {
        let overtaken = attr.ctime < self.marks.set || self.was_given_later(attr);
        self.marks.set = self.marks.set.max(attr.ctime);
        overtaken
    }

    /// May bytes that came with the answer to this request be from before an own change? A write
    /// ends transient rights before it is applied, so that bytes read before it are void in any
    /// case; a lasting right stays; a change of the size ends none, nor does a write to the cache.
    pub(crate) fn outdates(&self, id: RequestId, lasting: bool) -> bool {
        id <= self.marks.resized.max(self.marks.written) || (lasting && id <= self.marks.changed)
    }
}
