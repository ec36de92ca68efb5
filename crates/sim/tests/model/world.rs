//! One state of the system that is explored: the machines themselves, what their kernels keep, what
//! is on its way, what the judge knows. A state is cheap to copy and to tell from others: its parts
//! are shared, and numbered by their marks.

use super::disk::{ROOT, TinyDisk};
use super::host::Host;
use super::hub::{self, Hub, NEXT_CONN};
use super::judge::{self, Do, Judge};
use super::link::{Load, Packet, Way};
use super::memo::{Memo, Part, Wrong};
use super::steps::{self, Effect};
use logic::client::{self, Client};
use logic::server::{self, Conn, Server};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;
use wire::Time;

const MS: Time = 1_000_000;
/// Without faults, everybody has an answer within this time.
const PATIENCE_NS: Time = 2_000 * MS;

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

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    now: Time,
    hosts: Vec<Part<Host>>,
    hub: Part<Hub>,
    up: Vec<Vec<Rc<Packet>>>,
    down: Vec<Vec<Rc<Packet>>>,
    late: Vec<Rc<Packet>>,
    /// The connection of each client.
    conns: Vec<Conn>,
    judge: Part<Judge>,
    /// Losses, repetitions, delays, ticks left.
    left: [u8; 4],
}

impl State {
    /// A number that tells states apart.
    pub fn identity(&self) -> u64 {
        let mut all = DefaultHasher::new();
        for host in &self.hosts {
            all.write_u64(host.mark);
        }
        for link in self.up.iter().chain(&self.down) {
            all.write_usize(link.len());
            for packet in link {
                all.write_u64(packet.mark);
            }
        }
        // Delayed messages have no order among themselves.
        let mut late: Vec<u64> = self.late.iter().map(|packet| packet.mark).collect();
        late.sort_unstable();
        for mark in late {
            all.write_u64(mark);
        }
        all.write_u64(self.hub.mark);
        all.write_u64(self.judge.mark);
        all.write_u64(self.now);
        all.write(&self.left);
        all.finish()
    }

    /// All that may happen next, without the programs' next calls.
    fn happens(&self, acts: &mut Vec<Act>, at: usize) {
        let host = &self.hosts[at];
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

    /// All that may happen next while programs go on.
    pub fn acts(&self, programs: &[&[Do]]) -> Vec<Act> {
        let mut acts = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let calls = programs.get(at).map_or(0, |program| program.len());
            let begins = host.again.is_some() || host.begun < calls;
            if host.under_way.is_none() && begins {
                acts.push(Act::Call(at));
            }
            self.happens(&mut acts, at);
        }
        acts.extend((0..self.late.len()).map(Act::Late));
        if self.left[3] > 0 {
            acts.push(Act::Tick);
        }
        acts
    }

    fn link(&self, way: Way) -> &Vec<Rc<Packet>> {
        match way {
            Way::Up(at) => &self.up[at],
            Way::Down(at) => &self.down[at],
        }
    }

    fn pop(&mut self, way: Way) -> Rc<Packet> {
        match way {
            Way::Up(at) => self.up[at].remove(0),
            Way::Down(at) => self.down[at].remove(0),
        }
    }

    fn deadline(&self) -> Option<Time> {
        let clients = self.hosts.iter();
        let clients = clients.filter_map(|host| host.client.deadline());
        clients.chain(self.hub.server.deadline()).min()
    }

    /// Does nobody wait, and is nothing on its way?
    fn quiet(&self) -> bool {
        let still = |host: &Part<Host>| {
            host.under_way.is_none() && host.again.is_none() && host.kernel.idle()
        };
        self.hosts.iter().all(still)
            && self.late.is_empty()
            && self.up.iter().chain(&self.down).all(Vec::is_empty)
            && self.hub.server.figures().waiting == 0
    }

    /// Describes a step, for people.
    pub fn describe(&self, scenario: &Scenario, act: Act) -> String {
        let first = |way| format!("{:?}", self.link(way)[0].load);
        let about = match act {
            Act::Call(at) => match self.hosts[at].again {
                Some(call) => format!("{call:?} again"),
                None => format!("{:?}", scenario.programs[at].get(self.hosts[at].begun)),
            },
            Act::ToServer(at) => first(Way::Up(at)),
            Act::ToClient(at) => first(Way::Down(at)),
            Act::Lose(way) | Act::Repeat(way) | Act::Delay(way) => first(way),
            Act::Late(nth) => format!("{:?}", self.late[nth].load),
            Act::Dropped(at, nth) => format!("{:?}", self.hosts[at].kernel.orders[nth].1),
            Act::Tick => format!("at {} ms", self.now / MS),
        };
        format!("{act:?} {about}")
    }
}

