//! The token server: grants and recalls, and the order in which changes are applied.
//!
//! Guarantees, whatever the messages and their order:
//! - no client is granted a right that conflicts with what another may still hold;
//! - a change is applied only when nobody else has anything cached that it makes wrong, and
//!   shown to others only when the machine that made it shows it too;
//! - a request is applied once, however often it is sent, also over a restart;
//! - no two requests wait for each other: each waits only for answers to recalls and
//!   confirmations, which clients give without waiting for the server (but, for a moment, whether
//!   a change of their own is put back), or for the oldest rename.
//!
//! The rules are Sprite's (Nelson, section 3.3) and Spritely NFS's (table 1), with tokens that
//! outlive the open.

mod api;
mod audit;
mod clock;
mod cost;
mod delegation;
mod holders;
mod lending;
mod lists;
mod locks;
mod mutant;
mod orphans;
mod requests;
mod rights_changes;
mod room;
mod rules;
mod schedules;
mod session;
mod table;
mod tokens;
mod volumes;
mod watch;

pub use api::{Bulk, By, Conn, Disk, Event, Figures, Input, On, Options, Output, TokenLine};
pub use audit::{Administered, Deed};
pub use lending::LendingFigures;
pub use mutant::Mutant;
pub use rules::{Rule, Want, rule};
pub use session::lease::{Lease, SessionLine};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use clock::VolumeClock;
use table::{File, Seq, Session, Waiting};
use tokens::sizes_told::SizesTold;
use wire::{Epoch, Fid, Place, RequestId, Right, SessionId, Time, ToClient, ToServer, Violation};

/// The server's machine.
#[derive(Clone, Debug)]
pub struct Server {
    options: Options,
    boot: Epoch,
    /// The last epoch given out.
    epoch: Epoch,
    root: Fid,
    sessions: BTreeMap<SessionId, Session>,
    conns: BTreeMap<Conn, SessionId>,
    files: BTreeMap<Fid, File>,
    waiting: BTreeMap<Seq, Waiting>,
    recheck: requests::awaited::Recheck,
    last_seq: Seq,
    syncs: BTreeMap<u64, (SessionId, RequestId)>,
    last_sync: u64,
    /// After a restart: what sessions are waited for.
    grace: session::grace::Grace,
    /// Changes that a power failure has undone, and that clients ask for again.
    redo: requests::replay::Redo,
    /// The last record that is left of each of the latest runs before this one.
    left: Vec<Place>,
    /// Sessions and objects of which the disk may have to note something new, since this step.
    held: Vec<(SessionId, Fid)>,
    /// Silent clients from which something was taken in this step; the rest that others wait for is
    /// taken at its end.
    taken_from: BTreeSet<SessionId>,
    /// Objects that somebody may hold Exclusive: all that somebody does, and hardly more.
    exclusive: BTreeSet<Fid>,
    /// Delegated changes that are done, and behind which others may be waiting for their turn.
    done: VecDeque<(SessionId, RequestId)>,
    /// When it looks next for silent clients and lost messages; no time while it waits for nobody.
    /// A look that is due stays due, however late it comes: else every new wait would put it off.
    next_tick: Option<Time>,
    /// The sessions that were asked for something of an object at the last tick or since.
    asked: BTreeSet<(SessionId, Fid)>,
    recall_batches: tokens::recall_batch::RecallBatches,
    /// Sessions without a connection, and when it is looked whether they are to end.
    silent: BTreeSet<(Time, SessionId)>,
    /// Nameless objects, and until when they stay in any case.
    lingering: BTreeSet<(Time, Fid)>,
    /// Nameless objects whose time is over, by a session that is away and may have them open;
    /// nobody else has.
    kept_away: BTreeMap<SessionId, BTreeSet<Fid>>,
    /// The clients that were told a size that they may not keep.
    sizes_told: SizesTold,
    /// Requests that are put off, and until when at most.
    patient: BTreeSet<(Time, table::Seq)>,
    recalls: u64,
    cost: cost::Cost,
    locks: crate::locks::Table,
    lock_delegations: locks::delegation::LockDelegations,
    watches: watch::queues::Watches,
    polls: watch::poll::Polls,
    clock: VolumeClock,
    delegation_policy: delegation::policy::DelegationPolicy,
    peers: session::machines::Peers,
    volumes: volumes::Volumes,
    rooms: room::Rooms,
    schedules: schedules::Schedules,
    changes: rights_changes::Changes,
    lending: lending::Lending,
}

