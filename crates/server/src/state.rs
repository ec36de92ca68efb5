//! The machine, its store and its connections: everything behind the server's one lock.
//!
//! Only the thread that holds the lock changes these fields. An input is handled and its outputs
//! are carried out under one holding of it, so messages are queued on a link in the order in which
//! the machine made them. Links are flushed afterwards, without the lock: queued messages may leave
//! before that. `store` is there exactly while the server serves; without it no input reaches the
//! machine.

use crate::bulks::Bulks;
use crate::congested::Congested;
use crate::counts::{Counts, Moved};
use crate::disk::StoreDisk;
use crate::held::HeldLog;
use crate::profile::Profile;
use crate::scrub::Checks;
use crate::seals::Seals;
use crate::sharing::Share;
use crate::{Administered, Gate};
use access::Members;
use logic::Ticket;
use logic::server::{Bulk, Conn, Event, Input, Output, Server as Machine};
use net::{CloseReason, Identity, Link};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use store::Store;
use wire::{SessionId, ToClient, Violation};

/// For so long the deletion of a volume can be undone: a week.
const DELETED_NS: u64 = 7 * 24 * 3_600 * 1_000_000_000;

/// Everything behind the lock.
pub(crate) struct State {
    /// The rights of each machine.
    pub(crate) gate: Gate,
    pub(crate) machine: Machine,
    pub(crate) store: Option<Store>,
    /// The rights that clients may hold, for the next run.
    held: HeldLog,
    pub(crate) bulks: Bulks,
    pub(crate) links: BTreeMap<Conn, Arc<Link>>,
    pub(crate) congested: Congested,
    /// The room of the disk that the store shares with others of the server.
    share: Share,
    /// Names of sessions, for people.
    pub(crate) names: BTreeMap<SessionId, String>,
    pub(crate) received: Counts,
    pub(crate) sent: Counts,
    /// Bytes of messages and beside them that came, and that were sent.
    pub(crate) moved: Moved,
    pub(crate) profile: Profile,
    /// The findings of checks of the store.
    pub(crate) checks: Checks,
    /// To the thread that makes things stable.
    pub(crate) syncs: Option<Sender<Ticket>>,
    /// To those who wait until the cell's groups are in force, by ticket; and the last ticket.
    changes: BTreeMap<Ticket, Sender<bool>>,
    last_change: Ticket,
    /// When the store wants to be tended: it has changed, and that is not all.
    tend_at: Option<u64>,
    /// Why the server stopped serving.
    pub(crate) failure: Option<String>,
    /// The sealer of the server's word to lenders.
    seals: Seals,
    /// Reused, to spare an allocation for each input.
    outputs: Vec<Output>,
}

/// The work for the time after the lock has been let go.
#[derive(Default)]
pub(crate) struct After {
    /// Links with something queued.
    pub(crate) flush: Vec<Arc<Link>>,
    /// The next deadline.
    pub(crate) deadline: Option<u64>,
    /// The server has just stopped serving.
    pub(crate) failure: Option<String>,
    /// To be noted for those who look after the cell.
    pub(crate) administered: Vec<Administered>,
    /// Machines whose connections were closed, and why.
    pub(crate) refused: Vec<(wire::MachineId, &'static str)>,
}

impl State {
    pub(crate) fn new(
        (machine, gate): (Machine, Gate),
        store: Store,
        held: HeldLog,
        share: Share,
    ) -> State {
        State {
            gate,
            share,
            machine,
            store: Some(store),
            held,
            bulks: Bulks::default(),
            links: BTreeMap::new(),
            congested: Congested::default(),
            names: BTreeMap::new(),
            received: Counts::default(),
            sent: Counts::default(),
            moved: Moved::default(),
            profile: Profile::default(),
            checks: Checks::default(),
            syncs: None,
            changes: BTreeMap::new(),
            last_change: 0,
            // Work that the last run left may be due.
            tend_at: Some(0),
            failure: None,
            seals: Seals::new(),
            outputs: Vec::new(),
        }
    }

    /// The cell's groups are others from now on. `told` hears whether every client has given up
    /// what it judged by before; if it cannot be known who did, they stay as they were.
    pub(crate) fn regroup(&mut self, members: Members, told: Sender<bool>, after: &mut After) {
        let Some(store) = &mut self.store else {
            return;
        };
        let before = store.members().clone();
        let on = members.changed_on(&before);
        store.set_members(members);
        self.last_change += 1;
        let ticket = self.last_change;
        let (sender, own) = std::sync::mpsc::channel();
        self.changes.insert(ticket, sender);
        self.handle(Input::Regroup { ticket, on }, after);
        match own.try_recv() {
            Ok(done) => {
                if let Some(store) = self.store.as_mut().filter(|_| !done) {
                    store.set_members(before);
                }
                let _ = told.send(done);
            }
            // Some are asked first.
            Err(_) => drop(self.changes.insert(ticket, told)),
        }
    }

