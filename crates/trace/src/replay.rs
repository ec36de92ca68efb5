//! Replays a trace on a fleet: the clients and the server of `logic::peers`, whose steps are
//! carried out at once.
//!
//! Guarantees: a block is changed before any other access; a changed or removed block is in no
//! cache afterwards. The time of the fleet is the number of the access.

use crate::access::{Op, Trace};
use crate::count::{Counts, Level};
use logic::peers::{
    Arrival, Client, Fate, Found, Lent, Name, Options, Peer, Policy, Server, Source, Spill, Step,
    keeper,
};

/// The options of a replay.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fleet.
    pub options: Options,
    /// So many accesses at the beginning warm the caches and are not counted.
    pub warm: usize,
}

/// The server's load, in units.
const MESSAGE: u64 = 1;
const BLOCK: u64 = 2;
const DISK: u64 = 2;

/// The arrival of a block that was written.
const ALONE: Arrival = Arrival {
    last: true,
    again: false,
};

struct Fleet<'a> {
    trace: &'a Trace,
    policy: Policy,
    server: Server,
    clients: Vec<Client>,
    counts: Counts,
    now: u32,
}

/// Replays a trace.
pub fn replay(trace: &Trace, setup: &Setup) -> Counts {
    let mut options = setup.options.clone();
    options.clients = options.clients.max(trace.clients());
    let mut fleet = Fleet {
        trace,
        policy: options.policy,
        server: Server::new(&options),
        clients: (0..options.clients)
            .map(|me| Client::new(&options, me))
            .collect(),
        counts: Counts::default(),
        now: 0,
    };
    for (at, record) in trace.records.iter().enumerate() {
        if at == setup.warm || at == 0 {
            fleet.counts = Counts {
                by_client: vec![[0; 4]; usize::from(options.clients)],
                ..Counts::default()
            };
        }
        fleet.now = at as u32;
        let name = Name(u64::from(record.what));
        match record.op {
            Op::Read => fleet.read(record.client, name),
            Op::Write => fleet.write(record.client, name),
            Op::Delete => fleet.delete(record.what),
            Op::Attributes => fleet.attributes(record.client, record.what),
            Op::Open => {}
        }
    }
    fleet.counts
}

