//! Replicas of volumes as they come to servers and go: a real etcd, two servers and mounts, and
//! a server or the database that is away, or has lost something.

use crate::harness::machines::Machines;
use crate::harness::{eventually, text};
use crate::servers::{can_have_servers, followed, start_again};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SHOW: &str = "ariel volume show server-1:7070 data";
const REPLICATE: &str = "ariel volume replicate server-1:7070 data";
const RELEASE: &str = "ariel volume release server-1:7070 data --quiet";

/// The machines of the page, with a volume `data` on the first server that has a file, and replicas
/// on both.
fn with_replicas() -> Machines {
    let mut machines = followed("ariel group create");
    let m = &mut machines;
    m.must("server-1", "ariel volume create 127.0.0.1:7070 data");
    m.must(
        "build-1",
        "mkdir /mnt/data /mnt/replica; ariel mount server-1:7070 /mnt/data --volume data; \
         echo one > /mnt/data/f",
    );
    let both = format!("{REPLICATE} --on server-1,server-2");
    let told = m.must("build-1", &both);
    for server in ["server-1", "server-2"] {
        let line = format!("{server}: it has a replica, data.readonly, which is empty");
        assert!(told.contains(&line), "{told}");
    }
    machines
}

/// The stores of replicas that a server has, by their directories.
fn stores(m: &mut Machines, server: &str) -> Vec<String> {
    let list = "cd /srv/ariel; test ! -d stores || ls stores";
    let told = m.must(server, list);
    let all = told.lines().filter(|name| name.parse::<u32>().is_ok());
    all.map(str::to_owned).collect()
}

/// The words of `ariel volume show` about the replica of a server.
fn shown(m: &mut Machines, server: &str) -> Option<String> {
    let told = m.must("build-1", SHOW);
    let lines = told
        .lines()
        .filter_map(|line| line.strip_prefix("replica:"));
    let words = lines.map(str::trim).find(|line| line.starts_with(server));
    words.map(|line| line[server.len()..].trim().to_owned())
}

#[track_caller]
fn soon(m: &mut Machines, what: &str, mut is_so: impl FnMut(&mut Machines) -> bool) {
    assert!(eventually(Duration::from_secs(20), || is_so(m)), "{what}");
}

#[test]
fn replicas_come_and_go() {
    if !can_have_servers("replicated-come") {
        return;
    }
    let mut machines = with_replicas();
    let m = &mut machines;
    let (here, there) = (stores(m, "server-1"), stores(m, "server-2"));
    assert_eq!(
        (here.len(), &here),
        (1, &there),
        "one number at all servers"
    );
    let again = m.must("build-1", &format!("{REPLICATE} --on server-2"));
    assert_eq!(again, "server-2: it has a replica already\n");
    assert_eq!(shown(m, "server-2").as_deref(), Some("no release yet"));
    m.must("build-1", RELEASE);
    for server in ["server-1", "server-2"] {
        let words = shown(m, server).unwrap();
        assert!(words.starts_with("release 1, 20"), "{server}: {words}");
    }
    let list = m.must("server-2", "ariel volume list 127.0.0.1:7070");
    assert!(list.contains("replica of data, release 1"), "{list}");
    let cat = "ariel cat --volume data.readonly server-2:7070:/f";
    assert_eq!(m.must("build-1", cat), "one\n");
    // One that comes later is filled by the next release, and not shown before.
    let away = m.must("build-1", &format!("{REPLICATE} --not-on server-2"));
    assert_eq!(away, "server-2: it has no replica any more\n");
    assert_eq!(
        (stores(m, "server-2"), shown(m, "server-2")),
        (vec![], None)
    );
    assert_eq!(m.must("build-1", cat), "one\n", "at the other one");
    m.must("build-1", &format!("{REPLICATE} --on server-2"));
    assert_eq!(stores(m, "server-2"), here);
    let words = shown(m, "server-2").unwrap();
    assert_eq!(words, "no release yet, behind: the last one is 1");
    let list = m.must("server-2", "ariel volume list 127.0.0.1:7070");
    assert!(!list.contains("data.readonly"), "{list}");
    m.must("build-1", RELEASE);
    assert!(shown(m, "server-2").unwrap().starts_with("release 2, 20"));
    let none = m.must(
        "build-1",
        &format!("{REPLICATE} --not-on server-1,server-2"),
    );
    assert_eq!(none.lines().count(), 2, "{none}");
    assert_eq!(
        (stores(m, "server-1"), stores(m, "server-2")),
        (vec![], vec![])
    );
    assert!(!m.must("build-1", SHOW).contains("replica"));
    m.must("build-1", "ariel volume delete server-1:7070 data");
}

