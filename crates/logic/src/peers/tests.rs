//! The decisions one by one, and the books of the server kept right by all of them.

use super::*;
use std::collections::BTreeSet;
use std::vec::Vec;
use wire::splitmix64;

fn options(policy: Policy, clients: Peer, blocks: usize) -> Options {
    Options::new(policy, clients, blocks, 4)
}

const ALONE: Arrival = Arrival {
    last: true,
    again: false,
};

fn fill(client: &mut Client, now: u32, name: u64) -> Step {
    client.filled(now, Name(name), ALONE, Fate::Own)
}

/// The arrival of a block that was not lent.
fn arrival(answer: &Answer) -> Arrival {
    Arrival {
        last: answer.last,
        again: answer.source == Source::Memory,
    }
}

#[test]
fn nchance_asks_then_passes_the_last_copy_on() {
    let mut client = Client::new(&options(Policy::NChance, 3, 2), 1);
    assert_eq!(fill(&mut client, 1, 1), Step::Done);
    assert_eq!(fill(&mut client, 2, 2), Step::Done);
    assert_eq!(fill(&mut client, 3, 3), Step::Ask(Name(1)));
    let Step::Park {
        name, to, chances, ..
    } = client.answered(3, Name(1), true)
    else {
        panic!("a last copy is passed on");
    };
    assert_eq!((name, chances), (Name(1), 2));
    assert_ne!(to, 1, "not to itself");
    assert_eq!(fill(&mut client, 4, 4), Step::Ask(Name(2)));
    assert_eq!(client.answered(4, Name(2), false), Step::Drop(Name(2)));
}

#[test]
fn nchance_gives_a_parked_block_n_chances() {
    let mut client = Client::new(&options(Policy::NChance, 3, 2), 0);
    assert_eq!(client.park(1, Name(1), 2, false), Step::Done);
    assert_eq!(client.park(2, Name(2), 1, false), Step::Done);
    let passed = fill(&mut client, 3, 3);
    assert!(
        matches!(
            passed,
            Step::Park {
                name: Name(1),
                chances: 1,
                ..
            }
        ),
        "{passed:?}"
    );
    assert_eq!(
        fill(&mut client, 4, 4),
        Step::Drop(Name(2)),
        "its last chance is gone"
    );
}

#[test]
fn nchance_makes_room_with_its_oldest_duplicate_and_nothing_ripples() {
    let mut client = Client::new(&options(Policy::NChance, 3, 3), 0);
    for (now, name) in [(1, 1), (2, 2), (3, 3)] {
        fill(&mut client, now, name);
    }
    assert_eq!(client.park(4, Name(9), 2, false), Step::Ask(Name(1)));
    assert_eq!(client.answered(4, Name(1), true), Step::Ask(Name(2)));
    assert_eq!(client.answered(4, Name(2), false), Step::Drop(Name(2)));
    assert!(client.has(Name(1)) && client.has(Name(9)));
    // Block 1 is known by now, so only block 3 is asked about; then the parked one goes.
    assert_eq!(client.park(5, Name(8), 2, false), Step::Ask(Name(3)));
    assert_eq!(client.answered(5, Name(3), true), Step::Drop(Name(9)));
    assert_eq!(client.blocks(), (3, 1));
}

#[test]
fn nchance_counts_the_chances_anew_after_a_use() {
    let mut client = Client::new(&options(Policy::NChance, 3, 1), 0);
    client.park(1, Name(1), 1, false);
    assert_eq!(client.read(2, Name(1)), Found::Here);
    let passed = fill(&mut client, 3, 2);
    assert!(
        matches!(passed, Step::Park { chances: 2, .. }),
        "known to be last: {passed:?}"
    );
}

#[test]
fn a_parked_block_moves_to_its_reader() {
    let mut client = Client::new(&options(Policy::NChance, 3, 2), 0);
    client.park(1, Name(1), 2, false);
    fill(&mut client, 2, 2);
    assert_eq!(client.lend(Name(1)), Lent::Gone);
    assert_eq!(client.lend(Name(2)), Lent::Copied { again: false });
    assert_eq!(client.lend(Name(3)), Lent::Missing);
}

