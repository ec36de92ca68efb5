//! Advisory locks between programs of two mounts: flock(2), POSIX locks and those of open files.
//!
//! Each program is a process of its own. Where one must wait for another, the test waits until the
//! server says that it does; where a lock is given up, the time until the next one has it is
//! measured by the clock that all of them share.

mod alone;
mod many;
mod worker;

use crate::harness::cell::CellOptions;
use crate::harness::process::shell_ok;
use crate::harness::status::status;
use crate::harness::{Cell, Mount, Pair, eventually, has_program, local, real_system};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use worker::Locker;

/// In which a waiter has the lock that was given up.
const WAKES: Duration = Duration::from_millis(100);

fn pair(name: &str) -> Option<Pair> {
    if !has_program(name, "python3") {
        return None;
    }
    // A test that measures time runs alone.
    let options = CellOptions {
        alone: true,
        ..CellOptions::default()
    };
    let pair = Pair::start_with(name, options, &[])?;
    fs::write(pair.a.join("file"), b"x").unwrap();
    Some(pair)
}

/// Programs with the file open: on the first mount, on the second, and another one on the first.
fn three(pair: &Pair) -> [Locker; 3] {
    [&pair.a, &pair.b, &pair.a].map(|mount| with_file(&pair.cell, mount, "rw"))
}

fn with_file(cell: &Cell, mount: &Mount, flags: &str) -> Locker {
    let mut locker = Locker::start(cell, mount.path());
    locker.done(&format!("open f file {flags}"));
    locker
}

/// Waits until so many requests wait: at the server, or in the kernel where the mounts are local.
fn wait_for_waiters(pair: &Pair, count: u64) {
    let waiting = || match local() {
        true => blocked_in(pair.a.path()),
        false => status(pair.cell.addr())["locks"]["waiting"]
            .as_u64()
            .unwrap(),
    };
    let found = eventually(Duration::from_secs(20), || waiting() == count);
    assert!(found, "{} requests wait, not {count}", waiting());
}

/// How many locks of the files in this directory the kernel says to be waited for.
fn blocked_in(dir: &Path) -> u64 {
    let inode = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().ino();
    let inodes: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| format!(":{}", inode(entry)))
        .collect();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let waits = locks.lines().filter(|line| line.contains("->"));
    let here = |line: &&str| {
        let mut words = line.split_whitespace();
        words.any(|word| inodes.iter().any(|inode| word.ends_with(inode.as_str())))
    };
    waits.filter(here).count() as u64
}

fn took(from_ns: u64, to_ns: u64) -> Duration {
    Duration::from_nanos(to_ns.saturating_sub(from_ns))
}

/// How each sort of lock is taken, tried and given up: `KIND`, `HOW`.
const SORTS: [(&str, &str); 3] = [
    ("flock f KIND HOW", "flock f un wait"),
    ("lock f HOW KIND 10 20", "lock f wait un 0 0"),
    ("ofd f HOW KIND 10 20", "ofd f wait un 0 0"),
];

fn command(sort: &str, kind: &str, how: &str) -> String {
    sort.replace("KIND", kind).replace("HOW", how)
}

#[test]
fn locks_exclude_across_mounts_and_waiters_are_woken() {
    let Some(pair) = pair("locks") else { return };
    for (take, give_up) in SORTS {
        let [mut one, mut other, mut third] = three(&pair);
        one.done(&command(take, "ex", "wait"));
        for program in [&mut other, &mut third] {
            program.fails(&command(take, "ex", "try"), "EAGAIN");
            program.fails(&command(take, "sh", "try"), "EAGAIN");
        }
        for (round, [first, second]) in [[1, 2], [2, 1]].into_iter().enumerate() {
            let mut programs = [None, Some(&mut other), Some(&mut third)];
            let (a, b) = (
                programs[first].take().unwrap(),
                programs[second].take().unwrap(),
            );
            a.tell(&command(take, "ex", "wait"));
            wait_for_waiters(&pair, 1);
            b.tell(&command(take, "ex", "wait"));
            wait_for_waiters(&pair, 2);
            let given_up = one.done(give_up);
            let woken = a.hear();
            assert_eq!(woken.what, "ok", "{take}, round {round}");
            let late = took(given_up.at_ns, woken.at_ns);
            assert!(late < WAKES, "{take}: woken after {late:?}");
            assert!(
                b.hear_within(Duration::from_millis(100)).is_none() || local(),
                "{take}: who came second has it too"
            );
            let given_up = a.done(give_up);
            let late = took(given_up.at_ns, b.hear().at_ns);
            assert!(late < WAKES, "{take}: woken after {late:?}");
            b.done(give_up);
            one.done(&command(take, "ex", "try"));
        }
        one.done(give_up);
        // Shared with each other, not with a process that wants it alone.
        one.done(&command(take, "sh", "try"));
        other.done(&command(take, "sh", "try"));
        third.fails(&command(take, "ex", "try"), "EAGAIN");
        one.done(give_up);
        third.fails(&command(take, "ex", "try"), "EAGAIN");
        other.done(give_up);
        third.done(&command(take, "ex", "try"));
    }
}

