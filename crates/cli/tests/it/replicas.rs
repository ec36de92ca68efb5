//! Read-only replicas and their releases: a real etcd, three servers, and mounts on which programs
//! read while releases come, servers are killed, and commands are.

use crate::harness::machines::Machines;
use crate::harness::process::{Proc, system_python};
use crate::harness::{eventually, text};
use crate::machines::commands_of;
use crate::servers::{can_have_servers, start_of};
use crate::streams::{change, fill, manifest};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};

const READER: &str = include_str!("replicas/reader.py");
const WRITER: &str = include_str!("replicas/writer.py");
const SEQUENTIAL: &str = include_str!("replicas/sequential.py");
const RESIDENT: &str = include_str!("replicas/resident.py");
const RELEASE: &str = "ariel volume release server-1:7070 data --quiet";
const SERVE: &str = "ariel serve";
/// A killed command holds its claim for so long at most.
const LEASE: Duration = Duration::from_secs(50);
/// One that was asked to end gives it back.
const ENDED: Duration = Duration::from_secs(12);

/// The command that starts a server: the second and the third one begin alike.
fn starts(server: &str) -> String {
    start_of(if server == "server-1" {
        "server-1"
    } else {
        "server-2"
    })
}

/// The machines of docs/servers.md and a third server, with the volume `data` on the first one, in
/// use at /mnt/data, of which the other two have replicas.
fn replicated() -> Machines {
    let mut machines = Machines::new(&["db", "server-1", "server-2", "server-3", "build-1"]);
    let m = &mut machines;
    for (name, command) in commands_of("servers.md") {
        if command.starts_with("ariel group create") {
            break;
        }
        m.must(&name, &command);
    }
    m.must("server-3", &starts("server-3"));
    for (name, program) in [
        ("reader.py", READER),
        ("writer.py", WRITER),
        ("sequential.py", SEQUENTIAL),
        ("resident.py", RESIDENT),
    ] {
        std::fs::write(m.path().join(name), program).unwrap();
    }
    m.must(
        "server-1",
        "ariel volume create 127.0.0.1:7070 data --mode 777",
    );
    m.must(
        "build-1",
        "mkdir /mnt/data /mnt/a /mnt/b; ariel mount server-1:7070 /mnt/data --volume data",
    );
    m.must(
        "build-1",
        "ariel volume replicate server-1:7070 data --on server-2,server-3",
    );
    machines
}

/// Mounts the replica at /mnt/a from the second server, and at /mnt/b from the third one.
fn mount_both(m: &mut Machines, more: &str) {
    for (point, server) in [("a", "server-2"), ("b", "server-3")] {
        let mount = format!("ariel mount {server}:7070 /mnt/{point} --volume data.readonly {more}");
        m.must("build-1", &mount);
    }
}

fn write(m: &mut Machines, generation: u32) {
    let python = system_python();
    let line = format!("{python} writer.py /mnt/data {generation}");
    m.must("build-1", &line);
}

/// The generation of a file that is the same in all of them.
fn generation(m: &mut Machines, dir: &str) -> u32 {
    let line = m.must("build-1", &format!("timeout 30 head -c 9 {dir}/d0/f0"));
    line[1..].parse().unwrap()
}

#[track_caller]
fn release(m: &mut Machines) -> String {
    m.must("build-1", RELEASE)
}

fn begin(m: &mut Machines, line: &str) -> Proc {
    Proc::spawn(&mut m.command("build-1", line), None).unwrap()
}

/// A program that goes on until the file `stop` is there, and leaves its words in a file.
struct Program {
    process: Proc,
    out: std::path::PathBuf,
}

impl Program {
    fn begin(m: &mut Machines, script: &str, what: &str, out: &str) -> Program {
        let line = format!("exec {} {script} {what} stop {out}", system_python());
        let process = begin(m, &line);
        let out = m.path().join(out);
        Program { process, out }
    }

    /// Its words so far.
    fn told(&self) -> String {
        let told = std::fs::read_to_string(&self.out).unwrap_or_default();
        assert!(!told.contains("wrong"), "{told}");
        told
    }

