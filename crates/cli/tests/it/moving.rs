//! Volumes that move between the servers of a cell while programs use them: a real etcd, servers
//! and mounts in network namespaces, and each party killed on the way.

use crate::harness::machines::Machines;
use crate::harness::{eventually, text};
use crate::servers::{can_have_servers, followed, start_again};
use rustix::process::Signal;
use std::time::{Duration, Instant};

mod build;

const LIST: &str = "ariel volume list 127.0.0.1:7070 --all";

/// The machines of the page, with a volume that has a store of its own on the first server: in the
/// tree at /mnt/1/work, and on a mount of its own at /mnt/work, which begins at the other server.
fn with_a_volume() -> Machines {
    let mut machines = followed("ariel group create");
    let m = &mut machines;
    m.must(
        "server-1",
        "ariel volume create 127.0.0.1:7070 work --own-store --mode 777",
    );
    m.must("server-1", "ariel volume mount 127.0.0.1:7070 work /work");
    m.must(
        "build-1",
        "mkdir /mnt/work; ariel mount server-2:7070 /mnt/work --volume work",
    );
    machines
}

fn move_to(m: &mut Machines, server: &str) -> String {
    m.must(
        "build-1",
        &format!("ariel volume move server-1:7070 work {server} --quiet"),
    )
}

/// How long nobody was served in a move, as the command tells, ms.
fn pause_ms(told: &str) -> u64 {
    let words: Vec<&str> = told.split_whitespace().collect();
    let ms = words.iter().rev().nth(1).and_then(|ms| ms.parse().ok());
    ms.unwrap_or_else(|| panic!("the command tells no pause: {told}"))
}

/// The server that has the volume, as all of them say.
fn place(m: &mut Machines) -> String {
    let mut told = String::new();
    let mut found = Vec::new();
    let one = eventually(Duration::from_secs(60), || {
        let output = m.run("server-1", LIST);
        told = text(&output);
        let lines = told.lines().filter(|line| line.contains(" work "));
        found = lines
            .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
            .collect();
        output.status.success() && found.len() == 1
    });
    assert!(one, "one server has the volume: {told}");
    found.swap_remove(0)
}

/// Programs that use the volume in the background: they end when the file `stop` is there, and
/// leave what went wrong in `wrong`.
const PROGRAMS: &str = r#"
cd /mnt/work
# Appends a number at a time, with its moment, and makes every tenth one stable.
append() {
  n=0
  while ! test -e stop; do
    n=$((n + 1))
    echo $n $(date +%s%N) >> log || echo log $n >> wrong
    test $((n % 10)) != 0 || sync -d log || echo sync $n >> wrong
  done
  echo $n > log.last
}
# Makes and renames files in a directory of its own, through the mount point.
make() {
  mkdir /mnt/1/work/made
  n=0
  while ! test -e /mnt/1/work/stop; do
    n=$((n + 1))
    echo $n > /mnt/1/work/made/new && mv /mnt/1/work/made/new /mnt/1/work/made/$n ||
      echo made $n >> wrong
  done
  echo $n > made.last
}
# Counts under a lock that the same program on another mount takes, too.
count() {
  while ! test -e $1/stop; do
    flock $1/lock sh -c "read n < $1/count; echo \$((n + 1)) > $1/count; echo >> $1/counted" ||
      echo lock >> $1/wrong
  done
  echo > ended.$2
}
append 2>> errors &
make 2>> errors &
count /mnt/work one 2>> errors &
count /mnt/1/work other 2>> errors &
"#;

/// Begins the programs, and does not wait for them.
fn begin_programs(m: &mut Machines) {
    m.must(
        "build-1",
        "cd /mnt/work; echo 0 > count; : > counted; : > errors",
    );
    let line = format!(
        "setsid sh -c '{}' > /dev/null 2>&1 < /dev/null",
        PROGRAMS.replace('\'', "'\\''")
    );
    m.must("build-1", &line);
}

