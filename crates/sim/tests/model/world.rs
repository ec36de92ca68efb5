//! One state of the system that is explored: the machines themselves, what their kernels keep, what
//! is on its way, what the judge knows. A state is cheap to copy: its parts are shared until one
//! is changed, and each part's share of the identity is kept with it.

use super::disk::{FILE, ROOT, TinyDisk};
use super::host::{BYTES, Host, Kernel};
use super::judge::{Do, Judge, Seen};
use logic::Ticket;
use logic::client::{self, Client, Done, Invalidate};
use logic::server::{self, Conn, Server};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use wire::{Caller, Fid, Refusal, Right, Time, ToClient, ToServer};

const MS: Time = 1_000_000;
/// Without faults, everybody has an answer within this time.
const PATIENCE_NS: Time = 2_000 * MS;
/// For when only what has begun is to happen.
static NO_PROGRAMS: [&[Do]; 3] = [&[]; 3];

/// The scenario to explore.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Is there a file at the beginning?
    pub file: bool,
    /// Done before the exploration, one after the other.
    pub before: &'static [(usize, Do)],
    /// The calls of each client's program.
    pub programs: &'static [&'static [Do]],
    /// How many messages may be lost.
    pub lose: u8,
    /// How many messages may come twice.
    pub repeat: u8,
    /// How many messages may be delayed, while any number overtake them.
    pub delay: u8,
    /// How many times the clock may reach a deadline while the above happens.
    pub ticks: u8,
    /// How many steps are explored; the rest is finished in one order only.
    pub depth: usize,
    pub client_mutant: Option<client::Mutant>,
    pub server_mutant: Option<server::Mutant>,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The program of a client goes on.
    Call(usize),
    /// The oldest message of a link arrives.
    ToServer(usize),
    ToClient(usize),
    /// It is lost with its connection; another one is made.
    Lose(Way),
    /// It arrives, and will once more.
    Repeat(Way),
    /// It is delayed.
    Delay(Way),
    /// A delayed message arrives.
    Late(usize),
    /// A kernel has dropped what it was told to.
    Dropped(usize, usize),
    /// The next deadline comes.
    Tick,
}

/// Added to the number of a client's connection for the next one.
const NEXT_CONN: Conn = 100;

/// One direction of one client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up(usize),
    Down(usize),
}

/// A part of the state with its share of the identity.
#[derive(Clone, Debug)]
struct Part<T> {
    value: Arc<T>,
    mark: u64,
}

thread_local! {
    /// The text of one part: hashed at once, since a hash of many small pieces takes longer.
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

fn mark(value: &impl Debug) -> u64 {
    TEXT.with_borrow_mut(|text| {
        text.clear();
        write!(text, "{value:?}").expect("a string takes any text");
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        hasher.finish()
    })
}

impl<T: Clone + Debug> Part<T> {
    fn new(value: T) -> Self {
        let value = Arc::new(value);
        Self { value, mark: 0 }
    }

    fn change(&mut self) -> &mut T {
        self.mark = 0;
        Arc::make_mut(&mut self.value)
    }

    fn mark(&mut self) -> u64 {
        if self.mark == 0 {
            self.mark = mark(&*self.value);
        }
        self.mark
    }
}

#[derive(Clone, Debug)]
struct Core {
    server: Server,
    disk: TinyDisk,
}

#[derive(Clone, Debug)]
enum Load {
    Up(ToServer),
    Down(ToClient),
}

#[derive(Clone, Debug)]
struct Packet {
    client: usize,
    load: Load,
    bytes: Vec<u8>,
}

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    now: Time,
    hosts: Vec<Part<Host>>,
    core: Part<Core>,
    up: Vec<Vec<Part<Packet>>>,
    down: Vec<Vec<Part<Packet>>>,
    late: Vec<Part<Packet>>,
    /// The connection of each client.
    conns: Vec<Conn>,
    judge: Part<Judge>,
    /// Losses, repetitions, delays, ticks left.
    left: [u8; 4],
    last_ticket: Ticket,
    /// For people: what happens while everything settles.
    pub told: Option<Vec<String>>,
}

