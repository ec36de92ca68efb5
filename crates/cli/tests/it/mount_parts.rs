//! Mounts of a directory of the tree: they show that and nothing around it, wherever links lead,
//! stay what they are when others move or remove it, and come back after a kill; where there is no
//! such directory, nothing is left behind.

use crate::harness::machines::Machines;
use crate::harness::{eventually, text};
use crate::machines::{can_have_machines, follow};
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn a_directory_of_the_tree_is_mounted_alone() {
    if !can_have_machines("mount-parts") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2"]);
    follow(&mut machines, "mkdir -m 1777");
    machines.must(
        "server",
        "cd /mnt/shared && mkdir -p p/a/d && echo 1 > p/a/f && echo 2 > p/beside && \
         ln -s p/a link && ln -s /etc away && ln -s ../beside p/a/out && chmod -R a+rwX p && \
         sync -f .",
    );
    shows_that_alone(&mut machines);
    refusals_leave_nothing(&mut machines);
    is_what_it_is_wherever_it_goes(&mut machines);
}

fn shows_that_alone(machines: &mut Machines) {
    let told = machines.must(
        "build-1",
        "mkdir -p /srv/a && ariel mount server:7070:/shared/p/a /srv/a && cat /srv/a/f && \
         echo made > /srv/a/d/made && ls /srv/a",
    );
    assert!(told.ends_with("1\nd\nf\nout\n"), "{told}");
    assert_eq!(
        machines.must("server", "cat /mnt/shared/p/a/d/made"),
        "made\n"
    );
    // A link that leads out leads nowhere: to what is around the mount point.
    machines.refused("build-1", "cat /srv/a/out", &["No such file"]);
    let entry = machines.must("build-1", "grep ' /srv/a ' /proc/self/mountinfo");
    assert!(entry.contains(" /shared/p/a /srv/a "), "{entry}");
    assert!(entry.contains(" server:7070:/shared/p/a "), "{entry}");
    // The whole tree is mounted beside it, and both show the same.
    machines.must("build-1", "echo 3 > /srv/a/f");
    assert_eq!(machines.must("build-1", "cat /mnt/shared/p/a/f"), "3\n");
    machines.must(
        "build-1",
        "ariel status /srv/a && ariel umount /srv/a && ls -A /srv/a",
    );
    // Links within the tree are followed, and no link leads out of it.
    let told = machines.must(
        "build-1",
        "ariel mount -q server:7070:/shared/link /srv/a && cat /srv/a/f && ariel umount /srv/a",
    );
    assert!(told.starts_with("3\n"), "{told}");
}

fn refusals_leave_nothing(machines: &mut Machines) {
    for (path, words) in [
        ("/shared/none", "No such file"),
        ("/shared/p/a/f", "Not a directory"),
        ("/shared/away", "No such file"),
        ("/shared/away/ssl", "No such file"),
    ] {
        let line = format!("ariel mount server:7070:{path} /srv/a");
        machines.refused("build-1", &line, &[words, "ariel ls"]);
    }
    machines.refused(
        "build-1",
        "ariel mount server:7070:/shared/../shared /srv/a",
        &["begin with /, without .."],
    );
    let mounted = machines.run("build-1", "grep ' /srv/a ' /proc/self/mountinfo");
    assert!(mounted.stdout.is_empty(), "{}", text(&mounted));
    // Other tests may be mounting just now.
    let gone = eventually(Duration::from_secs(10), || {
        machines
            .run("build-1", "ls -d /run/ariel-part-*")
            .stdout
            .is_empty()
    });
    assert!(gone, "a directory is left");
    // A machine that was granted the directory alone mounts it.
    let grant = |words: &str| format!("ariel machine grant build-1 {words} --data /srv/ariel");
    machines.must("server", &grant("--only /shared/p/a"));
    let part =
        "ariel mount -q server:7070:/shared/p/a /srv/a && cat /srv/a/f && ariel umount /srv/a";
    assert!(machines.must("build-1", part).starts_with("3\n"));
    machines.refused(
        "build-1",
        "ariel mount server:7070:/shared /srv/a && cat /srv/a/p/beside",
        &["Permission denied"],
    );
    machines.must("build-1", "ariel umount /srv/a");
    machines.must("server", &grant(""));
}

fn is_what_it_is_wherever_it_goes(machines: &mut Machines) {
    machines.must(
        "build-1",
        "ariel mount -q server:7070:/shared/p/a /srv/a && cat /srv/a/f",
    );
    // The guard of a daemon that is killed mounts the same again.
    machines.signal(
        "build-1",
        "ariel mount -q server:7070:/shared/p/a",
        Signal::KILL,
    );
    let back = eventually(Duration::from_secs(20), || {
        let told = machines.run("build-1", "cat /srv/a/f && ls /srv/a/d");
        told.status.success()
    });
    assert!(back, "it does not come back");
    let entry = machines.must("build-1", "grep ' /srv/a ' /proc/self/mountinfo");
    assert!(entry.contains(" /shared/p/a /srv/a "), "{entry}");
    // It is the directory that was mounted, whatever it is called now, and until it is gone.
    machines.must(
        "server",
        "cd /mnt/shared && mv p q && mv q/a q/b && sync -f .",
    );
    assert_eq!(machines.must("build-1", "cat /srv/a/f"), "3\n");
    machines.must("build-1", "echo 4 > /srv/a/f && ls /srv/a > /dev/null");
    assert_eq!(machines.must("server", "cat /mnt/shared/q/b/f"), "4\n");
    machines.must("server", "rm -r /mnt/shared/q && sync -f /mnt");
    machines.refused("build-1", "cat /srv/a/f", &["No such file"]);
    machines.must("build-1", "ariel umount /srv/a");
}
