//! Users of machines that are not trusted with them: they log in, and have what the cell gives
//! them, for as long as their proof counts and within its limits.

use crate::harness::machines::Machines;
use crate::harness::{eventually, has_program};
use crate::machines::{as_user, can_have_machines, follow};
use std::time::{Duration, Instant};

const ANN: u32 = 1001;

/// A cell whose page was followed, with a user who has logged in on a desk, until the command that
/// begins so.
fn cell(machines: &[&str], until: &str) -> Machines {
    let mut all = vec!["server", "build-1", "build-2", "desk"];
    all.extend(machines);
    let mut machines = Machines::new(&all);
    follow(&mut machines, "mkdir -m 1777");
    for (name, command) in crate::machines::page() {
        let of_users = command.contains("line-of-desk") || command.contains("/mnt/ann");
        let others = ["secret", "ariel mount", "whoami"];
        let of_desk = name == "desk" || others[..1].iter().any(|word| command.contains(word));
        if of_users || of_desk {
            if command.contains(until) {
                return machines;
            }
            machines.must(&name, &command);
        }
    }
    panic!("the page has no command {until:?}");
}

fn must_as(machines: &mut Machines, name: &str, uid: u32, command: &str) -> String {
    machines.must(name, &as_user(uid, command))
}

fn refused_as(machines: &mut Machines, (name, uid): (&str, u32), command: &str, words: &[&str]) {
    machines.refused(name, &as_user(uid, command), words);
}

#[test]
fn who_has_not_logged_in_is_nobody_and_who_has_is_himself() {
    if !can_have_machines("users-login") || !has_program("users-login", "setpriv") {
        return;
    }
    let mut machines = cell(&[], "ariel login");
    let setup = "echo mine > /mnt/ann/f; chown -R 1001 /mnt/ann; echo all > /mnt/all; \
                 chmod 644 /mnt/all; mkdir -m 777 /mnt/open";
    machines.must("server", setup);
    // Root of the desk, ann before her login, and somebody else count as nobody, which may read
    // what all may.
    let denied = ["Permission denied"];
    for uid in [0, ANN, 1002] {
        let at = ("desk", uid);
        refused_as(&mut machines, at, "cat /mnt/ann/f", &denied);
        refused_as(&mut machines, at, "touch /mnt/open/x", &denied);
        assert_eq!(must_as(&mut machines, "desk", uid, "cat /mnt/all"), "all\n");
    }
    refused_as(
        &mut machines,
        ("desk", ANN),
        "ariel whoami",
        &["ariel login"],
    );
    let wrong = "ariel login --user ann < /etc/hostname";
    refused_as(&mut machines, ("desk", ANN), wrong, &["ariel user passwd"]);
    // Her number is ann's alone.
    let other = "ariel login --user ann < secret";
    refused_as(
        &mut machines,
        ("desk", 1002),
        other,
        &["number 1001", "counts only where"],
    );
    must_as(
        &mut machines,
        "desk",
        ANN,
        "ariel login --user ann < secret",
    );
    let who = must_as(&mut machines, "desk", ANN, "ariel whoami");
    assert!(who.starts_with("ann, until"), "{who}");
    assert_eq!(
        must_as(&mut machines, "desk", ANN, "cat /mnt/ann/f"),
        "mine\n"
    );
    must_as(
        &mut machines,
        "desk",
        ANN,
        "touch /mnt/open/of-ann /mnt/ann/g",
    );
    let owner = machines.must("server", "stat -c %u /mnt/open/of-ann /mnt/ann/g");
    assert_eq!(owner, "1001\n1001\n");
    // (Root of her machine sees what its kernel has cached for her.)
    refused_as(&mut machines, ("desk", 1002), "cat /mnt/ann/f", &denied);
    a_trusted_machine_speaks_for_its_users(&mut machines);
    logins_end(&mut machines);
}

/// Nobody needs a login there.
fn a_trusted_machine_speaks_for_its_users(machines: &mut Machines) {
    machines.must("build-1", "ariel mount server:7070 /srv");
    let who = must_as(machines, "build-1", ANN, "ariel whoami");
    assert!(
        who.starts_with("ann (user 1001): this machine is trusted"),
        "{who}"
    );
    machines.refused("build-1", "ariel whoami", &["does not speak for user 0"]);
    refused_as(
        machines,
        ("build-1", ANN),
        "ariel login --user ann < secret",
        &["trusted"],
    );
}

