//! The session with the server: greeting, requests and their repetition, restarts.
//!
//! A request is kept until its reply comes and sent again on each new connection, with the same
//! number. So are statements (`Opens`, `Release`) until they are noted. On a connection that lives
//! neither is said twice.

use super::LinkState;
use super::asked::{Sent, Statement, Why};
use super::versions::lenders_in;
use crate::client::api::Output;
use crate::client::lending::is_offer;
use crate::client::mutant::Mutant;
use crate::client::piece::Piece;
use crate::client::{Client, Step};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::{
    Caller, Fid, Hold, Op, Outcome, Refusal, Request, RequestId, Right, Time, ToClient, ToServer,
    VERSION, VERSION_OLDEST, Welcome,
};

impl Client {
    pub(crate) fn on_connected(&mut self, step: &mut Step<'_>, version: u32) {
        assert!((VERSION_OLDEST..=VERSION).contains(&version));
        self.session.state = LinkState::Greeting;
        self.session.version = version;
        self.delegation.overtaking.clear();
        self.session.greeted = step.now;
        self.await_welcome(step.now);
        let (session, name) = (self.session.id, self.session.name.clone());
        let volume = self.options.volume.clone();
        self.say(
            step,
            ToServer::Hello {
                version,
                session,
                name,
                volume,
            },
        );
    }

    pub(crate) fn say(&self, step: &mut Step<'_>, message: ToServer) {
        step.out.push(Output::Send {
            message: Box::new(message),
            bulk: Vec::new(),
        });
    }

    /// Sends a request, or keeps it until there is a connection.
    pub(crate) fn request(
        &mut self,
        step: &mut Step<'_>,
        (op, caller, hold): (Op, Caller, Hold),
        bulk: Vec<Piece>,
        why: Why,
    ) -> RequestId {
        if !matches!(why, Why::Stable) {
            self.ship_before(step, &op);
        }
        self.asked.last_request += 1;
        let id = self.asked.last_request;
        let call = self.why_call(&why);
        let keeps = matches!(call, Some(crate::client::Call::Read { pages: true, .. }));
        let plus = matches!(call, Some(crate::client::Call::List { plus: true, .. }));
        let walked = plus && self.walks.pay(step.now, self.options.walk_pause_ns);
        let delegable = self.options.keep_ns.is_some() && op.may_be_delegated();
        let keeps = keeps || plus || delegable;
        let ahead = self
            .inline_budget
            .wanted(&op, self.options.ahead_bytes, walked);
        // Others wait for the answer to a callback, so it waits for nothing.
        let after = match op {
            Op::GiveLocks { .. } => 0,
            _ if matches!(why, Why::Stable) => 0,
            _ => self.delegation.last_unanswered(&self.asked.requests),
        };
        let lenders = self.lending.lenders(&why);
        assert!(after < id, "a request waits for earlier ones alone");
        let request = Request {
            caller,
            hold,
            keeps,
            ahead,
            after,
            lenders,
            ..Request::new(id, op)
        };
        let sent = Sent {
            request,
            bulk,
            why,
            left: None,
            kept: false,
            said: false,
        };
        let before = self.asked.requests.insert(id, sent);
        assert!(before.is_none(), "each request has a number of its own");
        self.await_word(step.now);
        if self.session.state == LinkState::Up {
            self.send_request(step, id);
        }
        id
    }

    fn why_call(&self, why: &Why) -> Option<&crate::client::Call> {
        let Why::Call(ticket) = why else { return None };
        self.callers.calls.get(ticket).map(|running| &running.call)
    }

    pub(crate) fn send_request(&mut self, step: &mut Step<'_>, id: RequestId) {
        self.settle_taken(step);
        let acked = self.acked();
        self.keep_bytes(step, id);
        if let Some((request, bulk)) = self.ready_to_send(step.now, id, acked) {
            let message = Box::new(ToServer::Request(request));
            step.out.push(Output::Send { message, bulk });
        }
    }

    /// A request as it is now to be sent.
    pub(crate) fn ready_to_send(
        &mut self,
        now: Time,
        id: RequestId,
        acked: RequestId,
    ) -> Option<(Request, Vec<Piece>)> {
        // The request that it comes after may have been answered by a run of the server that has
        // ended; if it was refused, no other one knows of it.
        let after = self.asked.requests.get(&id)?.request.after;
        let waits = self.asked.requests.contains_key(&after);
        let sent = self.asked.requests.get_mut(&id)?;
        sent.request.lenders = lenders_in(self.session.version, sent.request.lenders);
        sent.request.after = if waits { after } else { 0 };
        sent.left.get_or_insert(now);
        sent.said = true;
        sent.request.acked = acked;
        sent.request.clock = self.clock.last_shown();
        if let Some(delegated) = &mut sent.request.delegated {
            let unfinished = self
                .asked
                .unfinished
                .values()
                .any(|(other, _)| *other == id);
            delegated.unseen = unfinished || self.kernel.is_unseen(id);
        }
        Some((sent.request.clone(), sent.bulk.clone()))
    }

