//! A server, its store, some clients and a network whose every message can be held, dropped,
//! repeated or overtaken. After each step the tokens of all machines are compared: no two conflict,
//! and no client holds more than the server believes.

mod outputs;
mod peers;
mod restarts;
mod squash;

use super::disk::MemoryDisk;
use super::room::Machine;
use super::show;
use logic::client::{self, Call, Client, Done, PeerInput};
use logic::peers::Policy;
use logic::server::{self, Server};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{Caller, Fid, Right, Time, ToClient, ToServer, VERSION};

const SECOND: Time = 1_000_000_000;
const SLOTS: u32 = 64;
/// Changes kept for a watcher.
const WATCH_CHANGES: usize = 3;
/// The server's name as a sender or a receiver.
pub const SERVER: char = 'S';

enum Load {
    ToServer(ToServer, Vec<u8>),
    /// True: nothing that was sent before it is overtaken by it.
    ToClient(ToClient, Vec<u8>, bool),
    /// The server has ended the connection.
    Closed,
    /// From one client to another.
    Between(PeerInput, Vec<u8>),
}

struct Packet {
    from: char,
    to: char,
    conn: u64,
    load: Load,
}

/// Everything.
pub struct World {
    pub now: Time,
    began: Time,
    shown: Time,
    silent_ns: Time,
    /// Lending begins with the second reading of a file.
    rereads: bool,
    server: Server,
    pub disk: MemoryDisk,
    pub machines: BTreeMap<char, Machine>,
    flying: VecDeque<Packet>,
    held: BTreeSet<(char, char)>,
    /// Syncs that the store has not finished, and whether it waits to be told to.
    syncs: VecDeque<u64>,
    pub slow_disk: bool,
    pub quiet: bool,
    pub trace: Vec<String>,
    /// The last answer of any call, and of each machine's.
    pub answer: String,
    pub answers: BTreeMap<char, String>,
    /// Sessions that are over, whether their clients know it or not.
    over: BTreeSet<u64>,
    /// Where the last listing ended.
    pub position: u64,
    /// Where the one before it ended.
    pub earlier: u64,
    boot: u64,
    /// Where the logs of earlier runs end.
    left: Vec<wire::Place>,
    last: u64,
    /// Of all clients.
    options: client::Options,
    /// The questions of clients to each other.
    questions: BTreeMap<u64, peers::Question>,
    /// Those whose next word to another client is a lie.
    pub liars: BTreeSet<char>,
    /// Machines whose root is nobody.
    pub limited: BTreeMap<char, wire::Rights>,
}

/// In how large parts a restarted server is told, how long a file may be whose bytes come with its
/// look-up, how many entries are looked ahead, and how long changes in delegated directories are
/// kept.
type Limits = (usize, u32, u32, Option<Time>);

/// How the cell is set up.
pub struct Manner {
    /// Clients say what they open.
    pub announced: bool,
    /// Room is given ahead.
    pub room_ahead: bool,
    /// Lending begins with the second reading of a file, and kernels keep what is read once.
    pub rereads: bool,
}

fn options(silent_ns: Time, rereads: bool) -> server::Options {
    server::Options {
        silent_ns,
        reread_files: rereads.then_some(2),
        watch_changes: WATCH_CHANGES,
        ..server::Options::default()
    }
}