/// A logout is in force when it returns, warm caches included; so is the end of a user.
fn logins_end(machines: &mut Machines) {
    let denied = ["Permission denied"];
    must_as(machines, "desk", ANN, "cat /mnt/ann/f /mnt/ann/g");
    must_as(machines, "desk", ANN, "ariel logout");
    refused_as(machines, ("desk", ANN), "cat /mnt/ann/f", &denied);
    must_as(machines, "desk", ANN, "ariel login --user ann < secret");
    must_as(machines, "desk", ANN, "cat /mnt/ann/f");
    machines.must("server", "ariel user remove ann --data /srv/ariel");
    refused_as(machines, ("desk", ANN), "cat /mnt/ann/f", &denied);
    let audit = machines.must("server", "cat /srv/ariel/cell/audit.log");
    for word in [
        "\"login\":\"ann\"",
        "\"logout\":1001",
        "\"remove-user\":\"ann\"",
        "no such user",
    ] {
        assert!(audit.contains(word), "the audit log lacks {word}: {audit}");
    }
    let secret = machines.must("server", "cat secret");
    assert!(!audit.contains(secret.trim()));
}

#[test]
fn what_was_written_before_a_login_expires_is_kept_and_the_cure_is_named() {
    if !can_have_machines("users-expiry") || !has_program("users-expiry", "setpriv") {
        return;
    }
    let mut machines = cell(&[], "ariel login");
    // A time that is over at once is refused at once, with the reason.
    let begin = Instant::now();
    let at_once = "ariel login --user ann --expires 1s < secret";
    refused_as(
        &mut machines,
        ("desk", ANN),
        at_once,
        &["expires before", "--expires, 2s"],
    );
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    let login = "ariel login --user ann --expires 4s --once < secret";
    must_as(&mut machines, "desk", ANN, login);
    // It is written back and told a while later, as a rule.
    must_as(&mut machines, "desk", ANN, "mkdir /mnt/ann/d");
    must_as(
        &mut machines,
        "desk",
        ANN,
        "cp /etc/services /mnt/ann/d/kept",
    );
    let expired = eventually(Duration::from_secs(20), || {
        let touched = machines.run("desk", &as_user(ANN, "touch /mnt/ann/late"));
        let told = String::from_utf8_lossy(&touched.stderr).into_owned();
        assert!(
            touched.status.success() || told.contains("Key has expired"),
            "{told}"
        );
        !touched.status.success()
    });
    assert!(expired, "the login does not expire");
    machines.must("server", "cmp /mnt/ann/d/kept /etc/services");
    refused_as(
        &mut machines,
        ("desk", ANN),
        "cat /mnt/ann/d/kept",
        &["Key has expired"],
    );
    must_as(
        &mut machines,
        "desk",
        ANN,
        "ariel login --user ann < secret",
    );
    must_as(
        &mut machines,
        "desk",
        ANN,
        "cmp /mnt/ann/d/kept /etc/services",
    );
}

/// Makes things that are told to the server a while later, as a rule.
fn works(machines: &mut Machines, dir: &str) {
    let line = format!("sh -c 'mkdir -p {dir}/deep && cp /etc/services {dir}/deep/kept'");
    must_as(machines, "desk", ANN, &line);
    let more = format!("sh -c 'cat /etc/services >> {dir}/deep/kept && mv {dir}/deep {dir}/moved'");
    must_as(machines, "desk", ANN, &more);
}

fn assert_kept(machines: &mut Machines, dir: &str) {
    let whole = "cat /etc/services /etc/services";
    machines.must("server", &format!("{whole} | cmp - {dir}/moved/kept"));
    let owner = machines.must(
        "server",
        &format!("stat -c %u {dir}/moved {dir}/moved/kept"),
    );
    assert_eq!(owner, "1001\n1001\n");
    for mount in ["/mnt", "/srv/second"] {
        let status = machines.must("desk", &format!("ariel status {mount}"));
        for counted in ["lost bytes", "lost changes", "refused write backs"] {
            let line = status.lines().find(|line| line.starts_with(counted));
            let count = line.and_then(|line| line.split_whitespace().last());
            assert_eq!(count, Some("0"), "{mount}: {counted}: {status}");
        }
    }
}

