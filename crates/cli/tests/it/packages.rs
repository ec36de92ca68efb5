//! The Debian packages, installed on a clean Debian root that the test makes: the program, its
//! mount helper by /etc/fstab, the service's user and unit, and what is left when they are taken
//! away.

use crate::harness::process::{Proc, run_within};
use crate::harness::scratch::is_mounted;
use crate::harness::{Scratch, eventually, real_system, run, say, text};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Building in release mode, and a Debian root from the network.
const LIMIT: Duration = Duration::from_secs(3600);

fn shell(line: &str, dir: &Path) -> String {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(dir);
    let output = run_within(&mut command, LIMIT);
    assert!(output.status.success(), "{line}\n{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A root with what it has mounted, which goes first.
struct Root(PathBuf);

impl Root {
    fn make(scratch: &Scratch) -> Root {
        let root = Root(scratch.join("root"));
        let dir = root.0.display();
        let mirror = "apt-get indextargets --format '$(REPO_URI)' | head -n 1";
        let release = ". /etc/os-release; echo $VERSION_CODENAME";
        let line =
            format!("debootstrap --variant=minbase $({release}) '{dir}' \"$({mirror})\" >&2");
        shell(&line, scratch.path());
        let inside = format!(
            "mount -t proc proc '{dir}/proc'; mount --bind /dev '{dir}/dev'; \
             cp /etc/resolv.conf '{dir}/etc/'; rm -rf '{dir}/etc/apt/sources.list.d' \
             '{dir}/etc/apt/sources.list'; cp -r /etc/apt/sources.list* '{dir}/etc/apt/'; \
             cp /etc/apt/apt.conf.d/* '{dir}/etc/apt/apt.conf.d/'"
        );
        shell(&inside, scratch.path());
        root
    }

    fn run(&self, line: &str) -> String {
        let line = format!("chroot '{}' sh -ec '{line}'", self.0.display());
        shell(&line, Path::new("/"))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for point in ["mnt", "dev", "proc"] {
            // One that is not mounted is none.
            let _ = run(Command::new("umount").arg(self.0.join(point)));
        }
    }
}

#[test]
fn packages_work_on_a_clean_debian_and_leave_data_alone() {
    if std::env::var_os("ARIEL_LONG").is_none() {
        return say("NOT RUN: packages is for `make conformance` (ARIEL_LONG=1)");
    }
    if !real_system("packages") {
        return;
    }
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    shell("tools/setup packages; make -s deb >&2", &checkout);
    let scratch = Scratch::new("packages");
    let root = Root::make(&scratch);
    let copy = format!("cp target/debian/ariel*.deb '{}'", root.0.display());
    shell(&copy, &checkout);
    root.run("apt-get update; DEBIAN_FRONTEND=noninteractive apt-get install -y /ariel*.deb");

    assert!(root.run("ariel --version").starts_with("ariel "));
    assert!(
        root.run("ariel config show serve")
            .contains("/etc/ariel/ariel.toml")
    );
    root.run("test -e /usr/share/man/man1/ariel-mount.1.gz || test -e /usr/share/man/man1/ariel.1");
    root.run("find /lib/systemd /usr/lib/systemd -name ariel-server.service | grep -q .");
    let user = root.run("id -u ariel; id -g ariel");
    assert!(!user.lines().any(|id| id == "0"), "{user}");

    // As the unit does it: the user of the service, and the directory of its state.
    root.run("install -d -m 700 -o ariel -g ariel /var/lib/ariel");
    let mut serve = Command::new("chroot");
    serve.args(["--userspec=ariel:ariel"]).arg(&root.0);
    serve.args(["ariel", "serve", "--init", "--listen", "127.0.0.1:0"]);
    let mut server = Proc::spawn(serve.stdout(Stdio::piped()), None).unwrap();
    let mut line = String::new();
    let stdout = server.child().stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("listening on ").expect(&line);
    // As docs/service.md says it for mounts on the server's own machine: root is another user than
    // the service's, and has a credential of its own.
    let refused = root.run(&format!("! ariel mount {addr} /mnt 2>&1"));
    assert!(refused.contains("ariel join-token"), "{refused}");
    root.run("ariel join-token --data /var/lib/ariel --root | ariel join --name server-mounts");
    fs::write(
        root.0.join("etc/fstab"),
        format!("{addr} /mnt fuse.ariel noatime,_netdev 0 0\n"),
    )
    .unwrap();
    root.run("mount /mnt; echo bytes > /mnt/file; ariel status /mnt > /dev/null; umount /mnt");
    assert!(eventually(Duration::from_secs(30), || !is_mounted(
        &root.0.join("mnt")
    )));
    // The daemon goes on until everything is written back; the next mount waits for it.
    assert_eq!(
        root.run("mount /mnt; cat /mnt/file; ariel umount /mnt")
            .lines()
            .last(),
        Some("bytes")
    );
    server.signal(rustix::process::Signal::TERM);
    let status = server.wait(Duration::from_secs(60)).expect("it ends");
    assert!(status.success(), "{status}");

    root.run("DEBIAN_FRONTEND=noninteractive apt-get purge -y ariel ariel-server");
    assert!(!root.0.join("usr/bin/ariel").exists());
    // The settings are gone with the packages; the credential came by `ariel join`, and stays.
    assert_eq!(root.run("ls /etc/ariel"), "machine.json\n");
    let left = root.run("ls /var/lib/ariel");
    assert!(
        left.contains("log-") || left.contains("index"),
        "the store is gone: {left}"
    );
}
