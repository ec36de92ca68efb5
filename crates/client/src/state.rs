//! The machine, its memory and the calls that wait: everything behind the client's one lock.
//!
//! Only the thread that holds the lock changes the state. An input is handled, and the bytes
//! that its outputs move are moved, under one holding of it; effects are queued in the order of the
//! outputs ([`crate::effects`]) and carried out afterwards. A call is in `replies` from the moment
//! it was made until its answer is queued; its bytes (if it is a write that was not answered at
//! once) in `data` for as long, or until the machine needs them no more if nobody waits for its
//! answer.

use crate::arena::Arena;
use crate::bytes::{self, Bytes, Data, Given, NOTHING_GIVEN};
use crate::effects::Effect;
use crate::front::{Completion, Counters, Done, MachineOptions, News, OnDone, OnNews};
use crate::peers::{Duty, Peers};
use crate::trim::Trim;
use blocks::Pool;
use logic::Ticket;
use logic::client::{Client as Machine, Event, Input, Output, PeerOutput};
use net::{Addresses, Bulk, Link, Meters, Reading};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wire::{RequestId, SessionId, ToClient, ToServer, WatchId};

/// A request that was sent.
struct Asked {
    kind: &'static str,
    at_ns: u64,
    bytes: u64,
}

/// Everything behind the lock.
pub(crate) struct State {
    pub(crate) machine: Machine,
    arena: Arena,
    trim: Trim,
    pub(crate) replies: BTreeMap<Ticket, OnDone>,
    data: BTreeMap<Ticket, Data>,
    /// Bytes of requests that may have to be sent again, also after they were answered.
    kept: HashMap<RequestId, Bulk>,
    /// The watchers.
    pub(crate) watchers: HashMap<WatchId, OnNews>,
    last_watch: WatchId,
    last_ticket: Ticket,
    /// The connection whose messages count.
    pub(crate) link: Option<Arc<Link>>,
    /// Other clients, once this one is wired up.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Nothing is called any more.
    pub(crate) stopped: bool,
    /// Why the last connection ended.
    pub(crate) last_end: Option<String>,
    /// So many connections in a row were refused by the server, for this same reason.
    pub(crate) refusals: u32,
    /// The server of a replica with which the session is, and the one that is dialed in its place.
    elsewhere: Option<(Addresses, Addresses)>,
    sent: BTreeMap<&'static str, u64>,
    received: BTreeMap<&'static str, u64>,
    counters: Counters,
    /// Requests that the server has not answered: when the first one was sent, with how many bytes.
    asked: HashMap<RequestId, Asked>,
    /// How long it took the server to answer, by kind.
    answers: Meters,
    /// Reused, to spare allocations.
    outputs: Vec<Output>,
    pub(crate) effects: Vec<Effect>,
}