#[test]
fn what_was_written_before_a_logout_or_a_removal_is_kept_on_all_mounts() {
    if !can_have_machines("users-kept") || !has_program("users-kept", "setpriv") {
        return;
    }
    let mut machines = cell(&[], "ariel login");
    let second = "mkdir /srv/second && ariel mount server:7070 /srv/second";
    machines.must("desk", second);
    let login = "ariel login --user ann < secret";
    must_as(&mut machines, "desk", ANN, login);
    works(&mut machines, "/mnt/ann/one");
    works(&mut machines, "/srv/second/ann/two");
    must_as(&mut machines, "desk", ANN, "ariel logout");
    for dir in ["/mnt/ann/one", "/mnt/ann/two"] {
        assert_kept(&mut machines, dir);
    }
    must_as(&mut machines, "desk", ANN, login);
    works(&mut machines, "/mnt/ann/three");
    works(&mut machines, "/srv/second/ann/four");
    machines.must("server", "ariel user remove ann --data /srv/ariel");
    for dir in ["/mnt/ann/three", "/mnt/ann/four"] {
        assert_kept(&mut machines, dir);
    }
    let denied = ["Permission denied"];
    refused_as(
        &mut machines,
        ("desk", ANN),
        "cat /mnt/ann/one/moved/kept",
        &denied,
    );
    refused_as(
        &mut machines,
        ("desk", ANN),
        "touch /srv/second/ann/new",
        &denied,
    );
}

#[test]
fn a_login_is_renewed_while_a_program_goes_on() {
    if !can_have_machines("users-renewed") || !has_program("users-renewed", "setpriv") {
        return;
    }
    let mut machines = cell(&[], "ariel login");
    let login = "ariel login --user ann --expires 4s < secret";
    must_as(&mut machines, "desk", ANN, login);
    let until = |machines: &mut Machines| {
        let told = must_as(machines, "desk", ANN, "ariel whoami --json");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["expires"].as_u64().unwrap()
    };
    let first = until(&mut machines);
    // One program from before the end of the first token until long after it. Each change is asked
    // of the server, as everything of a user whose login has expired would be refused.
    let line = format!(
        "sh -c 'exec 3> /mnt/ann/log; n=0; while test $(date +%s) -le {}; do n=$((n + 1)); \
         echo $n >&3 && sync /mnt/ann/log && mkdir /mnt/ann/d$n && rmdir /mnt/ann/d$n || exit 1; \
         done; echo $n'",
        first + 4
    );
    let rounds: u32 = must_as(&mut machines, "desk", ANN, &line)
        .trim()
        .parse()
        .unwrap();
    assert!(rounds > 10, "{rounds} rounds");
    let log = machines.must("server", "cat /mnt/ann/log");
    assert_eq!(log.lines().last(), Some(rounds.to_string().as_str()));
    let renewed = until(&mut machines);
    assert!(renewed > first + 3600, "{first} and {renewed}");
    let audit = machines.must("server", "cat /srv/ariel/cell/audit.log");
    assert!(audit.contains("\"extend\""), "{audit}");
}

#[test]
fn tokens_count_within_their_machine_time_and_limits() {
    if !can_have_machines("users-tokens") || !has_program("users-tokens", "setpriv") {
        return;
    }
    let mut machines = cell(&["lab"], "ariel whoami");
    machines.must(
        "server",
        "ariel join-token --untrusted --data /srv/ariel > line-of-lab",
    );
    machines.must(
        "lab",
        "ariel join < line-of-lab && ariel mount server:7070 /mnt",
    );
    let setup = "mkdir -p /mnt/jobs/7/deep /mnt/jobs/8; echo 7 > /mnt/jobs/7/deep/f; \
                 echo 8 > /mnt/jobs/8/f; chown -R 1001 /mnt/jobs; chmod 700 /mnt/jobs/[78]";
    machines.must("server", setup);
    must_as(&mut machines, "desk", ANN, "ariel token show > whole.token");
    let narrow =
        |to: &str, name: &str| format!("ariel token attenuate {to} < whole.token > {name}.token");
    for (to, name) in [
        ("--path /jobs/7 --read-only", "job"),
        ("--path /jobs/7", "writes"),
        ("--expires 1s", "short"),
    ] {
        machines.must("desk", &narrow(to, name));
    }
    // On another machine, and by another user, it is refused.
    let show = |name: &str| format!("ariel login /mnt --token < {name}.token");
    refused_as(
        &mut machines,
        ("lab", ANN),
        &show("whole"),
        &["another machine", "ariel login"],
    );
    refused_as(
        &mut machines,
        ("desk", 1002),
        &show("whole"),
        &["is of ann"],
    );
    a_narrow_one_counts_for_a_mount_alone(&mut machines);
    // Its time is over.
    let over = eventually(Duration::from_secs(10), || {
        let shown = machines.run("desk", &as_user(ANN, &show("short")));
        let told = String::from_utf8_lossy(&shown.stderr).into_owned();
        told.contains("has expired") && told.contains("ariel login")
    });
    assert!(over, "a token does not expire");
}