/// The failure in a state.
pub type Wrong = String;

impl State {
    /// Connected, and with what comes before done.
    pub fn new(scenario: &Scenario) -> Result<Self, Wrong> {
        let now = 1_000_000 * MS;
        let options = server::Options {
            resend_ns: 10 * MS,
            lease_ns: 400 * MS,
            recall_ns: 4_000 * MS,
            mutant: scenario.server_mutant,
            ..Default::default()
        };
        let server = Server::new(options, now, (100, ROOT), (vec![], 0));
        let clients = scenario.programs.len();
        let disk = TinyDisk::new(scenario.file);
        let mut state = Self {
            now,
            hosts: (0..clients).map(|at| Self::host(scenario, at)).collect(),
            core: Part::new(Core { server, disk }),
            up: vec![vec![]; clients],
            down: vec![vec![]; clients],
            late: vec![],
            conns: (0..clients).map(|at| at as u64 + 1).collect(),
            judge: Part::new(Judge::new(clients, scenario.file)),
            left: [0; 4],
            last_ticket: 0,
            told: None,
        };
        for at in 0..clients {
            state.client(at, client::Input::Connected, &[])?;
            state.settle()?;
        }
        for (at, call) in scenario.before {
            state.begin(*at, *call)?;
            state.settle()?;
        }
        state.left = [
            scenario.lose,
            scenario.repeat,
            scenario.delay,
            scenario.ticks,
        ];
        Ok(state)
    }

    fn host(scenario: &Scenario, at: usize) -> Part<Host> {
        let options = client::Options {
            slots: 16,
            later_ns: 10 * MS,
            write_delay_ns: 30 * MS,
            scan_ns: 20 * MS,
            walk_entries: 0,
            keep_ns: None,
            mutant: scenario.client_mutant,
            ..Default::default()
        };
        Part::new(Host {
            client: Client::new(options, at as u64 + 1, b"host"),
            kernel: Kernel::default(),
            slots: BTreeMap::new(),
            kept: BTreeMap::new(),
            handle: None,
            begun: 0,
            under_way: None,
            again: None,
            repeated: false,
        })
    }

    /// A number that tells states apart.
    pub fn identity(&mut self) -> u64 {
        let mut all = DefaultHasher::new();
        for host in &mut self.hosts {
            all.write_u64(host.mark());
        }
        for link in self.up.iter_mut().chain(&mut self.down) {
            all.write_usize(link.len());
            for packet in link {
                all.write_u64(packet.mark());
            }
        }
        // Delayed messages have no order among themselves.
        let mut late: Vec<u64> = self.late.iter_mut().map(Part::mark).collect();
        late.sort_unstable();
        for mark in late {
            all.write_u64(mark);
        }
        all.write_u64(self.core.mark());
        all.write_u64(self.judge.mark());
        all.write_u64(self.now);
        all.write(&self.left);
        all.finish()
    }

    /// All that may happen next.
    pub fn acts(&self, scenario: &Scenario) -> Vec<Act> {
        let mut acts = Vec::new();
        for (at, program) in scenario.programs.iter().enumerate() {
            let host = &self.hosts[at].value;
            let begins = host.again.is_some() || host.begun < program.len();
            if host.under_way.is_none() && begins {
                acts.push(Act::Call(at));
            }
            for order in 0..host.kernel.orders.len() {
                if host.may_drop(order) {
                    acts.push(Act::Dropped(at, order));
                }
            }
            for way in [Way::Up(at), Way::Down(at)] {
                if self.link(way).is_empty() {
                    continue;
                }
                acts.push(match way {
                    Way::Up(at) => Act::ToServer(at),
                    Way::Down(at) => Act::ToClient(at),
                });
                let faults = [Act::Lose(way), Act::Repeat(way), Act::Delay(way)];
                let allowed = faults.iter().zip(self.left).filter(|(_, left)| *left > 0);
                acts.extend(allowed.map(|(act, _)| *act));
            }
        }
        acts.extend((0..self.late.len()).map(Act::Late));
        if self.left[3] > 0 {
            acts.push(Act::Tick);
        }
        acts
    }

