//! Several servers of one cell, whose database is in etcd: the commands of docs/servers.md, and the
//! promises that hold between the servers while one of them, or the database, is away.

use crate::harness::machines::Machines;
use crate::harness::{eventually, has_program, text};
use crate::machines::{can_have_machines, commands_of};
use rustix::process::Signal;
use std::time::{Duration, Instant};

pub fn can_have_servers(test: &str) -> bool {
    let programs = ["etcd", "etcdctl", "openssl"];
    can_have_machines(test) && programs.iter().all(|program| has_program(test, program))
}

/// The machines of the page, on which its commands ran up to the one that begins so.
pub fn followed(until: &str) -> Machines {
    let mut machines = Machines::new(&["db", "server-1", "server-2", "build-1"]);
    for (name, command) in commands_of("servers.md") {
        if command.starts_with(until) {
            return machines;
        }
        machines.must(&name, &command);
    }
    panic!("the page has no command {until:?}");
}

/// Runs a command, which fails for as long as something is away, until it succeeds.
fn comes_back(m: &mut Machines, within_s: u64, name: &str, command: &str) {
    let mut told = String::new();
    let back = eventually(Duration::from_secs(within_s), || {
        let output = m.run(name, command);
        told = text(&output);
        output.status.success()
    });
    assert!(back, "{name}# {command}\n{told}");
}

/// Stops the second server and waits until the first one says that it has ended.
fn ends_in_order(m: &mut Machines) {
    m.signal("server-2", "ariel serve", Signal::TERM);
    let mut told = String::new();
    let ended = eventually(Duration::from_secs(20), || {
        told = m.must("server-1", "ariel cell servers --data /srv/ariel");
        told.contains("not running")
    });
    assert!(ended, "{told}");
}

#[test]
fn the_commands_of_the_page_make_a_cell_of_two_servers() {
    if !can_have_servers("servers-page") {
        return;
    }
    let mut machines = followed("ariel group create");
    let rest: Vec<(String, String)> = commands_of("servers.md")
        .into_iter()
        .skip_while(|(_, command)| !command.starts_with("ariel group create"))
        .collect();
    assert_eq!(machines.must("build-1", "cat /mnt/1/f"), "one\n");
    assert_eq!(machines.must("build-1", "cat /mnt/2/f"), "two\n");
    let listed = machines.must("server-2", "ariel cell servers --data /srv/ariel");
    for word in ["server-1 ", "server-2 ", "server-2:7070", "all"] {
        assert!(listed.contains(word), "{listed}");
    }
    let mut told = String::new();
    for (name, command) in &rest {
        told += &machines.must(name, command);
    }
    for word in ["staff", "found", "server-1  ", "server-2  ", "data@monday"] {
        assert!(told.contains(word), "{told} lacks {word}");
    }
    let missing = "ariel ls --volume nowhere 127.0.0.1:7070:/";
    machines.refused(
        "server-1",
        missing,
        &["no server of the cell has a volume nowhere", "--all"],
    );
    let taken = "ariel volume create 127.0.0.1:7070 data";
    machines.refused(
        "server-1",
        taken,
        &["server-2:7070 has a volume of this name"],
    );
    // It was revoked at one, and has nothing at the other either when the command has returned.
    machines.refused("build-1", "ariel ls server-2:7070:/", &["was revoked"]);
    let gone = eventually(Duration::from_secs(5), || {
        !machines
            .run("build-1", "timeout 2 cat /mnt/2/f")
            .status
            .success()
    });
    assert!(gone, "a revoked machine still reads at the other server");
    for server in ["server-1", "server-2"] {
        let file = machines.at(server, "/srv/ariel/cell/authority.json");
        assert!(!file.exists(), "the authority is in the database alone");
    }
}

