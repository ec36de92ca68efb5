//! Replies: which grants count, what the client learns, and what it answers.
//!
//! A grant counts if no recall that has come since is later than it. A reply's attributes and names
//! are kept only under a grant that counts; an Exclusive holder knows size and times better than
//! the server does.

use crate::Ticket;
use crate::client::api::{Call, Done, Lifetime};
use crate::client::mutant::Mutant;
use crate::client::names::listing::ListingPart;
use crate::client::session::asked::{Sent, Why};
use crate::client::{Client, Piece, Step};
use crate::footprint::Footprint;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Access, Attr, Fid, Op, Outcome, Refusal, Reply, RequestId, Right, Set};

impl Client {
    /// A reply is taken in, at its turn.
    pub(crate) fn take_reply(
        &mut self,
        step: &mut Step<'_>,
        id: RequestId,
        reply: Reply,
        bulk_len: u32,
    ) {
        if self.is_early(step, id) {
            return self.keep_early_change(step, id, &reply);
        }
        let Some(Sent { request, why, .. }) = self.asked.requests.remove(&id) else {
            return;
        };
        if request.op.changes() {
            self.keep_change(step, &request, &reply);
        }
        (self.asked.answering, self.heard) = (id, reply.heard);
        if matches!(why, Why::Back { .. } | Why::Delegated(_)) {
            self.settle_room(&request.op, &reply.outcome);
        }
        match why {
            Why::Fill {
                fid,
                first,
                count,
                since,
            } => {
                let granted = reply.grants.iter().find(|grant| grant.fid == fid);
                let granted = granted.map(|grant| grant.epoch);
                let fill = ((fid, first, count), (since, granted));
                self.on_fill_reply(step, fill, request.caller, (reply.outcome, bulk_len));
            }
            Why::Back { fid, first, count } => {
                let result = match reply.outcome {
                    Outcome::Written { attr, .. } => Ok(attr),
                    Outcome::Refused(refusal) => Err(refusal),
                    _ => Err(Refusal::Invalid),
                };
                self.on_written_back(step, (fid, first, count), result);
            }
            Why::Walk => self.on_prefetched(step, &request, reply, bulk_len),
            Why::Names => self.on_gathered(step, &request, reply),
            Why::Stable => self.on_pressed(step, &reply.outcome),
            Why::Numbers => self.on_numbers(step.now, &reply.outcome),
            Why::Room { volume, need } => {
                self.on_room(step, (volume, need), &request.op, &reply);
            }
            Why::Stranded(fid) => self.on_stranded(step, fid, &request.op, reply),
            Why::Privileges { fid, sets } => self.privileges_end(step, (fid, sets), (id, reply)),
            Why::Delegated(about) => self.on_shipped(step, &about, (&request, &reply)),
            Why::Lock => self.on_lock_answer(step, (None, id), &request.op, reply.outcome),
            Why::Call(ticket) if request.op.locks() => {
                self.on_lock_answer(step, (Some(ticket), id), &request.op, reply.outcome);
            }
            Why::Call(ticket) => {
                let waits = self.on_call_reply(step, (ticket, id), &request.op, (reply, bulk_len));
                self.settle_guesses(step);
                if waits {
                    return;
                }
            }
        }
        if !self.kernel.is_unseen(id) {
            self.confirm(step, id);
        }
    }

    /// The answer for a call; true if its change is done, and the call waits on.
    fn on_call_reply(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        op: &Op,
        (reply, bulk_len): (Reply, u32),
    ) -> bool {
        self.unsend(op);
        let mut changed = Self::changed_by(op, &reply.outcome);
        self.take_up(ticket, &changed);
        // A grant tells the place of what it is of.
        changed.retain(|fid| reply.grants.iter().all(|grant| grant.fid != *fid));
        if op.changes() && self.callers.calls.contains_key(&ticket) {
            let unseen = self.outdates(id, ticket);
            self.asked.unfinished.insert(ticket, (id, unseen));
        }
        // Questions that are asked as it is heard of come behind it.
        let last = self.asked.last_request;
        self.on_answer(step, (ticket, id), op, reply, bulk_len);
        self.note_changed(&changed, last);
        let waits = op.changes() && self.callers.calls.contains_key(&ticket);
        self.put_down(ticket);
        if !waits {
            for dir in Footprint::new(op).dirs().into_iter().flatten() {
                self.retire(step, dir);
            }
        }
        waits
    }