    fn end(mut self) -> String {
        let ended = self.process.wait(Duration::from_secs(60));
        assert!(ended.is_some(), "a reader hangs");
        let told = self.told();
        assert!(!told.is_empty(), "a reader ended without a word");
        told
    }
}

fn stop(m: &Machines) {
    std::fs::write(m.path().join("stop"), "").unwrap();
}

#[test]
fn readers_see_one_release_at_a_time_and_never_an_older_one() {
    if !can_have_servers("replicas-readers") {
        return;
    }
    const LAST: u32 = 11;
    let mut machines = replicated();
    let m = &mut machines;
    write(m, 1);
    let told = release(m);
    for server in ["server-2: release 1, ", "server-3: release 1, "] {
        assert!(told.contains(server), "{told}");
    }
    mount_both(m, "");
    let readers = ["a", "b"].map(|mount| {
        Program::begin(
            m,
            "reader.py",
            &format!("/mnt/{mount}"),
            &format!("read-{mount}"),
        )
    });
    for generation in 2..=LAST {
        write(m, generation);
        release(m);
        readers.iter().for_each(|reader| drop(reader.told()));
    }
    stop(m);
    for (reader, dir) in readers.into_iter().zip(["/mnt/a", "/mnt/b"]) {
        let told = reader.end();
        eprintln!("{dir}: {}", told.trim());
        let (_, seen) = told.split_once('[').unwrap();
        let seen = seen.split(',').count();
        assert!(seen >= 4 && told.contains(&format!("{LAST}]")), "{told}");
        assert_eq!(generation(m, dir), LAST);
    }
}

fn status(m: &mut Machines, machine: &str, of: &str) -> Value {
    serde_json::from_str(&m.must(machine, &format!("ariel status --json {of}"))).unwrap()
}

/// Requests of the kernel to read, bytes that have come to the machine, and ranges of pages that
/// the kernel was told to drop.
fn reads(m: &mut Machines) -> (u64, u64, u64) {
    let mount = status(m, "build-1", "/mnt/a");
    let requests = mount["fuse"]["requests"]["READ"].as_u64();
    let dropped = mount["fuse"]["told"]["pages"].as_u64().unwrap();
    let came = m.must(
        "build-1",
        "sed -n 's/^ *eth0: *\\([0-9]*\\).*/\\1/p' /proc/net/dev",
    );
    (requests.unwrap_or(0), came.trim().parse().unwrap(), dropped)
}

const READ_ALL: &str = "cat /mnt/a/many/* | sha256sum";
/// The files of which the release changes nothing.
const UNCHANGED: &str = "$(ls -d /mnt/a/many/* | grep -v -E '/(f10|f100|f200|other)$')";

/// Pages of these files that the kernel has, and all of them.
fn resident(m: &mut Machines, files: &str) -> (u64, u64) {
    let python = system_python();
    let told = m.must("build-1", &format!("{python} resident.py {files}"));
    let (there, pages) = told.trim().split_once(' ').unwrap();
    (there.parse().unwrap(), pages.parse().unwrap())
}

/// Pages of these files that Linux has dropped for want of memory.
fn missing(m: &mut Machines, files: &str) -> u64 {
    let (there, pages) = resident(m, files);
    pages - there
}

/// Reads everything once more: how many reads came to the server, how many pages had been missing,
/// how many bytes came.
fn read_again(m: &mut Machines) -> (u64, u64, u64) {
    let (before, missing) = (reads(m), missing(m, "/mnt/a/many/*"));
    m.must("build-1", READ_ALL);
    let after = reads(m);
    (after.0 - before.0, missing, after.1 - before.1)
}

/// A cache that keeps nothing fails in each of these; a page that Linux drops, in one of them.
const TRIES: usize = 3;

