//! A machine that was granted parts of the tree alone, over real mounts: it works there like any
//! other machine, and comes to nothing else by any name, mount point, volume or snapshot, also if
//! its root is root.

use crate::harness::machines::Machines;
use crate::harness::text;
use crate::machines::{can_have_machines, follow, judge};

const DENIED: &str = "Permission denied";

/// Commands, each of which is to be refused with these words.
fn refused(machines: &mut Machines, cases: &[(&str, &str)]) {
    for (line, words) in cases {
        machines.refused("build-1", line, &[words]);
    }
}

#[test]
fn a_machine_comes_to_the_parts_that_it_was_granted_and_to_nothing_else() {
    if !can_have_machines("parts") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2"]);
    follow(&mut machines, "mkdir -m 1777");
    prepare(&mut machines);
    // Root of the machine is root, of these parts.
    let grant = "ariel machine grant build-1 --root --only /shared/part --only tools \
                 --data /srv/ariel";
    let told = machines.must("server", grant);
    assert!(
        told.contains("root, all users, only root:/shared/part tools:/"),
        "{told}"
    );
    let shown = machines.must("server", "ariel machine show build-1 --data /srv/ariel");
    assert!(shown.contains("only root:/shared/part tools:/"), "{shown}");
    machines.must(
        "build-1",
        "ariel umount /mnt && ariel mount server:7070 /mnt",
    );
    inside(&mut machines);
    outside(&mut machines);
    volumes(&mut machines);
    // The whole tree again.
    machines.must(
        "server",
        "ariel machine grant build-1 --root --data /srv/ariel",
    );
    machines.must(
        "build-1",
        "ariel umount /mnt && ariel mount server:7070 /mnt",
    );
    assert_eq!(
        machines.must("build-1", "cat /mnt/secret /mnt/shared/beside"),
        "1\n2\n"
    );
    joins_within(&mut machines);
}

/// A tree with something inside and outside of the parts, links between them, and two volumes of
/// which one is granted.
fn prepare(machines: &mut Machines) {
    machines.must(
        "server",
        "cd /mnt && echo 1 > secret && mkdir shared/part shared/part/d && cd shared && \
         echo 2 > beside && echo 3 > part/own && echo 4 > out && ln out part/in && \
         ln -s ../beside part/link && \
         for volume in tools closed; do ariel volume create 127.0.0.1:7070 $volume && \
         ariel volume mount 127.0.0.1:7070 $volume /shared/$volume; done && \
         ariel volume mount 127.0.0.1:7070 closed /shared/part/closed && \
         echo 5 > tools/t && echo 6 > closed/c && \
         ariel volume snapshot 127.0.0.1:7070 tools one && \
         ariel volume snapshot 127.0.0.1:7070 root one && sync -f /mnt",
    );
}

/// The granted parts are there, and are exact.
fn inside(machines: &mut Machines) {
    let seen = machines.must("build-1", "cat /mnt/shared/part/own /mnt/shared/part/in");
    assert_eq!(seen, "3\n4\n");
    machines.must(
        "build-1",
        "cd /mnt/shared/part && echo made > d/made && mv d/made d/moved && ln d/moved named && \
         rm named && mkdir e && rmdir e && touch own && ls . > /dev/null && \
         dd if=/dev/zero of=d/big bs=64k count=64 status=none && sync -f d/big",
    );
    assert_eq!(
        machines.must("server", "cat /mnt/shared/part/d/moved"),
        "made\n"
    );
    // Changes of the other machine are seen at once, and a file that loses its name stays open.
    machines.must(
        "build-1",
        "cd /mnt/shared/part && exec 3< d/moved && cat <&3 > /dev/null && exec 4< d/big && \
         mkfifo /srv/go /srv/done && (cat /srv/go > /dev/null; head -c 9 <&4 | wc -c > /srv/read; \
         echo > /srv/done) > /dev/null 2>&1 & true",
    );
    machines.must("server", "rm -r /mnt/shared/part/d && sync -f /mnt");
    machines.must("build-1", "echo > /srv/go; cat /srv/done");
    assert_eq!(machines.must("build-1", "cat /srv/read").trim(), "9");
    machines.refused("build-1", "ls /mnt/shared/part/d", &["No such file"]);
    machines.must("server", "mkdir -m 1777 /mnt/shared/part/judged");
    machines.must(
        "server",
        "ariel machine grant build-2 --root --data /srv/ariel",
    );
    machines.must("build-2", "ariel mount server:7070 /mnt");
    let at = |machines: &mut Machines, name| machines.at(name, "/mnt/shared/part/judged");
    let (a, b) = (at(machines, "build-1"), at(machines, "build-2"));
    judge(&[&a, &b]);
}