    /// Reads and writes that wait for blocks which cannot be had.
    pub(crate) fn fail_reads(&mut self, step: &mut Step<'_>, fid: Fid, refusal: Refusal) {
        let parked = core::mem::take(&mut self.node(fid).parked);
        for ticket in parked {
            match self.callers.calls.get(&ticket).map(|running| &running.call) {
                Some(Call::Read { .. } | Call::Write { .. }) => {
                    self.node(fid).kernel.ends_read(ticket);
                    self.finish(step, ticket, Done::Refused(refusal));
                    self.ask_behind(step, fid);
                }
                _ => self.node(fid).parked.push(ticket),
            }
        }
    }

    fn on_answer(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        op: &Op,
        reply: Reply,
        bulk_len: u32,
    ) {
        if let Op::Read { fid, .. } = op {
            return self.on_read(step, (ticket, id, *fid), reply, bulk_len);
        }
        if let Outcome::Refused(refusal) = reply.outcome {
            return self.on_refused(step, ticket, op, refusal);
        }
        let granted: Vec<Fid> = reply
            .grants
            .iter()
            .filter_map(|grant| self.vouches(*grant, id).then_some(grant.fid))
            .collect();
        match (op, reply.outcome) {
            (Op::GetAttr { fid }, Outcome::Attr(attr)) => {
                self.on_attr(step, (ticket, id, *fid), attr, &granted);
            }
            (Op::Claim { fid }, Outcome::Attr(attr)) => {
                let vouched = granted.contains(fid);
                self.on_claimed(step, (ticket, id, *fid), (attr, vouched));
            }
            (Op::SetAttr { fid, set }, Outcome::Attr(attr)) => {
                let vouched = granted.contains(fid);
                self.on_set(step, (ticket, id, *fid), set, (attr, vouched));
            }
            (Op::Open { fid, access }, Outcome::Opened(attr)) => {
                let vouched = granted.contains(fid);
                self.on_opened(step, ticket, (*fid, *access), (attr, vouched));
            }
            (Op::Write { fid, .. }, Outcome::Written { offset, attr }) => {
                let attr = (attr, granted.contains(fid));
                self.on_written(step, (ticket, *fid), offset, attr);
            }
            (
                Op::ReadDir { dir, .. },
                Outcome::Dir {
                    entries,
                    end,
                    last,
                    dir: attr,
                },
            ) => {
                self.learn(*dir, attr, granted.contains(dir));
                let vouched = granted.contains(dir) && self.lists(ticket, *dir);
                let counts: BTreeSet<Fid> = granted.iter().copied().collect();
                for entry in entries.iter().filter(|entry| counts.contains(&entry.fid)) {
                    if let Some(attr) = entry.attr.clone() {
                        self.learn(entry.fid, attr, true);
                    }
                }
                let part = ListingPart {
                    entries,
                    end,
                    last,
                    vouched,
                };
                self.learn_positions((*dir, id), &part);
                self.on_listed(step, ticket, part, (&counts, bulk_len));
            }
            (op, outcome) => self.on_rest(step, (ticket, id), op, (outcome, granted, bulk_len)),
        }
    }