#[test]
fn who_leaves_a_group_at_one_server_has_its_rights_at_no_other() {
    if !can_have_servers("servers-groups") {
        return;
    }
    let mut machines = followed("ariel group create");
    // Users come to the mounts.
    machines.must("build-1", "chmod 755 /mnt");
    machines.must("build-1", "mkdir /mnt/2/dir; echo secret > /mnt/2/dir/f");
    machines.must("server-1", "ariel group create --data /srv/ariel staff");
    let add = "head -c 15 /dev/urandom | base64 > secret; \
               ariel user add ann --uid 1001 --password --data /srv/ariel < secret";
    machines.must("server-1", add);
    machines.must("build-1", "ariel acl set /mnt/2/dir staff read");
    machines.must("build-1", "ariel acl set /mnt/2/dir anyone none");
    let cat = "setpriv --reuid 1001 --regid 1001 --clear-groups cat /mnt/2/dir/f";
    for round in 0..20 {
        machines.must("server-1", "ariel group add --data /srv/ariel staff ann");
        assert_eq!(machines.must("build-1", cat), "secret\n", "round {round}");
        machines.must("server-1", "ariel group remove --data /srv/ariel staff ann");
        machines.refused("build-1", cat, &["Permission denied"]);
    }
}

#[test]
fn a_server_that_is_away_is_named_and_catches_up() {
    if !can_have_servers("servers-away") {
        return;
    }
    let mut machines = followed("ariel group create");
    machines.signal("server-2", "ariel serve", Signal::STOP);
    let revoke = "ariel machine revoke build-1 --data /srv/ariel";
    machines.refused("server-1", revoke, &["it is done", "server-2"]);
    let listed = machines.must("server-1", "ariel cell servers --data /srv/ariel");
    let line = |name: &str| {
        let found = listed.lines().find(|line| line.starts_with(name));
        found.unwrap_or_default().to_owned()
    };
    assert!(line("server-1").contains(" runs "), "{listed}");
    assert!(line("server-2").contains(" no answer "), "{listed}");
    machines.signal("server-2", "ariel serve", Signal::CONT);
    let mut told = String::new();
    let knows = eventually(Duration::from_secs(15), || {
        told = machines.must("server-1", "ariel cell servers --data /srv/ariel");
        told.lines().filter(|line| line.contains(" all ")).count() == 2
    });
    assert!(knows, "{told}");
    machines.refused("build-1", "ariel ls server-2:7070:/", &["was revoked"]);
    // Ended in order, it is waited for no more; and removed, it is not listed.
    ends_in_order(&mut machines);
    machines.must("server-1", "ariel group create --data /srv/ariel later");
    machines.must(
        "server-1",
        "ariel cell remove-server --data /srv/ariel server-2",
    );
    let unknown = "ariel cell remove-server --data /srv/ariel server-2";
    machines.refused("server-1", unknown, &["no server server-2"]);
}

#[test]
fn without_its_database_a_cell_goes_on() {
    if !can_have_servers("servers-database") {
        return;
    }
    let mut machines = followed("ariel group create");
    machines.signal("db", "etcd --data-dir", Signal::KILL);
    let began = Instant::now();
    machines.must("build-1", "echo more >> /mnt/2/f; sync -f /mnt/2");
    machines.must(
        "build-1",
        "ariel umount /mnt/2; ariel mount server-2:7070 /mnt/2",
    );
    assert_eq!(machines.must("build-1", "cat /mnt/2/f"), "two\nmore\n");
    let create = "ariel group create --data /srv/ariel staff";
    machines.refused("server-1", create, &["does not answer", "see to etcd"]);
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    let (name, etcd) = commands_of("servers.md")
        .into_iter()
        .find(|(_, command)| command.starts_with("etcd "))
        .expect("the page starts etcd");
    machines.must(&name, &etcd);
    comes_back(&mut machines, 30, "server-1", create);
}

/// The machines of the page with the volume `data` of the second server in the first one's tree.
pub fn with_one_tree() -> Machines {
    let mut machines = followed("ariel group create");
    let rest = commands_of("servers.md").into_iter();
    let rest = rest.skip_while(|(_, command)| !command.starts_with("ariel volume create"));
    let rest = rest.take_while(|(_, command)| !command.contains("--own-store"));
    for (name, command) in rest {
        machines.must(&name, &command);
    }
    machines
}

/// The command of the page that starts a server.
pub fn start_of(server: &str) -> String {
    let all = commands_of("servers.md").into_iter();
    let is_start = |command: &str| command.contains(" serve ") || command.starts_with("etcd ");
    let mut starts = all.filter(|(name, command)| name == server && is_start(command));
    starts.next().expect("the page starts this server").1
}