    fn link(&self, way: Way) -> &Vec<Part<Packet>> {
        match way {
            Way::Up(at) => &self.up[at],
            Way::Down(at) => &self.down[at],
        }
    }

    fn take(&mut self, way: Way) -> Part<Packet> {
        match way {
            Way::Up(at) => self.up[at].remove(0),
            Way::Down(at) => self.down[at].remove(0),
        }
    }

    fn tell(&mut self, scenario: &Scenario, act: Act) {
        if self.told.is_some() {
            let line = self.describe(scenario, act);
            self.told
                .iter_mut()
                .for_each(|told| told.push(line.clone()));
        }
    }

    /// Describes a step, for people.
    pub fn describe(&self, scenario: &Scenario, act: Act) -> String {
        let first = |way| format!("{:?}", self.link(way)[0].value.load);
        let about = match act {
            Act::Call(at) => match self.hosts[at].value.again {
                Some(call) => format!("{call:?} again"),
                None => format!(
                    "{:?}",
                    scenario.programs[at].get(self.hosts[at].value.begun)
                ),
            },
            Act::ToServer(at) => first(Way::Up(at)),
            Act::ToClient(at) => first(Way::Down(at)),
            Act::Lose(way) | Act::Repeat(way) | Act::Delay(way) => first(way),
            Act::Late(nth) => format!("{:?}", self.late[nth].value.load),
            Act::Dropped(at, nth) => format!("{:?}", self.hosts[at].value.kernel.orders[nth].1),
            Act::Tick => format!("at {} ms", self.now / MS),
        };
        format!("{act:?} {about}")
    }

    /// Takes one step and looks at the result.
    pub fn step(&mut self, scenario: &Scenario, act: Act) -> Result<(), Wrong> {
        match act {
            Act::Call(at) if self.hosts[at].value.again.is_some() => self.begin_again(at)?,
            Act::Call(at) => {
                let call = scenario.programs[at][self.hosts[at].value.begun];
                self.hosts[at].change().begun += 1;
                self.begin(at, call)?;
            }
            Act::ToServer(at) => {
                let packet = self.take(Way::Up(at));
                self.arrive(&packet)?;
            }
            Act::ToClient(at) => {
                let packet = self.take(Way::Down(at));
                self.arrive(&packet)?;
            }
            Act::Lose(way) => {
                self.left[0] -= 1;
                self.reconnect(way)?;
            }
            Act::Repeat(way) => {
                self.left[1] -= 1;
                let packet = self.take(way);
                self.late.push(packet.clone());
                self.arrive(&packet)?;
            }
            Act::Delay(way) => {
                self.left[2] -= 1;
                let packet = self.take(way);
                self.late.push(packet);
            }
            Act::Late(nth) => {
                let packet = self.late.remove(nth);
                self.arrive(&packet)?;
            }
            Act::Dropped(at, nth) => self.dropped(at, nth)?,
            Act::Tick => {
                self.left[3] -= 1;
                self.tick()?;
            }
        }
        self.check()
    }

    /// The connection of a client ends, with all that is under way on it, and another is made.
    fn reconnect(&mut self, (Way::Up(at) | Way::Down(at)): Way) -> Result<(), Wrong> {
        self.up[at].clear();
        self.down[at].clear();
        self.late.retain(|packet| packet.value.client != at);
        let conn = self.conns[at];
        self.conns[at] += NEXT_CONN;
        self.server(server::Input::Gone { conn })?;
        self.client(at, client::Input::Gone, &[])?;
        self.client(at, client::Input::Connected, &[])
    }