/// The time, the store and the outputs: what every step needs.
pub(crate) struct Step<'a> {
    now: Time,
    disk: &'a mut dyn Disk,
    out: &'a mut Vec<Output>,
}

impl Server {
    /// A server at its start. `boot` is above every epoch ever used, `root` the tree's root,
    /// `known` the sessions that an earlier run left: it waits for them before it serves (none: it
    /// does not), `newest` the latest time that anything in the tree was stamped with.
    pub fn new(
        options: Options,
        now: Time,
        (boot, root): (Epoch, Fid),
        (known, newest): (Vec<SessionId>, Time),
    ) -> Self {
        let lock_delegations = locks::delegation::LockDelegations::new(options.lock_run);
        let grace = session::grace::Grace::new(now, options.grace_ns, &known);
        let session = Session {
            heard: now,
            term: boot,
            used: true,
            ..Session::default()
        };
        Self {
            next_tick: Some(now),
            options,
            boot,
            epoch: boot,
            root,
            sessions: known.into_iter().map(|id| (id, session.clone())).collect(),
            conns: BTreeMap::new(),
            files: BTreeMap::new(),
            waiting: BTreeMap::new(),
            recheck: requests::awaited::Recheck::default(),
            last_seq: 0,
            syncs: BTreeMap::new(),
            last_sync: 0,
            grace,
            redo: requests::replay::Redo::default(),
            left: Vec::new(),
            held: Vec::new(),
            taken_from: BTreeSet::new(),
            exclusive: BTreeSet::new(),
            done: VecDeque::new(),
            asked: BTreeSet::new(),
            recall_batches: BTreeSet::new(),
            silent: BTreeSet::new(),
            lingering: BTreeSet::new(),
            kept_away: BTreeMap::new(),
            sizes_told: SizesTold::default(),
            patient: BTreeSet::new(),
            recalls: 0,
            cost: cost::Cost::default(),
            locks: crate::locks::Table::default(),
            lock_delegations,
            watches: watch::queues::Watches::default(),
            polls: watch::poll::Polls::default(),
            clock: VolumeClock::new(now, newest),
            delegation_policy: delegation::policy::DelegationPolicy::default(),
            peers: session::machines::Peers::default(),
            volumes: volumes::Volumes::default(),
            rooms: room::Rooms::default(),
            schedules: schedules::Schedules::new(now),
            changes: rights_changes::Changes::new(),
            lending: lending::Lending::default(),
        }
    }

    /// Says what is left of earlier runs: of each the last record of its log.
    #[must_use]
    pub fn after(mut self, left: Vec<Place>) -> Self {
        let old = left.len().saturating_sub(wire::limits::RUNS);
        self.left = left.into_iter().skip(old).collect();
        self
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input, disk: &mut dyn Disk, out: &mut Vec<Output>) {
        let step = &mut Step { now, disk, out };
        if self.grace.is_due(now) {
            self.on_grace_due(step);
        }
        match input {
            Input::Message {
                from,
                message,
                bulk,
                bulk_len,
            } => {
                self.on_message(step, from, message, (bulk, bulk_len));
            }
            Input::Came {
                conn,
                machine,
                rights,
            } => self.on_came(conn, machine, rights),
            Input::Expelled { machine } => self.on_expelled(step, machine),
            Input::Gone { conn } => {
                self.forget_peer(conn);
                self.lending.forget_conn(conn);
                self.on_gone(now, conn);
            }
            Input::Regroup { ticket, on } => self.on_regroup(step, ticket, on),
            Input::Regrant {
                ticket,
                machine,
                rights,
            } => self.on_regrant(step, ticket, (machine, &rights)),
            Input::Cooperate { policy } => self.on_cooperate(step, policy),
            Input::Publish(volume) => self.on_publish(step, volume),
            Input::Synced { ticket, ok } => self.on_synced(step, ticket, ok),
            Input::Tick => self.on_tick(step),
        }
        self.take_rest(step);
        self.keep_schedules(step);
        self.look_at_fresh(now);
        self.tell_fresh(step);
        self.note_held(step);
    }

