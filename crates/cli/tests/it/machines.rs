//! Several machines: they join a cell as docs/operations.md says, see what each other does, and get
//! nothing that was not granted; a listener on the network reads nothing.

use crate::exact::content;
use crate::harness::cell::{CellOptions, INSECURE, first_line};
use crate::harness::machines::Machines;
use crate::harness::process::{Proc, run_within};
use crate::harness::{Cell, ariel, eventually, has_program, long, real_system, run, text};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub fn can_have_machines(test: &str) -> bool {
    let programs = ["ip", "nsenter", "unshare"];
    real_system(test) && programs.iter().all(|program| has_program(test, program))
}

/// The commands of docs/operations.md.
pub fn page() -> Vec<(String, String)> {
    commands_of("operations.md")
}

/// The commands of a page, each with its machine: `machine# command`; or `machine$ command`, which
/// the user 1001 of that machine gives.
pub fn commands_of(page: &str) -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join(page)).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let is_name = |name: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !name.is_empty() && name.bytes().all(fits)
    };
    let of_root = |line: &str| {
        line.split_once("# ")
            .filter(|(name, _)| is_name(name))
            .map(owned)
    };
    let of_user = |line: &str| {
        let (name, command) = line.split_once("$ ").filter(|(name, _)| is_name(name))?;
        Some((name.to_owned(), as_user(1001, command)))
    };
    lines
        .filter_map(|line| of_root(line).or_else(|| of_user(line)))
        .collect()
}

fn owned((name, command): (&str, &str)) -> (String, String) {
    (name.to_owned(), command.to_owned())
}

/// A command that a user gives; the shell's redirections are the test's own.
pub fn as_user(uid: u32, command: &str) -> String {
    format!("setpriv --reuid {uid} --regid {uid} --clear-groups {command}")
}

/// Runs the page up to the command that begins so.
pub fn follow(machines: &mut Machines, until: &str) {
    let mut commands = page().into_iter();
    let mut done = 0;
    for (name, command) in &mut commands {
        machines.must(&name, &command);
        done += 1;
        if command.starts_with(until) {
            return;
        }
    }
    panic!("the page has no command {until:?} among its {done}");
}

#[test]
fn the_commands_of_the_page_make_a_cell_of_three_machines_that_is_exact() {
    if !can_have_machines("machines-page") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2", "desk"]);
    let commands = page();
    assert!(commands.len() >= 10, "{commands:?}");
    let setup = commands
        .iter()
        .position(|(_, c)| c.starts_with("ariel status"));
    for (name, command) in &commands[..setup.expect("the page looks at a mount")] {
        machines.must(name, command);
    }
    let (a, b) = (
        machines.at("build-1", "/mnt"),
        machines.at("build-2", "/mnt"),
    );
    // Their root is nobody: they share a directory that is everybody's.
    let (a, b) = (a.join("shared"), b.join("shared"));
    for round in 0..500 {
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let name = format!("file-{}", round % 3);
        // The owner of a file does not matter here: the file is made anew.
        let _ = fs::remove_file(one.join(&name));
        fs::write(one.join(&name), content(round)).unwrap();
        assert!(
            fs::read(other.join(&name)).unwrap() == content(round),
            "round {round}"
        );
    }
    judge(&[&a, &b]);
    for (name, command) in &commands[setup.unwrap()..] {
        machines.must(name, command);
    }
}