    /// The rights of a machine are others from now on. `told` hears whether every client of it has
    /// given up what it judged by before; false: it cannot be known yet.
    pub(crate) fn regrant(
        &mut self,
        machine: wire::MachineId,
        told: Sender<bool>,
        after: &mut After,
    ) {
        if self.store.is_none() {
            return;
        }
        self.last_change += 1;
        let ticket = self.last_change;
        self.changes.insert(ticket, told);
        let rights = self.rights_of(machine);
        let input = Input::Regrant {
            ticket,
            machine,
            rights,
        };
        self.handle(input, after);
    }

    /// Nobody waits for groups or rights any more: their askers hear that they are not in force.
    pub(crate) fn end_waits(&mut self) {
        self.changes.clear();
    }

    /// Other stores on the disk hear what this one has promised.
    pub(crate) fn note_promised(&self) {
        self.share.note(self.machine.promised_log_bytes());
    }

    /// Gives the machine one input and carries out what comes of it.
    pub(crate) fn handle(&mut self, input: Input, after: &mut After) {
        let Some(store) = &mut self.store else {
            return;
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        let (mut logged, mut firm) = (false, false);
        let share = self.share.is_shared().then_some(&self.share);
        // Where room is scarce, until it shows on the disk what the step has taken.
        let alone = share.and_then(|share| share.begin(store.room(store.root().volume)));
        let mut disk = StoreDisk {
            store,
            bulks: &mut self.bulks,
            held: &mut self.held,
            logged: &mut logged,
            firm: &mut firm,
            share,
        };
        // Read under the lock: the machine's time never runs backwards.
        let now = net::clock::now_ns();
        let kind = self.profile.came(now, &input);
        self.machine.handle(now, input, &mut disk, &mut outputs);
        if let Some(share) = share {
            share.note(self.machine.promised_log_bytes());
        }
        // Before the changes that it may be about: that a client holds more may be noted too early.
        self.held.write_out();
        let mut written = if logged { store.write_out() } else { Ok(()) };
        drop(alone);
        if firm && written.is_ok() {
            written = store.sync_handle().sync();
        }
        if let Err(error) = written {
            // Not one of these may be carried out: the changes that they report could be lost.
            return self.fail(format!("the store cannot be written: {error}"), after);
        }
        self.held.write_lowered();
        let stepped = net::clock::now_ns();
        self.profile.stepped(kind, stepped.saturating_sub(now));
        for output in outputs.drain(..) {
            self.carry_out(output, stepped, after);
        }
        self.outputs = outputs;
        if logged && self.tend_at.is_none() {
            self.tend(stepped);
        }
        self.care(after);
    }

    /// Sees to it that a store that ails is tended, though nothing changes.
    pub(crate) fn care(&mut self, after: &mut After) {
        if self.tend_at.is_none() && self.store.as_ref().is_some_and(Store::ails) {
            self.tend_at = Some(0);
        }
        after.deadline = self.deadline();
    }

    /// The earlier one of the machine's and the store's.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let deadlines = [self.machine.deadline(), self.tend_at];
        deadlines.into_iter().flatten().min()
    }

    /// Does the work that is due.
    pub(crate) fn on_deadline(&mut self, after: &mut After) {
        let now = net::clock::now_ns();
        if self.tend_at.is_some_and(|due| due <= now) {
            self.tend(now);
        }
        if self.machine.deadline().is_some_and(|due| due <= now) {
            self.handle(Input::Tick, after);
        }
    }

    fn tend(&mut self, now: u64) {
        if let Some(store) = &mut self.store {
            // Time in the store goes on from the latest that it knows, as that of files does.
            let time = store.newest().max(net::clock::wall_ns());
            if store.purge_deleted(time, DELETED_NS) && store.write_out().is_err() {
                tracing::debug!("what was purged is written with the next change");
            }
        }
        self.tend_at = self.store.as_mut().and_then(|store| store.tend(now));
        if self.held.has_grown() && !self.machine.in_grace() {
            self.held.shorten(self.machine.held());
        }
    }

    fn carry_out(&mut self, output: Output, now: u64, after: &mut After) {
        match output {
            Output::Send {
                to,
                mut message,
                bulk,
                behind,
            } => {
                self.seals.put_into(&mut message);
                let bytes = self.send(to, (&message, behind), bulk, after);
                self.profile.sent(now, to, &message, bytes);
            }
            Output::Sync { ticket } => self.sync(ticket),
            Output::Discard { bulk } => net::spare::give(self.bulks.take(bulk)),
            Output::Close { conn, violation } => self.close(conn, violation, after),
            Output::Event(event) => self.tell(event, after),
        }
    }

    /// How many bytes went beside it.
    fn send(
        &mut self,
        to: Conn,
        (message, behind): (&ToClient, bool),
        bulk: Bulk,
        after: &mut After,
    ) -> u64 {
        let bytes = self.bulks.take(bulk);
        let beside = bytes.len() as u64;
        let Some(link) = self.links.get(&to) else {
            return 0;
        };
        self.sent.add(message.kind());
        let body = wire::encode(message);
        self.moved.sent += body.len() as u64 + beside;
        if behind {
            link.send_behind(body, bytes.into());
        } else {
            link.send(body, bytes.into());
        }
        if !after.flush.iter().any(|other| other.id() == link.id()) {
            after.flush.push(Arc::clone(link));
        }
        beside
    }