    /// When it wants `Input::Tick`.
    pub fn deadline(&self) -> Option<Time> {
        let lingering = self.lingering.first().map(|(until, _)| *until);
        let patient = self.patient.first().map(|(until, _)| *until);
        let thawed = self.volumes.has_thawed().then_some(0);
        let due = self.next_tick.into_iter().chain(lingering).chain(thawed);
        let gathered = self.recall_batches.first().map(|(until, ..)| *until);
        let silent = self.silent.first().map(|(until, _)| *until);
        let due = due.chain(patient).chain(gathered).chain(silent);
        let redo = self.redo.is_due().then_some(0);
        let due = due.chain(self.polls.due()).chain(redo);
        let due = due.chain(self.schedules.due());
        due.chain(self.grace.due()).min()
    }

    /// Is this session known?
    #[must_use]
    pub fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Does it wait for clients of its last run?
    #[must_use]
    pub fn in_grace(&self) -> bool {
        self.grace.lasts()
    }

    /// Does it wait for anybody?
    fn waits(&self) -> bool {
        let mut sessions = self.sessions.values();
        let asked =
            sessions.any(|session| !session.confirm_asked.is_empty() || !session.waited.is_empty());
        let waited_for = !self.waiting.is_empty() || !self.asked.is_empty();
        let waited_for = waited_for || self.locks.anybody_waits();
        let waited_for = waited_for || self.lock_delegations.asks().next().is_some();
        let told = self.oldest_watched().is_some();
        asked || told || self.grace.lasts() || waited_for
    }

    /// Figures.
    pub fn figures(&self) -> Figures {
        let (judged, looked) = self.cost.figures();
        let (locks, lock_waits) = self.lock_figures();
        let mut figures = Figures {
            sessions: self.sessions.len() as u64,
            files: self.files.len() as u64,
            waiting: self.waiting.len() as u64,
            recalls: self.recalls,
            judged,
            looked,
            grace: self.grace.lasts(),
            held: self.grace.waiting() as u64,
            locks,
            lock_waits,
            lock_files: self.lock_delegations.len() as u64,
            watches: self.watches.len() as u64,
            ..Figures::default()
        };
        for holder in self.files.values().flat_map(|file| file.holders.values()) {
            match holder.right {
                Right::None => {}
                Right::Transient => figures.transient += 1,
                Right::Shared => figures.shared += 1,
                Right::Exclusive => figures.exclusive += 1,
            }
        }
        figures
    }

    /// All tokens.
    pub fn tokens(&self) -> Vec<TokenLine> {
        let mut lines = Vec::new();
        for (&fid, file) in &self.files {
            for (&session, holder) in file.holders.iter() {
                let open = (holder.may_be_open(), holder.writes());
                let (right, epoch) = (holder.right, holder.epoch);
                assert!(
                    right < Right::Exclusive || self.exclusive.contains(&fid),
                    "a snapshot asks for each object that somebody has alone"
                );
                lines.push(TokenLine {
                    fid,
                    session,
                    right,
                    epoch,
                    open,
                });
            }
        }
        lines
    }