/// Narrowed to a path and to reading, in a mount of its own; the other mount is as it was.
fn a_narrow_one_counts_for_a_mount_alone(machines: &mut Machines) {
    machines.must(
        "desk",
        "mkdir -p /srv/job && ariel mount server:7070 /srv/job",
    );
    let show_job = |name: &str| format!("ariel login /srv/job --token < {name}.token");
    must_as(machines, "desk", ANN, &show_job("job"));
    // Each mount says what counts there.
    let told = must_as(machines, "desk", ANN, "ariel whoami /srv/job");
    let narrow = "ann, on this mount alone, at and below /jobs/7, for reading, until ";
    assert!(
        told.starts_with(narrow) && told.contains("not renewed"),
        "{told}"
    );
    let told = must_as(machines, "desk", ANN, "ariel whoami /mnt");
    assert!(
        told.starts_with("ann, until ") && told.contains("renewed until"),
        "{told}"
    );
    let job = ("desk", ANN);
    assert_eq!(
        must_as(machines, "desk", ANN, "cat /srv/job/jobs/7/deep/f"),
        "7\n"
    );
    for outside in [
        "cat /srv/job/jobs/8/f",
        "ls /srv/job/jobs/8",
        "ls /srv/job/ann",
        "ls /srv/job",
    ] {
        refused_as(machines, job, outside, &["Permission denied"]);
    }
    refused_as(
        machines,
        job,
        "touch /srv/job/jobs/7/new",
        &["Read-only file system"],
    );
    assert_eq!(must_as(machines, "desk", ANN, "cat /mnt/jobs/8/f"), "8\n");
    must_as(machines, "desk", ANN, "touch /mnt/jobs/7/by-login");
    must_as(machines, "desk", ANN, &show_job("writes"));
    must_as(machines, "desk", ANN, "touch /srv/job/jobs/7/new");
    refused_as(
        machines,
        job,
        "touch /srv/job/jobs/8/new",
        &["Permission denied"],
    );
}

#[test]
fn a_key_of_the_ssh_agent_lets_its_user_in() {
    let test = "users-ssh";
    let programs = ["setpriv", "ssh-agent", "ssh-add", "ssh-keygen"];
    if !can_have_machines(test) || !programs.iter().all(|program| has_program(test, program)) {
        return;
    }
    let mut machines = cell(&[], "ariel login");
    let make = "ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f other";
    machines.must("server", make);
    let add = "ariel user add bob --uid 1003 --ssh-key key.pub --data /srv/ariel";
    machines.must("server", add);
    machines.must("server", "install -d -o 1003 -m 700 /mnt/bob");
    // An agent serves only the user who has begun it.
    let login = |key: &str| {
        let with_agent = format!(
            "ssh-agent sh -c 'ssh-add -q of-bob-{key} && ariel login --user bob --ssh \
             --key {key}.pub'"
        );
        let owned = format!("install -o 1003 -m 600 {key} of-bob-{key} && chmod 644 {key}.pub");
        format!("{owned} && {}", as_user(1003, &with_agent))
    };
    machines.refused(
        "desk",
        &login("other"),
        &["no such user with this password or key"],
    );
    machines.must("desk", &login("key"));
    must_as(&mut machines, "desk", 1003, "touch /mnt/bob/f");
    // Without a file the first key of the agent is taken.
    must_as(&mut machines, "desk", 1003, "ariel logout");
    machines.must("desk", &login("key").replace(" --key key.pub", ""));
    must_as(&mut machines, "desk", 1003, "touch /mnt/bob/g");
}