#[test]
fn caches_of_unchanged_files_stay_over_a_release() {
    if !can_have_servers("replicas-caches") {
        return;
    }
    let mut machines = replicated();
    let m = &mut machines;
    m.must(
        "build-1",
        "cd /mnt/data; mkdir many; for n in $(seq 300); do \
         head -c 20000 /dev/urandom > many/f$n; done; \
         for n in same other; do head -c 6000000 /dev/urandom > many/$n; done",
    );
    release(m);
    mount_both(m, "");
    m.must("build-1", "diff -r /mnt/data /mnt/a");
    let all = (6_000_000_u64).div_ceil(4096);
    let number = "stat -c %i /mnt/a/many/other";
    let before = m.must("build-1", number);
    let (_, _, dropped) = reads(m);

    m.must(
        "build-1",
        "cd /mnt/data/many; for n in 10 100 200; do head -c 20000 /dev/urandom > f$n; done; \
         head -c 6000000 /dev/urandom > other",
    );
    release(m);
    // The file that changed is another one for the kernel, and the others are the same.
    assert_ne!(m.must("build-1", number), before);
    let (there, _) = resident(m, "/mnt/a/many/other");
    assert!(
        there < all / 4,
        "{there} pages of a file that was not read yet"
    );
    let before = reads(m);
    assert_eq!(before.2, dropped, "ranges that the kernel was told to drop");
    let missing = missing(m, UNCHANGED);
    m.must("build-1", READ_ALL);
    let after = reads(m);
    let (requests, bytes) = (after.0 - before.0, after.1 - before.1);
    let changed = 6_000_000 + 3 * 20_000;
    eprintln!(
        "after a release that changes {changed} bytes: {requests} reads, {bytes} bytes; Linux had \
         dropped {missing} pages by itself"
    );
    let most = changed + missing * 4096 + 2_000_000;
    assert!(
        bytes >= changed && bytes < most,
        "{bytes} bytes came, {most} at most, and all files have 18000000: {:#}",
        status(m, "build-1", "/mnt/a")
    );
    assert!(requests < 80 + missing, "{requests} reads");
    // All is cached now; but beside other tests Linux may drop pages while they are counted.
    let tries: Vec<_> = (0..TRIES).map(|_| read_again(m)).collect();
    let kept = |(read, missing, _): &(u64, u64, u64)| read <= missing;
    assert!(
        tries.iter().any(kept),
        "reads, pages that were missing, bytes that came: {tries:?}"
    );
    m.must("build-1", "diff -r /mnt/data /mnt/a");
}

/// The server at which a mount reads.
fn server_of(m: &mut Machines, mount: &str) -> String {
    let at = status(m, "build-1", mount)["server"]
        .as_str()
        .unwrap()
        .to_owned();
    at.split(':').next().unwrap().to_owned()
}

/// Pieces that a program has read, and the longer times between two of them, ms.
fn pieces(program: &Program) -> (u64, Vec<u64>) {
    let told = program.told();
    let mut words = told.split_whitespace();
    let pieces = words.next().map_or(0, |pieces| pieces.parse().unwrap());
    (
        pieces,
        words.map(|gap_ms| gap_ms.parse().unwrap()).collect(),
    )
}

/// Waits until a program has read so many more pieces.
#[track_caller]
fn goes_on(program: &Program, more: u64) {
    let (from, _) = pieces(program);
    let went_on = eventually(Duration::from_secs(60), || pieces(program).0 >= from + more);
    assert!(went_on, "the reader stands at {:?}", pieces(program));
}

#[test]
fn a_reader_goes_on_when_its_server_dies() {
    if !can_have_servers("replicas-killed") {
        return;
    }
    const MOST_MS: u64 = 2000;
    let mut machines = replicated();
    let m = &mut machines;
    let python = system_python();
    let numbers = format!(
        "{python} -c \"import array; \
         open('/mnt/data/numbers', 'wb').write(array.array('Q', range(5000000)).tobytes())\""
    );
    m.must("build-1", &numbers);
    release(m);
    // The daemon's cache has half of the file at most.
    mount_both(m, "--cache-mib 16");
    let reader = Program::begin(m, "sequential.py", "/mnt/a/numbers", "sequential");
    goes_on(&reader, 60);
    let (mut down, mut gaps_ms) = (String::new(), Vec::new());
    for round in 0..3 {
        let server = server_of(m, "/mnt/a");
        assert_ne!(server, down, "round {round}");
        let (_, before) = pieces(&reader);
        m.signal(&server, SERVE, Signal::KILL);
        goes_on(&reader, 60);
        let (_, gaps) = pieces(&reader);
        let longest_ms = gaps[before.len()..].iter().copied().max().unwrap_or(0);
        eprintln!("{server} killed: the longest gap is {longest_ms} ms");
        gaps_ms.push(longest_ms);
        m.must(&server, &starts(&server));
        is_served(m, &server);
        down = server;
    }
    let longest_ms = gaps_ms.iter().copied().max().unwrap_or(0);
    assert!(longest_ms <= MOST_MS, "{gaps_ms:?} ms");
    stop(m);
    reader.end();
    m.must("build-1", "cmp /mnt/data/numbers /mnt/b/numbers");
    told_in_the_log(m, &down);
}