    fn sync(&mut self, ticket: Ticket) {
        if let Some(syncs) = &self.syncs {
            // The thread ends only after its sender is gone from here.
            let _ = syncs.send(ticket);
        }
    }

    fn close(&mut self, conn: Conn, violation: Option<Violation>, after: &mut After) {
        let Some(link) = self.links.get(&conn) else {
            return;
        };
        let reason = match violation {
            None => CloseReason::Stopped,
            Some(violation) => {
                let text = describe(violation);
                tracing::warn!(peer = %link.peer(), reason = text, "a connection is closed");
                if let Identity::Machine { id, .. } = link.identity() {
                    after.refused.push((*id, text));
                }
                // Messages that are queued for it still leave.
                return link.refuse(text);
            }
        };
        link.close(reason);
    }

    fn tell(&mut self, event: Event, after: &mut After) {
        match event {
            Event::Opened { session, name } => {
                let name = String::from_utf8_lossy(&name).into_owned();
                tracing::info!(
                    session = format_args!("{session:016x}"),
                    name,
                    "a client came"
                );
                self.names.insert(session, name);
            }
            Event::Closed { session } => {
                let name = self.names.remove(&session).unwrap_or_default();
                tracing::info!(
                    session = format_args!("{session:016x}"),
                    name,
                    "a client left"
                );
            }
            Event::Fenced { session } => {
                let name = self.names.remove(&session).unwrap_or_default();
                tracing::warn!(
                    session = format_args!("{session:016x}"),
                    name,
                    "a session was ended: its machine is not trusted, or was silent for 30 days"
                );
            }
            Event::InForce { ticket, done } => {
                if let Some(waits) = self.changes.remove(&ticket) {
                    // Its asker may have given up.
                    let _ = waits.send(done);
                }
            }
            Event::Away { .. }
            | Event::Back { .. }
            | Event::Taken { .. }
            | Event::Unlocked { .. }
            | Event::Aside { .. } => self.tell_of_silence(event),
            Event::Scheduled { op, refused: None } => {
                tracing::info!(?op, "a schedule was kept, or a release published");
            }
            Event::Scheduled {
                op,
                refused: Some(why),
            } => {
                tracing::warn!(
                    ?op,
                    ?why,
                    "a schedule cannot be kept, or a release published; it is tried again"
                );
            }
            // The audit log is written without the lock.
            Event::Administered(done) => after.administered.push(done),
            Event::GraceOver => {
                self.held.complete();
                self.held.write_out();
                tracing::info!("the clients of the last run have been heard");
            }
        }
    }

    /// Of a client that is silent, or comes back.
    fn tell_of_silence(&self, event: Event) {
        match event {
            Event::Away { session, .. } => {
                let name = self.names.get(&session).cloned().unwrap_or_default();
                tracing::warn!(
                    session = format_args!("{session:016x}"),
                    name,
                    "a client is silent: others get what they want of what it holds"
                );
            }
            Event::Back { session } => {
                let name = self.names.get(&session).cloned().unwrap_or_default();
                tracing::info!(
                    session = format_args!("{session:016x}"),
                    name,
                    "a client that was silent has come back"
                );
            }
            Event::Taken { session, fid } => {
                tracing::debug!(session = format_args!("{session:016x}"), %fid, "a token is taken");
            }
            Event::Unlocked { session, fid } => {
                tracing::warn!(
                    session = format_args!("{session:016x}"),
                    %fid,
                    "what a silent client had locked of a file is free"
                );
            }
            Event::Aside { session, dir, name } => {
                let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
                tracing::warn!(
                    session = format_args!("{session:016x}"),
                    %dir,
                    name,
                    "what a silent client had made got another name: others had taken its name"
                );
            }
            _ => {}
        }
    }

    /// Stops serving: from now on nothing is answered, and every connection ends.
    pub(crate) fn fail(&mut self, reason: String, after: &mut After) {
        if self.store.take().is_none() {
            return;
        }
        self.end_waits();
        tracing::error!(reason, "serving stops");
        for link in self.links.values() {
            link.close(CloseReason::Stopped);
        }
        self.tend_at = None;
        self.failure = Some(reason.clone());
        after.failure = Some(reason);
        after.deadline = None;
    }
}

fn describe(violation: Violation) -> &'static str {
    match violation {
        Violation::Undecodable => "its bytes are not a message",
        Violation::Version => "it speaks another version of the protocol",
        Violation::Greeting => "it spoke before its greeting, or greeted twice",
        Violation::Bounds => "it broke a bound of the protocol",
        Violation::Forbidden => "it asked for what clients may not do",
        Violation::Foreign => {
            "it named a session that another machine has begun: unmount, and mount again here"
        }
        Violation::NoVolume => "it asked for a volume that is not there: see `ariel volume list`",
        Violation::NotGranted => {
            "it asked for a volume of which its machine was granted nothing: mount another \
             one with --volume, or ask an administrator (`ariel machine grant`)"
        }
        Violation::NoReplicas => {
            "it is older than replicas of volumes: install what this server runs on its machine"
        }
    }
}