    fn on_rest(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        op: &Op,
        (outcome, granted, bytes): (Outcome, Vec<Fid>, u32),
    ) {
        match (op, outcome) {
            (Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. }, Outcome::Attr(attr)) => {
                // Values from an earlier answer, which came meanwhile, are void.
                self.node(*fid).xattrs_change(op);
                self.changed(*fid, attr, granted.contains(fid));
                self.finish(step, ticket, Done::Nothing);
            }
            (Op::Allocate { fid, .. }, Outcome::Written { attr, .. }) => {
                let attr = (attr, granted.contains(fid));
                self.on_edited(step, (ticket, *fid), attr, Done::Nothing);
            }
            (Op::Copy { to, .. }, Outcome::Copied { len, attr }) => {
                let attr = (attr, granted.contains(to));
                self.on_edited(step, (ticket, *to), attr, Done::Written { len });
            }
            (Op::Find { fid, .. }, Outcome::Position(at)) => {
                self.finish_shown(step, (ticket, *fid), Done::Position(at));
            }
            (Op::ReadLink { .. }, Outcome::Target(bytes)) | (_, Outcome::Value(bytes)) => {
                self.finish(step, ticket, Done::Bytes(bytes));
            }
            (_, Outcome::Filesystem(numbers)) => {
                self.finish(step, ticket, Done::Filesystem(numbers));
            }
            (_, Outcome::Volumes(volumes)) => self.finish(step, ticket, Done::Volumes(volumes)),
            (_, Outcome::Volume(info)) => {
                self.finish(step, ticket, Done::Volumes(alloc::vec![info]));
            }
            (_, Outcome::Dump(dump)) => self.finish(step, ticket, Done::Dump(dump)),
            (Op::Sync { fid }, Outcome::Done) => self.on_synced(step, ticket, *fid),
            (_, Outcome::Done) => self.finish(step, ticket, Done::Nothing),
            (op, outcome) => {
                self.numbered_there(op);
                self.on_names(step, (ticket, id), op, (outcome, granted, bytes));
            }
        }
    }

    /// Keeps attributes that a grant vouches for. Blocks of another version go.
    pub(crate) fn learn(&mut self, fid: Fid, attr: Attr, vouched: bool) {
        let trusting = self.options.mutant == Some(Mutant::IgnoresVersions);
        let touched = self.delegation.touched.contains_key(&fid);
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if node.token.right < Right::Shared {
            return;
        }
        // Names of a directory change here only while the server is not asked about any: its
        // attributes of the directory are then the news, if it was told before of the changes made
        // here.
        let told =
            (node.untold.delegated == 0 || self.asked.answering > node.untold.told_by) && !touched;
        let known = node.attr.is_some() && !(node.directory && told);
        if node.token.right == Right::Exclusive && known {
            return;
        }
        if !vouched {
            node.attr = None;
            return;
        }
        let outdated = node.version != attr.version && !trusting;
        node.version = attr.version;
        node.has_attr(attr);
        if outdated {
            self.cache.drop_clean(fid, 0);
        }
    }

    /// The attributes to answer with for an object now: those that are held, else those that the
    /// server sent.
    pub(crate) fn to_say(&self, fid: Fid, said: Attr) -> (Attr, Lifetime) {
        if self.options.mutant == Some(Mutant::AttributesWithoutToken) {
            return (said, Lifetime::Forever);
        }
        let node = self.nodes.get(&fid);
        match node.and_then(|node| Some((node.tellable()?.clone(), node.attr_lasting()))) {
            Some((attr, lasting)) => (attr, Self::lifetime(lasting)),
            None => (said, Lifetime::None),
        }
    }

    fn on_attr(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id, fid): (Ticket, RequestId, Fid),
        attr: Attr,
        granted: &[Fid],
    ) {
        if granted.contains(&fid) {
            self.learn(fid, attr.clone(), true);
        }
        if self.asked_again(step, (ticket, id), (fid, &attr)) || self.waits_for_drop(fid, ticket) {
            return self.go_on_draining(step, fid);
        }
        let (attr, lifetime) = self.to_say(fid, attr);
        self.node(fid).kernel.is_told_attr(step.now);
        self.finish(step, ticket, Done::Attr { attr, lifetime });
        self.go_on_draining(step, fid);
        self.retire(step, fid);
    }

    fn on_set(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id, fid): (Ticket, RequestId, Fid),
        set: &Set,
        (attr, vouched): (Attr, bool),
    ) {
        let node = self.node(fid);
        node.kernel.is_told_attr(step.now);
        let own = node.token.right == Right::Exclusive && node.attr.is_some();
        let asks = set.size.is_none() && !vouched;
        if asks && self.asked_again_after_set(step, (ticket, id, fid), &attr) {
            return;
        }
        let node = self.node(fid);
        if let (true, Some(size)) = (own && !node.was_given_later(&attr), set.size) {
            self.cut(step, fid, size);
        }
        self.changed(fid, attr.clone(), vouched);
        let sets = set.mtime.is_some() || set.size.is_some();
        let own = own && sets && !self.node(fid).is_set_overtaken(&attr);
        if let (true, Some(own)) = (own, self.node(fid).attr.as_mut()) {
            own.mtime = attr.mtime;
            if let Some(size) = set.size {
                (own.size, own.version) = (size, attr.version);
            }
        }
        if own && set.size.is_some() {
            self.resized(fid, &attr);
            self.tell_times(step, fid, attr.ctime);
        }
        let (attr, lifetime) = self.to_say(fid, attr);
        let done = Done::Attr { attr, lifetime };
        match set.size {
            Some(size) => self.answer_resize(step, (ticket, fid), size, done),
            None => self.finish(step, ticket, done),
        }
        self.unpark(step, fid);
        self.clean(step, fid);
        self.go_on_draining(step, fid);
        self.retire(step, fid);
    }

    fn on_opened(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, access): (Fid, Access),
        (attr, vouched): (Attr, bool),
    ) {
        self.node(fid).opened(access);
        if vouched {
            self.learn(fid, attr, true);
        }
        let Some((&Call::Open { append, .. }, caller)) = (self.callers.calls.get(&ticket))
            .map(|running| (&running.call, running.caller.clone()))
        else {
            return;
        };
        let trusting = self.options.mutant == Some(Mutant::CachesSharedOpens);
        let covered = self.node(fid).lasting() && !access.write && !append;
        let cached = covered || trusting;
        self.node(fid).opens.direct |= !cached;
        if access.write && self.drops_for_writer(step, (ticket, fid)) {
            return;
        }
        self.answer_open(step, (ticket, fid, &caller), cached);
    }

    fn on_read(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id, fid): (Ticket, RequestId, Fid),
        reply: Reply,
        bulk_len: u32,
    ) {
        let pages = match self.callers.calls.get(&ticket).map(|running| &running.call) {
            Some(Call::Read { pages, .. }) => *pages,
            _ => return,
        };
        let granted = self.node(fid).token.grant;
        let idle = !self.serves();
        let withholds = pages && self.withholds_pages(fid);
        let disowned = self.is_disowned(fid, pages);
        let accepted = reply.grants.iter().all(|grant| self.accept(*grant));
        let node = self.node(fid);
        let mut rights = reply.grants.iter().map(|grant| grant.right);
        let lasting = rights.any(|right| right >= Right::Shared);
        let overtaken = reply.grants.iter().any(|grant| grant.epoch < granted);
        let outdated = overtaken || node.outdates(id, lasting);
        let counts = accepted && !outdated;
        // The server may have applied an own change of the size that is not answered. If others are
        // answered from the cache, which does not know of it yet, so is this one.
        let own = node.pending.resizing > 0 && node.cached() && node.drain.is_none();
        // Nor may the kernel have it if the file has been opened for writing meanwhile.
        let own = own || (withholds && !(node.drain.is_some() && node.kernel.has_pages()));
        // Nor a program, whose kernel has yet to hear of a change that its caller did not wait for.
        let own = own || disowned;
        // Nor the kernel, near the end of the lease: it has dropped everything.
        let own = own || (pages && idle);
        // Bytes given while the kernel drops pages are dropped once more. Outdated ones are not
        // given even so: other threads of the machine would see them in the page meanwhile, and may
        // have seen the own change.
        let draining = node.drain.is_some() && !outdated;
        let freed = node
            .drain
            .as_ref()
            .is_none_or(|drain| drain.freed.contains(&ticket));
        match reply.outcome {
            Outcome::Read { len, .. } if !own && freed && (counts || !pages || draining) => {
                if node.drain.is_some() && pages {
                    node.token.right = node.token.right.max(Right::Transient);
                }
                let len = len.min(bulk_len);
                let blocks = u64::from(len.div_ceil(BLOCK_BYTES));
                self.counts.misses += blocks;
                self.lending.counts.fetched += blocks;
                self.finish_read(step, ticket, vec![Piece::Bulk { from: 0, len }]);
            }
            // A recall or an own change has overtaken the answer: bytes that the kernel would keep
            // may be outdated.
            Outcome::Read { .. } => self.start(step, ticket),
            Outcome::Elsewhere(_) => self.on_reread(step, (ticket, fid)),
            Outcome::Refused(refusal) => {
                node.kernel.ends_read(ticket);
                self.finish(step, ticket, Done::Refused(refusal));
                self.ask_behind(step, fid);
            }
            _ => self.finish(step, ticket, Done::Refused(Refusal::Invalid)),
        }
        self.retire(step, fid);
    }

    pub(crate) fn on_refused(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        op: &Op,
        refusal: Refusal,
    ) {
        if let Op::Claim { fid } = op {
            return self.on_claim_refused(step, (ticket, *fid), refusal);
        }
        if refusal == Refusal::Exists && self.replaces_after_all(step, ticket, op) {
            return;
        }
        self.leads_nowhere(step, (ticket, op), refusal);
        self.finish(step, ticket, Done::Refused(refusal));
        let fid = match op {
            Op::Open { fid, .. } => {
                if self
                    .nodes
                    .get(fid)
                    .is_some_and(|node| node.token.right < Right::Shared)
                {
                    self.say_opens(step, *fid);
                }
                *fid
            }
            Op::GetAttr { fid }
            | Op::SetAttr { fid, .. }
            | Op::Write { fid, .. }
            | Op::Allocate { fid, .. }
            | Op::Copy { to: fid, .. } => *fid,
            _ => return,
        };
        self.unpark(step, fid);
        self.clean(step, fid);
        self.go_on_draining(step, fid);
        self.retire(step, fid);
    }
}