impl State {
    pub(crate) fn new(options: MachineOptions, session: SessionId, name: &str) -> State {
        State {
            machine: Machine::new(options, session, name.as_bytes()),
            arena: Arena::new(),
            trim: Trim::default(),
            replies: BTreeMap::new(),
            data: BTreeMap::new(),
            kept: HashMap::new(),
            watchers: HashMap::new(),
            last_watch: 0,
            last_ticket: 0,
            link: None,
            peers: None,
            stopped: false,
            last_end: None,
            refusals: 0,
            elsewhere: None,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            counters: Counters::default(),
            asked: HashMap::new(),
            answers: Meters::default(),
            outputs: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Registers a call.
    pub(crate) fn ticket(&mut self, reply: OnDone) -> Ticket {
        self.last_ticket += 1;
        self.replies.insert(self.last_ticket, reply);
        self.last_ticket
    }

    /// Gives the machine a call. The bytes of a write are kept only if it is not answered at once.
    pub(crate) fn handle_call(&mut self, (ticket, bytes): Given<'_>, input: Input) {
        self.step(input, (ticket, bytes), Vec::new());
        if !bytes.is_empty() && self.replies.contains_key(&ticket) {
            let kept = || Data::Given(bytes::kept(bytes));
            self.data.entry(ticket).or_insert_with(kept);
        }
    }

    /// Gives the machine an input that is no call. `beside`: the bytes beside the message.
    pub(crate) fn handle(&mut self, input: Input, beside: Vec<u8>) {
        self.step(input, NOTHING_GIVEN, beside);
    }

    /// Registers who watches.
    pub(crate) fn watch(&mut self, on_news: OnNews) -> WatchId {
        self.last_watch += 1;
        self.watchers.insert(self.last_watch, on_news);
        self.last_watch
    }

    /// Gives the machine one input, moves the bytes that its outputs move, and leaves in `effects`
    /// what must leave.
    fn step(&mut self, input: Input, given: Given<'_>, mut beside: Vec<u8>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        // Read under the lock: the machine's time never runs backwards.
        let now_ns = net::clock::now_ns();
        if let Input::Message { message, .. } = &input {
            self.note_message(now_ns, message, beside.len());
        }
        self.machine.handle(now_ns, input, &mut outputs);
        let last_beside = outputs.iter().rposition(bytes::needs_beside);
        for (index, output) in outputs.drain(..).enumerate() {
            let last = last_beside.is_none_or(|last| last <= index);
            self.carry_out(output, now_ns, given, (&mut beside, last));
        }
        net::spare::give(beside);
        self.outputs = outputs;
        self.trim.note(self.machine.used_slots());
    }

    /// When something is due.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let blocks = (self.arena.taken(), self.machine.used_slots());
        let trim = self.trim.due(net::clock::now_ns, blocks);
        [self.machine.deadline(), trim].into_iter().flatten().min()
    }

    /// Gives up the memory of blocks that the cache does not need; true if that was much.
    pub(crate) fn give_back(&mut self, now_ns: u64) -> bool {
        let blocks = (self.arena.taken(), self.machine.used_slots());
        let count = self.trim.turn(now_ns, blocks);
        self.arena.release(self.machine.free_slots().iter(), count);
        count > 0
    }

    /// Where the memory of blocks comes from.
    pub(crate) fn pool(&self) -> Pool {
        self.arena.pool()
    }

    /// Gives up the blocks of all slots that hold nothing.
    pub(crate) fn release_free(&mut self) {
        self.arena
            .release(self.machine.free_slots().iter(), u32::MAX);
    }

    /// The same of the slots that were freed last, without a look at all the others: as many as
    /// there are blocks beyond those in use.
    pub(crate) fn release_freed(&mut self) {
        let over = self.arena.taken().saturating_sub(self.machine.used_slots());
        let newest_first = self.machine.free_slots().iter().rev();
        self.arena.release(newest_first, over);
    }

    fn carry_out(
        &mut self,
        output: Output,
        now_ns: u64,
        given: Given<'_>,
        (beside, last): (&mut Vec<u8>, bool),
    ) {
        let mut bytes = Bytes {
            arena: &mut self.arena,
            data: &mut self.data,
            kept: &mut self.kept,
            given,
            beside,
        };
        if bytes.apply(&output) {
            return;
        }
        match output {
            Output::Send { message, bulk } => {
                let bulk = bytes.bulk(&bulk);
                self.note_sent(now_ns, &message, bulk.len() as u64);
                if let Some(link) = &self.link {
                    *self.sent.entry(message.kind()).or_default() += 1;
                    self.effects
                        .push(Effect::Send(Arc::clone(link), message, bulk));
                }
            }
            Output::Done { ticket, done } => {
                let bytes = match &done {
                    Done::Read { pieces } | Done::Opened { bytes: pieces, .. } => {
                        bytes.gather(pieces, last)
                    }
                    _ => net::Bulk::empty(),
                };
                self.spend(ticket);
                self.reply(ticket, Completion { done, bytes });
            }
            Output::Abandoned { ticket, done } => {
                let bytes = net::Bulk::empty();
                self.reply(ticket, Completion { done, bytes });
            }
            Output::Spent { ticket } => self.spend(ticket),
            Output::Look { callers } => self.effects.push(Effect::Look(callers)),
            Output::Watched {
                watch,
                missed,
                changes,
                end,
            } => {
                let news = News {
                    missed,
                    changes,
                    end,
                };
                self.tell_watcher(watch, news);
            }
            Output::Invalidate { id, what } => self.effects.push(Effect::Invalidate(id, what)),
            Output::Outdated { fid } => self.effects.push(Effect::Outdated(fid)),
            Output::Peer(output) => self.see_to(output, beside),
            Output::Hangup => self.end_link(Effect::Hangup),
            Output::Redial => self.end_link(Effect::GiveUp),
            Output::Event(event) => self.tell(&event),
            Output::Fill { .. }
            | Output::CopyIn { .. }
            | Output::Zero { .. }
            | Output::Keep { .. }
            | Output::Forget { .. } => {}
        }
    }

    /// Queues what is to be done about other clients; bytes that are lent are those of now.
    fn see_to(&mut self, output: PeerOutput, beside: &mut Vec<u8>) {
        let duty = match output {
            PeerOutput::Listen { secret, looks } => {
                let peers = self.peers.clone().filter(|_| looks);
                let look = peers.map(|peers| Effect::Peer(peers, Duty::Look));
                self.effects.extend(look);
                let ip = self.link.as_ref().and_then(|link| link.own_ip());
                Duty::Listen(ip, secret)
            }
            PeerOutput::Close => Duty::Close,
            PeerOutput::Borrow { id, elsewhere } => Duty::Borrow(id, elsewhere),
            PeerOutput::GiveUp { id } => Duty::GiveUp(id),
            PeerOutput::Soon { ask } => Duty::Soon(ask),
            PeerOutput::Lent { ask, have, bulk } => {
                let mut bytes = Bytes {
                    arena: &mut self.arena,
                    data: &mut self.data,
                    kept: &mut self.kept,
                    given: NOTHING_GIVEN,
                    beside,
                };
                Duty::Lend(ask, have, bytes.bulk(&bulk))
            }
        };
        let peers = self.peers.clone();
        self.effects
            .extend(peers.map(|peers| Effect::Peer(peers, duty)));
    }

    /// The bytes of a write are not needed any more.
    fn spend(&mut self, ticket: Ticket) {
        if let Some(Data::Given(bytes)) = self.data.remove(&ticket) {
            net::spare::give(bytes);
        }
    }

    fn reply(&mut self, ticket: Ticket, completion: Completion) {
        if let Some(reply) = self.replies.remove(&ticket) {
            self.effects.push(Effect::Reply(reply, completion));
        }
    }

    fn tell_watcher(&mut self, watch: WatchId, news: News) {
        let tell = match news.end {
            Some(_) => self.watchers.remove(&watch),
            None => self.watchers.get(&watch).cloned(),
        };
        let told = tell.map(|tell| Effect::News(tell, news));
        self.effects.extend(told);
    }

    fn end_link(&mut self, how: fn(Arc<Link>) -> Effect) {
        let link = self.link.clone();
        self.effects.extend(link.map(how));
    }

    /// Another server that has the replica is dialed, since the one before does not answer, or does
    /// not have it any more. It knows nothing of the session.
    pub(crate) fn dials_elsewhere(&mut self, from: &Addresses, to: &Addresses) {
        // It may not be reached either: the session is with the first of them all the time.
        let left = self.elsewhere.take();
        let left = left.map_or_else(|| from.clone(), |(left, _)| left);
        self.elsewhere = Some((left, to.clone())).filter(|(left, to)| !left.meet(to));
    }

    /// A server has greeted the client.
    pub(crate) fn is_greeted(&mut self) {
        (self.last_end, self.refusals, self.elsewhere) = (None, 0, None);
    }

    fn tell_session_lost(&mut self) {
        let Some((from, to)) = self.elsewhere.take() else {
            self.counters.sessions_lost += 1;
            return tracing::warn!(
                "the session was lost: the server did not hear from this client"
            );
        };
        let why = self.last_end.as_deref().unwrap_or_default();
        tracing::warn!(
            %from, %to, why,
            "the server of a replica is gone: the mount goes on at another one, which has the same"
        );
    }

    fn tell(&mut self, event: &Event) {
        match *event {
            Event::SessionLost => {
                self.asked.clear();
                self.tell_session_lost();
            }
            Event::ChangesLost { count } => {
                self.counters.lost_changes += count;
                tracing::error!(
                    count,
                    "changes of names and attributes that the server had not been told of are lost"
                );
            }
            Event::DataLost { fid, bytes } => {
                self.counters.lost_bytes += bytes;
                self.counters.last_lost = Some(fid);
                tracing::error!(%fid, bytes, "changed bytes are lost: nobody took them");
            }
            Event::Conflict { fid, made, bytes } => {
                tracing::warn!(
                    %fid, %made, bytes,
                    "others changed what this machine had changed, while it was away: its own is \
                     kept in a file beside it; `ariel conflicts` lists these"
                );
            }
            Event::VolumeGone { volume } => {
                tracing::warn!(
                    volume,
                    "a mount point leads to a volume that is not there: `ariel volume undelete` \
                     brings it back, `ariel volume unmount` removes the mount point"
                );
            }
            Event::WriteBackRefused { fid, refusal } => {
                self.counters.refused_write_backs += 1;
                let count = self.counters.refused_write_backs;
                // While a disk is full there may be very many, and the first tells it all.
                if count.is_power_of_two() {
                    tracing::warn!(%fid, ?refusal, count, "write-backs are refused for now");
                }
            }
        }
    }

    fn note_sent(&mut self, now_ns: u64, message: &ToServer, bytes: u64) {
        let requests = match message {
            ToServer::Request(request) => std::slice::from_ref(request),
            ToServer::Requests(requests) => requests,
            _ => &[],
        };
        for request in requests {
            self.asked.entry(request.id).or_insert(Asked {
                kind: request.op.kind(),
                at_ns: now_ns,
                bytes,
            });
        }
    }

    fn note_message(&mut self, now_ns: u64, message: &ToClient, bytes: usize) {
        if let ToClient::Reply { id, .. } = message
            && let Some(asked) = self.asked.remove(id)
        {
            let bytes = asked.bytes + bytes as u64;
            let took_ns = now_ns.saturating_sub(asked.at_ns);
            self.answers.note(asked.kind, took_ns, bytes);
        }
    }

    /// How long it took the server to answer, by kind.
    pub(crate) fn answers(&self) -> Vec<(&'static str, Reading)> {
        self.answers.read()
    }

    /// A message came.
    pub(crate) fn count_received(&mut self, kind: &'static str) {
        *self.received.entry(kind).or_default() += 1;
    }

    /// A connection was made.
    pub(crate) fn count_connection(&mut self) {
        self.counters.connections += 1;
    }

    /// All counters.
    pub(crate) fn counters(&self) -> Counters {
        let list = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(kind, count)| (*kind, *count)).collect()
        };
        Counters {
            sent: list(&self.sent),
            received: list(&self.received),
            ..self.counters.clone()
        }
    }
}
