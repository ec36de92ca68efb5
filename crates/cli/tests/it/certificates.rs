//! Certificates that are renewed while mounts are up: programs notice nothing, connections that are
//! made later show the new ones, and a machine that has slept through its certificate is told the
//! cure.

use crate::harness::eventually;
use crate::harness::machines::Machines;
use crate::machines::can_have_machines;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The life of a certificate in this test.
const LIFE_S: u64 = 12;
/// Renewals that a mount lives through.
const RENEWALS: usize = 4;

fn serve(machines: &mut Machines) {
    machines.must(
        "server",
        &format!(
            "ariel serve --data /srv/ariel --listen 0.0.0.0:7070 --daemon \
             --certificate-life {LIFE_S}s --pid-file /srv/pid"
        ),
    );
}

/// The certificate of a machine, as its file has it.
fn certificate(file: &Path) -> String {
    let credential: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    credential["certificate"].as_str().unwrap().to_owned()
}

#[test]
fn certificates_are_renewed_while_mounts_are_up() {
    if !can_have_machines("certificates") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1"]);
    machines.must("server", "ariel cell init --data /srv/ariel");
    serve(&mut machines);
    machines.must("server", "ariel join-token --root --data /srv/ariel > line");
    machines.must(
        "build-1",
        "ariel join < line && ariel mount server:7070 /mnt",
    );
    let (mount, file) = (
        machines.at("build-1", "/mnt"),
        machines.at("build-1", "/etc/ariel/machine.json"),
    );
    let began = Instant::now();
    let mut seen = vec![certificate(&file)];
    let mut restarted = false;
    while seen.len() <= RENEWALS {
        let number = seen.len().to_string();
        fs::write(mount.join("f"), &number).unwrap();
        let opened = fs::File::open(mount.join("f")).unwrap();
        opened.sync_all().unwrap();
        assert_eq!(fs::read_to_string(mount.join("f")).unwrap(), number);
        let now = certificate(&file);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        // With a certificate that it did not have when it was mounted it comes back.
        if seen.len() == 3 && !restarted {
            restarted = true;
            machines.must("server", "kill $(cat /srv/pid)");
            let ended = eventually(Duration::from_secs(20), || {
                machines
                    .run("server", "test ! -e /srv/pid")
                    .status
                    .success()
            });
            assert!(ended, "the server does not end");
            serve(&mut machines);
        }
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{} renewals",
            seen.len()
        );
        // The pace of a program that does other things, too.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(
        began.elapsed() > Duration::from_secs(LIFE_S),
        "all in one life"
    );
    let status = machines.must("build-1", "ariel status /mnt");
    let lost = status.lines().find(|line| line.starts_with("lost changes"));
    assert!(lost.is_some_and(|line| line.ends_with(" 0")), "{status}");
    sleeps_through_its_certificate(&mut machines);
}

/// Another machine, whose certificate nobody renews.
fn sleeps_through_its_certificate(machines: &mut Machines) {
    machines.must("server", "ariel join-token --data /srv/ariel > line");
    let late = "ariel join --name late --credentials /srv/late < line";
    machines.must("build-1", late);
    let list = "ariel ls --credentials /srv/late server:7070:/";
    machines.must("build-1", list);
    let expired = eventually(Duration::from_secs(2 * LIFE_S), || {
        !machines.run("build-1", list).status.success()
    });
    assert!(expired, "an expired certificate counts");
    machines.refused(
        "build-1",
        list,
        &["has expired", "ariel join-token", "ariel join"],
    );
    // Its name is free again, for itself.
    machines.must("server", "ariel join-token --data /srv/ariel > line");
    machines.must("build-1", late);
    machines.must("build-1", list);
}