fn outside(machines: &mut Machines) {
    refused(
        machines,
        &[
            ("cat /mnt/secret", DENIED),
            ("cat /mnt/shared/beside", DENIED),
            ("cat /mnt/shared/out", DENIED),
            ("cat /mnt/shared/part/link", DENIED),
            ("ls /mnt", DENIED),
            ("ls /mnt/shared", DENIED),
            ("stat /mnt/none", DENIED),
            ("echo > /mnt/new", DENIED),
            ("mkdir /mnt/shared/new", DENIED),
            ("mv /mnt/shared/part/own /mnt/shared/own", DENIED),
            ("ln /mnt/shared/part/own /mnt/shared/own", DENIED),
            ("rmdir /mnt/shared/part", DENIED),
            ("chmod 777 /mnt/shared", DENIED),
            ("touch /mnt", DENIED),
            ("setfacl -m u:5:rwx /mnt/shared", DENIED),
            ("ariel ls server:7070:/", DENIED),
            ("ariel get server:7070:/secret /srv/secret", DENIED),
        ],
    );
    // A file that was inside, and is taken out by somebody else.
    machines.must("build-1", "cat /mnt/shared/part/own");
    machines.must(
        "server",
        "mv /mnt/shared/part/own /mnt/shared/own && sync -f /mnt",
    );
    machines.refused("build-1", "cat /mnt/shared/part/own", &["No such file"]);
}

fn volumes(machines: &mut Machines) {
    // A granted volume, and its snapshot, come by their names; a mount point outside of the parts
    // opens nothing, nor does one inside of them that leads to another volume.
    machines.must(
        "build-1",
        "mkdir /srv/tools && ariel mount --volume tools server:7070 /srv/tools && \
         cat /srv/tools/t /srv/tools/.snapshots/one/t && echo 7 > /srv/tools/made && \
         ariel umount /srv/tools && ariel ls --volume tools@one server:7070:/",
    );
    refused(
        machines,
        &[
            ("cat /mnt/shared/tools/t", DENIED),
            ("cat /mnt/shared/closed/c", DENIED),
            ("cat /mnt/shared/part/closed/c", DENIED),
            ("cat /mnt/.snapshots/one/secret", DENIED),
            (
                "ariel ls --volume closed server:7070:/",
                "was granted nothing",
            ),
            (
                "ariel mount --volume closed server:7070 /srv/tools",
                "was granted nothing",
            ),
            ("ariel volume snapshot server:7070 tools two", DENIED),
            ("ariel volume create server:7070 more", DENIED),
        ],
    );
    // In a snapshot it comes to the same part.
    let read = "ariel cat --volume root@one server:7070:/shared/part/own";
    assert_eq!(machines.must("build-1", read), "3\n");
    let listed = machines.must("build-1", "ariel volume list server:7070");
    assert!(
        listed.contains("tools") && !listed.contains("closed"),
        "{listed}"
    );
    assert_eq!(machines.must("server", "cat /mnt/shared/tools/made"), "7\n");
}

/// A line may be for parts, too.
fn joins_within(machines: &mut Machines) {
    machines.must(
        "server",
        "ariel machine revoke build-2 --data /srv/ariel && \
         ariel join-token --only /shared/part --data /srv/ariel > within",
    );
    machines.must(
        "build-2",
        "ariel umount --force /mnt; ariel join --name within < within",
    );
    machines.must(
        "build-2",
        "ariel mount server:7070 /mnt && cat /mnt/shared/part/in",
    );
    machines.refused("build-2", "cat /mnt/shared/beside", &[DENIED]);
    for wrong in ["/a/../b", "none@one", "a b"] {
        let line = format!("ariel machine grant within --only '{wrong}' --data /srv/ariel");
        let told = text(&machines.run("server", &line));
        assert!(told.contains("is no part of the tree"), "{told}");
    }
}