/// The log of the mount says why it reads at another server than the one that died last, and no
/// session counts as ended by a server.
fn told_in_the_log(m: &mut Machines, died: &str) {
    let log = m.must("build-1", "cat /run/ariel/*.log");
    let goes_on = |line: &&str| line.contains("the server of a replica is gone: the mount goes on");
    let from = format!("from={died}:7070");
    let mut told = log.lines().filter(goes_on);
    assert!(told.any(|line| line.contains(&from)), "{from}: {log}");
    assert!(!log.contains("did not hear from this client"), "{log}");
    assert_eq!(status(m, "build-1", "/mnt/a")["sessions_lost"], 0);
}

/// A server shows the replica again.
#[track_caller]
fn is_served(m: &mut Machines, server: &str) {
    let mut told = 0;
    let served = eventually(Duration::from_secs(30), || {
        told = published(m, server);
        told > 0
    });
    assert!(served, "{server} does not show its replica");
}

/// The release that a server shows; 0: none.
fn published(m: &mut Machines, server: &str) -> u32 {
    let listed = m.run(server, "ariel volume list 127.0.0.1:7070 --json");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let release = |line: &str| {
        let volume: Value = serde_json::from_str(line).unwrap();
        let is_there = volume["receiving"] == false && volume["deleted_ns"].is_null();
        let name = volume["name"].as_str().filter(|_| is_there)?.to_owned();
        name.strip_prefix("data.readonly@release-")?.parse().ok()
    };
    listed.lines().filter_map(release).max().unwrap_or(0)
}

/// A moment at which the command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// So much of the time that a release takes has passed.
    Percent(u32),
    /// A server receives the release.
    Receiving,
    /// The same, and it is only asked to end.
    Asked,
    /// A server shows the release.
    Shown,
}

/// Does a server receive something?
fn receives(m: &mut Machines, server: &str) -> bool {
    let listed = m.must(server, "ariel volume list 127.0.0.1:7070");
    listed.contains("being received")
}

/// Begins a release, and kills the command.
fn release_cut(m: &mut Machines, cut: Cut, whole: Duration) {
    let line = format!("exec {RELEASE} > /tmp/release-out 2>&1");
    let before = published(m, "server-2");
    let mut command = begin(m, &line);
    let limit = Duration::from_secs(60);
    match cut {
        // The moment is what is tried here.
        Cut::Percent(part) => drop(command.wait(whole * part / 100)),
        Cut::Receiving | Cut::Asked => assert!(eventually(limit, || receives(m, "server-2"))),
        Cut::Shown => assert!(eventually(limit, || published(m, "server-2") > before)),
    }
    let is_over = command.poll().is_some();
    if cut == Cut::Asked {
        command.signal(Signal::TERM);
        assert!(command.wait(limit).is_some(), "it goes on");
    }
    command.kill9();
    eprintln!("{cut:?}: the command was over: {is_over}");
}