    /// All requests below this one have been answered to their callers, whose machine shows it.
    pub(crate) fn acked(&self) -> RequestId {
        let unanswered = self.asked.requests.keys().next().copied();
        let unfinished = self.asked.unfinished.values().map(|(id, _)| *id).min();
        let untaken = self.kernel.first_unseen();
        let owed = self.unstable.first_owed();
        let oldest = [unanswered, unfinished, untaken, owed]
            .into_iter()
            .flatten()
            .min();
        oldest.unwrap_or(self.asked.last_request + 1)
    }

    pub(crate) fn on_message(&mut self, step: &mut Step<'_>, message: ToClient, bulk_len: u32) {
        if self.session.state == LinkState::Left {
            return;
        }
        self.session.begun |= !matches!(message, ToClient::Welcome(_)) && !is_offer(&message);
        self.hear(step.now);
        self.session.heard_at = step.now;
        self.note_stable(step, &message);
        match message {
            ToClient::Welcome(welcome) => self.on_welcome(step, &welcome),
            ToClient::Reply {
                id,
                reply,
                clock,
                renews,
                ..
            } => {
                self.clock.not_before(clock);
                self.note_answer(step, id, renews);
                if reply.outcome == Outcome::Refused(Refusal::Later) {
                    return self.ask_later(step.now, id);
                }
                self.on_reply(step, id, reply, bulk_len);
                self.repeat_held_back(step);
            }
            ToClient::Recall(recall) => self.on_recall(step, recall),
            ToClient::Confirm { request } => self.on_confirm(step, request),
            ToClient::Alive { sent, clock, .. } => {
                self.clock.hear_within(step.now, clock, sent);
                self.renew(step, sent);
            }
            ToClient::Noted { fid, stamp } => {
                if self
                    .asked
                    .statements
                    .get(&fid)
                    .is_some_and(|said| said.stamp == stamp)
                {
                    self.asked.statements.remove(&fid);
                }
            }
            ToClient::Reasserted {
                term,
                part,
                taken,
                unlocked,
            } => self.on_reasserted(step, (term, part), (taken, unlocked)),
            ToClient::Lost => self.lose(step),
            ToClient::Waited { request, outcome } => self.on_waited(step, request, outcome),
            ToClient::Watched {
                watch,
                first,
                missed,
                changes,
                end,
            } => self.on_watched(step, (watch, first), (missed, changes), end),
            message @ (ToClient::Lend { .. }
            | ToClient::Keep
            | ToClient::Share { .. }
            | ToClient::Take(_)
            | ToClient::Last(_)) => self.on_lending_message(step, message),
        }
    }

    fn on_welcome(&mut self, step: &mut Step<'_>, welcome: &Welcome) {
        if self.session.state != LinkState::Greeting {
            return; // repeated
        }
        if welcome.boot != self.session.boot {
            self.clock.begin_anew();
            self.stop_lending(step); // until that run says that clients lend
        }
        self.clock
            .hear_within(step.now, welcome.clock, self.session.greeted);
        let known = self.root.is_some();
        self.root = Some(welcome.root);
        self.node(welcome.root).directory = true;
        let fresh = self.is_fresh(step.now); // by the lease of the welcome before
        let renews = welcome.lease_ns > 0;
        if renews {
            self.session.lease_ns = welcome.lease_ns;
        }
        self.session.rights = welcome.rights.clone();
        if known && !welcome.resumed && !fresh {
            // The greeting has opened a session that nobody will use.
            self.say(step, ToServer::Goodbye);
            self.lose_unstable(step, Some(welcome));
            return self.lose(step);
        }
        self.session.state = LinkState::Up;
        self.hear(step.now);
        self.session.heard_at = step.now;
        let restarted = welcome.resumed && welcome.boot != self.session.boot;
        // Known to the server from before its restart, even if its first answer never came here: it
        // waits for us to say what we hold.
        if !welcome.resumed {
            // Nobody waits for the parts that were for an earlier run, which ended first.
            self.reassertion.parts.clear();
        } else if welcome.boot != self.session.boot {
            self.give_up_what_may_be_taken(step);
            self.look_what_is_left(step, welcome);
            self.reassert(step, welcome.term, Some(welcome.boot));
        } else if welcome.term != self.session.term {
            self.reassert(step, welcome.term, None);
        } else {
            for part in self.reassertion.parts.clone() {
                self.say(step, part);
            }
        }
        if ![welcome.boot, self.session.term].contains(&welcome.term) {
            // Others may have got directories: answers come that are of another time than what
            // the kernel has in hand.
            self.bar_directories(step);
        }
        (self.session.boot, self.session.term) = (welcome.boot, welcome.term);
        if renews || self.options.mutant == Some(Mutant::RenewsThoughStalled) {
            self.renew(step, self.session.greeted);
        }
        self.begin_keeping_alive(step.now);
        self.ask_again(step);
        self.watch_again();
        self.repeat(step);
        if !self.reassertion.parts.is_empty() {
            self.state_rooms(step);
        }
        if restarted {
            self.wait_again(step);
        }
        self.wake_up(step);
        self.resolve_all(step);
    }