/// Commands after `ariel volume`, and words of their refusals.
const REFUSED: [(&str, &[&str]); 14] = [
    (
        "replicate server-1:7070 data --on server-9",
        &["no server server-9", "cell servers"],
    ),
    (
        "replicate server-1:7070 absent --on server-2",
        &["no server", "volume absent"],
    ),
    ("replicate server-1:7070 data@x --on server-2", &["`@`"]),
    (
        "replicate server-1:7070 data.readonly --on server-2",
        &["a replica itself"],
    ),
    (
        "replicate server-1:7070 root --not-on server-2",
        &["no replicas", "volume show"],
    ),
    (
        "delete server-1:7070 data",
        &["has replicas", "--not-on server-1,server-2"],
    ),
    (
        "rename server-1:7070 data other",
        &["has replicas", "--not-on"],
    ),
    (
        "create server-1:7070 x.readonly",
        &["names that end in", "choose another"],
    ),
    (
        "clone server-1:7070 data x.readonly",
        &["names that end in"],
    ),
    (
        "clone server-1:7070 data.readonly x",
        &["it is a replica", "of the volume"],
    ),
    (
        "snapshot server-1:7070 data.readonly x",
        &["it is a replica", "release"],
    ),
    (
        "set server-1:7070 data.readonly --quota 1G",
        &["it is a replica"],
    ),
    (
        "move server-1:7070 data.readonly server-2 --quiet",
        &["is a replica", "--not-on"],
    ),
    ("receive server-1:7070 x.readonly", &["names that end in"]),
];

#[test]
fn a_replica_that_is_refused_is_refused_with_a_cure() {
    if !can_have_servers("replicated-refused") {
        return;
    }
    let mut machines = with_replicas();
    let m = &mut machines;
    m.must("build-1", RELEASE);
    let of = |rest: &str| format!("ariel volume {rest}");
    for (line, words) in REFUSED {
        m.refused("build-1", &of(line), words);
    }
    m.refused("build-1", &of("replicate server-1:7070 data"), &["--on"]);
    // A machine that may not be root there changes no record.
    m.must("server-1", "ariel machine grant build-1 --data /srv/ariel");
    let more = of("replicate server-1:7070 data --not-on server-2");
    m.refused(
        "build-1",
        &more,
        &["only root of a machine whose root is root"],
    );
    m.must(
        "server-1",
        "ariel machine grant build-1 --root --data /srv/ariel",
    );
    m.signal("server-2", "ariel serve", Signal::TERM);
    soon(m, "the server has ended", |m| {
        let servers = "ariel cell servers --data /srv/ariel";
        m.must("server-1", servers).contains("not running")
    });
    m.refused("build-1", &more, &["does not run", "remove-server"]);
    assert_eq!(
        shown(m, "server-2").as_deref(),
        Some("not known: it does not run")
    );
    m.must(
        "server-1",
        "ariel cell remove-server server-2 --data /srv/ariel",
    );
    assert_eq!(shown(m, "server-2"), None, "it is not waited for");
}