#[test]
fn a_release_that_is_cut_short_is_made_or_is_not() {
    if !can_have_servers("replicas-cut") {
        return;
    }
    let mut machines = replicated();
    let m = &mut machines;
    write(m, 1);
    let began = Instant::now();
    release(m);
    let whole = began.elapsed();
    mount_both(m, "");
    let readers = ["a", "b"].map(|mount| {
        Program::begin(
            m,
            "reader.py",
            &format!("/mnt/{mount}"),
            &format!("read-{mount}"),
        )
    });
    let mut last = 1;
    for cut in [Cut::Asked, Cut::Percent(50), Cut::Receiving, Cut::Shown] {
        last += 2;
        write(m, last - 1);
        release_cut(m, cut, whole);
        let now = generation(m, "/mnt/a");
        if now == last - 1 {
            // It is made, and the other server shows it by itself.
            let shows = eventually(LEASE, || generation(m, "/mnt/b") == now);
            assert!(shows, "{cut:?}");
        }
        assert!(now == last - 1 || !matches!(cut, Cut::Shown), "{now}");
        assert!([last - 2, last - 1].contains(&now), "{now} before {last}");
        write(m, last);
        let began = Instant::now();
        release(m);
        let waited = began.elapsed();
        eprintln!("{now} was seen, and the next release took {waited:?}");
        let claimed = if cut == Cut::Asked { ENDED } else { LEASE };
        assert!(waited < claimed + whole * 3, "{waited:?}");
        let seen = ["/mnt/a", "/mnt/b"].map(|dir| generation(m, dir));
        assert_eq!(seen, [last, last]);
    }
    stop(m);
    for reader in readers {
        eprintln!("{}", reader.end().trim());
    }
    let same = ["server-2", "server-3"].map(|server| published(m, server));
    assert_eq!(same[0], same[1]);
    has_one_release(m);
}

/// Nothing is left of what was given up: the snapshot of the last release alone is kept.
#[track_caller]
fn has_one_release(m: &mut Machines) {
    let listed = m.must("build-1", "ariel volume list server-1:7070");
    let kept = listed
        .lines()
        .filter(|line| line.starts_with("data@release-"));
    assert_eq!(kept.count(), 1, "{listed}");
}

/// A release of which one server hears nothing.
#[track_caller]
fn release_without(m: &mut Machines, server: &str, more: &str) -> Output {
    let output = m.run("build-1", &format!("{RELEASE} {more}"));
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("{server}: ")), "{told}");
    output
}

#[test]
fn a_server_that_was_away_shows_nothing_older() {
    if !can_have_servers("replicas-away") {
        return;
    }
    let mut machines = replicated();
    let m = &mut machines;
    write(m, 1);
    release(m);
    mount_both(m, "");
    assert_eq!([generation(m, "/mnt/a"), generation(m, "/mnt/b")], [1, 1]);
    m.signal("server-3", SERVE, Signal::KILL);
    write(m, 2);
    let told = text(&release_without(m, "server-3", ""));
    assert!(told.contains("server-2: release 2, "), "{told}");
    assert!(told.contains("ariel cell servers"), "{told}");
    // The mount of the third server goes on at the second one, and sees what that shows.
    assert_eq!([generation(m, "/mnt/a"), generation(m, "/mnt/b")], [2, 2]);
    m.must("server-3", &starts("server-3"));
    m.must("build-1", "mkdir /mnt/c; ariel umount /mnt/b");
    m.must(
        "build-1",
        "ariel mount server-3:7070 /mnt/c --volume data.readonly",
    );
    assert_eq!(generation(m, "/mnt/c"), 2);
    // Without the second one nobody has release 2: readers wait, and see nothing older.
    m.signal("server-2", SERVE, Signal::KILL);
    let old = m.run("build-1", "timeout -s KILL 5 cat /mnt/c/d3/f5");
    let bytes = String::from_utf8_lossy(&old.stdout).into_owned();
    assert!(!old.status.success() && bytes.is_empty(), "{bytes}");
    m.must("server-2", &starts("server-2"));
    m.must("build-1", "timeout 30 grep -q 00000002 /mnt/c/d3/f5");
    // The next release brings up what it lacks.
    write(m, 3);
    let told = release(m);
    assert!(told.contains("server-3: release 3, "), "{told}");
    assert_eq!([published(m, "server-2"), published(m, "server-3")], [3, 3]);
    assert_eq!(generation(m, "/mnt/c"), 3);
    m.signal("server-2", SERVE, Signal::KILL);
    assert_eq!([generation(m, "/mnt/a"), generation(m, "/mnt/c")], [3, 3]);
    lacks_a_release(m);
}

