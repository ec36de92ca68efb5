//! Memberships of groups that a user gives up: on a mount, until he takes them back; and for a
//! program and what it starts, while others of his go on with them.

use crate::acl::{BOB, Person, acl, closed, group, start, word};
use crate::harness::scratch::mounts;
use crate::harness::{Pair, eventually, has_program};
use std::fs;
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ariel");
/// Ways to the file that the group may read, and to the names around it.
const WAYS: [&str; 3] = ["read x < d/f", "ls d", "test -e d/f"];

/// Two mounts, with a directory that a group may read, in which one user is.
fn team(name: &str) -> Option<Pair> {
    let pair = start(name).filter(|pair| !pair.cell.is_insecure())?;
    closed(&pair.a.path().join("d"));
    group(&["create", "staff"], pair.a.path());
    group(&["create", "crew"], pair.a.path());
    group(&["add", "staff", "crew"], pair.a.path());
    group(&["add", "crew", &BOB.to_string()], pair.a.path());
    acl(&["set", word(&pair.a.path().join("d")), "staff", "read"]);
    Some(pair)
}

fn by(words: &str) -> String {
    format!("{PROGRAM} group {words} --mount .")
}

#[test]
fn who_gives_up_a_membership_is_without_it_on_that_mount_until_he_takes_it_back() {
    let Some(pair) = team("given-up") else {
        return;
    };
    let mut people = [
        Person::at(pair.a.path(), BOB),
        Person::at(pair.b.path(), BOB),
    ];
    let mut wrong = Vec::new();
    for round in 0..60 {
        let (here, there) = (round % 2, 1 - round % 2);
        let name = ["staff", "crew"][round / 2 % 2];
        // Both kernels have it all in their caches.
        for person in &mut people {
            assert!(person.can("read x < d/f && ls d && test \"$x\" = bytes"));
        }
        if !people[here].can(&by(&format!("disable {name}"))) {
            wrong.push(format!("round {round}: he cannot give up {name}"));
        }
        for line in WAYS {
            if people[here].can(line) {
                wrong.push(format!("round {round}: {line} is still allowed"));
            }
            if !people[there].can(line) {
                wrong.push(format!(
                    "round {round}: {line} is refused on the other mount"
                ));
            }
        }
        if round % 5 == 0 {
            // It lasts, whatever happens to the group.
            let bob = BOB.to_string();
            group(&["remove", "crew", &bob], pair.b.path());
            group(&["add", "crew", &bob], pair.a.path());
            if people[here].can("ls d") || !people[there].can("ls d") {
                wrong.push(format!(
                    "round {round}: not as before once he was put in again"
                ));
            }
        }
        if !people[here].can(&by(&format!("enable {name}"))) {
            wrong.push(format!("round {round}: he cannot take {name} back"));
        }
        if !people[here].can("read x < d/f && ls d") {
            wrong.push(format!("round {round}: it is back, and he is refused"));
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

#[test]
fn a_given_up_membership_outlives_the_server_and_is_shown() {
    let Some(mut pair) = team("given-up-restart") else {
        return;
    };
    let mut bob = Person::at(pair.a.path(), BOB);
    assert!(bob.can(&by("disable crew")));
    assert!(!bob.can(&by("disable crew")), "twice");
    assert!(!bob.can(&by("enable staff")), "he has not given it up");
    assert!(bob.can(&format!("{} | grep 'crew.*given up here'", by("list"))));
    assert!(
        !group(&["list"], pair.a.path()).contains("given up"),
        "others are not shown"
    );
    pair.cell.restart();
    assert!(!bob.can("read x < d/f"));
    // A server that has restarted changes no group before its mounts have come back.
    assert!(eventually(Duration::from_secs(40), || bob.can(&by("enable crew"))));
    assert!(bob.can("read x < d/f"));
}

fn apart() -> Vec<String> {
    let all = mounts()
        .into_iter()
        .map(|line| line.point.display().to_string());
    all.filter(|point| point.starts_with("/run/ariel-users/apart-"))
        .collect()
}

/// The mounts that this test's daemon has made.
fn apart_of(mount: &Path) -> usize {
    let daemon = crate::harness::status::status(mount)["pid"]
        .as_u64()
        .unwrap();
    let own = format!("/run/ariel-users/apart-{daemon}-");
    apart()
        .iter()
        .filter(|point| point.starts_with(&own))
        .count()
}

#[test]
fn a_program_and_what_it_starts_are_without_a_membership_and_others_are_not() {
    if !has_program("given-up-tree", "unshare") {
        return;
    }
    let Some(pair) = team("given-up-tree") else {
        return;
    };
    let here = pair.a.path();
    let without = [
        PROGRAM,
        "group",
        "without",
        "staff",
        "--mount",
        word(here),
        "--",
    ];
    let mut outside = Person::at(here, BOB);
    assert!(outside.can("read x < d/f"));
    let mut inside = Person::by(here, BOB, &without);
    for line in WAYS {
        assert!(!inside.can(line), "{line}");
        assert!(
            !inside.can(&format!("sh -c '{line}'")),
            "{line}, by a child"
        );
        assert!(outside.can(line), "{line}, by another program");
    }
    // Others see its changes, in the name of its user.
    fs::create_dir(here.join("open")).unwrap();
    crate::harness::scratch::set_mode(&here.join("open"), 0o777);
    assert!(inside.can("echo one > open/f"));
    assert_eq!(fs::read_to_string(here.join("open/f")).unwrap(), "one\n");
    assert_eq!(
        std::os::unix::fs::MetadataExt::uid(&here.join("open/f").metadata().unwrap()),
        BOB
    );
    assert!(outside.can("echo two >> open/f") && inside.can("grep -q two open/f"));
    // It takes the membership back, for itself.
    assert!(inside.can(&by("enable staff")));
    assert!(inside.can("read x < d/f") && outside.can("read x < d/f"));
    assert!(inside.can(&by("disable staff")));
    assert!(!inside.can("read x < d/f") && outside.can("read x < d/f"));
    assert_eq!(apart_of(here), 1);
    drop(inside);
    assert!(eventually(Duration::from_secs(20), || apart_of(here) == 0));
    let audit = pair.cell.data().join("cell/audit.log");
    let forgotten = || {
        fs::read_to_string(&audit)
            .unwrap()
            .contains("\"unmounted\"")
    };
    assert!(
        eventually(Duration::from_secs(20), forgotten),
        "its end is not told"
    );
    assert!(outside.can("read x < d/f"));
}

#[test]
fn a_program_that_goes_on_behind_the_command_keeps_its_mount_and_its_code_is_the_commands() {
    if !has_program("given-up-behind", "unshare") {
        return;
    }
    let Some(pair) = team("given-up-behind") else {
        return;
    };
    let here = pair.a.path();
    let mut bob = Person::at(here, BOB);
    let without = format!("{PROGRAM} group without crew --mount .");
    assert!(bob.can(&format!("{without} -- sh -c 'exit 7'; test $? = 7")));
    assert!(!bob.can(&format!(
        "{PROGRAM} group without nobodys --mount . -- true"
    )));
    fs::create_dir(here.join("open")).unwrap();
    crate::harness::scratch::set_mode(&here.join("open"), 0o777);
    // It waits until the command has ended, and the daemon has taken its mount away.
    let waits = "n=0; until test -e open/go || test $n = 600; do n=$((n + 1)); sleep 0.05; done";
    let behind = format!("sh -c '({waits}; ls d || echo none > open/said) &'");
    assert!(bob.can(&format!(
        "{without} -- {behind} > /dev/null 2>&1 < /dev/null"
    )));
    assert!(eventually(Duration::from_secs(20), || apart_of(here) == 0));
    assert!(bob.can("touch open/go"));
    let said = || fs::read_to_string(here.join("open/said")).is_ok_and(|said| said == "none\n");
    assert!(
        eventually(Duration::from_secs(20), said),
        "it has not gone on without the group"
    );
}
