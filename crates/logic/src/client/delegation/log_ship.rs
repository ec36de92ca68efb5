//! Telling the server of the changes that are kept: when, in which order, and how many together.

use super::local_apply::Prediction;
use crate::client::mutant::Mutant;
use crate::client::session::LinkState;
use crate::client::{Client, Step};
use crate::footprint::Footprint;
use alloc::vec;
use alloc::vec::Vec;
use wire::{
    Attr, Caller, Chosen, Fid, Op, Outcome, Request, RequestId, Set, SetTime, Time, ToServer,
};

impl Client {
    /// Tells the server of all that is kept.
    pub(crate) fn ship(&mut self, step: &mut Step<'_>) {
        self.keep_touches(step);
        let ids: Vec<RequestId> = core::mem::take(&mut self.delegation.kept)
            .into_iter()
            .collect();
        for &id in &ids {
            if let Some(sent) = self.asked.requests.get_mut(&id) {
                sent.kept = false;
                sent.request.after = core::mem::replace(&mut self.delegation.last, id);
                assert!(sent.request.after < id, "changes are told in their order");
            }
        }
        if !ids.is_empty() {
            self.await_word(step.now);
        }
        if self.session.state == LinkState::Up {
            self.send_together(step, &ids);
        }
    }

    /// A file was cut. A store into its pages before the client knew of the cut, since the caller
    /// had been killed, has changed its times, and may have gone with the bytes that were cut off:
    /// then no write-back brings the times. Another change of the size, or of the times, that is on
    /// its way brings later ones.
    pub(crate) fn tell_times(&mut self, step: &mut Step<'_>, fid: Fid, stored: Time) {
        let ahead = |attr: &Attr| attr.ctime > stored;
        let node = self.nodes.get(&fid);
        let node = node.filter(|node| node.pending.resizing + node.pending.timing == 0);
        if node.and_then(|node| node.own()).is_some_and(ahead) && self.cache.changed(fid).count == 0
        {
            self.delegation.touched.insert(fid, self.asked.last_request);
            self.ship(step);
        }
    }

    /// Directories in which something was made and has gone again have other times now.
    fn keep_touches(&mut self, step: &mut Step<'_>) {
        for (dir, last) in core::mem::take(&mut self.delegation.touched) {
            let Some(node) = self.nodes.get(&dir) else {
                continue;
            };
            let touched_since =
                node.untold.told_by > last && self.is_kept(node.untold.told_by, dir);
            let Some(attr) = node.own().filter(|_| !touched_since) else {
                self.retire(step, dir);
                continue;
            };
            let set = Set {
                mtime: Some(SetTime::To(attr.mtime)),
                ..Set::default()
            };
            let owner = Caller {
                uid: attr.uid,
                gid: attr.gid,
                groups: Some(Vec::new()),
            };
            let prediction = Prediction {
                outcome: Outcome::Attr(attr.clone()),
                after: vec![(dir, attr.clone())],
                chosen: Chosen::default(),
                at: attr.ctime,
                relies_on: Vec::new(),
            };
            let of_file = (!node.directory).then_some(node.untold.told_by);
            self.asked.last_request += 1;
            let id = self.asked.last_request;
            self.keep(
                step,
                id,
                (&Op::SetAttr { fid: dir, set }, owner),
                &prediction,
            );
            if let Some(told_by) = of_file {
                // The server's word of a file's mode and owner counts all the same.
                self.node(dir).untold.told_by = told_by;
            }
        }
    }

    /// Is this a change of names in this directory that the server will be told of?
    fn is_kept(&self, id: RequestId, dir: Fid) -> bool {
        let sent = self.asked.requests.get(&id).filter(|sent| sent.kept);
        sent.is_some_and(|sent| Footprint::new(&sent.request.op).dirs().contains(&Some(dir)))
    }

    /// Is there anything about this object that the server does not know of?
    pub(crate) fn owes(&self, fid: Fid) -> bool {
        if self.options.mutant == Some(Mutant::ReturnsBeforeTelling) {
            return false;
        }
        let told = self
            .nodes
            .get(&fid)
            .is_none_or(|node| node.untold.delegated == 0);
        !told || self.delegation.touched.contains_key(&fid)
    }

    /// Before the server is asked for this: does it build on what it does not know of?
    pub(crate) fn ship_before(&mut self, step: &mut Step<'_>, op: &Op) {
        if self.delegation.is_empty() {
            return;
        }
        // Of names that it changes it need not be known here what they name.
        let names = matches!(
            op,
            Op::Link { .. }
                | Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Rename { .. }
                | Op::Unmount { .. }
        );
        let settles = matches!(
            op,
            Op::Sync { .. } | Op::StatFs | Op::StatVolume { .. } | Op::Volume(_)
        );
        let all = names || settles;
        if all || Footprint::new(op).fids().any(|fid| self.owes(fid)) {
            self.ship(step);
        }
    }

    /// Sends delegated changes together.
    fn send_together(&mut self, step: &mut Step<'_>, ids: &[RequestId]) {
        self.settle_taken(step);
        let acked = self.acked();
        let (mut part, mut bytes) = (Vec::new(), 0);
        for id in ids {
            let Some((request, _)) = self.ready_to_send(step.now, *id, acked) else {
                continue;
            };
            bytes += most_bytes(&request);
            part.push(request);
            if part.len() == wire::limits::REQUESTS || bytes > wire::limits::BODY_BYTES / 2 {
                bytes = 0;
                let message = ToServer::Requests(core::mem::take(&mut part));
                self.say(step, message);
            }
        }
        if !part.is_empty() {
            self.say(step, ToServer::Requests(part));
        }
    }
}

/// No request for a delegated change is longer than this, bytes.
fn most_bytes(request: &Request) -> usize {
    const OTHERS: usize = 256;
    let groups = request.caller.groups.as_ref().map_or(0, Vec::len);
    let names = match &request.op {
        Op::Make {
            make: wire::Make::Symlink(target),
            ..
        } => target.len() + wire::limits::NAME_BYTES,
        Op::SetXattr { name, value, .. } => name.len() + value.len(),
        _ => 2 * wire::limits::NAME_BYTES,
    };
    OTHERS + 5 * groups + names
}