/// A scenario, and everything that was met of it so far.
pub struct World<'a> {
    scenario: &'a Scenario,
    hosts: Memo<Host>,
    hubs: Memo<Hub>,
    judges: Memo<Judge>,
    /// Rights of all together in which nothing conflicts.
    sound: HashSet<u64>,
    /// For people: what happens while everything settles.
    pub told: Option<Vec<String>>,
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            hosts: Memo::new(),
            hubs: Memo::new(),
            judges: Memo::new(),
            sound: HashSet::new(),
            told: None,
        }
    }

    /// Connected, and with what comes before done.
    pub fn first(&mut self) -> Result<State, Wrong> {
        let now = 1_000_000 * MS;
        let scenario = self.scenario;
        let clients = scenario.programs.len();
        let disk = TinyDisk::new(scenario.file);
        let server = self.server(now);
        let mut state = State {
            now,
            hosts: (0..clients).map(|at| self.host(at)).collect(),
            hub: self.hubs.part(Hub { server, disk }),
            up: vec![vec![]; clients],
            down: vec![vec![]; clients],
            late: vec![],
            conns: (0..clients).map(|at| at as u64 + 1).collect(),
            judge: self.judges.part(Judge::new(clients, scenario.file)),
            left: [0; 4],
        };
        for at in 0..clients {
            self.client(&mut state, at, steps::Event::Connected)?;
            self.settle(&mut state)?;
        }
        for (at, call) in scenario.before {
            self.begin(&mut state, *at, *call, steps::Event::Looks)?;
            self.settle(&mut state)?;
        }
        state.left = [
            scenario.lose,
            scenario.repeat,
            scenario.delay,
            scenario.ticks,
        ];
        Ok(state)
    }

    fn server(&self, now: Time) -> Server {
        let options = server::Options {
            resend_ns: 10 * MS,
            lease_ns: 400 * MS,
            recall_ns: 4_000 * MS,
            mutant: self.scenario.server_mutant,
            ..Default::default()
        };
        Server::new(options, now, (100, ROOT), (vec![], 0))
    }

    fn host(&mut self, at: usize) -> Part<Host> {
        let options = client::Options {
            slots: 16,
            later_ns: 10 * MS,
            write_delay_ns: 30 * MS,
            scan_ns: 20 * MS,
            walk_entries: 0,
            keep_ns: None,
            mutant: self.scenario.client_mutant,
            ..Default::default()
        };
        let client = Client::new(options, at as u64 + 1, b"host");
        self.hosts.part(Host::new(at, client))
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(line());
        }
    }

    /// Takes one step and looks at the result.
    pub fn step(&mut self, state: &mut State, act: Act) -> Result<(), Wrong> {
        match act {
            Act::Call(at) if state.hosts[at].again.is_some() => {
                self.client(state, at, steps::Event::Again)?;
            }
            Act::Call(at) => {
                let call = self.scenario.programs[at][state.hosts[at].begun];
                self.begin(state, at, call, steps::Event::Calls)?;
            }
            Act::ToServer(at) => {
                let packet = state.pop(Way::Up(at));
                self.arrive(state, packet)?;
            }
            Act::ToClient(at) => {
                let packet = state.pop(Way::Down(at));
                self.arrive(state, packet)?;
            }
            Act::Lose(way) => {
                state.left[0] -= 1;
                self.reconnect(state, way)?;
            }
            Act::Repeat(way) => {
                state.left[1] -= 1;
                let packet = state.pop(way);
                state.late.push(packet.clone());
                self.arrive(state, packet)?;
            }
            Act::Delay(way) => {
                state.left[2] -= 1;
                let packet = state.pop(way);
                state.late.push(packet);
            }
            Act::Late(nth) => {
                let packet = state.late.remove(nth);
                self.arrive(state, packet)?;
            }
            Act::Dropped(at, nth) => self.client(state, at, steps::Event::Dropped(nth))?,
            Act::Tick => {
                state.left[3] -= 1;
                self.tick(state)?;
            }
        }
        self.check(state)
    }

    /// The connection of a client ends, with all that is under way on it, and another is made.
    fn reconnect(
        &mut self,
        state: &mut State,
        (Way::Up(at) | Way::Down(at)): Way,
    ) -> Result<(), Wrong> {
        state.up[at].clear();
        state.down[at].clear();
        state.late.retain(|packet| packet.client != at);
        let conn = state.conns[at];
        state.conns[at] += NEXT_CONN;
        self.hub(state, hub::Event::Gone(conn))?;
        self.client(state, at, steps::Event::Reconnected)
    }

    fn arrive(&mut self, state: &mut State, packet: Rc<Packet>) -> Result<(), Wrong> {
        let at = packet.client;
        match packet.load {
            Load::Up(_) => self.hub(state, hub::Event::Arrives(state.conns[at], packet)),
            Load::Down(_) => self.client(state, at, steps::Event::Arrives(packet)),
        }
    }

    fn tick(&mut self, state: &mut State) -> Result<(), Wrong> {
        state.now = state.deadline().unwrap_or(state.now + MS).max(state.now);
        let now = state.now;
        let due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        for at in 0..state.hosts.len() {
            if due(state.hosts[at].client.deadline()) {
                self.client(state, at, steps::Event::Tick)?;
            }
        }
        if due(state.hub.server.deadline()) {
            self.hub(state, hub::Event::Tick)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        state: &mut State,
        at: usize,
        call: Do,
        event: fn(Do) -> steps::Event,
    ) -> Result<(), Wrong> {
        self.tell(|| format!("client {at} begins {call:?}"));
        self.judges
            .step(&mut state.judge, 0, judge::Event::Begin(at, call))?;
        self.client(state, at, event(call))
    }

    fn client(&mut self, state: &mut State, at: usize, event: steps::Event) -> Result<(), Wrong> {
        let effects = self.hosts.step(&mut state.hosts[at], state.now, event)?;
        for effect in effects.iter() {
            match effect {
                Effect::Sent(packet) => state.up[at].push(packet.clone()),
                Effect::Saw(seen) => {
                    let end = judge::Event::End(at, *seen);
                    self.judges.step(&mut state.judge, 0, end)?;
                }
            }
        }
        Ok(())
    }

    fn hub(&mut self, state: &mut State, event: hub::Event) -> Result<(), Wrong> {
        let effects = self.hubs.step(&mut state.hub, state.now, event)?;
        for (to, packet) in effects.iter() {
            if state.conns[packet.client] == *to {
                state.down[packet.client].push(packet.clone());
            }
        }
        Ok(())
    }

    /// No two rights conflict; the server believes at least what is held; changed blocks are under
    /// Exclusive. Each host looks at what its kernel keeps.
    fn check(&mut self, state: &State) -> Result<(), Wrong> {
        let mut all = DefaultHasher::new();
        all.write_u64(state.hub.sight);
        for host in &state.hosts {
            all.write_u64(host.sight);
        }
        if !self.sound.insert(all.finish()) {
            return Ok(());
        }
        let believed = state.hub.server.tokens();
        let mut held: Vec<logic::check::Held> = Vec::new();
        for (at, host) in state.hosts.iter().enumerate() {
            let own = host.client.tokens();
            held.extend(own.iter().map(|line| (at as u64 + 1, *line)));
        }
        logic::check::check(&held, Some(&believed)).map_err(|broken| broken.to_string())
    }

    /// Everything happens, in one fair order, until nobody waits.
    fn settle(&mut self, state: &mut State) -> Result<(), Wrong> {
        state.left = [0; 4];
        let until = state.now + PATIENCE_NS;
        while !state.quiet() {
            let act = state.acts(&[]).first().copied();
            let scenario = self.scenario;
            self.tell(|| state.describe(scenario, act.unwrap_or(Act::Tick)));
            match act {
                Some(act) => self.step(state, act)?,
                None if state.now < until => {
                    self.tick(state)?;
                    self.check(state)?;
                }
                None => {
                    return Err("stuck: nothing is lost any more, and somebody still waits".into());
                }
            }
        }
        Ok(())
    }

    /// The rest of the programs, without faults; then everybody looks once more.
    pub fn finish(&mut self, state: &mut State) -> Result<(), Wrong> {
        self.settle(state)?;
        let scenario = self.scenario;
        for (at, program) in scenario.programs.iter().enumerate() {
            while let Some(call) = program.get(state.hosts[at].begun) {
                self.begin(state, at, *call, steps::Event::Calls)?;
                self.settle(state)?;
            }
        }
        for at in 0..state.hosts.len() {
            let looks: &[Do] = match (scenario.file, state.hosts[at].handle) {
                (false, _) => &[Do::Lookup],
                (true, None) => &[Do::Stat, Do::OpenRead, Do::Read, Do::Close],
                (true, Some(_)) => &[Do::Stat, Do::Read, Do::Close],
            };
            for call in looks {
                self.begin(state, at, *call, steps::Event::Looks)?;
                self.settle(state)?;
            }
        }
        Ok(())
    }
}
