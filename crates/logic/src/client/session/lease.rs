//! The lease and its end: when the caches may not be used any more, and what becomes of everything
//! when the session is over.
//!
//! When the lease is near its end, the kernel drops everything and calls wait; tokens are not given
//! up, since the server still believes in them, and are used again once it has answered. When the
//! session is over, everything cached is void: changes that were not written back are lost, which
//! is reported, and the same calls go on in a new session.

use super::LinkState;
use super::asked::Why;
use crate::client::api::Output;
use crate::client::data::file_capabilities::Privileges;
use crate::client::mutant::Mutant;
use crate::client::notices::Event;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::{Fid, RequestId, Right, Time};

impl Client {
    /// The server has heard us since then. Not that it counts while a restarted server has not
    /// noted what we hold: it may end the session for that, whatever else it heard.
    pub(crate) fn renew(&mut self, step: &mut Step<'_>, sent: Time) {
        if !self.reassertion.parts.is_empty() {
            return;
        }
        self.session.leased = self.session.leased.max(sent.min(step.now));
        self.wake_up(step);
    }

    /// An answer has come: the server has heard this client when the request came, or later. (Not
    /// while it does not count what this client says: the answer says so.)
    pub(crate) fn note_answer(&mut self, step: &mut Step<'_>, id: RequestId, renews: bool) {
        let Some(sent) = self.asked.requests.get(&id) else {
            return;
        };
        let Some(left) = sent.left else { return };
        if matches!(sent.why, Why::Back { .. }) {
            self.writeback
                .window
                .answered(step.now.saturating_sub(left));
        }
        if renews {
            let mutant = self.options.mutant == Some(Mutant::RenewsFromAnswers);
            self.renew(step, if mutant { step.now } else { left });
        }
    }

    pub(crate) fn wake_up(&mut self, step: &mut Step<'_>) {
        if step.now < self.lease_end() {
            self.give_late_locks(step);
        }
        if self.session.suspended && step.now < self.lease_end() {
            self.session.suspended = false;
            for ticket in core::mem::take(&mut self.callers.parked) {
                self.start(step, ticket);
            }
        }
    }

    /// Until when the caches may be used: each clock's rate may be off by a twentieth, and the
    /// kernel takes its time to drop everything.
    pub(crate) fn lease_end(&self) -> Time {
        self.session.leased + self.session.lease_ns / 4 * 3
    }