impl World {
    /// A server and connected clients with these limits; it fences who is silent for so long.
    pub fn new(
        names: &[char],
        (part, ahead_bytes, walk_entries, keep_ns): Limits,
        manner: &Manner,
        silent_ns: Time,
    ) -> Self {
        let (now, boot) = (1000 * SECOND, 100);
        let usual = client::Options::default();
        let server = Server::new(
            options(silent_ns, manner.rereads),
            now,
            (boot, Fid::root(1)),
            (vec![], 0),
        );
        let mut world = Self {
            now,
            began: now,
            shown: now,
            silent_ns,
            rereads: manner.rereads,
            server,
            disk: MemoryDisk::new(),
            machines: BTreeMap::new(),
            flying: VecDeque::new(),
            held: BTreeSet::new(),
            syncs: VecDeque::new(),
            slow_disk: false,
            quiet: true,
            trace: Vec::new(),
            answer: String::new(),
            answers: BTreeMap::new(),
            over: BTreeSet::new(),
            position: 0,
            earlier: 0,
            boot,
            left: Vec::new(),
            last: 0,
            options: client::Options {
                slots: SLOTS,
                least_slots: 3,
                ahead_bytes,
                walk_entries,
                walk_misses: 2,
                part,
                keep_ns,
                announced: manner.announced,
                room_ahead: manner.room_ahead,
                lends: client::Lends::Idle,
                passing_bytes: if manner.rereads {
                    1
                } else {
                    usual.passing_bytes
                },
                ..Default::default()
            },
            questions: BTreeMap::new(),
            liars: BTreeSet::new(),
            limited: BTreeMap::new(),
        };
        for (at, name) in names.iter().enumerate() {
            world.start(*name, at as u64 + 1);
            world.connect(*name);
        }
        world.settle();
        world.quiet = false;
        world
    }

    /// A client process begins.
    fn start(&mut self, name: char, session: u64) {
        let client = Client::new(self.options.clone(), session, name.to_string().as_bytes());
        let machine = Machine::new(client, SLOTS as usize);
        self.machines.insert(name, machine);
    }

    fn say(&mut self, line: String) {
        if self.quiet {
            return;
        }
        if self.now > self.shown + 100_000_000 {
            let ms = (self.now - self.began) / 1_000_000;
            self.trace
                .push(format!("  at {}.{:03} s", ms / 1000, ms % 1000));
        }
        self.shown = self.now;
        self.trace.push(format!("  {line}"));
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    // Connections and messages.

    pub fn connect(&mut self, name: char) {
        let conn = self.number();
        if self.machines.get(&name).is_some_and(|machine| machine.left) {
            self.start(name, conn);
        }
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        (machine.conn, machine.plugged) = (Some(conn), true);
        self.come(name, conn);
        self.client(name, client::Input::Connected { version: VERSION }, &[]);
    }

    /// The connection ends; messages on their way are lost.
    pub fn cut(&mut self, name: char) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        machine.plugged = false;
        let Some(conn) = machine.conn.take() else {
            return;
        };
        self.flying.retain(|packet| packet.conn != conn);
        self.client(name, client::Input::Gone, &[]);
        self.server(server::Input::Gone { conn });
    }

    fn cut_from(&mut self, name: char, plugged: bool) {
        self.cut(name);
        self.machines
            .get_mut(&name)
            .expect("a machine of this name")
            .plugged = plugged;
    }

    /// Connects every machine that lost its connection by a restart.
    pub fn redial(&mut self) {
        for name in self.machines.keys().copied().collect::<Vec<_>>() {
            let machine = &self.machines[&name];
            if machine.plugged && machine.conn.is_none() {
                self.connect(name);
            }
        }
    }

    pub fn hold(&mut self, link: (char, char)) {
        self.held.insert(link);
    }

    pub fn free(&mut self, link: (char, char)) {
        self.held.remove(&link);
    }

    fn nth_held(&self, link: (char, char), nth: usize) -> usize {
        let on_link = |packet: &&(usize, &Packet)| (packet.1.from, packet.1.to) == link;
        let all: Vec<_> = self.flying.iter().enumerate().collect();
        let found = all.iter().filter(on_link).nth(nth - 1);
        found.expect("so many messages are held").0
    }

    /// The nth message held on a link arrives now.
    pub fn deliver(&mut self, link: (char, char), nth: usize) {
        let at = self.nth_held(link, nth);
        let packet = self.flying.remove(at).expect("it was found there");
        self.arrive(packet);
    }