    fn arrive(&mut self, packet: &Part<Packet>) -> Result<(), Wrong> {
        let at = packet.value.client;
        let bytes = &packet.value.bytes;
        let bulk_len = bytes.len() as u32;
        match packet.value.load.clone() {
            Load::Up(message) => {
                let bulk = self.core.change().disk.hold(bytes.clone());
                let from = self.conns[at];
                self.server(server::Input::Message {
                    from,
                    message,
                    bulk,
                    bulk_len,
                })
            }
            Load::Down(message) => {
                let message = Box::new(message);
                self.client(at, client::Input::Message { message, bulk_len }, bytes)
            }
        }
    }

    fn dropped(&mut self, at: usize, nth: usize) -> Result<(), Wrong> {
        let kernel = &mut self.hosts[at].change().kernel;
        let (id, what) = kernel.orders.remove(nth);
        match what {
            Invalidate::Inode { fid, ranges, .. } if fid == FILE => {
                kernel.size = None;
                if ranges.iter().any(|(from, to)| *from == 0 && *to > 0) {
                    kernel.page = None;
                }
            }
            Invalidate::Name { .. } | Invalidate::Names { .. } | Invalidate::Expire { .. } => {
                kernel.name = None;
            }
            Invalidate::Sizes { fid } if fid == FILE => kernel.size = None,
            Invalidate::Inode { .. }
            | Invalidate::Sizes { .. }
            | Invalidate::Listing { .. }
            | Invalidate::Unused { .. }
            | Invalidate::Turn { .. } => {}
        }
        self.client(at, client::Input::Invalidated { id }, &[])
    }

    fn deadline(&self) -> Option<Time> {
        let clients = self.hosts.iter();
        let clients = clients.filter_map(|host| host.value.client.deadline());
        clients.chain(self.core.value.server.deadline()).min()
    }

    fn tick(&mut self) -> Result<(), Wrong> {
        self.now = self.deadline().unwrap_or(self.now + MS).max(self.now);
        let now = self.now;
        let due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        for at in 0..self.hosts.len() {
            if due(self.hosts[at].value.client.deadline()) {
                self.client(at, client::Input::Tick, &[])?;
            }
        }
        if due(self.core.value.server.deadline()) {
            self.server(server::Input::Tick)?;
        }
        Ok(())
    }

    fn client(&mut self, at: usize, input: client::Input, bulk: &[u8]) -> Result<(), Wrong> {
        let mut outputs = Vec::new();
        let now = self.now;
        self.hosts[at]
            .change()
            .client
            .handle(now, input, &mut outputs);
        // This kernel takes its answers in at once, so that its locks are free.
        let mut turns = Vec::new();
        for output in outputs {
            match output {
                client::Output::Invalidate {
                    id,
                    what: Invalidate::Turn { .. },
                } => turns.push(id),
                output => self.client_output(at, output, bulk)?,
            }
        }
        for id in turns {
            self.client(at, client::Input::Invalidated { id }, &[])?;
        }
        Ok(())
    }