#[test]
fn a_server_brings_its_replicas_to_what_the_records_say() {
    if !can_have_servers("replicated-records") {
        return;
    }
    let mut machines = with_replicas();
    let m = &mut machines;
    m.must("build-1", RELEASE);
    let before = stores(m, "server-2");
    m.signal("server-2", "ariel serve", Signal::KILL);
    start_again(m, "server-2");
    soon(m, "it has what it had", |m| {
        shown(m, "server-2").is_some_and(|words| words.starts_with("release 1, "))
    });
    // Its disk is lost: the replica is there again, empty, and the next release fills it.
    m.signal("server-2", "ariel serve", Signal::KILL);
    m.must("server-2", "rm -r /srv/ariel/stores");
    start_again(m, "server-2");
    soon(m, "it is made again", |m| {
        shown(m, "server-2").is_some_and(|words| words.starts_with("no release yet, behind"))
    });
    assert_eq!(stores(m, "server-2"), before);
    let told = m.must("build-1", &format!("echo two > /mnt/data/f; {RELEASE}"));
    assert!(told.contains("server-2"), "{told}");
    assert!(shown(m, "server-2").unwrap().starts_with("release 2, "));
    // A server that is away when the records go removes its replica when it starts; one that runs
    // does so by itself. A store that is no replica stays, whatever the database lacks.
    m.must(
        "server-1",
        "ariel volume create 127.0.0.1:7070 own --own-store",
    );
    m.signal("server-2", "ariel serve", Signal::KILL);
    let ctl = "etcdctl --endpoints https://db:2379 --cacert ca.pem --cert db.pem --key db-key.pem";
    let gone = m.must(
        "db",
        &format!(
            "for key in $({ctl} get --prefix --keys-only '' | grep /replicas/); do \
             {ctl} del $key; done"
        ),
    );
    assert_eq!(gone, "1\n", "one record is deleted");
    start_again(m, "server-2");
    soon(m, "no replica is left", |m| {
        stores(m, "server-2").is_empty() && stores(m, "server-1").len() == 1
    });
    let list = m.must("server-1", "ariel volume list 127.0.0.1:7070");
    assert!(
        list.contains("own ") && !list.contains("readonly"),
        "{list}"
    );
}

/// The machines, with 50 files in the replica, of which the second server shows the first release
/// at /mnt/replica.
fn with_readers() -> Machines {
    let mut machines = with_replicas();
    let m = &mut machines;
    let files = "cd /mnt/data; for n in $(seq 50); do echo $n > n$n; done";
    let mount = "ariel mount server-2:7070 /mnt/replica --volume data.readonly";
    m.must("build-1", &format!("{files}; {RELEASE}; {mount}"));
    assert_eq!(server(m), "server-2:7070", "the one that was named");
    machines
}

/// Reads a file that nobody has read before; how long that took.
fn read(m: &mut Machines, n: u32) -> Duration {
    let began = Instant::now();
    let cat = format!("timeout 60 cat /mnt/replica/n{n}");
    assert_eq!(m.must("build-1", &cat), format!("{n}\n"));
    began.elapsed()
}

/// The server at which the mount reads.
fn server(m: &mut Machines) -> String {
    let told = m.must("build-1", "ariel status /mnt/replica");
    let mut lines = told.lines().filter_map(|line| line.strip_prefix("server "));
    lines.next().unwrap().trim().to_owned()
}

#[test]
fn readers_go_on_without_the_database() {
    if !can_have_servers("replicated-database") {
        return;
    }
    let mut machines = with_readers();
    let m = &mut machines;
    m.signal("db", "etcd --data-dir", Signal::STOP);
    let began = Instant::now();
    let list = m.must("build-1", "ariel volume list server-2:7070");
    assert!(list.contains("data.readonly"), "{list}");
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    let away = format!("{REPLICATE} --not-on server-2");
    m.refused("build-1", &away, &["does not answer"]);
    m.signal("server-2", "ariel serve", Signal::KILL);
    eprintln!("a reader waited for {:?}", read(m, 1));
    assert_eq!(server(m), "server-1:7070");
    m.signal("db", "etcd --data-dir", Signal::CONT);
    start_again(m, "server-2");
    soon(m, "it is back", |m| {
        shown(m, "server-2").is_some_and(|it| it.starts_with("release 1, "))
    });
}

#[test]
fn readers_go_on_without_their_server() {
    if !can_have_servers("replicated-server") {
        return;
    }
    let mut machines = with_readers();
    let m = &mut machines;
    let waited = read(m, 1);
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    // A replica that is taken away sends its readers to another one, open files included.
    let open = format!("exec 7< /mnt/replica/n2; {REPLICATE} --not-on server-2; cat <&7");
    assert!(m.must("build-1", &open).ends_with("\n2\n"));
    read(m, 3);
    assert_eq!(server(m), "server-1:7070");
    m.must("build-1", &format!("{REPLICATE} --on server-2; {RELEASE}"));
    m.signal("server-1", "ariel serve", Signal::KILL);
    let waited = read(m, 4);
    eprintln!("a reader waited for {waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    assert_eq!(server(m), "server-2:7070");
    let write = m.run("build-1", "echo > /mnt/replica/new");
    assert!(
        text(&write).contains("Read-only file system"),
        "{}",
        text(&write)
    );
}
