//! Snapshots that are made while programs on two mounts change the tree, at moments drawn at
//! random: each equals a copy of the tree at one moment, in names, kinds, modes, links, attributes
//! and bytes. The copy is that of a model, which repeats the changes.
//!
//! Judged of each snapshot: every program's part is as it was after some number of its changes; at
//! least those that were answered before the snapshot was asked for, and at most those that were
//! begun before it was there; and no part has a change that was begun after a change of another
//! part was answered which the snapshot does not have.

mod tree;

use crate::harness::{Pair, Random, real_system};
use crate::volumes::done;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tree::{Change, Object, Tree};

const SNAPSHOTS: usize = 20;
/// A program makes at most so many further changes before the next snapshot.
const CHANGES: u64 = 200;
const PROGRAMS: usize = 3;

/// A change, and when it was begun and answered, on the one clock of all programs.
struct Done {
    change: Change,
    begun: u64,
    answered: u64,
}

/// How many changes of a program were begun, and answered.
#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    answered: AtomicU64,
}

/// A snapshot: of each program the least and the largest number of changes that it may have.
struct Taken {
    least: [u64; PROGRAMS],
    most: [u64; PROGRAMS],
}

/// Changes a tree until it is stopped, by way of one directory and the other in turn.
fn change(
    (seed, roots): (u64, [&Path; 2]),
    (counts, clock): (&Counts, &AtomicU64),
    stop: &AtomicBool,
) -> Vec<Done> {
    let (mut random, mut tree) = (Random(seed), Tree::default());
    let mut all = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let change = tree.draw(&mut random);
        tree.apply(&change);
        counts.begun.fetch_add(1, Ordering::SeqCst);
        let begun = clock.fetch_add(1, Ordering::SeqCst);
        change.make(roots[all.len() % 2]);
        let answered = clock.fetch_add(1, Ordering::SeqCst);
        counts.answered.fetch_add(1, Ordering::SeqCst);
        all.push(Done {
            change,
            begun,
            answered,
        });
    }
    all
}

/// The next snapshot is made when one of the programs, drawn at random, has made a number of
/// changes, drawn as well.
fn wait(counts: &[Counts; PROGRAMS], random: &mut Random) {
    let program = &counts[random.below(PROGRAMS as u64) as usize].answered;
    let until = program.load(Ordering::SeqCst) + 1 + random.below(CHANGES);
    while program.load(Ordering::SeqCst) < until {
        thread::yield_now();
    }
}

/// The numbers of changes after which the part of a program is as the snapshot has it.
fn moments(
    all: &[Done],
    (least, most): (u64, u64),
    seen: &BTreeMap<String, Object>,
) -> Result<Vec<usize>, String> {
    let mut tree = Tree::default();
    let (mut found, mut difference) = (Vec::new(), String::new());
    for made in 0..=most as usize {
        if made > 0 {
            tree.apply(&all[made - 1].change);
        }
        if made < least as usize {
            continue;
        }
        match tree.differs(seen) {
            None => found.push(made),
            Some(what) => difference = format!("after {made} changes: {what}"),
        }
    }
    match found.is_empty() {
        true => Err(difference),
        false => Ok(found),
    }
}

/// Does the cut have a change that was begun when one was answered which the cut does not have?
fn is_torn(all: &[Vec<Done>], cut: &[usize]) -> bool {
    let last = |program: usize| cut[program].checked_sub(1).map(|at| all[program][at].begun);
    let begun = (0..PROGRAMS).filter_map(last).max().unwrap_or(0);
    let next = |program: usize| all[program].get(cut[program]);
    (0..PROGRAMS)
        .filter_map(next)
        .any(|next| next.answered < begun)
}

/// All ways to take one of each.
fn cuts(of: &[Vec<usize>]) -> Vec<Vec<usize>> {
    of.iter().fold(vec![Vec::new()], |cuts, choices| {
        let longer = |cut: &Vec<usize>| {
            let with = |choice: &usize| [&cut[..], &[*choice]].concat();
            choices.iter().map(with).collect::<Vec<_>>()
        };
        cuts.iter().flat_map(longer).collect()
    })
}

fn judge(snapshots: &Path, parts: [&str; PROGRAMS], all: &[Vec<Done>], taken: &[Taken]) {
    for (nth, bounds) in taken.iter().enumerate() {
        let mut found = Vec::new();
        for (program, part) in parts.iter().enumerate() {
            let seen = tree::seen(&snapshots.join(format!("s{nth}")).join(part));
            let (least, most) = (bounds.least[program], bounds.most[program]);
            let at = moments(&all[program], (least, most), &seen).unwrap_or_else(|difference| {
                panic!(
                    "snapshot {nth}: `{part}` is at no moment as it is there, from the {least} \
                     changes answered before to the {most} begun: {difference}"
                )
            });
            found.push(at);
        }
        assert!(
            cuts(&found).iter().any(|cut| !is_torn(all, cut)),
            "snapshot {nth} is of no one moment: it has {found:?} changes"
        );
    }
}

#[test]
fn a_snapshot_at_any_moment_equals_a_copy_of_that_moment() {
    if !real_system("moments") {
        return;
    }
    let Some(mut pair) = Pair::start("moments") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    // One part is changed by each mount alone, and one by both in turn.
    let parts = ["a", "b", "both"];
    for part in parts {
        fs::create_dir(a.join(part)).unwrap();
    }
    let roots = [
        [a.join("a"), a.join("a")],
        [b.join("b"), b.join("b")],
        [a.join("both"), b.join("both")],
    ];
    let (stop, clock) = (AtomicBool::new(false), AtomicU64::new(0));
    let counts: [Counts; PROGRAMS] = Default::default();
    let mut random = Random(27);
    let (all, taken) = thread::scope(|scope| {
        let begin = |(program, counts): (usize, _)| {
            let (roots, stop, clock) = (&roots[program], &stop, &clock);
            let seed = 27 + program as u64;
            scope.spawn(move || {
                let roots = [roots[0].as_path(), roots[1].as_path()];
                change((seed, roots), (counts, clock), stop)
            })
        };
        let programs: Vec<_> = counts.iter().enumerate().map(begin).collect();
        let mut take = |nth: usize| {
            wait(&counts, &mut random);
            let read = |which: fn(&Counts) -> &AtomicU64| {
                [0, 1, 2].map(|program| which(&counts[program]).load(Ordering::SeqCst))
            };
            let least = read(|counts| &counts.answered);
            done(&pair.cell, "snapshot", &["root", &format!("s{nth}")]);
            let most = read(|counts| &counts.begun);
            Taken { least, most }
        };
        let taken: Vec<Taken> = (0..SNAPSHOTS).map(&mut take).collect();
        stop.store(true, Ordering::SeqCst);
        let all: Vec<Vec<Done>> = programs.into_iter().map(|it| it.join().unwrap()).collect();
        (all, taken)
    });
    judge(&pair.a.join(".snapshots"), parts, &all, &taken);
    // They are the same to another mount, after the server's process has been killed.
    pair.cell.kill9();
    pair.cell.start_server();
    let fresh = pair.cell.mount();
    judge(&fresh.join(".snapshots"), parts, &all, &taken);
}