#[test]
fn greedy_asks_the_client_that_got_it_last() {
    let mut server = Server::new(&options(Policy::Greedy, 4, 2));
    for client in 0..3 {
        server.miss(1, client, Name(1), None);
    }
    assert_eq!(server.miss(2, 3, Name(1), None).source, Source::Peer(2));
    server.on_dropped(3, Name(1));
    server.on_dropped(2, Name(1));
    assert_eq!(server.miss(3, 3, Name(1), None).source, Source::Peer(1));
}

#[test]
fn direct_keeps_what_overflows_in_the_other_machine() {
    let mut options = options(Policy::Direct, 2, 1);
    options.away_blocks = 1;
    let mut client = Client::new(&options, 0);
    fill(&mut client, 1, 1);
    assert_eq!(fill(&mut client, 2, 2), Step::Away { gone: None });
    assert_eq!(client.read(3, Name(1)), Found::Away);
    assert_eq!(
        fill(&mut client, 3, 3),
        Step::Away {
            gone: Some(Name(1))
        }
    );
    assert_eq!(client.read(4, Name(1)), Found::Nowhere);
}

#[test]
fn central_places_what_the_server_gives_up_and_finds_it_again() {
    let mut options = options(Policy::Central, 2, 10);
    options.managed_blocks = 2;
    let mut server = Server::new(&options);
    let spills: Vec<_> = (0..8)
        .filter_map(|name| server.loaded(name, Name(u64::from(name))))
        .collect();
    assert_eq!(spills.len(), 4, "four fit into the server's own memory");
    for spill in &spills {
        let found = server.miss(9, 0, spill.name, None).source;
        assert_eq!(found, Source::Peer(spill.to));
    }
    server.loaded(10, Name(100));
    assert_eq!(
        server.miss(11, 0, spills[0].name, None).source,
        Source::Disk,
        "the oldest went"
    );
}

#[test]
fn hash_keeps_under_the_name() {
    let mut client = Client::new(&options(Policy::Hash, 2, 10), 0);
    for name in 0..9 {
        client.manage(name, Name(u64::from(name)));
    }
    assert!(!client.managed(10, Name(0)), "8 of 10 blocks are managed");
    assert!(client.managed(10, Name(8)));
    assert!((0..50).any(|name| keeper(Name(name), 2) == 0));
    assert!((0..50).any(|name| keeper(Name(name), 2) == 1));
}

#[test]
fn weighted_gives_up_a_copy_before_an_older_last_copy() {
    let mut client = Client::new(&options(Policy::Weighted, 2, 2), 0);
    client.filled(1, Name(1), ALONE, Fate::Own);
    client.filled(10, Name(2), Arrival::default(), Fate::Own);
    assert_eq!(fill(&mut client, 20, 3), Step::Drop(Name(2)));
    // Block 1 is 99 times as old as a copy of block 3 would be.
    client.on_told(Name(3), false);
    let step = client.filled(21, Name(4), ALONE, Fate::Own);
    assert_eq!(
        step,
        Step::Place {
            name: Name(1),
            age: 20
        }
    );
    assert_eq!(client.placed(Name(1), None), Step::Drop(Name(1)));
}

#[test]
fn fleet_places_a_last_copy_where_the_oldest_block_lies_without_a_question() {
    let options = options(Policy::Fleet, 3, 2);
    let mut server = Server::new(&options);
    let mut clients: Vec<_> = (0..3).map(|me| Client::new(&options, me)).collect();
    let mut get = |now: u32, of: usize, name: u64| {
        let offer = clients[of].offer(now);
        let answer = server.miss(now, of as Peer, Name(name), offer);
        clients[of].filled(now, Name(name), arrival(&answer), answer.fate)
    };
    for (now, of, name) in [
        (1, 1, 1),
        (2, 1, 2),
        (10, 2, 3),
        (20, 2, 4),
        (30, 0, 5),
        (31, 0, 6),
    ] {
        assert_eq!(get(now, of, name), Step::Done);
    }
    // All say how old their blocks are; then the third one has to part with a last copy.
    assert!(matches!(
        get(40, 1, 7),
        Step::Park {
            name: Name(1),
            to: 0 | 2,
            ..
        }
    ));
    assert!(matches!(get(41, 2, 8), Step::Park { name: Name(3), .. }));
}