    /// On a new connection: says again what is not answered.
    fn repeat(&mut self, step: &mut Step<'_>) {
        self.state_again(step);
        for question in self.watches.questions() {
            self.say(step, question);
        }
        let sent = self.asked.requests.iter().filter(|(_, sent)| !sent.kept);
        let ids: Vec<RequestId> = sent.map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            self.await_word(step.now);
        }
        self.repeat_in_order(step, ids);
    }

    pub(crate) fn state_again(&mut self, step: &mut Step<'_>) {
        let statements = self.asked.statements.values();
        let said: Vec<ToServer> = statements.map(|said| said.message.clone()).collect();
        for message in said {
            self.say(step, message);
        }
    }

    /// Says something about an object's opens or token, until it is noted.
    pub(crate) fn state_it(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        stamp: u64,
        message: ToServer,
    ) {
        self.asked.statements.insert(
            fid,
            Statement {
                stamp,
                message: message.clone(),
            },
        );
        if self.session.state == LinkState::Up {
            self.say(step, message);
        }
    }

    /// Gives back what is held above `keep`.
    pub(crate) fn release(&mut self, step: &mut Step<'_>, fid: Fid, keep: Right) {
        let stamp = self.stamp();
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if node.token.right <= keep {
            return;
        }
        node.token.right = keep;
        if node.untold.stillborn {
            return; // the server has not heard of it
        }
        // Grants still on their way are older than this, or the server keeps them.
        let epoch = node.token.grant.max(node.token.seen);
        node.token.void = node.token.void.max(epoch + 1);
        if keep < Right::Shared {
            node.token.unshared = node.token.void;
        }
        let hold = node.hold(stamp);
        let right = keep;
        self.state_it(
            step,
            fid,
            stamp,
            ToServer::Release {
                fid,
                epoch,
                right,
                hold,
            },
        );
    }

    /// Says what is open of a file that no token covers.
    pub(crate) fn say_opens(&mut self, step: &mut Step<'_>, fid: Fid) {
        let stamp = self.stamp();
        let hold = self.nodes.get(&fid).map_or(
            Hold {
                stamp,
                ..Hold::default()
            },
            |n| n.hold(stamp),
        );
        self.state_it(step, fid, stamp, ToServer::Opens { fid, hold });
    }

    pub(crate) fn on_tick(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        self.tick_liveness(step);
        self.suspend_if_due(step);
        self.tick_waits(step);
        self.give_back_unused(step);
        if now >= self.writeback.next_scan {
            self.writeback.next_scan = now + self.options.scan_ns;
            self.scan(step);
        }
        self.tick_locks(step);
        self.tick_drains(step);
        self.tick_kernel(step);
        self.tick_delegation(step);
        self.tick_starved(step);
        self.tick_lending(step);
        self.tick_room(step);
    }

    /// When it wants `Input::Tick`.
    pub fn deadline(&self) -> Option<Time> {
        let mut deadline = Time::MAX;
        if self.root.is_some() && !self.session.suspended {
            deadline = deadline.min(self.lease_end());
        }
        if self.cache.dirty() > 0 {
            deadline = deadline.min(self.writeback.next_scan);
        }
        let due = [
            self.liveness_due(),
            self.drains_due(),
            self.lock_delegation.due(),
            self.kernel_due(),
            self.bounds_due(),
            self.delegation_due(),
            self.starved_due(),
            self.waits_due(),
            self.lending.due(),
            self.room_due(),
        ];
        for due in due.into_iter().flatten() {
            deadline = deadline.min(due);
        }
        (deadline != Time::MAX).then_some(deadline)
    }

    /// Sends `Confirmed` if the server has asked for it.
    pub(crate) fn confirm(&mut self, step: &mut Step<'_>, id: RequestId) {
        if self.asked.confirms.remove(&id) {
            self.say(step, ToServer::Confirmed { request: id });
        }
    }
}