    /// The nth message held on a link is lost with its connection, and another one is made.
    pub fn lose(&mut self, link: (char, char), nth: usize) {
        let at = self.nth_held(link, nth);
        self.flying.remove(at);
        let name = if link.0 == SERVER { link.1 } else { link.0 };
        self.cut_from(name, true);
        self.held.remove(&link);
        self.connect(name);
    }

    /// The nth message held between two clients is lost.
    pub fn lose_between(&mut self, link: (char, char), nth: usize) {
        let at = self.nth_held(link, nth);
        self.flying.remove(at);
    }

    /// Clients lend to each other from now on, or not.
    pub fn cooperate(&mut self, policy: Policy) {
        self.server(server::Input::Cooperate { policy });
    }

    /// The cell's groups are others; on one client's mount, or on all.
    pub fn regroup(&mut self, on: Option<&str>) {
        let on = on.map(|name| vec![(0, name.as_bytes().to_vec())]);
        self.server(server::Input::Regroup { ticket: 1, on });
    }

    /// The nth message held on a link is there twice.
    pub fn repeat(&mut self, link: (char, char), nth: usize) {
        let at = self.nth_held(link, nth);
        let old = &self.flying[at];
        let load = match &old.load {
            Load::ToServer(message, bytes) => Load::ToServer(message.clone(), bytes.clone()),
            Load::ToClient(message, bytes, behind) => {
                Load::ToClient(message.clone(), bytes.clone(), *behind)
            }
            Load::Closed => Load::Closed,
            Load::Between(input, bytes) => Load::Between(input.clone(), bytes.clone()),
        };
        let copy = Packet {
            from: old.from,
            to: old.to,
            conn: old.conn,
            load,
        };
        self.flying.insert(at + 1, copy);
    }

    fn send(&mut self, packet: Packet) {
        if self.held.contains(&(packet.from, packet.to)) {
            let text = match &packet.load {
                Load::ToServer(message, _) => show::to_server(&self.disk, message),
                Load::ToClient(message, _, _) => show::to_client(&self.disk, message),
                Load::Closed => "end of connection".into(),
                Load::Between(input, _) => self.between_text(input).unwrap_or_default(),
            };
            self.say(format!("{} .. {} {text}", packet.from, packet.to));
        }
        self.flying.push_back(packet);
    }

    fn arrive(&mut self, packet: Packet) {
        let Packet {
            from,
            to,
            conn,
            load,
        } = packet;
        let load = match load {
            Load::Between(input, bytes) => return self.arrive_between((from, to), input, &bytes),
            load => load,
        };
        let name = if from == SERVER { to } else { from };
        if self.machines[&name].conn != Some(conn) {
            return;
        }
        match load {
            Load::ToServer(message, bytes) => {
                if !matches!(message, ToServer::KeepAlive { .. }) {
                    let text = show::to_server(&self.disk, &message);
                    self.say(format!("{from} -> {to} {text}"));
                }
                let bulk_len = bytes.len() as u32;
                let bulk = if bytes.is_empty() {
                    0
                } else {
                    self.disk.hold(bytes)
                };
                self.server(server::Input::Message {
                    from: conn,
                    message,
                    bulk,
                    bulk_len,
                });
            }
            Load::ToClient(message, bytes, behind) => {
                if !matches!(message, ToClient::Alive { .. }) {
                    let text = show::to_client(&self.disk, &message);
                    let order = if behind { ", behind the bytes" } else { "" };
                    self.say(format!("{from} -> {to} {text}{order}"));
                }
                let (message, bulk_len) = (Box::new(message), bytes.len() as u32);
                self.client(to, client::Input::Message { message, bulk_len }, &bytes);
            }
            Load::Closed => {
                let plugged = self.machines[&name].plugged;
                self.cut_from(name, plugged);
                if plugged {
                    self.connect(name);
                }
            }
            Load::Between(..) => {}
        }
        self.check();
    }