    /// A session in which nothing was heard holds nothing, and begins with this welcome as with the
    /// one before, unless the server may have done a change in it and forgotten the session. It
    /// forgets none before the lease of its greeting is over, and knows nothing of what never left.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        let mut sent = self
            .asked
            .requests
            .values()
            .filter(|sent| sent.left.is_some());
        let asked = sent.any(|sent| sent.request.op.changes());
        !self.session.begun && (!asked || now < self.lease_end())
    }

    pub(crate) fn suspend_if_due(&mut self, step: &mut Step<'_>) {
        if self.serves() && step.now >= self.lease_end() {
            self.suspend(step);
        }
    }

    /// The lease is near its end: the kernel drops everything, and nothing is served.
    fn suspend(&mut self, step: &mut Step<'_>) {
        self.session.suspended = true;
        self.drop_everything(step);
        self.tick_names(step);
    }

    fn drop_everything(&mut self, step: &mut Step<'_>) {
        let known: Vec<Fid> = self
            .nodes
            .iter()
            .filter(|(fid, n)| n.token.right > Right::None && !fid.is_room())
            .map(|(f, _)| *f)
            .collect();
        for fid in known {
            let what = match self.whole(fid, step.now) {
                // One epoch, below, is enough for all.
                crate::client::Invalidate::Names { dir } => {
                    crate::client::Invalidate::Listing { dir }
                }
                what => what,
            };
            self.invalidate(step, what, crate::client::After::Nothing);
        }
        if let Some(dir) = self.root {
            self.invalidate(
                step,
                crate::client::Invalidate::Names { dir },
                crate::client::After::Nothing,
            );
        }
        for node in self.nodes.values_mut() {
            node.renew_listing();
        }
    }

    /// The session is over: everything cached is void, and changes not written back are lost.
    pub(crate) fn lose(&mut self, step: &mut Step<'_>) {
        step.out.push(Output::Event(Event::SessionLost));
        self.lose_unstable(step, None);
        self.lose_delegated(step);
        self.lose_rooms();
        self.drop_everything(step);
        self.lose_stores(step, |_| true);
        let fids: Vec<Fid> = self.nodes.keys().copied().collect();
        for fid in fids {
            self.forget_session(step, fid);
        }
        self.begin_epochs_anew();
        self.lose_walks(step);
        self.idle_releases.clear();
        self.session.id = wire::next_session(self.session.id);
        self.session.begun = false;
        self.asked.statements.clear();
        self.session.liveness.lose();
        self.reassertion.parts.clear();
        self.reassertion.bases.clear();
        self.asked.confirms.clear();
        self.kernel.lose_changes();
        self.draining.clear();
        self.root = None;
        self.lose_locks();
        let open: Vec<Fid> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.hold(0).open)
            .map(|(fid, _)| *fid)
            .collect();
        for fid in open {
            self.say_opens(step, fid);
        }
        self.bar_directories(step);
        self.fail_requests(step);
        if self.session.state != LinkState::Down {
            step.out.push(Output::Hangup);
        }
        self.session.state = LinkState::Down;
    }

    /// The next session may be with another server, as when that of a replica is lost: its epochs
    /// say nothing about those of this session, and may all be below them. No message of this
    /// session comes any more, as it has ended its connection.
    fn begin_epochs_anew(&mut self) {
        (self.forgotten.floor, self.granted, self.heard) = (0, 0, 0);
        for node in self.nodes.values_mut() {
            node.begin_epochs_anew();
        }
        // Nobody waits for these answers, and the next server would take them for others.
        self.kernel.lose_name_revokes();
    }

    /// An object that was to be made could not be.
    pub(crate) fn forget_unmade(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.lose_stores(step, |of| of == fid);
        self.forget_session(step, fid);
        let parked = core::mem::take(&mut self.callers.parked);
        for ticket in parked {
            self.start(step, ticket);
        }
    }

    fn forget_session(&mut self, step: &mut Step<'_>, fid: Fid) {
        let dirty: Vec<u64> = self
            .cache
            .blocks(fid, 0)
            .filter(|(_, _, state)| crate::client::is_dirty(*state))
            .map(|(block, _, _)| block)
            .collect();
        let stillborn = self
            .nodes
            .get(&fid)
            .is_some_and(|node| node.untold.stillborn);
        let untold = self
            .nodes
            .get(&fid)
            .is_some_and(|node| node.untold.unborn != 0);
        let stranded = !stillborn && !untold;
        if stranded {
            self.strand_for_good(fid);
        }
        let dirty = if self.stranded.contains_key(&fid) {
            Vec::new()
        } else {
            dirty
        };
        if !dirty.is_empty() && !stillborn {
            let bytes = dirty.len() as u64 * u64::from(wire::limits::BLOCK_BYTES);
            step.out.push(Output::Event(Event::DataLost { fid, bytes }));
        }
        for block in &dirty {
            self.cache.drop_block(fid, *block);
        }
        if !dirty.is_empty() {
            self.fail_writes(step, fid, wire::Refusal::SessionLost);
        }
        let node = self.node(fid);
        (node.token.right, node.attr) = (Right::None, None);
        // A link whose answer is lost may have given it a name: bytes written to it count now.
        (node.untold.private, node.unlinked) = (false, false);
        node.dir.names.clear();
        node.not_whole();
        node.tell = None;
        (
            node.untold.delegated,
            node.untold.unborn,
            node.untold.stillborn,
        ) = (0, 0, false);
        node.untold.own = Vec::new();
        node.writeback.sending = false;
        node.writeback.flush = false;
        node.privileges = Privileges::default();
        if let Some(drain) = node.drain.take() {
            drop(drain);
        }
        let mut parked = core::mem::take(&mut node.parked);
        parked.append(&mut node.behind);
        let syncing = core::mem::take(&mut node.writeback.syncing);
        self.callers.parked.extend(parked);
        for (ticket, _) in syncing {
            self.finish(
                step,
                ticket,
                crate::client::Done::Refused(wire::Refusal::SessionLost),
            );
        }
    }

    /// Requests of the lost session: changes may or may not have been applied, so they fail; a
    /// request that only asks is sent again in the next session.
    fn fail_requests(&mut self, step: &mut Step<'_>) {
        self.session.suspended = true;
        self.writeback.cleaners = 0;
        self.writeback.wants_cleaner.clear();
        // The slots that they waited for are free now.
        self.callers.parked.append(&mut self.callers.starved);
        self.forget_borrowing();
        for (_, sent) in core::mem::take(&mut self.asked.requests) {
            self.let_bytes_go(step, &sent);
            match sent.why {
                Why::Call(ticket) => {
                    self.unsend(&sent.request.op);
                    if sent.request.op.changes() {
                        let lost = crate::client::Done::Refused(wire::Refusal::SessionLost);
                        self.finish(step, ticket, lost);
                    } else {
                        self.callers.parked.push(ticket);
                    }
                }
                Why::Fill { fid, .. } => self.cache.drop_filling(fid),
                Why::Stranded(fid) => self.wait_stranded(fid),
                Why::Walk | Why::Names => self.unsend(&sent.request.op),
                Why::Back { .. }
                | Why::Lock
                | Why::Numbers
                | Why::Room { .. }
                | Why::Stable
                | Why::Privileges { .. }
                | Why::Delegated(_) => {}
            }
        }
    }
}