    fn client_output(
        &mut self,
        at: usize,
        output: client::Output,
        bulk: &[u8],
    ) -> Result<(), Wrong> {
        use client::Output;
        let host = self.hosts[at].change();
        match output {
            Output::Send {
                message,
                bulk: pieces,
            } => {
                let bytes = host.gather(&pieces, bulk);
                let load = Load::Up(*message);
                self.up[at].push(Part::new(Packet {
                    client: at,
                    load,
                    bytes,
                }));
            }
            Output::Done { ticket, done } => return self.done(at, ticket, &done, bulk),
            Output::Keep { request, bulk: of } => {
                let bytes = host.gather(&of, bulk);
                host.kept.insert(request, bytes);
            }
            Output::Forget { request } => {
                if host.kept.remove(&request).is_none() {
                    return Err(format!("client {at} keeps nothing for #{request}"));
                }
            }
            // Nobody is killed here.
            Output::Abandoned { .. } | Output::Spent { .. } | Output::Look { .. } => {}
            Output::Fill { slot, from, len } => {
                let to = (from + len) as usize;
                host.put(slot, 0, &bulk[from as usize..to]);
            }
            Output::CopyIn { slot, at: to, .. } => {
                let byte = host.written();
                host.put(slot, to as usize, &[byte]);
            }
            Output::Zero { slot, at: from, .. } => {
                let bytes = host.slots.entry(slot).or_default();
                bytes[(from as usize).min(BYTES)..].fill(0);
            }
            Output::Invalidate { id, what } => host.kernel.orders.push((id, what)),
            // This kernel takes its answers in at once, and keeps no attributes.
            Output::Outdated { .. } => {}
            Output::Watched { .. } => return Err(format!("client {at} watches nothing")),
            Output::Peer(_) => return Err(format!("client {at} lends")),
            Output::Hangup | Output::Redial => return Err(format!("client {at} hangs up")),
            Output::Event(event) => return Err(format!("client {at}: {event:?}")),
        }
        Ok(())
    }