/// Ends the programs, and looks at what they have left: nothing is lost, doubled or out of order.
/// The longest time between two lines of the log.
fn end_programs(m: &mut Machines) -> Duration {
    m.must("build-1", "touch /mnt/work/stop");
    let ended = eventually(Duration::from_secs(60), || {
        let all =
            "cd /mnt/work; test -e log.last -a -e made.last -a -e ended.one -a -e ended.other";
        m.run("build-1", all).status.success()
    });
    assert!(ended, "the programs end");
    let errors = m.must(
        "build-1",
        "cd /mnt/1/work; test ! -e wrong || cat wrong; cat errors",
    );
    assert_eq!(errors, "", "no program sees an error");
    m.must(
        "build-1",
        "cd /mnt/1/work; test $(cat count) = $(wc -l < counted); test $(cat count) -gt 10; \
         test $(cat log.last) = $(wc -l < log); cut -d\" \" -f1 log | sort -nuC; \
         test $(ls made | wc -l) = $(cat made.last)",
    );
    // Each file has its own number, and nothing else.
    let made = "cd /mnt/work/made; n=$(cat ../made.last); seq $n > /tmp/numbers; \
                xargs cat < /tmp/numbers | cmp - /tmp/numbers";
    m.must("build-1", made);
    let counts = m.must("build-1", "cat /mnt/1/work/log");
    let moments: Vec<u64> = counts
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.parse().ok())
        .collect();
    let gaps = moments
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]));
    Duration::from_nanos(gaps.max().unwrap_or(0))
}

/// A program holds a lock and a file without a name until the others end, and copies the file then.
fn hold(m: &mut Machines) {
    let holder = "cd /mnt/work; exec 7> held 8<> gone; flock 7; echo kept >&8; rm gone; \
                  touch holds; while ! test -e stop; do sleep 0.1; done; \
                  cp /proc/$$/fd/8 was-gone";
    let line = format!("setsid sh -c '{holder}' > /dev/null 2>&1 < /dev/null &");
    m.must("build-1", &line);
    assert!(eventually(Duration::from_secs(10), || {
        let holds = m.run("build-1", "test -e /mnt/1/work/holds");
        holds.status.success()
    }));
}

/// Four moves, there and back; how long nobody was served in each, ms.
fn move_four_times(m: &mut Machines) -> Vec<u64> {
    let mut pauses_ms = Vec::new();
    for round in 0..4 {
        let to = ["server-2", "server-1"][round % 2];
        let told = move_to(m, to);
        assert!(told.contains(&format!("work is on {to} now")), "{told}");
        eprint!("{told}");
        pauses_ms.push(pause_ms(&told));
        assert_eq!(place(m), to);
        m.refused("build-1", "flock -n /mnt/1/work/held true", &[]);
    }
    pauses_ms
}

#[test]
fn programs_go_on_while_their_volume_moves() {
    if !can_have_servers("moving") {
        return;
    }
    let mut machines = with_a_volume();
    let m = &mut machines;
    hold(m);
    begin_programs(m);
    m.must(
        "build-1",
        "mkdir /mnt/work/tree; cp -r /usr/include/linux /mnt/work/tree",
    );
    m.must("build-1", "ariel volume snapshot server-1:7070 work before");
    let pauses_ms = move_four_times(m);
    let longest = end_programs(m);
    eprintln!("pauses of the servers {pauses_ms:?} ms, longest of a program {longest:?}");
    assert!(
        longest < Duration::from_secs(10),
        "a program waited for {longest:?}"
    );
    assert!(eventually(Duration::from_secs(20), || {
        m.run("build-1", "grep -q kept /mnt/work/was-gone")
            .status
            .success()
    }));
    m.must(
        "build-1",
        "diff -r /usr/include/linux /mnt/1/work/tree/linux",
    );
    // Snapshots moved with it, and further ones are made where it is.
    m.must(
        "build-1",
        "diff -r /mnt/work/tree /mnt/1/work/.snapshots/before/tree",
    );
    m.must("build-1", "ariel volume snapshot server-1:7070 work after");
    let told = m.must(
        "build-1",
        "ariel umount /mnt/work; ariel cat --volume work server-1:7070:/log | wc -l",
    );
    assert!(
        told.trim().parse::<u64>().is_ok_and(|lines| lines > 10),
        "{told}"
    );
    // The copy that it left is gone.
    let left = m.at("server-2", "/srv/ariel/stores");
    let gone = eventually(Duration::from_secs(20), || {
        let mut all = std::fs::read_dir(&left).unwrap();
        !all.any(|entry| entry.unwrap().path().is_dir())
    });
    assert!(gone, "a copy stays behind in {}", left.display());
}