/// However a program stops having its lock: by closing, by its end, by being killed.
#[test]
fn a_lock_ends_with_its_holder() {
    let Some(pair) = pair("locks-ends") else {
        return;
    };
    for (take, _) in SORTS {
        for how in ["close", "end", "kill"] {
            let [mut one, mut other, _] = three(&pair);
            one.done(&command(take, "ex", "wait"));
            other.tell(&command(take, "ex", "wait"));
            wait_for_waiters(&pair, 1);
            let begin = Instant::now();
            match how {
                "close" => drop(one.done("close f")),
                "end" => one.end(),
                _ => one.kill9(),
            }
            assert_eq!(other.hear().what, "ok", "{take} after {how}");
            // The end of a Python program itself takes its time.
            let most = if how == "end" { 10 * WAKES } else { WAKES };
            let late = begin.elapsed();
            assert!(late < most, "{take}: free {late:?} after {how}");
        }
    }
}

/// A lock of an open file is that of all who have inherited it; a process's own is not.
#[test]
fn locks_of_open_files_are_inherited() {
    let Some(pair) = pair("locks-fork") else {
        return;
    };
    for (take, inherited) in [(SORTS[0].0, true), (SORTS[1].0, false), (SORTS[2].0, true)] {
        let [mut parent, mut other, _] = three(&pair);
        parent.done(&command(take, "ex", "wait"));
        let child = parent.ask("child").what;
        parent.end();
        if inherited {
            other.fails(&command(take, "ex", "try"), "EAGAIN");
            other.tell(&command(take, "ex", "wait"));
            wait_for_waiters(&pair, 1);
        } else {
            other.tell(&command(take, "ex", "wait"));
        }
        if inherited {
            shell_ok(pair.cell.scratch().path(), &format!("kill -9 {child}"));
        }
        assert_eq!(other.hear().what, "ok", "{take}");
        if !inherited {
            shell_ok(pair.cell.scratch().path(), &format!("kill -9 {child}"));
        }
    }
}

/// The idiom of shell scripts: flock(1) locks a descriptor that the shell goes on having.
#[test]
fn shells_lock_by_the_helper_program() {
    if !has_program("locks-shell", "flock") {
        return;
    }
    let Some(pair) = pair("locks-shell") else {
        return;
    };
    const EACH: usize = 25;
    fs::write(pair.a.join("number"), b"0\n").unwrap();
    let script = format!(
        "for n in $(seq {EACH}); do (flock 9 || exit 1; read old < number; \
         echo $((old + 1)) > number) 9> lock || exit 1; done"
    );
    std::thread::scope(|scope| {
        for mount in [&pair.a, &pair.b, &pair.a, &pair.b] {
            scope.spawn(|| shell_ok(mount.path(), &script));
        }
    });
    for mount in [&pair.a, &pair.b] {
        let number = fs::read_to_string(mount.join("number")).unwrap();
        assert_eq!(number.trim(), (4 * EACH).to_string());
    }
}