/// Has mounts judged from outside: they show what one machine would, and refuse nothing that it
/// would not.
pub fn judge(mounts: &[&Path]) {
    let seconds = if long() { "60" } else { "6" };
    let mut judge = ariel(&["torture", "--seconds", seconds]);
    for dir in mounts {
        judge.arg("--mount").arg(dir);
    }
    let output = run_within(&mut judge, Duration::from_secs(200));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_machine_whose_root_is_nobody_is_refused_nothing_that_others_may_see() {
    if !can_have_machines("machines-names") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2"]);
    follow(&mut machines, "mkdir -m 1777");
    machines.must("build-2", "ariel mount server:7070 /mnt");
    // A file is come to by each of its names, whichever of them go.
    machines.must(
        "build-1",
        "cd /mnt/shared && mkdir d && echo 1 > a && ln a d/b && ln a c && rm a",
    );
    for name in ["d/b", "c"] {
        assert_eq!(
            machines.must("build-2", &format!("cat /mnt/shared/{name}")),
            "1\n"
        );
    }
    // The way to one name is closed, the way to the other one is not: also where the closed one was
    // the first.
    machines.must(
        "server",
        "cd /mnt && mkdir -m 700 closed && echo 2 > closed/f && ln closed/f open && \
         echo 3 > kept && ln kept closed/g && mv closed/g closed/h",
    );
    assert_eq!(
        machines.must("build-1", "cat /mnt/open /mnt/kept"),
        "2\n3\n"
    );
    machines.refused("build-1", "cat /mnt/closed/f", &["Permission denied"]);
    machines.must("server", "rm /mnt/open");
    machines.refused("build-1", "cat /mnt/open", &["No such file"]);
    // So are the snapshots, each as it was then.
    machines.must("server", "ariel volume snapshot 127.0.0.1:7070 root then");
    let then = "ls /mnt/.snapshots && cat /mnt/.snapshots/then/kept";
    assert_eq!(machines.must("build-1", then), "then\n3\n");
    machines.refused(
        "build-1",
        "cat /mnt/.snapshots/then/closed/f",
        &["Permission denied"],
    );
    // A list names others: nobody is one of those whom it does not name.
    let list = as_user(
        1500,
        "sh -c 'echo 4 > /mnt/shared/listed && \
        setfacl -m u:1600:r,m::r /mnt/shared/listed'",
    );
    machines.must("build-1", &list);
    for machine in ["build-1", "build-2"] {
        assert_eq!(machines.must(machine, "cat /mnt/shared/listed"), "4\n");
    }
}

#[test]
fn machines_get_what_was_granted_and_the_revoked_one_nothing() {
    if !can_have_machines("machines-rights") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2"]);
    follow(&mut machines, "mkdir -m 1777");
    // Root of a machine is nobody, for the machine's own program, too.
    machines.must("server", "echo secret > /mnt/secret; chmod 600 /mnt/secret");
    machines.refused("build-1", "cat /mnt/secret", &["Permission denied"]);
    machines.refused("build-1", "echo > /mnt/mine", &["Permission denied"]);
    machines.must("build-1", "echo 1 > /mnt/shared/one");
    let owner = machines.must("server", "stat -c %u:%g /mnt/shared/one");
    assert_eq!(owner.trim(), "65534:65534");
    // Rights are in force on a mount that is up when the command returns, whatever is cached.
    machines.must(
        "server",
        "ariel machine grant build-1 --root --data /srv/ariel",
    );
    assert_eq!(machines.must("build-1", "cat /mnt/secret"), "secret\n");
    machines.must("server", "ariel machine grant build-1 --data /srv/ariel");
    machines.refused("build-1", "cat /mnt/secret", &["Permission denied"]);
    may_only_read(&mut machines);
    machines.must(
        "server",
        "ariel machine grant build-1 --uids 1000-1999 --data /srv/ariel",
    );
    machines.must("build-1", "touch /mnt/shared/again");
    for (uid, owner) in [(1500, "1500"), (2500, "65534")] {
        let file = format!("/mnt/shared/of-{uid}");
        machines.must(
            "build-1",
            &format!("setpriv --reuid {uid} --clear-groups sh -c \": > {file}\""),
        );
        assert_eq!(
            machines
                .must("server", &format!("stat -c %u {file}"))
                .trim(),
            owner
        );
    }
    volumes_are_noted(&mut machines);
    lists_are_noted(&mut machines);
    // A machine's credential administers nothing.
    machines.refused(
        "build-1",
        "ariel machine list --credentials /etc/ariel",
        &["not an administrator's"],
    );
}

/// A grant, and what root of the machine may do under it: read a file of root, make one for
/// everybody, and see what is beside a part.
const GRANTS: [(&str, [bool; 3]); 4] = [
    ("--root", [true, true, true]),
    ("--read-only --root", [true, false, true]),
    ("", [false, true, true]),
    ("--root --only /shared", [false, true, false]),
];

#[test]
fn a_grant_is_in_force_on_mounts_when_its_command_returns() {
    if !can_have_machines("machines-grants") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2"]);
    follow(&mut machines, "mkdir -m 1777");
    machines.must(
        "server",
        "echo secret > /mnt/secret; chmod 600 /mnt/secret; echo > /mnt/beside; sync -f /mnt",
    );
    let mount = machines.at("build-1", "/mnt");
    let mut wrong = Vec::new();
    for round in 0..if long() { 500 } else { 40 } {
        let (grant, expected) = GRANTS[round % GRANTS.len()];
        let command = format!("ariel machine grant build-1 {grant} --data /srv/ariel");
        machines.must("server", &command);
        // Everything is in the caches of this machine as it was under the last grant.
        let new = mount.join(format!("shared/{round}"));
        let found = [
            fs::read(mount.join("secret")).is_ok(),
            fs::write(new, "").is_ok(),
            fs::metadata(mount.join("beside")).is_ok(),
        ];
        if found != expected {
            wrong.push((round, grant, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The audit log says which machine and user have changed the volumes, or wanted to.
fn volumes_are_noted(machines: &mut Machines) {
    machines.must("server", "ariel volume create 127.0.0.1:7070 work");
    machines.must("server", "ariel volume snapshot 127.0.0.1:7070 work one");
    let delete = "ariel volume delete server:7070 work";
    machines.refused("build-1", delete, &["root"]);
    machines.must("server", "ariel volume delete 127.0.0.1:7070 work");
    let audit = machines.must("server", "cat /srv/ariel/cell/audit.log");
    let noted = |who: &str, deed: &str| -> Vec<Value> {
        let lines = audit
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let of = |line: &Value| line["who"] == who && line["what"]["did"]["volume"] == deed;
        lines.filter(of).collect()
    };
    for deed in ["create", "snapshot", "delete"] {
        let lines = noted("server", deed);
        assert_eq!(lines.len(), 1, "{deed}: {audit}");
        assert_eq!(lines[0]["what"]["did"]["of"], "work");
        assert!(lines[0]["refused"].is_null() && lines[0]["what"]["uid"] == 0);
    }
    let refused = noted("build-1", "delete");
    assert_eq!(refused.len(), 1, "{audit}");
    assert_eq!(refused[0]["refused"], "NotPermitted", "{refused:?}");
}

/// The same of access lists.
fn lists_are_noted(machines: &mut Machines) {
    machines.must(
        "server",
        "mkdir -p /mnt/plans/a && ariel acl set /mnt/plans/a anyone read && \
         ariel acl clear /mnt/plans/a",
    );
    machines.refused(
        "build-1",
        "ariel acl set /mnt/plans/a anyone all",
        &["may not change"],
    );
    let audit = machines.must("server", "cat /srv/ariel/cell/audit.log");
    let lines = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["what"]["did"]["list-of"] == "/plans/a");
    let noted: Vec<(String, bool, bool)> = lines
        .map(|line| {
            let did = &line["what"]["did"];
            let who = line["who"].as_str().unwrap().to_owned();
            (who, did["entries"].is_array(), line["refused"].is_null())
        })
        .collect();
    let of = |who: &str, is_set, is_done| (who.to_owned(), is_set, is_done);
    let expected = [
        of("server", true, true),
        of("server", false, true),
        of("build-1", true, false),
    ];
    assert_eq!(noted, expected, "{audit}");
}

/// A machine that could write may only read from now on.
fn may_only_read(machines: &mut Machines) {
    // Changes that a program was answered before that are kept, also where its client reported them
    // later.
    let late = as_user(
        1500,
        "sh -c 'mkdir -p /mnt/shared/late/d && cp /etc/services /mnt/shared/late/kept && \
         touch -d @77 /mnt/shared/late/d/f'",
    );
    machines.must("build-1", &late);
    let grant = "ariel machine grant build-1 --read-only --data /srv/ariel";
    machines.must("server", grant);
    machines.refused(
        "build-1",
        "echo 2 > /mnt/shared/two",
        &["Read-only file system"],
    );
    assert_eq!(machines.must("build-1", "cat /mnt/shared/one"), "1\n");
    machines.must("server", "cmp /mnt/shared/late/kept /etc/services");
    let file = machines.must("server", "stat -c '%u %Y' /mnt/shared/late/d/f");
    assert_eq!(file.trim(), "1500 77");
    let status = machines.must("build-1", "ariel status /mnt");
    for counted in ["lost bytes", "lost changes", "refused write backs"] {
        let line = status.lines().find(|line| line.starts_with(counted));
        let count = line.and_then(|line| line.split_whitespace().last());
        assert_eq!(count, Some("0"), "{counted}: {status}");
    }
}

#[test]
fn a_revoked_machine_and_one_of_another_cell_get_nothing() {
    if !can_have_machines("machines-revoked") {
        return;
    }
    let mut machines = Machines::new(&["server", "build-1", "build-2"]);
    follow(&mut machines, "mkdir -m 1777");
    // A revoked machine's open files and locks hold nobody up.
    machines.must("build-2", "ariel mount server:7070 /mnt");
    machines.must("build-2", "echo held > /mnt/shared/held");
    machines.must("server", "ariel machine revoke build-2 --data /srv/ariel");
    let waited = std::time::Instant::now();
    machines.must(
        "build-1",
        "cat /mnt/shared/held > /dev/null; ls /mnt/shared",
    );
    assert!(
        waited.elapsed() < Duration::from_secs(10),
        "{:?}",
        waited.elapsed()
    );
    machines.must("build-2", "ariel umount --force /mnt");
    machines.refused(
        "build-2",
        "ariel mount server:7070 /mnt",
        &["was revoked", "ariel join"],
    );
    machines.refused("build-2", "ariel ls server:7070:/", &["was revoked"]);
    // It joins again with a new line, as another machine; an old line is worth nothing.
    machines.refused("build-2", "ariel join < line", &["ariel join-token"]);
    machines.must("server", "ariel join-token --data /srv/ariel > again");
    machines.must("build-2", "ariel join < again && ariel ls server:7070:/");
    machines.refused(
        "build-1",
        "ariel join --credentials /srv/x < again",
        &["counts no more"],
    );
    strangers(&mut machines);
}

/// Somebody of another cell, somebody of none, and ways to the server.
fn strangers(machines: &mut Machines) {
    machines.must("build-1", "ariel cell init --data /srv/other");
    machines.refused(
        "build-1",
        "ariel ls --credentials /srv/other/cell/machine server:7070:/",
        &["not of this machine's cell", "ariel join"],
    );
    machines.must("build-1", "mv /etc/ariel/machine.json /srv/");
    machines.refused(
        "build-1",
        "ariel ls server:7070:/",
        &["no certificate", "ariel join-token"],
    );
    machines.refused(
        "build-1",
        "ariel ls --insecure-loopback server:7070:/",
        &["not a loopback address"],
    );
    machines.must("build-1", "mv /srv/machine.json /etc/ariel/");
    // By IPv6, and where the first of several addresses does not answer.
    machines.must("server", "ariel machine grant build-1 --data /srv/ariel");
    machines.must("build-1", "ariel ls [fd77::1]:7070:/");
    machines.must("build-1", "ariel ls 10.77.0.1:1,server:7070:/");
}

/// Carries bytes between clients and a server, and keeps all of them.
pub struct Wiretap {
    pub addr: String,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Wiretap {
    pub fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (server, kept) = (server.to_owned(), Arc::clone(&heard));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(other) = TcpStream::connect(&server) else {
                    continue;
                };
                let pairs = [
                    (client.try_clone().unwrap(), other.try_clone().unwrap()),
                    (other, client),
                ];
                for (from, to) in pairs {
                    let kept = Arc::clone(&kept);
                    thread::spawn(move || carry(from, to, &kept));
                }
            }
        });
        Self { addr, heard }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 65_536];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        kept.lock().unwrap().extend_from_slice(&piece[..len]);
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// A mount that reaches the cell's server over the wiretap.
fn mount_by(cell: &Cell, tap: &Wiretap, point: &Path) -> Proc {
    let mut command = ariel(&["mount", &tap.addr, point.to_str().unwrap(), "-f"]);
    command.args(cell.trust()).stdout(Stdio::piped());
    let log = fs::File::create(cell.scratch().join("tapped.log")).unwrap();
    let mut daemon = Proc::spawn(command.stderr(log), None).unwrap();
    first_line(&mut daemon, Duration::from_secs(30)).unwrap();
    daemon
}

/// A machine joins over the wiretap: the secret of its line, and a part of its key.
fn secrets_of_a_join(cell: &Cell, tap: &Wiretap) -> Vec<String> {
    let admin = cell.data().join("cell/administrator");
    let mut invite = ariel(&["join-token", "--server", &tap.addr, "--credentials"]);
    let line = run(invite.arg(admin));
    assert!(line.status.success(), "{}", text(&line));
    let line = String::from_utf8(line.stdout).unwrap().trim().to_owned();
    let dir = cell.scratch().join("guest");
    let mut join = ariel(&["join", "--name", "guest", "--credentials"]);
    let joined = run(join.arg(&dir).arg(&line));
    assert!(joined.status.success(), "{}", text(&joined));
    let credential = fs::read_to_string(dir.join("machine.json")).unwrap();
    let credential: serde_json::Value = serde_json::from_str(&credential).unwrap();
    let key = credential["key"].as_str().unwrap().lines().nth(1).unwrap();
    vec![line.rsplit('/').next().unwrap().to_owned(), key.to_owned()]
}

#[test]
fn whoever_listens_on_the_way_reads_no_byte_name_or_secret() {
    for insecure in [false, true] {
        let serve_args = if insecure {
            vec![INSECURE.to_owned()]
        } else {
            vec![]
        };
        let options = CellOptions {
            serve_args,
            ..CellOptions::default()
        };
        if !real_system("wiretap") {
            return;
        }
        let Some(cell) = Cell::start_with("wiretap", options) else {
            return;
        };
        let tap = Wiretap::new(cell.addr());
        let (name, bytes) = (
            "a-name-that-is-no-other",
            "bytes that are no others".repeat(400),
        );
        let point = cell.scratch().dir("tapped");
        let mut daemon = mount_by(&cell, &tap, &point);
        fs::write(point.join(name), &bytes).unwrap();
        fs::File::open(point.join(name))
            .unwrap()
            .sync_all()
            .unwrap();
        let other = cell.mount();
        assert_eq!(fs::read_to_string(other.join(name)).unwrap(), bytes);
        let secrets = if insecure {
            vec![]
        } else {
            secrets_of_a_join(&cell, &tap)
        };
        let unmounted = run(ariel(&["umount"]).arg(&point));
        assert!(unmounted.status.success(), "{}", text(&unmounted));
        assert!(daemon.wait(Duration::from_secs(30)).is_some());
        assert!(eventually(Duration::from_secs(5), || tap
            .heard
            .lock()
            .unwrap()
            .len()
            > bytes.len()));
        let heard = tap.heard.lock().unwrap();
        // Without TLS all of it is found: the search works.
        assert_eq!(contains(&heard, name.as_bytes()), insecure);
        assert_eq!(contains(&heard, b"bytes that are no others"), insecure);
        for secret in secrets {
            assert!(
                !contains(&heard, secret.as_bytes()),
                "a secret travels in clear"
            );
        }
    }
}

#[test]
fn other_users_of_the_servers_machine_read_nothing_of_it_and_ask_it_nothing() {
    if !real_system("server-users") || !has_program("server-users", "setpriv") {
        return;
    }
    let Some(cell) = Cell::start("server-users") else {
        return;
    };
    let mount = cell.mount();
    fs::write(mount.join("f"), "bytes that are no others").unwrap();
    fs::File::open(mount.join("f")).unwrap().sync_all().unwrap();
    let program = env!("CARGO_BIN_EXE_ariel");
    let (data, addr) = (cell.data(), cell.addr());
    let data = data.display();
    let sockets = "/run/ariel /tmp/ariel-0";
    let try_all = |uid: u32, line: &str| {
        let mut command = std::process::Command::new("sh");
        let output = run(command
            .arg("-c")
            .arg(as_user(uid, &format!("sh -c '{line}'"))));
        (output.status.success(), text(&output))
    };
    // Root finds all that these lines look for.
    let find = format!("find {data} {sockets} -type f -o -type s 2>/dev/null | grep -c .");
    let found = try_all(0, &find).1;
    let lines = [
        format!("test -n \"$(find {data} -type f 2>/dev/null)\""),
        format!("cat {data}/cell/authority.json"),
        format!("cat {data}/cell/administrator/machine.json {data}/cell/machine/machine.json"),
        format!("grep -rq bytes {data}"),
        format!("test -n \"$(find {sockets} -type s 2>/dev/null)\""),
        format!("{program} status {addr}"),
        format!("{program} status {}", mount.path().display()),
        format!("{program} machine list --data {data}"),
        format!("{program} ls {addr}:/"),
    ];
    for line in lines {
        let (can, told) = try_all(0, &line);
        assert!(can, "root cannot: {line}: {told} ({found})");
        let (can, told) = try_all(12_345, &line);
        assert!(!can, "another user can: {line}: {told}");
    }
}

#[test]
fn what_a_server_keeps_is_its_users_alone() {
    if !real_system("owner-only") {
        return;
    }
    let Some(cell) = Cell::start("owner-only") else {
        return;
    };
    let mount = cell.mount();
    fs::write(mount.join("f"), "bytes").unwrap();
    fs::File::open(mount.join("f")).unwrap().sync_all().unwrap();
    let mut left = vec![cell.data()];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        let found = path.symlink_metadata().unwrap();
        assert_eq!(
            found.mode() & 0o077,
            0,
            "{} is open to others",
            path.display()
        );
        seen += 1;
        if found.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    assert!(seen > 8, "{seen} files");
}