/// Each is killed on the way: a machine, and the beginning of the command line of what is killed
/// there.
const KILLED: [(&str, &str); 4] = [
    ("server-1", "ariel serve"),
    ("server-2", "ariel serve"),
    ("db", "etcd --data-dir"),
    ("build-1", "ariel volume move"),
];
/// So long after a store was closed, ms: before its last round, in it, while the record changes,
/// and behind it.
const DELAYS_MS: [u64; 6] = [0, 60, 140, 240, 400, 700];
/// The cuts that are made where not all are (`ARIEL_LONG`): the source before the turning point,
/// the target behind it, the database, and the command.
const SOME: [(usize, u64); 4] = [(0, 140), (1, 700), (2, 60), (3, 60)];

/// How often a server has closed a store for another one.
fn closings(m: &mut Machines, server: &str) -> usize {
    let log = m.at(server, "/srv/ariel/server.log");
    let log = std::fs::read_to_string(log).unwrap();
    log.matches("a further store is closed").count()
}

/// Begins a move from where the volume is to the other server, kills one of the parties when the
/// store has been closed for so long (`None`: while it is copied), and starts it again. The server
/// that has the volume then.
fn cut_short(m: &mut Machines, (name, words): (&str, &str), delay_ms: Option<u64>) -> String {
    let from = place(m);
    let to = if from == "server-1" {
        "server-2"
    } else {
        "server-1"
    };
    let before = closings(m, &from);
    let begin = format!(
        "ariel volume move {from}:7070 work {to} --quiet > /dev/null 2>&1 < /dev/null & \
         echo $! > /tmp/move-command"
    );
    m.must("build-1", &begin);
    if let Some(delay_ms) = delay_ms {
        let limit = Instant::now() + Duration::from_secs(60);
        while closings(m, &from) == before {
            assert!(Instant::now() < limit, "the store is never closed");
            std::thread::yield_now();
        }
        // The moment is what is tried here.
        std::thread::sleep(Duration::from_millis(delay_ms));
    }
    match name {
        // It may have ended before.
        "build-1" => drop(m.run(name, "kill -9 $(cat /tmp/move-command)")),
        machine => {
            m.signal(machine, words, Signal::KILL);
            start_again(m, machine);
        }
    }
    let at = place(m);
    eprintln!("from {from}, {name} killed after {delay_ms:?} ms, now at {at}");
    m.must(
        "build-1",
        "timeout 60 sh -c 'echo alive > /mnt/1/work/alive'",
    );
    at
}

/// The parties that are killed, and when.
fn cuts() -> Vec<((&'static str, &'static str), Option<u64>)> {
    if std::env::var_os("ARIEL_LONG").is_none() {
        let some = SOME.map(|(who, delay_ms)| (KILLED[who], Some(delay_ms)));
        return some.to_vec();
    }
    let moments = || std::iter::once(None).chain(DELAYS_MS.map(Some));
    let all = KILLED
        .iter()
        .flat_map(|who| moments().map(|delay_ms| (*who, delay_ms)));
    all.collect()
}

#[test]
fn a_move_that_is_cut_short_loses_nothing() {
    if !can_have_servers("moving-killed") {
        return;
    }
    let mut machines = with_a_volume();
    let m = &mut machines;
    m.must(
        "build-1",
        "head -c 60000000 /dev/urandom > /mnt/work/large; sync -f /mnt/work",
    );
    let sum = m.must("build-1", "sha256sum < /mnt/work/large");
    begin_programs(m);
    let mut moved = 0;
    for (killed, delay_ms) in cuts() {
        let before = place(m);
        moved += usize::from(cut_short(m, killed, delay_ms) != before);
    }
    assert!(moved > 0, "no move was cut short behind its turning point");
    end_programs(m);
    assert_eq!(m.must("build-1", "sha256sum < /mnt/1/work/large"), sum);
    m.must("build-1", "ariel umount /mnt/work; ariel umount /mnt/1");
    let at = place(m);
    m.signal(&at, "ariel serve", Signal::TERM);
    let stores = m.at(&at, "/srv/ariel/stores");
    let mut all = std::fs::read_dir(stores)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let store = all.find(|path| path.is_dir()).expect("the store is here");
    assert!(eventually(Duration::from_secs(20), || !is_open(&store)));
    let number = store.file_name().unwrap().to_string_lossy().into_owned();
    let told = m.must(&at, &format!("ariel fsck /srv/ariel/stores/{number}"));
    assert!(told.contains("clean"), "{told}");
}