pub fn start_again(machines: &mut Machines, server: &str) {
    machines.must(server, &start_of(server));
}

/// A volume of the first server in one of the second, and in the first one's tree, too.
fn volumes_within(m: &mut Machines) {
    m.must(
        "server-1",
        "ariel volume create 127.0.0.1:7070 inner --mode 777",
    );
    let inner = "ariel volume mount server-2:7070 inner /in --volume data";
    m.must("build-1", inner);
    m.must("build-1", "echo deep > /mnt/1/data/in/f");
    m.must("server-1", "ariel volume mount 127.0.0.1:7070 inner /inner");
    assert_eq!(m.must("build-1", "cat /mnt/1/inner/f"), "deep\n");
    m.must(
        "build-1",
        "echo more >> /mnt/1/inner/f; test $(wc -l < /mnt/1/data/in/f) = 2",
    );
    let told = m.must(
        "build-1",
        "stat -c %i /mnt/1/inner/f /mnt/1/data/in/f | uniq | wc -l",
    );
    assert_eq!(told, "1\n");
    // The same on a mount whose own session has come to it first.
    m.must(
        "build-1",
        "mkdir /mnt/again; ariel mount server-1:7070 /mnt/again",
    );
    let both = "stat -c %a /mnt/again/inner /mnt/again/data/in | uniq";
    assert_eq!(m.must("build-1", both), "777\n");
    m.must("build-1", "chmod 711 /mnt/1/inner");
    assert_eq!(m.must("build-1", both), "711\n");
    m.must(
        "build-1",
        "chmod 777 /mnt/again/data/in; ariel umount /mnt/again",
    );
}

/// No other volume ever has the number that is kept in a mount point.
fn numbers_differ(m: &mut Machines) {
    let listed = m.must("server-1", "ariel volume list 127.0.0.1:7070 --all --json");
    let mut ids: Vec<&str> = listed.split("\"id\":").skip(1).collect();
    ids.iter_mut()
        .for_each(|id| *id = id.split([',', '}']).next().unwrap_or_default());
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(all >= 5 && ids.len() == all, "{listed}");
}

#[test]
fn the_tree_goes_on_at_the_other_server() {
    if !can_have_servers("servers-tree") {
        return;
    }
    let mut machines = with_one_tree();
    let m = &mut machines;
    let told = m.must("build-1", "ariel status /mnt/1");
    for word in ["elsewhere", "data", "server-2:7070"] {
        assert!(told.contains(word), "{told} lacks {word}");
    }
    // It is the volume, with its own numbers, and nothing is linked or renamed across.
    assert_eq!(m.must("build-1", "cd /mnt/1/data; echo *"), "f g\n");
    let link = "ln /mnt/1/f /mnt/1/data/f2";
    m.refused("build-1", link, &["Invalid cross-device link"]);
    m.must(
        "build-1",
        "mv /mnt/1/f /mnt/1/data/moved; test ! -e /mnt/1/f",
    );
    assert_eq!(m.must("build-1", "cat /mnt/data/moved"), "one\n");
    m.refused("build-1", "rmdir /mnt/1/data", &["busy"]);
    // Through the mount point and on a mount of its own, each change is seen at once.
    let rounds = "set -e; for n in $(seq 100); do \
                  echo $n > /mnt/1/data/n; test $(cat /mnt/data/n) = $n; \
                  echo x$n >> /mnt/data/n; tail -1 /mnt/1/data/n | grep -q x$n; \
                  mkdir /mnt/data/d$n; test -d /mnt/1/data/d$n; rmdir /mnt/1/data/d$n; \
                  test ! -e /mnt/data/d$n; mv /mnt/data/n /mnt/data/n1; \
                  test ! -e /mnt/1/data/n; mv /mnt/1/data/n1 /mnt/1/data/n; done";
    m.must("build-1", rounds);
    // The rights of its root are those of its own server, also where the kernel knew others.
    m.must("build-1", "chmod 711 /mnt/data");
    assert_eq!(m.must("build-1", "stat -c %a /mnt/1/data"), "711\n");
    m.must(
        "build-1",
        "chmod 755 /mnt/1/data; test $(stat -c %a /mnt/data) = 755",
    );
    volumes_within(m);
    // The mount point comes and goes for all at once, and nothing that was written is lost.
    m.must("build-1", "mv /mnt/1/data /mnt/1/moved; cat /mnt/1/moved/g");
    m.must("server-1", "ariel volume unmount 127.0.0.1:7070 /moved");
    m.refused("build-1", "ls /mnt/1/moved", &["No such file"]);
    m.must("server-1", "ariel volume mount 127.0.0.1:7070 data /data");
    m.must(
        "build-1",
        "echo last > /mnt/1/data/last; ariel umount /mnt/1",
    );
    assert_eq!(m.must("build-1", "cat /mnt/data/last"), "last\n");
    m.refused("build-1", "ariel ls server-1:7070:/data", &["--volume"]);
    let none = "ariel volume mount 127.0.0.1:7070 nowhere /nowhere";
    m.refused(
        "server-1",
        none,
        &["no server of the cell has a volume nowhere"],
    );
    numbers_differ(m);
}