    /// Everything happens that needs no time: messages not held, kernels that are not slow.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let ready = |packet: &Packet| !self.held.contains(&(packet.from, packet.to));
            if let Some(at) = self.flying.iter().position(ready) {
                let packet = self.flying.remove(at).expect("it was found there");
                self.arrive(packet);
            } else if !self.drop_one() && !self.sync_one() {
                return;
            }
        }
        panic!("messages beget messages without end");
    }

    fn drop_one(&mut self) -> bool {
        let willing =
            |(_, machine): &(&char, &Machine)| !machine.slow && !machine.dropping.is_empty();
        let Some(name) = self.machines.iter().find(willing).map(|(name, _)| *name) else {
            return false;
        };
        self.finish_drop(name, 1);
        true
    }

    /// The kernel has dropped the next thing that it was told to.
    pub fn finish_drop(&mut self, name: char, nth: usize) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        let (id, text) = machine
            .dropping
            .remove(nth - 1)
            .expect("the kernel was told to drop something");
        self.say(format!("{name}'s kernel drops {text}"));
        self.client(name, client::Input::Invalidated { id }, &[]);
        self.check();
    }

    fn sync_one(&mut self) -> bool {
        !self.slow_disk && self.finish_sync()
    }

    /// The store has finished the next sync.
    pub fn finish_sync(&mut self) -> bool {
        let Some(ticket) = self.syncs.pop_front() else {
            return false;
        };
        self.disk.sync();
        self.say("S's store is synced".into());
        self.server(server::Input::Synced { ticket, ok: true });
        true
    }

    // Machines.

    /// The caller of the oldest call of a machine that is not answered is interrupted.
    pub fn interrupt(&mut self, name: char) {
        let ticket = self.oldest(name);
        self.client(name, client::Input::Interrupt { ticket }, &[]);
    }

    /// The same caller is killed.
    pub fn kill(&mut self, name: char) {
        let ticket = self.oldest(name);
        self.client(name, client::Input::Abandon { ticket }, &[]);
    }

    /// The kernel says that a signal came to that caller.
    pub fn signal(&mut self, name: char) {
        let number = self.oldest(name);
        self.client(name, client::Input::Signalled { number }, &[]);
    }

    fn oldest(&self, name: char) -> u64 {
        let machine = self.machines.get(&name).expect("a machine of this name");
        let oldest = machine.calls.keys().next();
        *oldest.expect("a call waits")
    }

    pub fn call(&mut self, name: char, label: &str, call: Call, bytes: Option<Vec<u8>>) {
        let ticket = self.number();
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        let thread = machine.thread;
        machine.calls.insert(ticket, label.to_owned());
        if let Some(bytes) = bytes {
            machine.writes.insert(ticket, bytes);
        }
        self.answer.clear();
        let caller = Caller::default();
        self.client(
            name,
            client::Input::Call {
                ticket,
                caller,
                thread,
                waits: client::Waits {
                    thread,
                    number: ticket,
                },
                call,
            },
            &[],
        );
        self.check();
    }

    pub fn client(&mut self, name: char, input: client::Input, bulk: &[u8]) {
        let mut outputs = Vec::new();
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        machine.client.handle(self.now, input, &mut outputs);
        for output in outputs {
            self.client_output(name, output, bulk);
        }
    }

    fn on_done(&mut self, name: char, (ticket, done): (u64, &Done), bulk: &[u8]) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        let label = machine
            .calls
            .remove(&ticket)
            .expect("a call is answered once");
        machine.left |= label == "leave";
        if let Done::Entry { fid, .. } = done {
            // Made in a directory that is delegated to it, and not known to the store.
            let path = label.split(' ').nth(1).unwrap_or_default().to_owned();
            self.disk.labels.entry(*fid).or_insert(path);
        }
        let bytes = match done {
            Done::Read { pieces } | Done::Opened { bytes: pieces, .. } => {
                machine.gather(pieces, bulk)
            }
            _ => vec![],
        };
        machine.writes.remove(&ticket);
        if let Done::Listing { start, entries } = done {
            let at = entries.last().map(|entry| entry.position);
            self.earlier = self.position;
            self.position = at
                .or((*start > 0).then_some(*start))
                .unwrap_or(self.position);
        }
        let text = show::done(&self.disk, done, &bytes);
        self.say(format!("{name} {label}: {text}"));
        self.answers.insert(name, text.clone());
        self.answer = text;
    }

    pub fn server(&mut self, input: server::Input) {
        use server::Output;
        let mut outputs = Vec::new();
        self.server
            .handle(self.now, input, &mut self.disk, &mut outputs);
        for output in outputs {
            match output {
                Output::Send {
                    to,
                    message,
                    bulk,
                    behind,
                } => {
                    let bytes = self.disk.bulks.remove(&bulk).unwrap_or_default();
                    let by_conn = |(_, machine): &(&char, &Machine)| machine.conn == Some(to);
                    let name = self.machines.iter().find(by_conn).map(|(name, _)| *name);
                    if let Some(name) = name {
                        let load = Load::ToClient(message, bytes, behind);
                        self.send(Packet {
                            from: SERVER,
                            to: name,
                            conn: to,
                            load,
                        });
                    }
                }
                Output::Sync { ticket } => self.syncs.push_back(ticket),
                Output::Discard { bulk } => {
                    self.disk.bulks.remove(&bulk);
                }
                Output::Close { conn, violation } => {
                    if let Some(violation) = violation {
                        self.say(format!("S: violation {violation:?}"));
                    }
                    let by_conn = |(_, machine): &(&char, &Machine)| machine.conn == Some(conn);
                    let name = self.machines.iter().find(by_conn).map(|(name, _)| *name);
                    if let Some(name) = name {
                        self.send(Packet {
                            from: SERVER,
                            to: name,
                            conn,
                            load: Load::Closed,
                        });
                    }
                }
                Output::Event(event) => {
                    if let server::Event::Fenced { session } | server::Event::Closed { session } =
                        event
                    {
                        self.over.insert(session);
                    }
                    let text = self.event(event);
                    if !text.is_empty() {
                        self.say(format!("S {text}"));
                    }
                }
            }
        }
    }

    fn event(&self, event: server::Event) -> String {
        match event {
            server::Event::Fenced { session } => {
                format!("fences {}", self.who(session))
            }
            server::Event::Opened { name, .. } => {
                format!("opens a session of {}", String::from_utf8_lossy(&name))
            }
            server::Event::Closed { session } => {
                format!("closes the session of {}", self.who(session))
            }
            // The answer says it.
            server::Event::Administered(_) => String::new(),
            server::Event::GraceOver => "serves again".into(),
            server::Event::InForce { done: true, .. } => "has the change in force".into(),
            server::Event::InForce { done: false, .. } => "cannot put it in force yet".into(),
            server::Event::Away { session, .. } => {
                format!("takes what is wanted from {}", self.who(session))
            }
            server::Event::Back { session } => {
                format!("has {} back", self.who(session))
            }
            server::Event::Taken { session, fid } => {
                let what = show::name(&self.disk, fid);
                format!("takes {what} from {}", self.who(session))
            }
            server::Event::Unlocked { session, fid } => {
                let what = show::name(&self.disk, fid);
                format!("takes the locks of {what} from {}", self.who(session))
            }
            server::Event::Aside { session, name, .. } => {
                format!("makes {name:?} for {}", self.who(session))
            }
            server::Event::Scheduled { op, refused } => {
                let end = match refused {
                    Some(refusal) => format!("refused {refusal:?}"),
                    None => "done".into(),
                };
                format!("by schedule: {}: {end}", super::show::volume_op(&op))
            }
        }
    }

    fn who(&self, session: u64) -> char {
        let own = |(_, machine): &(&char, &Machine)| machine.client.session() == session;
        self.machines
            .iter()
            .find(own)
            .map_or('?', |(name, _)| *name)
    }

    // Time.

    pub fn wait(&mut self, until: Time) {
        let (mut at, mut times) = (self.now, 0);
        loop {
            self.settle();
            let clients = self
                .machines
                .values()
                .filter_map(|machine| machine.client.deadline());
            let next = clients
                .chain(self.server.deadline())
                .min()
                .filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            times = if self.now == at { times + 1 } else { 0 };
            at = self.now;
            assert!(
                times < 100,
                "a machine asks for the same moment again and again"
            );
            self.tick();
        }
        self.now = until;
    }

    fn tick(&mut self) {
        let due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= self.now);
        let late = |(_, machine): &(&char, &Machine)| due(machine.client.deadline());
        let late: Vec<char> = self
            .machines
            .iter()
            .filter(late)
            .map(|(name, _)| *name)
            .collect();
        let server = due(self.server.deadline());
        for name in late {
            self.client(name, client::Input::Tick, &[]);
        }
        if server {
            self.server(server::Input::Tick);
        }
        self.settle();
        self.check();
    }

    // Invariants and questions.

    /// No two rights conflict, changed blocks are under Exclusive, and the server believes each
    /// client to hold at least what it holds.
    fn check(&self) {
        let machines = self.machines.values().map(|machine| &machine.client);
        // Near the end of its lease a client uses nothing, whatever others have by then.
        let held: Vec<logic::check::Held> = machines
            .filter(|client| client.serves() && !self.over.contains(&client.session()))
            .flat_map(|client| {
                client
                    .tokens()
                    .into_iter()
                    .map(|line| (client.session(), line))
            })
            .collect();
        let believed = self.server.tokens();
        let known = (!self.server.figures().grace).then_some(&believed[..]);
        if let Err(broken) = logic::check::check(&held, known) {
            panic!("{broken}");
        }
    }

    /// At the end of a scenario nobody waits.
    pub fn is_quiet(&self) -> bool {
        let calls = self
            .machines
            .values()
            .all(|machine| machine.calls.is_empty());
        calls && self.flying.is_empty() && self.server.figures().waiting == 0
    }

    /// The state of a file by its names in Spritely NFS, table 1: from what is really open and
    /// dirty at the machines, or, where a client holds no token, from what it told the server.
    pub fn state(&self, fid: Fid) -> &'static str {
        let (mut open, mut writers, mut dirty, mut dirty_reader) = (0, 0, false, false);
        for machine in self.machines.values() {
            let session = machine.client.session();
            let own = machine
                .client
                .tokens()
                .into_iter()
                .find(|line| line.fid == fid);
            let (is_open, writes, is_dirty) = match own {
                Some(line) if line.right >= Right::Shared => (
                    line.opens.0 + line.opens.1 > 0,
                    line.opens.1 > 0,
                    line.dirty > 0,
                ),
                _ => {
                    let known = self.server.tokens();
                    let known = known.iter().find(|l| l.fid == fid && l.session == session);
                    known.map_or((false, false, false), |line| {
                        (line.open.0, line.open.1, false)
                    })
                }
            };
            open += u32::from(is_open);
            writers += u32::from(writes);
            dirty |= is_dirty;
            dirty_reader |= is_dirty && is_open;
        }
        match (open, writers) {
            (0, _) if dirty => "CLOSED_DIRTY",
            (0, _) => "CLOSED",
            (1, 0) if dirty_reader => "ONE_RDRDIRTY",
            (1, 0) => "ONE_READER",
            (1, _) => "ONE_WRITER",
            (_, 0) => "MULT_READERS",
            _ => "WRITE_SHARED",
        }
    }

    /// The server's table for one object.
    pub fn tokens(&self, fid: Fid) -> String {
        let lines = self.server.tokens();
        let of = |line: &&server::TokenLine| line.fid == fid;
        let one =
            |line: &server::TokenLine| format!(" {} {:?}", self.who(line.session), line.right);
        let all: String = lines.iter().filter(of).map(one).collect();
        if all.is_empty() {
            " nobody".into()
        } else {
            all
        }
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, line: String) {
        self.say(line);
    }
}