/// Has a process the store open?
fn is_open(store: &std::path::Path) -> bool {
    let lock = std::fs::File::open(store.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
}

#[test]
fn a_move_is_cancelled_or_refused() {
    if !can_have_servers("moving-refused") {
        return;
    }
    let mut machines = with_a_volume();
    let m = &mut machines;
    let shared = "ariel volume create 127.0.0.1:7070 shared";
    m.must("server-1", shared);
    m.refused(
        "build-1",
        "ariel volume move server-1:7070 shared server-2 --quiet",
        &["shares its store", "--own-store"],
    );
    m.refused(
        "build-1",
        "ariel volume move server-1:7070 work server-1 --quiet",
        &["is on this server already"],
    );
    m.refused(
        "build-1",
        "ariel volume move server-1:7070 work nowhere --quiet",
        &["no server nowhere", "ariel cell servers"],
    );
    m.refused(
        "build-1",
        "ariel volume move server-1:7070 absent server-2 --quiet",
        &["no server of the cell has a volume absent"],
    );
    let none = "ariel volume move server-1:7070 work server-2 --cancel";
    m.refused("build-1", none, &["does not move"]);
    let taken = "ariel volume create 127.0.0.1:7070 work --own-store";
    m.refused("server-2", taken, &["has a volume of this name"]);
}

/// A volume and its clone are in one store: of two moves at once one is made.
fn twins_move_once(m: &mut Machines) {
    m.must(
        "build-1",
        "echo both > /mnt/work/f; ariel volume clone server-1:7070 work twin",
    );
    let both = "ariel volume move server-1:7070 work server-2 --quiet > /tmp/one 2>&1 & \
                ariel volume move server-1:7070 twin server-2 --quiet > /tmp/other 2>&1; wait; \
                cat /tmp/one /tmp/other";
    let told = m.must("build-1", both);
    assert!(told.contains("is on server-2 now"), "{told}");
    let refused = [
        "moves already",
        "it has just moved",
        "is on this server already",
    ];
    assert!(refused.iter().any(|why| told.contains(why)), "{told}");
    for name in ["work", "twin"] {
        let cat = format!("ariel cat --volume {name} server-1:7070:/f");
        assert_eq!(m.must("build-1", &cat), "both\n");
    }
    // Back at once, while the copy that was left may still be there; and again.
    for to in ["server-1", "server-2"] {
        move_to(m, to);
        assert_eq!(place(m), to);
        assert_eq!(m.must("build-1", "cat /mnt/1/work/f"), "both\n");
    }
}

#[test]
fn names_lead_to_the_volumes_that_are_there() {
    if !can_have_servers("moving-names") {
        return;
    }
    let mut machines = with_a_volume();
    let m = &mut machines;
    twins_move_once(m);
    // A name of a volume that has moved, and is called otherwise there, is free.
    m.must("build-1", "ariel volume rename server-1:7070 work away");
    m.must(
        "build-1",
        "ariel volume create server-1:7070 work --mode 777",
    );
    m.must(
        "build-1",
        "echo new > n; ariel put --volume work n server-1:7070:/n",
    );
    assert_eq!(
        m.must("build-1", "ariel cat --volume work server-1:7070:/n"),
        "new\n"
    );
    // One that was deleted stands in the way of none that is there, whatever store it is in.
    m.must("build-1", "ariel volume delete server-1:7070 work");
    let again = "ariel volume create server-1:7070 work --own-store --mode 777";
    m.must("build-1", again);
    m.must("build-1", "ariel put --volume work n server-1:7070:/again");
    assert_eq!(
        m.must("build-1", "ariel ls --volume work server-1:7070:/"),
        "again\n"
    );
    m.must("build-1", "ariel volume snapshot server-1:7070 work s");
    // Four that are made at once have stores of their own.
    let four = "for n in 1 2 3 4; do \
                ariel volume create server-1:7070 v$n --own-store & done; wait";
    m.must("build-1", four);
    let told = m.must("server-1", LIST);
    assert_eq!(told.matches(" v").count(), 4, "{told}");
    // A store whose volumes are purged goes when its server begins.
    m.must(
        "build-1",
        "ariel volume delete server-1:7070 v1; ariel volume purge server-1:7070 v1",
    );
    m.signal("server-1", "ariel serve", Signal::KILL);
    start_again(m, "server-1");
    let stores = m.at("server-1", "/srv/ariel/stores");
    let count = || {
        let all = std::fs::read_dir(&stores).unwrap();
        all.filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    };
    assert!(
        eventually(Duration::from_secs(20), || count() == 4),
        "{}",
        count()
    );
}

/// Changes a file of each of two volumes over and over, until the file `stop` is there.
const TWO_LOADS: &str = r#"
for dir in /mnt/work /mnt/more; do
  (cd $dir; while ! test -e stop; do echo x >> f; sync -d f; done) &
done
"#;

/// The other server cannot keep a copy of either volume: the command names the move that is not
/// made, at once and at its end.
fn refused_and_told(m: &mut Machines, balance: &str) {
    let stores = "/srv/ariel/stores";
    let numbers = format!("ls {stores} | grep -x [0-9]*");
    let numbers = m.must("server-1", &numbers);
    let names = numbers.split_whitespace();
    let in_the_way: Vec<String> = names.map(|n| format!("{stores}/{n}.coming")).collect();
    assert_eq!(in_the_way.len(), 2, "{numbers}");
    let in_the_way = in_the_way.join(" ");
    m.must(
        "server-2",
        &format!("mkdir -p {stores}; touch {in_the_way}"),
    );
    let output = m.run("build-1", balance);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let told = String::from_utf8_lossy(&output.stdout);
    let end = told
        .split_once("moves that were made: ")
        .expect("a summary");
    assert!(end.1.starts_with("none\nmoves that were not: "), "{told}");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        why.contains("to server-2 was not made: ") && why.contains(".coming"),
        "{why}"
    );
    m.must("server-2", &format!("rm {in_the_way}"));
}