/// A process closes any descriptor of the file, and its POSIX locks are gone; not so the others.
#[test]
fn a_process_gives_up_its_locks_by_any_close() {
    let Some(pair) = pair("locks-close") else {
        return;
    };
    for flags in ["rw", "w"] {
        let mut one = with_file(&pair.cell, &pair.a, flags);
        let mut other = with_file(&pair.cell, &pair.b, "rw");
        one.done("dup f again");
        one.done("open second file rw");
        one.done("lock f wait ex 0 10");
        one.done("ofd f wait ex 20 10");
        one.done("flock f ex wait");
        one.done("close again");
        other.done("lock f try ex 0 10");
        other.fails("lock f try ex 20 1", "EAGAIN");
        other.fails("flock f sh try", "EAGAIN");
        other.done("lock f try un 0 10");
        one.done("lock f wait ex 0 10");
        one.done("close second");
        other.done("lock f try ex 0 10");
        other.fails("lock f try ex 20 1", "EAGAIN");
    }
}

/// Descriptors for reading only are opened without being told of closes, until bytes are locked.
#[test]
fn read_locks_of_descriptors_for_reading_end_too() {
    let Some(pair) = pair("locks-read") else {
        return;
    };
    let mut other = with_file(&pair.cell, &pair.b, "rw");
    let mut one = with_file(&pair.cell, &pair.a, "r");
    one.done("lock f wait sh 0 10");
    other.tell("lock f wait ex 5 1");
    wait_for_waiters(&pair, 1);
    let closed = one.done("close f");
    assert!(took(closed.at_ns, other.hear().at_ns) < WAKES);
    other.done("lock f wait un 0 0");
    // From now on the file is known as one that is locked.
    one.done("open f file r");
    one.done("dup f again");
    one.done("lock f wait sh 0 10");
    one.done("close again");
    other.done("lock f try ex 5 1");
}

#[test]
fn two_threads_with_two_descriptors_exclude_each_other() {
    let Some(pair) = pair("locks-threads") else {
        return;
    };
    let mut one = with_file(&pair.cell, &pair.a, "rw");
    one.done("open g file rw");
    for (take, give_up) in [SORTS[0], SORTS[2]] {
        one.done(&command(take, "ex", "wait"));
        let second = command(take, "ex", "wait").replace(" f ", " g ");
        one.tell(&format!("thread t {second}"));
        wait_for_waiters(&pair, 1);
        one.tell(give_up);
        let (said, then) = (one.hear(), one.hear());
        assert_eq!((said.what.as_str(), then.what.as_str()), ("ok", "ok"));
        one.done(&give_up.replace(" f ", " g "));
    }
}

/// A machine may be kept from running for a while; a program that is not interrupted waits for
/// ever.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_signal_interrupts_who_waits() {
    let Some(pair) = pair("locks-signal") else {
        return;
    };
    for (take, give_up) in SORTS {
        let [mut one, mut other, mut third] = three(&pair);
        one.done(&command(take, "ex", "wait"));
        let wait = command(take, "ex", "wait");
        let begin = Instant::now();
        other.fails(&format!("alarm 0.1 {wait}"), "EINTR");
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        // Begun again after the handler, it waits on.
        other.tell(&format!("restart 0.1 {wait}"));
        assert!(other.hear_within(Duration::from_millis(400)).is_none());
        // A waiter that is killed ends, and gets nothing.
        third.tell(&wait);
        wait_for_waiters(&pair, 2);
        let begin = Instant::now();
        third.kill9();
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        one.done(give_up);
        assert_eq!(other.hear().what, "ok", "{take}");
        other.done(give_up);
        one.done(&command(take, "ex", "try"));
    }
}

#[test]
fn whoever_would_wait_for_ever_is_told() {
    let Some(pair) = pair("locks-deadlock") else {
        return;
    };
    fs::write(pair.b.join("second"), b"x").unwrap();
    let [mut one, mut other, _] = three(&pair);
    one.done("open s second rw");
    other.done("open s second rw");
    one.done("lock f wait ex 0 1");
    other.done("lock s wait ex 0 1");
    one.tell("lock s wait ex 0 1");
    wait_for_waiters(&pair, 1);
    other.fails("lock f wait ex 0 1", "EDEADLK");
    other.done("lock s wait un 0 0");
    assert_eq!(one.hear().what, "ok");
    one.done("lock s wait un 0 0");
    one.done("lock f wait un 0 0");
    // The owner of an open file's lock is not known, so that no deadlock is reported.
    one.done("ofd f wait ex 0 1");
    other.done("ofd s wait ex 0 1");
    one.tell("ofd s wait ex 0 1");
    wait_for_waiters(&pair, 1);
    other.fails("alarm 0.3 ofd f wait ex 0 1", "EINTR");
    other.done("ofd s wait un 0 0");
    assert_eq!(one.hear().what, "ok");
}