    fn server(&mut self, input: server::Input) -> Result<(), Wrong> {
        use server::Output;
        let mut outputs = Vec::new();
        let core = self.core.change();
        core.server
            .handle(self.now, input, &mut core.disk, &mut outputs);
        for output in outputs {
            let disk = &mut self.core.change().disk;
            match output {
                Output::Send { to, message, bulk } => {
                    let bytes = disk.bulks.remove(&bulk).unwrap_or_default();
                    let Some(client) = self.conns.iter().position(|conn| *conn == to) else {
                        continue;
                    };
                    let load = Load::Down(message);
                    self.down[client].push(Part::new(Packet {
                        client,
                        load,
                        bytes,
                    }));
                }
                Output::Discard { bulk } => {
                    disk.bulks.remove(&bulk);
                }
                Output::Sync { .. } => return Err("nobody asked for a sync".into()),
                Output::Close { conn, violation } => {
                    return Err(format!("the server ends connection {conn}: {violation:?}"));
                }
                Output::Event(
                    event @ (server::Event::Fenced { .. } | server::Event::Away { .. }),
                ) => {
                    return Err(format!("server: {event:?}"));
                }
                Output::Event(_) => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, call: Do) -> Result<(), Wrong> {
        if let Some(told) = &mut self.told {
            told.push(format!("client {at} begins {call:?}"));
        }
        self.judge.change().begin(at, call);
        self.hosts[at].change().repeated = false;
        self.ask(at, call)
    }

    /// The kernel asks, whatever it knows of the name, and is the same thread.
    fn begin_again(&mut self, at: usize) -> Result<(), Wrong> {
        let host = self.hosts[at].change();
        let Some(call) = host.again.take() else {
            return Ok(());
        };
        host.kernel.name = None;
        host.repeated = true;
        self.ask(at, call)
    }

    fn ask(&mut self, at: usize, call: Do) -> Result<(), Wrong> {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let host = self.hosts[at].change();
        host.under_way = Some((ticket, call));
        match host.ask(call) {
            Ok(seen) => self.end(at, seen),
            Err(call) => {
                let caller = Caller::default();
                let input = client::Input::Call {
                    ticket,
                    caller,
                    thread: 1,
                    waits: client::Waits::default(),
                    call,
                };
                self.client(at, input, &[])
            }
        }
    }

    fn end(&mut self, at: usize, seen: Seen) -> Result<(), Wrong> {
        let call = self.hosts[at].change().under_way.take();
        if self.judge.change().end(at, seen) {
            return Ok(());
        }
        Err(format!(
            "client {at}: {call:?} shows {seen:?}, which no order explains"
        ))
    }

    fn done(&mut self, at: usize, ticket: Ticket, done: &Done, bulk: &[u8]) -> Result<(), Wrong> {
        let host = self.hosts[at].change();
        let Some((_, call)) = host.under_way.filter(|(current, _)| *current == ticket) else {
            return Err(format!(
                "client {at}: an answer to no call, {ticket}: {done:?}"
            ));
        };
        if *done == Done::Refused(Refusal::Again) && !host.repeated {
            host.under_way = None;
            host.again = Some(call);
            return Ok(());
        }
        match host.learn(call, done, bulk) {
            Some(seen) => self.end(at, seen),
            None => Err(format!("client {at}: {call:?} is answered {done:?}")),
        }
    }

    /// No two rights conflict; the server believes at least what is held; kernels keep only what a
    /// right covers; changed blocks are under Exclusive.
    fn check(&self) -> Result<(), Wrong> {
        let believed = self.core.value.server.tokens();
        let mut held: Vec<logic::check::Held> = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let own = host.value.client.tokens();
            let right = |fid: Fid| {
                let line = own.iter().find(|line| line.fid == fid);
                line.map_or(Right::None, |line| line.right)
            };
            let kernel = &host.value.kernel;
            let uncovered = (kernel.page.is_some() && right(FILE) < Right::Transient)
                || (kernel.size.is_some() && right(FILE) < Right::Shared)
                || (kernel.name.is_some() && right(ROOT) < Right::Shared);
            if uncovered {
                return Err(format!("client {at} has no right to what {kernel:?} keeps"));
            }
            held.extend(own.iter().map(|line| (at as u64 + 1, *line)));
        }
        logic::check::check(&held, Some(&believed)).map_err(|broken| broken.to_string())
    }

    /// Does nobody wait, and is nothing on its way?
    fn quiet(&self) -> bool {
        let still = |host: &Part<Host>| {
            let host = &host.value;
            host.under_way.is_none() && host.again.is_none() && host.kernel.idle()
        };
        self.hosts.iter().all(still)
            && self.late.is_empty()
            && self.up.iter().chain(&self.down).all(Vec::is_empty)
            && self.core.value.server.figures().waiting == 0
    }

    /// Everything happens, in one fair order, until nobody waits.
    fn settle(&mut self) -> Result<(), Wrong> {
        let nothing = Scenario {
            file: false,
            before: &[],
            programs: &NO_PROGRAMS[..self.hosts.len()],
            lose: 0,
            repeat: 0,
            delay: 0,
            ticks: 0,
            depth: 0,
            client_mutant: None,
            server_mutant: None,
        };
        self.left = [0; 4];
        let until = self.now + PATIENCE_NS;
        while !self.quiet() {
            let act = self.acts(&nothing).first().copied();
            self.tell(&nothing, act.unwrap_or(Act::Tick));
            match act {
                Some(act) => self.step(&nothing, act)?,
                None if self.now < until => {
                    self.tick()?;
                    self.check()?;
                }
                None => {
                    return Err("stuck: nothing is lost any more, and somebody still waits".into());
                }
            }
        }
        Ok(())
    }

    /// The rest of the programs, without faults; then everybody looks once more.
    pub fn finish(&mut self, scenario: &Scenario) -> Result<(), Wrong> {
        self.settle()?;
        for (at, program) in scenario.programs.iter().enumerate() {
            while self.hosts[at].value.begun < program.len() {
                let call = program[self.hosts[at].value.begun];
                self.hosts[at].change().begun += 1;
                self.begin(at, call)?;
                self.settle()?;
            }
        }
        for at in 0..self.hosts.len() {
            let looks: &[Do] = match (scenario.file, self.hosts[at].value.handle) {
                (false, _) => &[Do::Lookup],
                (true, None) => &[Do::Stat, Do::OpenRead, Do::Read, Do::Close],
                (true, Some(_)) => &[Do::Stat, Do::Read, Do::Close],
            };
            for call in looks {
                self.begin(at, *call)?;
                self.settle()?;
            }
        }
        Ok(())
    }
}