#[test]
fn a_volume_of_a_busy_server_is_proposed_and_moved_to_an_idle_one() {
    if !can_have_servers("volumes are balanced") {
        return;
    }
    let mut machines = with_a_volume();
    let m = &mut machines;
    let create = "ariel volume create 127.0.0.1:7070 more --own-store --mode 777";
    m.must("server-1", create);
    m.must(
        "build-1",
        "mkdir /mnt/more; ariel mount server-2:7070 /mnt/more --volume more",
    );
    let loads = format!("setsid sh -c '{TWO_LOADS}' > /dev/null 2>&1 < /dev/null");
    m.must("build-1", &loads);
    let balance = "ariel volume balance server-1:7070 --seconds 3 --quiet";
    let plan = m.must("build-1", &format!("{balance} --plan"));
    let moves = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("ariel volume move "));
        lines.map(str::to_owned).collect()
    };
    let steps = moves(&plan);
    let [step] = &steps[..] else {
        panic!("one move shares the work (is this machine's disk fuller than 85 %?): {plan}");
    };
    assert!(step.contains(" server-2  # "), "{plan}");
    let here = m.must("server-1", LIST);
    let on = |text: &str, server: &str, volume: &str| {
        let mut lines = text
            .lines()
            .map(|line| line.split_whitespace().take(2).collect());
        lines.any(|line: Vec<&str>| line == [server, volume])
    };
    assert!(
        on(&here, "server-1", "work") && on(&here, "server-1", "more"),
        "{here}"
    );
    refused_and_told(m, balance);
    let done = m.must("build-1", balance);
    assert!(done.contains(" is on server-2 now: "), "{done}");
    let there = m.must("server-1", LIST);
    let moved = ["work", "more"].map(|volume| on(&there, "server-2", volume));
    assert_eq!(moved.iter().filter(|moved| **moved).count(), 1, "{there}");
    m.must("build-1", "touch /mnt/work/stop /mnt/more/stop");
    let alone = m.run(
        "server-1",
        "ariel volume balance 127.0.0.1:7070 --seconds 0",
    );
    assert!(text(&alone).contains("1..=3600"), "{}", text(&alone));
}