#[test]
fn fleet_drops_a_copy_that_another_client_has() {
    let options = options(Policy::Fleet, 2, 2);
    let mut server = Server::new(&options);
    let mut clients: Vec<_> = (0..2).map(|me| Client::new(&options, me)).collect();
    let mut steps = Vec::new();
    for (now, of, name) in [(1, 0, 1), (2, 1, 1), (3, 1, 2), (4, 1, 3)] {
        let offer = clients[of].offer(now);
        let answer = server.miss(now, of as Peer, Name(name), offer);
        steps.push(clients[of].filled(now, Name(name), arrival(&answer), answer.fate));
    }
    assert_eq!(steps.last(), Some(&Step::Drop(Name(1))));
    assert!(clients[0].has(Name(1)) && clients[1].has(Name(2)));
}

/// The server counts exactly the copies that there are, under every policy.
#[test]
fn the_hints_are_right_while_all_is_told() {
    for policy in [
        Policy::Off,
        Policy::Greedy,
        Policy::NChance,
        Policy::Weighted,
        Policy::Fleet,
    ] {
        let options = options(policy, 4, 8);
        let mut server = Server::new(&options);
        let mut clients: Vec<_> = (0..4).map(|me| Client::new(&options, me)).collect();
        let mut seed = 1;
        for now in 1..20_000_u32 {
            let me = (splitmix64(&mut seed) % 4) as Peer;
            let name = Name(splitmix64(&mut seed) % 40);
            if clients[usize::from(me)].read(now, name) != Found::Nowhere {
                continue;
            }
            let offer = clients[usize::from(me)].offer(now);
            let answer = server.miss(now, me, name, offer);
            match answer.source {
                Source::Peer(peer) => match clients[usize::from(peer)].lend(name) {
                    Lent::Gone => assert_eq!(server.on_dropped(peer, name), None),
                    lent => assert!(matches!(lent, Lent::Copied { .. }), "{policy:?}"),
                },
                Source::Memory => {}
                Source::Disk => {
                    if let Some(Spill { name, to }) = server.loaded(now, name) {
                        let step = clients[usize::from(to)].park(now, name, 1, false);
                        carry_out(&mut server, &mut clients, now, to, step);
                    }
                }
            }
            let step = clients[usize::from(me)].filled(now, name, arrival(&answer), answer.fate);
            carry_out(&mut server, &mut clients, now, me, step);
            let has = |client: &&Client| client.has(name);
            assert_eq!(
                usize::from(server.hints().count(name)),
                clients.iter().filter(has).count()
            );
            let named: BTreeSet<_> = server.hints().named(name).iter().collect();
            assert!(
                named
                    .iter()
                    .all(|peer| clients[usize::from(**peer)].has(name)),
                "{policy:?}"
            );
            assert!(clients.iter().all(|client| client.blocks().0 <= 8));
        }
    }
}

fn carry_out(server: &mut Server, clients: &mut [Client], now: u32, me: Peer, first: Step) {
    let (mut at, mut step) = (me, first);
    loop {
        step = match step {
            Step::Done | Step::Away { .. } => return,
            Step::Drop(name) => {
                if let Some(told) = server.on_dropped(at, name) {
                    clients[usize::from(told.peer)].on_told(told.name, told.last);
                }
                return;
            }
            Step::Ask(name) => {
                let last = server.is_last(name);
                clients[usize::from(at)].answered(now, name, last)
            }
            Step::Place { name, age } => {
                let to = server.place(now, at, age);
                clients[usize::from(at)].placed(name, to)
            }
            Step::Park {
                name,
                to,
                chances,
                last,
                fresh,
            } => {
                server.on_moved(name, at, to);
                for name in last.into_iter().flatten() {
                    clients[usize::from(to)].on_told(name, true);
                }
                let step = clients[usize::from(to)].park(now, name, chances, fresh);
                let oldest = clients[usize::from(to)].oldest();
                clients[usize::from(at)].on_taken(to, oldest);
                at = to;
                step
            }
        };
    }
}

/// A fleet under `Fleet`, whose steps are carried out at once.
struct Machines {
    server: Server,
    clients: Vec<Client>,
    now: u32,
}

impl Machines {
    fn new(clients: Peer, blocks: usize, server: usize) -> Self {
        let options = Options::new(Policy::Fleet, clients, blocks, server);
        Self {
            server: Server::new(&options),
            clients: (0..clients).map(|me| Client::new(&options, me)).collect(),
            now: 0,
        }
    }

