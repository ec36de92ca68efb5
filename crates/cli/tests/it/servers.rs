//! Several servers of one cell, whose database is in etcd: the commands of docs/servers.md, and the
//! promises that hold between the servers while one of them, or the database, is away.

use crate::harness::machines::Machines;
use crate::harness::{eventually, has_program, text};
use crate::machines::{can_have_machines, commands_of};
use rustix::process::Signal;
use std::time::{Duration, Instant};

fn can_have_servers(test: &str) -> bool {
    let programs = ["etcd", "etcdctl", "openssl"];
    can_have_machines(test) && programs.iter().all(|program| has_program(test, program))
}

/// The machines of the page, on which its commands ran up to the one that begins so.
fn followed(until: &str) -> Machines {
    let mut machines = Machines::new(&["db", "server-1", "server-2", "build-1"]);
    for (name, command) in commands_of("servers.md") {
        if command.starts_with(until) {
            return machines;
        }
        machines.must(&name, &command);
    }
    panic!("the page has no command {until:?}");
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
    machines.signal("server-2", "ariel serve", Signal::CONT);
    let mut told = String::new();
    let knows = eventually(Duration::from_secs(15), || {
        told = machines.must("server-1", "ariel cell servers --data /srv/ariel");
        told.lines().filter(|line| line.contains(" all ")).count() == 2
    });
    assert!(knows, "{told}");
    machines.refused("build-1", "ariel ls server-2:7070:/", &["was revoked"]);
    // Ended in order, it is waited for no more; and removed, it is not listed.
    machines.signal("server-2", "ariel serve", Signal::TERM);
    let ended = eventually(Duration::from_secs(20), || {
        told = machines.must("server-1", "ariel cell servers --data /srv/ariel");
        told.contains("not running")
    });
    assert!(ended, "{told}");
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
    let mut told = String::new();
    let back = eventually(Duration::from_secs(30), || {
        let output = machines.run("server-1", create);
        told = text(&output);
        output.status.success()
    });
    assert!(back, "{told}");
}