#[test]
fn getlk_tells_who_is_in_the_way() {
    if !real_system("locks-getlk") {
        return;
    }
    let Some(pair) = pair("locks-getlk") else {
        return;
    };
    let [mut one, mut other, mut third] = three(&pair);
    one.done("lock f wait ex 10 20");
    one.done("lock f wait un 15 5");
    let pid = one.ask("pid").what;
    assert_eq!(
        third.ask("lock f get sh 0 0").what,
        format!("ex,10,5,{pid}")
    );
    assert_eq!(
        third.ask("lock f get ex 16 0").what,
        format!("ex,20,10,{pid}")
    );
    assert_eq!(third.ask("lock f get ex 15 5").what, "un,15,5,0");
    assert_eq!(
        other.ask("lock f get sh 0 0").what,
        "ex,10,5,0",
        "of another machine"
    );
    one.done("lock f wait sh 100 0");
    assert_eq!(other.ask("lock f get sh 100 0").what, "un,100,0,0");
    assert_eq!(other.ask("lock f get ex 200 1").what, "sh,100,0,0");
}

/// The kernel keeps leases to itself, whatever the file system.
#[test]
fn a_lease_is_known_to_its_own_machine_only() {
    if !real_system("locks-lease") {
        return;
    }
    let Some(pair) = pair("locks-lease") else {
        return;
    };
    let mut one = with_file(&pair.cell, &pair.a, "r");
    let said = one.ask("lease f sh").what;
    assert!(said == "ok" || said == "EINVAL", "{said}");
    // Elsewhere nobody is kept from writing by it.
    fs::write(pair.b.join("file"), b"y").unwrap();
    assert_eq!(fs::read(pair.a.join("file")).unwrap(), b"y");
}

#[test]
fn locks_of_a_killed_mount_are_free_after_its_lease() {
    if !real_system("locks-killed") {
        return;
    }
    let Some(pair) = pair("locks-killed") else {
        return;
    };
    let mut other = with_file(&pair.cell, &pair.a, "rw");
    let mut one = with_file(&pair.cell, &pair.b, "rw");
    one.done("flock f ex wait");
    one.done("lock f wait ex 0 10");
    // In this order, so that the cell is dropped last.
    let Pair {
        cell: _cell,
        a: _a,
        b,
    } = pair;
    let begin = Instant::now();
    b.kill9();
    other.done("lock f wait ex 5 10");
    other.done("flock f ex try");
    // At the latest; mostly its guard tells the server of its end.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(27), "{took:?}");
    drop((one, other)); // they use the mounts
}

#[test]
fn locks_are_kept_over_a_restart_of_the_server() {
    if !real_system("locks-restart") {
        return;
    }
    let Some(mut pair) = pair("locks-restart") else {
        return;
    };
    let [mut one, mut other, mut third] = three(&pair);
    one.done("flock f ex wait");
    one.done("lock f wait ex 0 10");
    one.done("ofd f wait sh 20 10");
    other.tell("lock f wait ex 5 10");
    wait_for_waiters(&pair, 1);
    pair.cell.kill9();
    third.tell("flock f sh try");
    pair.cell.start_server();
    assert_eq!(
        third.hear().what,
        "EAGAIN",
        "nobody gets it before its holder has said so"
    );
    third.fails("lock f try ex 0 1", "EAGAIN");
    third.fails("ofd f try ex 25 1", "EAGAIN");
    wait_for_waiters(&pair, 1);
    let given_up = one.done("lock f wait un 0 10");
    assert!(took(given_up.at_ns, other.hear().at_ns) < WAKES);
    one.done("flock f un wait");
    third.done("flock f sh try");
}