    /// A client reads a block. Where it was.
    fn read(&mut self, me: Peer, name: u64) -> Option<Source> {
        self.now += 1;
        let (now, name) = (self.now, Name(name));
        let at = usize::from(me);
        if self.clients[at].read(now, name) == Found::Here {
            return None;
        }
        let offer = self.clients[at].offer(now);
        let answer = self.server.miss(now, me, name, offer);
        for (name, last) in answer.notices.into_iter().flatten() {
            self.clients[at].on_told(name, last);
        }
        let again = match answer.source {
            Source::Memory => true,
            Source::Peer(peer) => {
                self.clients[usize::from(peer)].lend(name) == Lent::Copied { again: true }
            }
            Source::Disk => {
                assert_eq!(self.server.loaded(now, name), None);
                false
            }
        };
        let last = answer.last;
        let step = self.clients[at].filled(now, name, Arrival { last, again }, answer.fate);
        carry_out(&mut self.server, &mut self.clients, now, me, step);
        Some(answer.source)
    }
}

#[test]
fn fleet_keeps_what_was_used_twice_when_a_client_scans() {
    let mut fleet = Machines::new(2, 640, 0);
    for name in 0..1280 {
        fleet.read((name / 640) as Peer, name);
    }
    for name in 10_000..30_000 {
        fleet.read(0, name);
    }
    // New blocks have a tenth of each memory; the rest is what was there.
    let has = |name: u64| fleet.clients.iter().any(|client| client.has(Name(name)));
    let kept = (0..1280).filter(|name| has(*name));
    assert_eq!(kept.count(), 1280 - 128);
}

#[test]
fn fleet_gives_the_new_blocks_of_one_client_the_room_for_new_ones_of_all() {
    let mut fleet = Machines::new(4, 640, 0);
    for name in 0..4 * 640 {
        fleet.read((name / 640) as Peer, name);
    }
    for name in 10_000..10_256 {
        assert_eq!(fleet.read(0, name), Some(Source::Disk));
    }
    // Four tenths of a memory: they are all there, the first of them with others.
    let from_peers = (10_000..10_256).filter(|name| match fleet.read(0, *name) {
        None => false,
        Some(Source::Peer(_)) => true,
        other => panic!("{name}: {other:?}"),
    });
    assert!(from_peers.count() >= 192, "most are with others");
}

#[test]
fn fleet_takes_a_use_by_another_client_for_the_second_one() {
    let mut fleet = Machines::new(3, 640, 0);
    for name in 0..3 * 640 {
        fleet.read((name / 640) as Peer, name);
    }
    fleet.read(0, 5_000);
    assert_eq!(fleet.read(1, 5_000), Some(Source::Peer(0)));
    for name in 10_000..12_000 {
        fleet.read(1, name);
    }
    assert!(fleet.clients[1].has(Name(5_000)), "used twice");
    assert_eq!(fleet.read(2, 5_000), Some(Source::Peer(1)));
    for name in 20_000..22_000 {
        fleet.read(2, name);
    }
    assert!(
        !fleet.clients[2].has(Name(5_000)),
        "one copy that stays is enough"
    );
}

#[test]
fn the_fate_of_a_block_is_not_that_of_another_one() {
    let options = options(Policy::Fleet, 2, 2);
    let mut client = Client::new(&options, 0);
    fill(&mut client, 1, 1);
    fill(&mut client, 2, 2);
    assert_eq!(client.offer(3).unwrap().block.unwrap().name, Name(1));
    // The answer says that another one is a copy, which would go first, and what becomes of the
    // one that was offered.
    client.on_told(Name(2), false);
    let fate = Fate::Park {
        to: 1,
        last: [None; CANDIDATES],
    };
    let step = client.filled(3, Name(3), ALONE, fate);
    assert!(matches!(step, Step::Park { name: Name(1), .. }), "{step:?}");
}

#[test]
fn fleet_keeps_what_is_left_of_a_block_that_was_used_twice() {
    let mut fleet = Machines::new(2, 640, 0);
    for name in 0..2 * 640 {
        fleet.read((name / 640) as Peer, name);
    }
    assert_eq!(fleet.read(1, 7), Some(Source::Peer(0)));
    // The first one has no use for its copy: the second one keeps its own.
    let told = fleet.server.on_dropped(0, Name(7));
    fleet.clients[0].invalidate(Name(7));
    assert_eq!(told, None, "it learns it with its next answer");
    for name in 10_000..12_000 {
        fleet.read(1, name);
    }
    assert!(fleet.clients[1].has(Name(7)));
}