impl Fleet<'_> {
    fn client(&mut self, peer: Peer) -> &mut Client {
        &mut self.clients[usize::from(peer)]
    }

    fn count(&mut self, client: Peer, level: Level) {
        self.counts.reads[level as usize] += 1;
        self.counts.by_client[usize::from(client)][level as usize] += 1;
    }

    fn read(&mut self, client: Peer, name: Name) {
        let now = self.now;
        match self.client(client).read(now, name) {
            Found::Here => self.count(client, Level::Local),
            Found::Away => {
                self.answered_by_peer(client, 2);
                self.fill(client, name, Arrival::default(), Fate::Own);
            }
            Found::Nowhere => {
                if self.policy == Policy::Hash && self.answered_by_keeper(client, name) {
                    return;
                }
                self.miss(client, name);
            }
        }
    }

    fn answered_by_peer(&mut self, client: Peer, hops: u64) {
        self.count(client, Level::Peer);
        self.counts.peer_hops += hops;
        self.counts.messages += hops;
    }

    /// Asks the client that keeps this name for all.
    fn answered_by_keeper(&mut self, client: Peer, name: Name) -> bool {
        let now = self.now;
        let keeper = keeper(name, self.clients.len() as Peer);
        if !self.client(keeper).managed(now, name) {
            // It passes the question on to the server.
            self.counts.messages += u64::from(keeper != client);
            return false;
        }
        match keeper == client {
            true => self.count(client, Level::Local),
            false => self.answered_by_peer(client, 2),
        }
        self.server.on_got(client, name);
        self.fill(client, name, Arrival::default(), Fate::Own);
        true
    }

    fn miss(&mut self, client: Peer, name: Name) {
        let now = self.now;
        let offer = self.client(client).offer(now);
        let answer = self.server.miss(now, client, name, offer);
        if let Some(told) = answer.told {
            self.tell(told.peer, told.name, told.last);
        }
        for (name, last) in answer.notices.into_iter().flatten() {
            self.client(client).on_told(name, last);
        }
        let lent = match answer.source {
            Source::Peer(peer) => self.lent(peer, name),
            Source::Memory | Source::Disk => None,
        };
        let again = match answer.source {
            Source::Memory => {
                self.count(client, Level::Server);
                self.counts.messages += 2;
                self.counts.load.memory += 2 * MESSAGE + BLOCK;
                true
            }
            Source::Peer(_) if lent.is_some() => {
                self.answered_by_peer(client, 3);
                self.counts.load.forwarded += 2 * MESSAGE;
                lent == Some(true)
            }
            Source::Peer(_) | Source::Disk => {
                self.count(client, Level::Disk);
                self.counts.messages += 2;
                self.counts.load.disk += 2 * MESSAGE + BLOCK + DISK;
                let spill = self.server.loaded(now, name);
                self.spill(spill);
                false
            }
        };
        let last = answer.last;
        self.fill(client, name, Arrival { last, again }, answer.fate);
    }

    /// The server asks a client to send a block to another one. Does that make its second use?
    fn lent(&mut self, peer: Peer, name: Name) -> Option<bool> {
        if self.policy == Policy::Central {
            return Some(false);
        }
        match self.client(peer).lend(name) {
            Lent::Copied { again } => Some(again),
            Lent::Gone => {
                self.dropped(peer, name);
                Some(false)
            }
            Lent::Missing => {
                self.counts.wrong_hints += 1;
                self.counts.messages += 2;
                self.counts.load.other += 2 * MESSAGE;
                self.dropped(peer, name);
                None
            }
        }
    }

    fn tell(&mut self, peer: Peer, name: Name, last: bool) {
        self.counts.messages += 1;
        self.counts.load.other += MESSAGE;
        self.client(peer).on_told(name, last);
    }

    fn dropped(&mut self, client: Peer, name: Name) {
        if let Some(told) = self.server.on_dropped(client, name) {
            self.tell(told.peer, told.name, told.last);
        }
    }

    fn spill(&mut self, spill: Option<Spill>) {
        let Some(Spill { name, to }) = spill else {
            return;
        };
        let now = self.now;
        self.counts.moved += 1;
        self.counts.messages += 1;
        self.counts.load.other += MESSAGE + BLOCK;
        match self.policy {
            Policy::Hash => self.client(to).manage(now, name),
            Policy::Fleet => {
                let step = self.client(to).park(now, name, 1, false);
                self.carry_out(to, step);
            }
            _ => {}
        }
    }

    /// A block comes into a client's memory; then others do what follows from that.
    fn fill(&mut self, client: Peer, name: Name, arrival: Arrival, fate: Fate) {
        let now = self.now;
        let step = self.client(client).filled(now, name, arrival, fate);
        self.carry_out(client, step);
    }

    /// Carries out a client's step, and the steps of others that follow from it.
    fn carry_out(&mut self, client: Peer, mut step: Step) {
        let (now, mut at) = (self.now, client);
        loop {
            step = match step {
                Step::Done => return,
                Step::Drop(name) => {
                    self.dropped(at, name);
                    return;
                }
                Step::Away { gone } => {
                    self.counts.moved += 1;
                    self.counts.messages += 1;
                    if let Some(gone) = gone {
                        self.dropped(at, gone);
                    }
                    return;
                }
                Step::Ask(name) => {
                    self.counts.messages += 2;
                    self.counts.load.other += 2 * MESSAGE;
                    let last = self.server.is_last(name);
                    self.client(at).answered(now, name, last)
                }
                Step::Place { name, age } => {
                    self.counts.messages += 2;
                    self.counts.load.other += 2 * MESSAGE;
                    let to = self.server.place(now, at, age);
                    self.client(at).placed(name, to)
                }
                Step::Park {
                    name,
                    to,
                    chances,
                    last,
                    fresh,
                } => {
                    self.counts.moved += 1;
                    self.counts.messages += 1;
                    self.server.on_moved(name, at, to);
                    for name in last.into_iter().flatten() {
                        self.client(to).on_told(name, true);
                    }
                    let step = self.client(to).park(now, name, chances, fresh);
                    let oldest = self.client(to).oldest();
                    self.client(at).on_taken(to, oldest);
                    at = to;
                    step
                }
            };
        }
    }

    fn write(&mut self, client: Peer, name: Name) {
        let now = self.now;
        self.counts.writes += 1;
        self.take_from_others(Some(client), name);
        let had = self.client(client).has(name);
        let offer = match had {
            true => None,
            false => self.client(client).offer(now),
        };
        let (fate, spill) = self.server.wrote(now, client, name, offer);
        self.spill(spill);
        match had {
            true => drop(self.client(client).read(now, name)),
            false => self.fill(client, name, ALONE, fate),
        }
    }

    /// The copies of a block are made invalid everywhere but at its writer.
    fn take_from_others(&mut self, writer: Option<Peer>, name: Name) {
        if self.policy == Policy::Hash {
            let keeper = keeper(name, self.clients.len() as Peer);
            self.client(keeper).unmanage(name);
        }
        let hints = self.server.hints();
        let (count, named) = (hints.count(name), hints.named(name));
        let mut holders = [0; logic::peers::NAMED];
        let named = named.len();
        holders[..named].copy_from_slice(hints.named(name));
        let mut taken = 0;
        if usize::from(count) > named {
            for peer in 0..self.clients.len() as Peer {
                if Some(peer) != writer {
                    taken += u64::from(self.client(peer).invalidate(name));
                }
            }
        } else {
            for peer in &holders[..named] {
                if Some(*peer) != writer {
                    taken += u64::from(self.client(*peer).invalidate(name));
                }
            }
        }
        self.counts.messages += taken;
        self.counts.load.other += taken * MESSAGE;
    }

    fn delete(&mut self, file: u32) {
        let trace = self.trace;
        for block in trace.blocks_of(file) {
            let name = Name(u64::from(block));
            self.take_from_others(None, name);
            self.server.invalidate(name);
        }
    }

    fn attributes(&mut self, client: Peer, file: u32) {
        let (trace, now) = (self.trace, self.now);
        for block in trace.blocks_of(file) {
            self.client(client).touch(now, Name(u64::from(block)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Builder};
    use crate::count::Prices;
    use wire::splitmix64;

    /// Names from the one used last on: slow, and plainly right.
    struct Lru(Vec<(u64, u32)>, usize);

    impl Lru {
        fn used(&mut self, name: (u64, u32)) -> bool {
            let known = self.0.iter().position(|other| *other == name);
            if let Some(at) = known {
                self.0.remove(at);
            }
            self.0.insert(0, name);
            self.0.truncate(self.1);
            known.is_some()
        }
    }

    fn noise(count: usize) -> Vec<Access> {
        let mut seed = 7;
        let mut draw = |bound: u64| splitmix64(&mut seed) % bound;
        let access = |time_us| {
            let op = [Op::Read, Op::Read, Op::Read, Op::Write, Op::Delete];
            let op = op[if draw(40) == 0 { 4 } else { draw(4) as usize }];
            let block = if op == Op::Delete { 0 } else { draw(12) as u32 };
            Access {
                time_us,
                client: draw(3) as u32,
                op,
                file: draw(9),
                block,
            }
        };
        (0..count as u64).map(access).collect()
    }

    fn built(accesses: &[Access]) -> Trace {
        let mut builder = Builder::new(8192);
        accesses
            .iter()
            .for_each(|access| builder.push(access).unwrap());
        builder.finish()
    }

    #[test]
    fn without_cooperation_it_is_plain_lru_at_both_ends() {
        let accesses = noise(20_000);
        let setup = Setup {
            options: Options::new(Policy::Off, 3, 16, 40),
            warm: 0,
        };
        let counts = replay(&built(&accesses), &setup);
        let mut clients = [(); 3].map(|()| Lru(Vec::new(), 16));
        let mut server = Lru(Vec::new(), 40);
        let mut expected = [0; 4];
        for access in &accesses {
            let (name, me) = ((access.file, access.block), access.client as usize);
            if access.op == Op::Delete {
                let others = clients.iter_mut().chain([&mut server]);
                others.for_each(|lru| lru.0.retain(|(file, _)| *file != access.file));
                continue;
            }
            if access.op == Op::Write {
                for other in (0..3).filter(|other| *other != me) {
                    clients[other].0.retain(|known| *known != name);
                }
                clients[me].used(name);
                server.used(name);
                continue;
            }
            let level = match (clients[me].used(name), access) {
                (true, _) => Level::Local,
                _ if server.used(name) => Level::Server,
                _ => Level::Disk,
            };
            expected[level as usize] += 1;
        }
        assert_eq!(counts.reads, expected);
        assert!(expected[1] > 0 && expected[3] > 0);
    }

    /// A changed or removed block is in no cache: the next read of another client goes to the
    /// server, under every policy.
    #[test]
    fn no_policy_shows_what_is_no_more() {
        let access = |client, op| Access {
            time_us: 0,
            client,
            op,
            file: 1,
            block: 0,
        };
        for policy in Policy::ALL {
            let (read, delete) = (access(0, Op::Read), access(1, Op::Delete));
            let again = [read, access(1, Op::Read), delete, read];
            let setup = Setup {
                options: Options::new(policy, 2, 16, 16),
                warm: 3,
            };
            let counts = replay(&built(&again), &setup);
            assert_eq!(counts.reads, [0, 0, 0, 1], "{}", policy.word());
        }
    }

    #[test]
    fn all_policies_answer_every_read_and_repeat_themselves() {
        let trace = built(&noise(30_000));
        let reads = trace.records.iter().filter(|record| record.op == Op::Read);
        let reads = reads.count() as u64;
        for policy in Policy::ALL {
            let setup = Setup {
                options: Options::new(policy, 3, 16, 16),
                warm: 0,
            };
            let counts = replay(&trace, &setup);
            assert_eq!(counts.all_reads(), reads, "{}", policy.word());
            assert_eq!(counts, replay(&trace, &setup), "{}", policy.word());
            assert!(counts.response_ns(&Prices::PAPER) > 250_000.0);
        }
    }
}
