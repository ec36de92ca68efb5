//! The decisions one by one, and the books of the server kept right by all of them.

use super::*;
use std::collections::BTreeSet;
use std::vec::Vec;
use wire::splitmix64;

fn options(policy: Policy, clients: Peer, blocks: usize) -> Options {
    Options::new(policy, clients, blocks, 4)
}

fn fill(client: &mut Client, now: u32, name: u64) -> Step {
    client.filled(now, Name(name), true, Fate::Own)
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
    assert_eq!(client.park(1, Name(1), 2), Step::Done);
    assert_eq!(client.park(2, Name(2), 1), Step::Done);
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
    assert_eq!(client.park(4, Name(9), 2), Step::Ask(Name(1)));
    assert_eq!(client.answered(4, Name(1), true), Step::Ask(Name(2)));
    assert_eq!(client.answered(4, Name(2), false), Step::Drop(Name(2)));
    assert!(client.has(Name(1)) && client.has(Name(9)));
    // Block 1 is known by now, so only block 3 is asked about; then the parked one goes.
    assert_eq!(client.park(5, Name(8), 2), Step::Ask(Name(3)));
    assert_eq!(client.answered(5, Name(3), true), Step::Drop(Name(9)));
    assert_eq!(client.blocks(), (3, 1));
}

#[test]
fn nchance_counts_the_chances_anew_after_a_use() {
    let mut client = Client::new(&options(Policy::NChance, 3, 1), 0);
    client.park(1, Name(1), 1);
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
    client.park(1, Name(1), 2);
    fill(&mut client, 2, 2);
    assert_eq!(client.lend(Name(1)), Lent::Gone);
    assert_eq!(client.lend(Name(2)), Lent::Copied);
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
    client.filled(1, Name(1), true, Fate::Own);
    client.filled(10, Name(2), false, Fate::Own);
    assert_eq!(fill(&mut client, 20, 3), Step::Drop(Name(2)));
    // Block 1 is 99 times as old as a copy of block 3 would be.
    client.on_told(Name(3), false);
    let step = client.filled(21, Name(4), true, Fate::Own);
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
        clients[of].filled(now, Name(name), answer.last, answer.fate)
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
        steps.push(clients[of].filled(now, Name(name), answer.last, answer.fate));
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
                    lent => assert_eq!(lent, Lent::Copied, "{policy:?}"),
                },
                Source::Memory => {}
                Source::Disk => {
                    if let Some(Spill { name, to }) = server.loaded(now, name) {
                        let step = clients[usize::from(to)].park(now, name, 1);
                        carry_out(&mut server, &mut clients, now, to, step);
                    }
                }
            }
            let step = clients[usize::from(me)].filled(now, name, answer.last, answer.fate);
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
                name, to, chances, ..
            } => {
                server.on_moved(name, at, to);
                let step = clients[usize::from(to)].park(now, name, chances);
                let oldest = clients[usize::from(to)].oldest();
                clients[usize::from(at)].on_taken(to, oldest);
                at = to;
                step
            }
        };
    }
}
