//! All orders of a move between two servers, with crashes of each, changes of the record whose
//! outcome a server does not learn or that are made late, and moves that are taken back.

use logic::placement::{Part, Placement};
use std::collections::{BTreeSet, VecDeque};

const NAMES: [&str; 2] = ["a", "b"];
/// So many changes programs make, and so often servers crash, and a move is begun.
const WRITES: u8 = 2;
const CRASHES: u8 = 2;
const MOVES: u8 = 2;

/// A planted fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A source that waited long enough goes on serving without changing the record.
    ServesAgainAtOnce,
    /// A source serves on while its store leaves.
    ServesWhileLeaving,
    /// A target takes over whatever turn its copy was closed in.
    TakesAnyTurn,
    /// A server that starts serves what it has a copy of.
    ServesAnyCopy,
    /// A target that starts throws a whole copy away that it may have taken over.
    DropsWholeCopies,
    /// A target whose change of the record is not made, as the record is another one by now, throws
    /// its copy away.
    DropsWhenSwapFails,
}

/// A record, small enough to be compared.
type Record = (u8, u64, Option<u8>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    /// So many changes are in it.
    changes: u8,
    /// It is whole, of the store as it was closed in this turn.
    whole_of: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    up: bool,
    serves: bool,
    /// The store was closed here in this turn.
    closed: Option<u64>,
    copy: Option<Copy>,
    /// The record as a target has read it, by which it is about to change it.
    seen: Option<Record>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    record: Record,
    /// Changes of the record of which no server has learned the outcome, and that may come late.
    late: BTreeSet<(Record, Record)>,
    servers: [Server; 2],
    /// Changes that programs were told to be made.
    made: u8,
    crashes: u8,
    moves: u8,
}

fn placement(record: Record) -> Placement {
    Placement {
        server: NAMES[usize::from(record.0)].to_owned(),
        turn: record.1,
        leaving_to: record.2.map(|to| NAMES[usize::from(to)].to_owned()),
    }
}

fn record(placement: &Placement) -> Record {
    let number = |name: &str| u8::from(name == NAMES[1]);
    let to = placement.leaving_to.as_deref().map(number);
    (number(&placement.server), placement.turn, to)
}

impl World {
    fn begin() -> World {
        let idle = Server {
            up: true,
            serves: false,
            closed: None,
            copy: None,
            seen: None,
        };
        let copy = Copy {
            changes: 0,
            whole_of: None,
        };
        let serving = Server {
            serves: true,
            copy: Some(copy),
            ..idle.clone()
        };
        World {
            record: record(&Placement::made(NAMES[0])),
            late: BTreeSet::new(),
            servers: [serving, idle],
            made: 0,
            crashes: 0,
            moves: 0,
        }
    }

    /// The worlds in which a server has asked for a change of the record: it was made and the
    /// server knows; or it crashes before it knows, or hears of an error, and the change was made,
    /// is made later, or never.
    fn swap(&self, own: usize, after: &Placement, known: impl Fn(&mut World)) -> Vec<World> {
        let (before, after) = (self.record, record(after));
        let mut done = self.clone();
        done.record = after;
        let mut all = vec![done.clone()];
        known(&mut all[0]);
        if self.crashes < CRASHES {
            let mut late = self.clone();
            late.late.insert((before, after));
            for world in [done, late] {
                all.push(world.crashed(own));
                let mut unaware = world.changed(own, |server| server.seen = None);
                unaware.crashes += 1;
                all.push(unaware);
            }
        }
        all
    }

    fn crashed(&self, own: usize) -> World {
        let mut next = self.clone();
        next.crashes += 1;
        let server = &mut next.servers[own];
        (server.up, server.serves, server.closed) = (false, false, None);
        server.seen = None;
        next
    }

    fn changed(&self, own: usize, change: impl FnOnce(&mut Server)) -> World {
        let mut next = self.clone();
        change(&mut next.servers[own]);
        next
    }

    /// A server starts: the record says which part it has.
    fn started(&self, own: usize, fault: Fault) -> World {
        let copy = &self.servers[own].copy;
        let whole_of = copy.as_ref().and_then(|copy| copy.whole_of);
        let part = placement(self.record).part(NAMES[own], whole_of);
        let part = match fault {
            Fault::ServesAnyCopy if copy.is_some() => Part::Serves,
            Fault::DropsWholeCopies if matches!(part, Part::Takes(_)) => Part::Nothing,
            _ => part,
        };
        self.changed(own, |server| {
            server.up = true;
            match part {
                Part::Serves => server.serves = true,
                Part::Leaves(turn) => server.closed = Some(turn),
                Part::Takes(_) => {}
                Part::Nothing => server.copy = None,
            }
        })
    }

    fn next(&self, fault: Fault) -> Vec<World> {
        let mut all: Vec<World> = (0..2).flat_map(|own| self.steps(own, fault)).collect();
        for (before, after) in &self.late {
            let mut next = self.clone();
            next.late.remove(&(*before, *after));
            if next.record == *before {
                next.record = *after;
            }
            all.push(next);
        }
        all
    }

    fn steps(&self, own: usize, fault: Fault) -> Vec<World> {
        let (server, other) = (&self.servers[own], 1 - own);
        if !server.up {
            return vec![self.started(own, fault)];
        }
        let mut all = Vec::new();
        if self.crashes < CRASHES {
            all.push(self.crashed(own));
        }
        if server.serves && self.made < WRITES {
            let mut next = self.clone();
            next.made += 1;
            if let Some(copy) = &mut next.servers[own].copy {
                copy.changes += 1;
            }
            all.push(next);
        }
        // A change that was made late gives it the store.
        let whole_of = server.copy.as_ref().and_then(|copy| copy.whole_of);
        if !server.serves && placement(self.record).part(NAMES[own], whole_of) == Part::Serves {
            all.push(self.changed(own, |server| {
                (server.closed, server.serves) = (None, true);
            }));
        }
        all.extend(self.source(own, other, fault));
        all.extend(self.target(own, other, fault));
        all
    }