/// The second server is away, and a snapshot that it needs is gone when it comes back.
fn lacks_a_release(m: &mut Machines) {
    for generation in [4, 5] {
        write(m, generation);
        release_without(m, "server-2", "--keep 1");
    }
    // The next release needs that of the last one; only the server that is away needs an older one.
    let last = "ariel volume delete server-1:7070 data@release-5";
    m.refused("build-1", last, &["snapshot of the last release"]);
    let own = "ariel volume snapshot server-1:7070 data release-9";
    m.refused("build-1", own, &["choose another name"]);
    let gone = "ariel volume delete server-1:7070 data@release-4";
    m.must("build-1", gone);
    m.must("server-2", &starts("server-2"));
    write(m, 6);
    let told = text(&release_without(m, "server-2", ""));
    for words in ["it lacks release 4", "--not-on", "server-3: release 6"] {
        assert!(told.contains(words), "{told} lacks {words:?}");
    }
    assert_eq!(generation(m, "/mnt/c"), 6);
    made_anew(m);
}

/// The cure that the command has named. All of the replica comes from the other one, so that its
/// files are the same objects, and programs that have them open go on there.
fn made_anew(m: &mut Machines) {
    let number = "stat -c %i /mnt/c/d3/same";
    m.must("build-1", "echo same > /mnt/data/d3/same");
    release_without(m, "server-2", "");
    let before = m.must("build-1", number);
    for word in ["--not-on", "--on"] {
        let line = format!("ariel volume replicate server-1:7070 data {word} server-2");
        m.must("build-1", &line);
    }
    write(m, 7);
    let told = release(m);
    for server in ["server-2: release 8, ", "server-3: release 8, "] {
        assert!(told.contains(server), "{told}");
    }
    // The one that was deleted, as a command that is killed deletes it, went with the others.
    has_one_release(m);
    m.signal("server-3", SERVE, Signal::KILL);
    assert_eq!(generation(m, "/mnt/c"), 7);
    assert_eq!(m.must("build-1", number), before);
}

#[test]
fn a_replica_is_what_its_volume_was() {
    if !can_have_servers("replicas-same") {
        return;
    }
    let mut machines = replicated();
    let m = &mut machines;
    let source = m.at("build-1", "/mnt/data");
    fill(&source);
    let expected = manifest(&source);
    release(m);
    mount_both(m, "");
    let replicas = ["/mnt/a", "/mnt/b"].map(|dir| m.at("build-1", dir));
    for replica in &replicas {
        assert_eq!(manifest(replica), expected);
    }
    // Nothing is changed there.
    for line in [
        "echo x > /mnt/a/new",
        "echo x >> /mnt/a/large",
        "truncate -s 1 /mnt/a/large",
        "rm /mnt/a/large",
        "mkdir /mnt/a/dir",
        "mv /mnt/a/large /mnt/a/other",
        "ln /mnt/a/large /mnt/a/other",
        "chmod 600 /mnt/a/large",
        "touch /mnt/a/large",
        "setfattr -n user.x -v y /mnt/a/large",
    ] {
        m.refused("build-1", line, &["Read-only file system"]);
    }
    change(&source);
    let changed = manifest(&source);
    assert_ne!(changed, expected);
    for replica in &replicas {
        assert_eq!(manifest(replica), expected, "not released yet");
    }
    release(m);
    for replica in &replicas {
        assert_eq!(manifest(replica), changed);
    }
    let of_server = |server: &str| format!("ariel volume list {server}:7070 --json");
    let sizes = |m: &mut Machines, server: &str, name: &str| {
        let listed = m.must("build-1", &of_server(server));
        let mut all = listed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let volume = all.find(|volume| volume["name"] == name).unwrap();
        ["bytes", "objects"].map(|what| volume[what].as_u64().unwrap())
    };
    let expected = sizes(m, "server-1", "data");
    for server in ["server-2", "server-3"] {
        assert_eq!(sizes(m, server, "data.readonly"), expected);
    }
    // A release in which nothing changed sends next to nothing, and is one all the same.
    let told = release(m);
    assert!(told.contains("server-2: release 3, 0 bytes"), "{told}");
}