    fn on_message(
        &mut self,
        step: &mut Step<'_>,
        from: Conn,
        message: ToServer,
        (bulk, bulk_len): (Bulk, u32),
    ) {
        let asks = matches!(message, ToServer::Request(_)) && self.conns.contains_key(&from);
        if !asks {
            step.discard(bulk);
        }
        if let ToServer::Hello {
            version,
            session,
            name,
            volume,
        } = message
        {
            return self.on_hello(step, from, (version, session), (name, &volume));
        }
        let Some(&session) = self.conns.get(&from) else {
            // The time that this message finds to be over may have ended its connection.
            if !step.closes(from) {
                step.violation(from, Violation::Greeting);
            }
            return;
        };
        if message == ToServer::Goodbye {
            return self.on_goodbye(step, session);
        }
        self.begin_session(step, session);
        let renews = self.hear(step.now, session);
        match message {
            ToServer::Hello { .. } | ToServer::Goodbye => {}
            ToServer::Request(request) => {
                self.on_request(step, (from, session), request, (bulk, bulk_len));
            }
            ToServer::Requests(requests) => self.on_requests(step, (from, session), requests),
            ToServer::Returned(returned) => self.on_returned(step, session, returned),
            ToServer::Release {
                fid,
                epoch,
                right,
                hold,
            } => self.on_release(step, session, (fid, epoch), (right, hold)),
            ToServer::Opens { fid, hold } => self.on_opens(step, session, fid, hold),
            ToServer::Confirmed { request } => self.on_confirmed(step, session, request),
            message @ ToServer::Reassert { .. } => self.on_reassert(step, session, message),
            ToServer::PutBack { request } => self.on_put_back(step, session, request),
            ToServer::Heard { request } => self.on_heard(session, request),
            ToServer::Watch {
                watch,
                fid,
                recursive,
                next,
            } => self.watch_when_whole(step, (session, watch), (fid, recursive), next),
            ToServer::Took { watch, next } => self.on_took(step, (session, watch), next),
            ToServer::Unwatch { watch } => self.on_unwatch(session, watch),
            ToServer::Lends { addr, key } => self.on_lends((from, session), (addr, key)),
            ToServer::Leaving { blocks, spare } => self.on_leaving(step, session, (blocks, spare)),
            ToServer::KeepAlive { sent, acked } => {
                self.on_acked(step, session, acked);
                // A client that is stalled is to know that the connection lives.
                self.say_alive(step, session, if renews { sent } else { 0 });
            }
        }
        self.revive(step, session);
    }

    fn say_alive(&mut self, step: &mut Step<'_>, session: SessionId, sent: Time) {
        let clock = self.own_time(step);
        let stable = self.stable(step);
        let alive = ToClient::Alive {
            sent,
            clock,
            stable,
        };
        self.send(step, session, alive);
    }

    fn next_epoch(&mut self) -> Epoch {
        self.epoch += 1;
        self.epoch
    }

    /// Sends to a session; a message to one that is not connected is dropped: messages that must
    /// arrive are repeated.
    fn send(&self, step: &mut Step<'_>, session: SessionId, message: ToClient) {
        self.send_bulk(step, session, message, 0);
    }

    fn send_bulk(&self, step: &mut Step<'_>, session: SessionId, message: ToClient, bulk: Bulk) {
        let behind = message.is_last();
        match self.sessions.get(&session).and_then(|state| state.conn) {
            Some(to) => step.out.push(Output::Send {
                to,
                message,
                bulk,
                behind,
            }),
            None => step.discard(bulk),
        }
    }

    /// Forgets a holder that holds nothing, and the object if nothing is known of it any more.
    fn tidy(&mut self, fid: Fid, session: SessionId) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        let holder = file.holders.get(&session);
        if holder.is_some_and(table::Holder::is_idle) {
            file.holders.remove(&session);
            if let Some(state) = self.sessions.get_mut(&session) {
                state.fids.remove(&fid);
            }
        }
        self.forget_quiet(fid);
    }

    /// Forgets an object of which nothing is known.
    fn forget_quiet(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(File::is_quiet) {
            self.files.remove(&fid);
            self.forget_look(fid);
        }
    }
}

impl Step<'_> {
    fn discard(&mut self, bulk: Bulk) {
        if bulk != 0 {
            self.out.push(Output::Discard { bulk });
        }
    }

    /// Is this connection ended by now?
    fn closes(&self, conn: Conn) -> bool {
        let is = |output: &Output| matches!(output, Output::Close { conn: of, .. } if *of == conn);
        self.out.iter().any(is)
    }

    fn violation(&mut self, conn: Conn, violation: Violation) {
        self.out.push(Output::Close {
            conn,
            violation: Some(violation),
        });
    }
}