    fn source(&self, own: usize, other: usize, fault: Fault) -> Vec<World> {
        let (server, now) = (&self.servers[own], placement(self.record));
        let mut all = Vec::new();
        if server.serves
            && self.moves < MOVES
            && let Some(next) = now.leave(NAMES[own], NAMES[other])
        {
            let known = |world: &mut World| {
                let server = &mut world.servers[own];
                server.serves = fault == Fault::ServesWhileLeaving;
                server.closed = Some(next.turn);
                world.moves += 1;
            };
            all.extend(self.swap(own, &next, known));
        }
        if server.closed.is_some() && fault == Fault::ServesAgainAtOnce {
            all.push(self.changed(own, |server| server.serves = true));
        }
        match now.stay(NAMES[own]) {
            Some(next) if server.closed.is_some() => {
                let known = |world: &mut World| {
                    let server = &mut world.servers[own];
                    (server.closed, server.serves) = (None, true);
                };
                all.extend(self.swap(own, &next, known));
            }
            // The other one has it and serves it: the copy here goes.
            None if server.closed.is_some() && self.servers[other].serves => {
                all.push(self.changed(own, |server| {
                    (server.closed, server.copy) = (None, None);
                }));
            }
            _ => {}
        }
        all
    }

    fn target(&self, own: usize, other: usize, fault: Fault) -> Vec<World> {
        let (server, source, now) = (
            &self.servers[own],
            &self.servers[other],
            placement(self.record),
        );
        let mut all = Vec::new();
        let idle = !server.serves && server.closed.is_none();
        if idle
            && source.up
            && let (Some(turn), Some(copy)) = (source.closed, &source.copy)
        {
            let whole = Copy {
                changes: copy.changes,
                whole_of: Some(turn),
            };
            all.push(self.changed(own, |server| server.copy = Some(whole)));
        }
        if idle && let Some(turn) = server.copy.as_ref().and_then(|copy| copy.whole_of) {
            let turn = match fault {
                Fault::TakesAnyTurn => now.turn,
                _ => turn,
            };
            match server.seen {
                None if now.arrive(NAMES[own], turn).is_some() => {
                    all.push(self.changed(own, |server| server.seen = Some(self.record)));
                }
                Some(seen) if seen != self.record => all.push(self.changed(own, |server| {
                    server.seen = None;
                    if fault == Fault::DropsWhenSwapFails {
                        server.copy = None;
                    }
                })),
                Some(_) => {
                    let known = |world: &mut World| {
                        (world.servers[own].serves, world.servers[own].seen) = (true, None);
                    };
                    let next = now.arrive(NAMES[own], turn);
                    all.extend(next.iter().flat_map(|next| self.swap(own, next, known)));
                }
                None => {}
            }
        }
        all
    }

    fn wrong(&self) -> Option<&'static str> {
        let [a, b] = &self.servers;
        if a.serves && b.serves {
            return Some("two servers serve the store");
        }
        let has_all = |server: &Server| {
            let copy = server.copy.as_ref();
            copy.is_some_and(|copy| copy.changes == self.made)
        };
        if [a, b].iter().any(|one| one.serves && !has_all(one)) {
            return Some("a change is lost");
        }
        match has_all(&self.servers[usize::from(self.record.0)]) {
            true => None,
            false => Some("the server that has the store has not got everything"),
        }
    }

    /// Nothing is on its way any more, and both run.
    fn serves(&self) -> bool {
        self.servers.iter().any(|server| server.serves)
    }
}

/// Looks at all worlds; the first fault that is found, and how many worlds there are.
fn explore(fault: Fault) -> Result<usize, &'static str> {
    let mut seen = BTreeSet::from([World::begin()]);
    let mut queue = VecDeque::from([World::begin()]);
    while let Some(world) = queue.pop_front() {
        if let Some(wrong) = world.wrong() {
            return Err(wrong);
        }
        let next = world.next(fault);
        if !comes_to_serve(&world) {
            return Err("nobody will ever serve the store again");
        }
        for world in next {
            if seen.insert(world.clone()) {
                queue.push_back(world);
            }
        }
    }
    Ok(seen.len())
}

/// Without any further crash somebody serves the store in the end, whatever is late.
fn comes_to_serve(world: &World) -> bool {
    let mut calm = world.clone();
    calm.crashes = CRASHES;
    calm.moves = MOVES;
    let mut seen = BTreeSet::from([calm.clone()]);
    let mut queue = VecDeque::from([calm]);
    while let Some(world) = queue.pop_front() {
        if world.serves() {
            return true;
        }
        for next in world.next(Fault::None) {
            if seen.insert(next.clone()) {
                queue.push_back(next);
            }
        }
    }
    false
}

#[test]
fn a_store_has_one_server_and_loses_nothing_whoever_crashes() {
    let worlds = explore(Fault::None).unwrap();
    assert!(worlds > 1_000, "{worlds} worlds only");
}

#[test]
fn planted_faults_are_found() {
    let faults = [
        Fault::ServesAgainAtOnce,
        Fault::ServesWhileLeaving,
        Fault::TakesAnyTurn,
        Fault::ServesAnyCopy,
        Fault::DropsWholeCopies,
        Fault::DropsWhenSwapFails,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        assert!(explore(fault).is_err(), "fault {number} is not found");
    }
}
