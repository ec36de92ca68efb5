//! Races for one name: of two mounts that create it at the same time exactly one wins, and both
//! see the winner's.

use crate::exact::ROUNDS;
use crate::harness::Pair;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

type Attempt = fn(&Path, usize) -> std::io::Result<()>;

/// Lets two threads begin within nanoseconds of each other; a barrier would wake them one by one.
fn line_up(arrived: &AtomicUsize, round: usize) {
    arrived.fetch_add(1, Ordering::SeqCst);
    while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
        std::hint::spin_loop();
        std::thread::yield_now();
    }
}

fn race(name: &str, rounds: usize, attempt: Attempt, winner_seen: fn(&Path, usize) -> bool) {
    let Some(pair) = Pair::start(name) else {
        return;
    };
    let arrived = AtomicUsize::new(0);
    let run = |mount: &Path, side: usize| -> Vec<bool> {
        (0..rounds)
            .map(|round| {
                line_up(&arrived, round);
                match attempt(&mount.join(format!("name-{round}")), side) {
                    Ok(()) => true,
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
                    Err(e) => {
                        // The other side would wait for ever at the line.
                        arrived.fetch_add(usize::MAX / 2, Ordering::SeqCst);
                        panic!("round {round}, side {side}: {e}")
                    }
                }
            })
            .collect()
    };
    let (a, b) = std::thread::scope(|scope| {
        let b = scope.spawn(|| run(pair.b.path(), 1));
        (run(pair.a.path(), 0), b.join().unwrap())
    });
    for round in 0..rounds {
        let (a, b) = (a[round], b[round]);
        assert!(a != b, "round {round}: winners a: {a}, b: {b}");
        let winner = usize::from(b);
        for mount in [&pair.a, &pair.b] {
            let path = mount.join(&format!("name-{round}"));
            assert!(
                winner_seen(&path, winner),
                "round {round}: {} is wrong",
                path.display()
            );
        }
    }
    println!(
        "{name}: the first mount won {} of {rounds}",
        a.iter().filter(|w| **w).count()
    );
}

#[test]
fn exclusive_creation_has_exactly_one_winner() {
    let create: Attempt = |path, side| {
        let mut file = File::options().write(true).create_new(true).open(path)?;
        file.write_all(format!("winner {side}").as_bytes())
    };
    race("excl", ROUNDS, create, |path, winner| {
        fs::read(path).unwrap() == format!("winner {winner}").into_bytes()
    });
}

#[test]
fn mkdir_has_exactly_one_winner() {
    race(
        "mkdir",
        200,
        |path, _| fs::create_dir(path),
        |path, _| path.is_dir(),
    );
}

#[test]
fn symlink_has_exactly_one_winner() {
    let link: Attempt = |path, side| std::os::unix::fs::symlink(format!("{side}"), path);
    race("symlinks", 200, link, |path, winner| {
        fs::read_link(path).unwrap().to_str() == Some(&winner.to_string())
    });
}

#[test]
fn of_two_removals_exactly_one_succeeds() {
    let Some(pair) = Pair::start("unlink-race") else {
        return;
    };
    let rounds = 200;
    for round in 0..rounds {
        let name = format!("name-{round}");
        fs::write(pair.a.join(&name), b"x").unwrap();
        assert!(
            pair.b.join(&name).exists(),
            "{name} is not seen before the race"
        );
    }
    let arrived = AtomicUsize::new(0);
    let run = |mount: &Path| -> Vec<bool> {
        (0..rounds)
            .map(|round| {
                line_up(&arrived, round);
                fs::remove_file(mount.join(format!("name-{round}"))).is_ok()
            })
            .collect()
    };
    let (a, b) = std::thread::scope(|scope| {
        let b = scope.spawn(|| run(pair.b.path()));
        (run(pair.a.path()), b.join().unwrap())
    });
    let wrong: Vec<_> = (0..rounds).filter(|round| a[*round] == b[*round]).collect();
    assert!(
        wrong.is_empty(),
        "not exactly one removal in rounds {wrong:?}"
    );
}