/// A server that was stopped is not taken for one that has lost the volume.
fn stopped_in_order(m: &mut Machines) {
    ends_in_order(m);
    m.must(
        "build-1",
        "mkdir /mnt/late; ariel mount server-1:7070 /mnt/late",
    );
    m.refused("build-1", "cat /mnt/late/data/f", &["No route to host"]);
    let none = "ariel volume mount 127.0.0.1:7070 nowhere /nowhere";
    m.refused("server-1", none, &["server-2 did not answer"]);
    start_again(m, "server-2");
    comes_back(m, 30, "build-1", "timeout 5 cat /mnt/late/data/f");
    m.must("build-1", "ariel umount /mnt/late");
}

/// The guard of a daemon tells each server of its death.
#[test]
fn every_server_hears_of_a_killed_mount_at_once() {
    if !can_have_servers("servers-killed") {
        return;
    }
    let mut machines = with_one_tree();
    let m = &mut machines;
    m.must(
        "build-1",
        "echo held > /mnt/1/data/held; sync -f /mnt/1/data; echo h >> /mnt/1/data/held",
    );
    m.signal("build-1", "ariel mount server-1:7070 /mnt/1", Signal::KILL);
    // Long before the server takes what a silent machine holds.
    m.must("build-1", "timeout 10 sh -c 'echo taken > /mnt/data/held'");
    let read = r#"test "$(timeout 5 cat /mnt/1/data/held)" = taken"#;
    comes_back(m, 20, "build-1", read);
}

#[test]
fn a_server_that_is_away_takes_only_its_own_volumes_with_it() {
    if !can_have_servers("servers-tree-away") {
        return;
    }
    let mut machines = with_one_tree();
    let m = &mut machines;
    m.must(
        "build-1",
        "mkdir /mnt/fresh; ariel mount server-1:7070 /mnt/fresh",
    );
    m.signal("server-2", "ariel serve", Signal::KILL);
    // The first server's volume goes on; programs that wait for the other one can be killed.
    m.must(
        "build-1",
        "echo on > /mnt/1/on; cat /mnt/1/on; ls /mnt/fresh",
    );
    let waits = m.run(
        "build-1",
        "timeout -s KILL 2 sh -c 'echo no > /mnt/1/data/h'",
    );
    assert!(!waits.status.success());
    m.refused("build-1", "cat /mnt/fresh/data/f", &["No route to host"]);
    let names = m.must("build-1", "ls /mnt/fresh; rm /mnt/fresh/on");
    assert!(names.contains("data"), "{names}");
    start_again(m, "server-2");
    comes_back(m, 30, "build-1", "timeout 5 cat /mnt/fresh/data/f");
    m.must(
        "build-1",
        "echo yes > /mnt/1/data/h; test $(cat /mnt/fresh/data/h) = yes",
    );
    stopped_in_order(m);
    // Neither mount needs the database.
    m.signal("db", "etcd --data-dir", Signal::KILL);
    m.must(
        "build-1",
        "echo still > /mnt/1/data/h; test $(cat /mnt/fresh/data/h) = still",
    );
    m.must("build-1", "ariel umount /mnt/fresh; ariel umount /mnt/1");
}