/// A mount point in the volume leads to the same place in its replicas.
fn leads_on(m: &mut Machines) {
    for line in [
        "ariel volume create server-2:7070 inner --mode 777",
        "ariel volume mount server-1:7070 inner /in --volume data",
        "echo within > /mnt/data/in/f",
    ] {
        m.must("build-1", line);
    }
    release(m);
    assert_eq!(m.must("build-1", "cat /mnt/1/pub/in/f"), "within\n");
    // It is the volume itself, and no replica.
    m.must(
        "build-1",
        "echo more > /mnt/1/pub/in/f; grep -q more /mnt/data/in/f",
    );
    m.must(
        "build-1",
        "ariel volume unmount server-1:7070 /in --volume data",
    );
}

#[test]
fn a_mount_point_leads_to_a_replica() {
    if !can_have_servers("replicas-mounted") {
        return;
    }
    let mut machines = replicated();
    let m = &mut machines;
    write(m, 1);
    release(m);
    m.must(
        "build-1",
        "ariel volume mount server-1:7070 data.readonly /pub",
    );
    assert_eq!(generation(m, "/mnt/1/pub"), 1);
    leads_on(m);
    m.refused(
        "build-1",
        "echo x > /mnt/1/pub/d0/f0",
        &["Read-only file system"],
    );
    let reader = Program::begin(m, "reader.py", "/mnt/1/pub", "read-pub");
    for generation in 2..=4 {
        write(m, generation);
        release(m);
    }
    assert_eq!(generation(m, "/mnt/1/pub"), 4);
    // Its server dies, whichever that is.
    let mount = status(m, "build-1", "/mnt/1");
    let elsewhere = mount["elsewhere"][0]["server"].as_str().unwrap().to_owned();
    let server = elsewhere.split(':').next().unwrap().to_owned();
    m.signal(&server, SERVE, Signal::KILL);
    assert_eq!(generation(m, "/mnt/1/pub"), 4);
    write(m, 5);
    release_without(m, &server, "");
    assert_eq!(generation(m, "/mnt/1/pub"), 5);
    stop(m);
    eprintln!("{}", reader.end().trim());
}

#[test]
fn releases_are_made_one_at_a_time_or_refused_with_what_helps() {
    if !can_have_servers("replicas-refused") {
        return;
    }
    let mut machines = replicated();
    let m = &mut machines;
    write(m, 1);
    // Three at once: each is a release of its own, one after the other.
    let three = format!(
        "for n in 1 2 3; do {RELEASE} > out.$n 2>&1 || touch failed & done; wait; cat out.*; \
         test ! -e failed"
    );
    let told = m.must("build-1", &three);
    for number in 1..=3 {
        let lines = told.matches(&format!(": release {number}, ")).count();
        assert_eq!(lines, 2, "{told}");
    }
    assert!(told.contains("this one waits"), "{told}");
    m.refused(
        "build-1",
        "ariel volume release server-1:7070 data.readonly",
        &["it is a replica", "ariel volume release ADDR data"],
    );
    m.refused(
        "build-1",
        "ariel volume release server-1:7070 nowhere",
        &["no server of the cell has a volume nowhere"],
    );
    m.must("server-1", "ariel volume create 127.0.0.1:7070 plain");
    m.refused(
        "build-1",
        "ariel volume release server-1:7070 plain",
        &["no server has a replica", "--on"],
    );
    // No server has it: it is not made, and nothing is left of it.
    for server in ["server-2", "server-3"] {
        m.signal(server, SERVE, Signal::KILL);
    }
    m.refused(
        "build-1",
        RELEASE,
        &["release 4 is not made", "ariel cell servers"],
    );
    let listed = m.must("server-1", "ariel volume list 127.0.0.1:7070");
    assert!(!listed.contains("release-4"), "{listed}");
}
