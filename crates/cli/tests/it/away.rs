//! The server is away: programs that wait for it can be killed, and mounts be ended; a change under
//! way is made once or not at all, and nothing of it is left.

use crate::harness::process::{Proc, run, stacks, system_python};
use crate::harness::status::{counts, status};
use crate::harness::{Cell, Mount, ariel, eventually, has_uring, names, real_system, text};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that waits is gone this soon after the signal: a second, and what a loaded machine
/// takes to run what is killed.
const GONE: Duration = Duration::from_millis(1500);
/// The bound of an end "within seconds".
const SECONDS: Duration = Duration::from_secs(14);
const LIMIT: Duration = Duration::from_secs(30);

/// The calls of programs, each in a directory of its own: one before they are ready, one when the
/// server is away. `f` has 1 MiB, `w` is open for writing on the other mount, `x` is a program.
static PROGRAMS: [(&str, &str, &str); 16] = [
    ("stat", "os.stat(d)", "os.stat(d + '/f')"),
    ("open", "os.stat(d)", "open(d + '/f')"),
    (
        "read",
        "fd = os.open(d + '/w', os.O_RDWR)",
        "os.pread(fd, 100, 0)",
    ),
    (
        "write",
        "fd = os.open(d + '/w', os.O_RDWR)",
        "os.pwrite(fd, b'new', 0)",
    ),
    (
        "append",
        "fd = os.open(d + '/w', os.O_WRONLY | os.O_APPEND)",
        "os.write(fd, b'one record\\n')",
    ),
    (
        "create",
        "os.path.exists(d + '/created')",
        "open(d + '/created', 'x')",
    ),
    (
        "mkdir",
        "os.path.exists(d + '/made')",
        "os.mkdir(d + '/made')",
    ),
    ("unlink", "os.stat(d + '/f')", "os.unlink(d + '/f')"),
    (
        "rename",
        "os.stat(d + '/f')",
        "os.rename(d + '/f', d + '/g')",
    ),
    ("readdir", "os.stat(d)", "os.listdir(d)"),
    ("fsync", "fd = os.open(d + '/w', os.O_RDWR)", "os.fsync(fd)"),
    (
        "lock",
        "fd = open(d + '/f', 'r+')",
        "fcntl.flock(fd, fcntl.LOCK_EX)",
    ),
    (
        "bytes",
        "fd = open(d + '/f', 'r+')",
        "fcntl.lockf(fd, fcntl.LOCK_EX)",
    ),
    (
        "fault",
        "m = mmap.mmap(os.open(d + '/f', os.O_RDONLY), 4096, mmap.MAP_SHARED, mmap.PROT_READ)",
        "m[0]",
    ),
    ("execve", "", "os.execv(d + '/x', ['x'])"),
    ("statfs", "", "os.statvfs(d + '/.')"),
];

struct Program {
    name: &'static str,
    process: Proc,
    out: BufReader<ChildStdout>,
}

impl Program {
    fn start(dir: &Path, (name, before, call): (&'static str, &str, &str)) -> Self {
        let code = format!(
            "import os, sys, mmap, fcntl, signal\nd = sys.argv[1]\n\
             signal.signal(signal.SIGINT, signal.SIG_DFL)\n{before}\n\
             print('ready', flush=True)\nsys.stdin.readline()\n\
             try:\n    {call}\n    print('done', flush=True)\n\
             except OSError as e:\n    print(e.errno, flush=True)\n"
        );
        let mut command = Command::new(system_python());
        command.args(["-c", &code, dir.to_str().unwrap()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Proc::spawn(&mut command, None).unwrap();
        let out = process.child().stdout.take().unwrap();
        let mut program = Self {
            name,
            process,
            out: BufReader::new(out),
        };
        assert_eq!(program.hear(), "ready", "{name}");
        program
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn go(&mut self) {
        let stdin = self.process.child().stdin.as_mut().unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    /// Does it wait in the kernel for something other than its input?
    fn waits(&mut self) -> bool {
        let wchan = format!("/proc/{}/wchan", self.process.child().id());
        let place = fs::read_to_string(wchan).unwrap_or_default();
        ["request_wait", "folio", "fuse"]
            .iter()
            .any(|word| place.contains(word))
    }

    /// Has it been sent SIGALRM, and not yet handled it?
    fn is_alarmed(&mut self) -> bool {
        let status = format!("/proc/{}/status", self.process.child().id());
        let status = fs::read_to_string(status).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        pending.is_some_and(|set| set & 1 << (Signal::ALARM.as_raw() - 1) != 0)
    }

    fn place(&mut self) -> String {
        stacks(self.process.child().id())
    }
}

fn make(dir: &Path) -> File {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("f"), vec![b'f'; 1 << 20]).unwrap();
    fs::copy("/bin/true", dir.join("x")).unwrap();
    let shared = File::create_new(dir.join("w")).unwrap();
    (&shared).write_all(b"old").unwrap();
    shared
}

fn transports(test: &str) -> Vec<&'static str> {
    let mut all = vec!["dev"];
    if has_uring(test) {
        all.push("uring");
    }
    all
}

/// All programs wait, and are ended by these signals in turn.
fn kill_all(name: &str, transport: &str, stop: impl Fn(&mut Cell), back: impl Fn(&mut Cell)) {
    let Some(mut cell) = Cell::start(name) else {
        return;
    };
    let other = cell.mount();
    let shared: Vec<File> = PROGRAMS.iter().map(|p| make(&other.join(p.0))).collect();
    let mount = cell.mount_with(&["--transport", transport]);
    let start =
        |program: &(&'static str, &str, &str)| Program::start(&mount.join(program.0), *program);
    let mut programs: Vec<Program> = PROGRAMS.iter().map(start).collect();
    stop(&mut cell);
    for program in &mut programs {
        program.go();
    }
    let signals = [Signal::KILL, Signal::TERM, Signal::INT];
    let mut longest = Duration::ZERO;
    for (program, signal) in programs.iter_mut().zip(signals.iter().cycle()) {
        let waits = eventually(LIMIT, || program.waits());
        let (name, place) = (program.name, program.place());
        assert!(waits, "{name} does not wait: {place}");
        let begin = Instant::now();
        program.process.signal(*signal);
        let ended = program.process.wait(LIMIT / 3);
        let took = begin.elapsed();
        let (name, place) = (program.name, program.place());
        assert!(
            ended.is_some(),
            "{name} survives {signal:?}:\n{place}\n{}",
            mount.log()
        );
        assert!(took < GONE, "{name} took {took:?} to end");
        longest = longest.max(took);
    }
    crate::harness::say(&format!(
        "{name} over {transport}: the last was gone after {longest:?}"
    ));
    back(&mut cell);
    drop(programs);
    // All goes on, and the calls under way are over.
    for (program, shared) in PROGRAMS.iter().zip(&shared) {
        (&*shared).write_all(b"more").unwrap();
        let (a, b) = (mount.join(program.0), other.join(program.0));
        fs::write(a.join("after"), b"after").unwrap();
        assert_eq!(fs::read(b.join("after")).unwrap(), b"after");
        assert_eq!(names(&a), names(&b), "{}", program.0);
    }
    let over = || {
        let status = status(mount.path());
        status["abandoned"] == 0 && status["opens"] == 0 && status["locks"]["held"] == 0
    };
    assert!(eventually(LIMIT, over), "{:#}", status(mount.path()));
    let appended = fs::read(other.join("append/w")).unwrap();
    let records = appended
        .windows(11)
        .filter(|bytes| bytes == b"one record\n")
        .count();
    assert!(records <= 1, "a record was appended {records} times");
    let renamed = names(&other.join("rename"));
    assert_eq!(
        renamed
            .iter()
            .filter(|name| *name == "f" || *name == "g")
            .count(),
        1
    );
    // Nobody has the locks that were waited for.
    let line = "flock -n f true && flock -n ../bytes/f true";
    crate::harness::process::shell_ok(&other.join("lock"), line);
}

#[test]
fn programs_that_wait_for_a_stopped_server_can_be_killed() {
    if !real_system("away-stopped") {
        return;
    }
    for transport in transports("away-stopped") {
        kill_all("away-stopped", transport, Cell::stand, Cell::go_on);
    }
}

#[test]
fn programs_that_wait_for_a_killed_server_can_be_killed() {
    if !real_system("away-killed") {
        return;
    }
    for transport in transports("away-killed") {
        kill_all("away-killed", transport, Cell::kill9, Cell::start_server);
    }
}

/// Linux asks the daemon about each descriptor for writing that the new process closes before it
/// runs its program: a daemon that asked the server about it would hold up every start.
#[test]
fn a_program_with_files_open_starts_others_without_a_server() {
    if !real_system("away-starts") {
        return;
    }
    let Some(mut cell) = Cell::start("away-starts") else {
        return;
    };
    let other = cell.mount();
    let shared = make(&other.join("d"));
    let mount = cell.mount();
    // The file is in use at both mounts, as are its locks.
    flock(&shared, FlockOperation::LockShared).unwrap();
    let before = "import subprocess\nfd = os.open(d + '/w', os.O_RDWR)\n\
                  fcntl.flock(fd, fcntl.LOCK_SH)\nfcntl.lockf(fd, fcntl.LOCK_EX, 2)";
    let call = "subprocess.run(['/bin/true'], check=True)";
    let mut program = Program::start(&mount.join("d"), ("starts", before, call));
    let closes = || {
        let counts = counts(&status(mount.path()), &["fuse", "requests"]);
        counts.get("FLUSH").copied().unwrap_or(0)
    };
    let before = closes();
    cell.stand();
    program.go();
    assert_eq!(program.hear(), "done");
    assert!(closes() > before, "nothing was closed");
    cell.go_on();
}

/// A program whose handler takes SIGALRM after a while.
fn alarmed(dir: &Path, name: &'static str, before: &str, call: &str) -> Program {
    let handler = "def handler(*_):\n    raise InterruptedError(4, '')";
    let alarm = "signal.signal(signal.SIGALRM, handler)";
    let before = format!("{before}\n{handler}\n{alarm}\n");
    let call = format!("signal.setitimer(signal.ITIMER_REAL, 0.5); {call}");
    Program::start(dir, (name, &before, &call))
}

#[test]
fn a_signal_that_is_handled_interrupts_where_that_was_asked_for() {
    if !real_system("away-signal") {
        return;
    }
    let Some(mut cell) = Cell::start("away-signal") else {
        return;
    };
    let other = cell.mount();
    let _shared = make(&other.join("d"));
    let _more = make(&other.join("e"));
    let (intr, plain) = (cell.mount_with(&["--intr"]), cell.mount());
    let fd = "fd = os.open(d + '/w', os.O_RDWR)";
    let calls = [("read", "os.pread(fd, 100, 0)"), ("fsync", "os.fsync(fd)")];
    let at = |mount: &Mount| calls.map(|(name, call)| alarmed(&mount.join("d"), name, fd, call));
    let (mut asked, mut not) = (at(&intr), at(&plain));
    cell.stand();
    for program in asked.iter_mut().chain(&mut not) {
        program.go();
    }
    for program in &mut asked {
        assert_eq!(program.hear(), "4", "{}: EINTR", program.name);
    }
    for program in &mut not {
        let waits = eventually(LIMIT, || program.is_alarmed() && program.waits());
        assert!(waits, "{} went on without an answer", program.name);
    }
    cell.go_on();
    for program in &mut not {
        assert_eq!(
            program.hear(),
            "4",
            "{}: the handler runs behind it",
            program.name
        );
    }
}

#[test]
fn calls_end_with_eio_after_the_time_that_was_given() {
    if !real_system("away-timeout") {
        return;
    }
    let Some(mut cell) = Cell::start("away-timeout") else {
        return;
    };
    let other = cell.mount();
    let _shared: Vec<File> = PROGRAMS.iter().map(|p| make(&other.join(p.0))).collect();
    let mount = cell.mount_with(&["--timeout", "2"]);
    let start =
        |program: &(&'static str, &str, &str)| Program::start(&mount.join(program.0), *program);
    // A fault is told by a signal, and a program that cannot be read is not run.
    let calls = PROGRAMS
        .iter()
        .filter(|p| !["fault", "execve"].contains(&p.0));
    let mut programs: Vec<Program> = calls.map(start).collect();
    // The time itself is tested: longer than --timeout, with a server that is there, ends no call.
    std::thread::sleep(Duration::from_secs(3));
    cell.stand();
    let begin = Instant::now();
    for program in &mut programs {
        program.go();
    }
    for program in &mut programs {
        assert_eq!(program.hear(), "5", "{}: EIO", program.name);
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(1) && took < SECONDS, "{took:?}");
    cell.go_on();
    fs::write(mount.join("after"), b"after").unwrap();
    assert_eq!(fs::read(other.join("after")).unwrap(), b"after");
}

/// A mount with something that the server has not got, and a program that waits for the server.
fn owing(cell: &mut Cell) -> (Mount, Program) {
    let other = cell.mount();
    let _ = make(&other.join("d"));
    let mount = cell.mount();
    fs::write(mount.join("dirty"), [b'd'; 5000]).unwrap();
    let mut program = Program::start(&mount.join("d"), ("stat", "", "os.stat(d + '/f')"));
    drop(other);
    cell.stand();
    program.go();
    assert!(eventually(LIMIT, || program.waits()), "{}", program.place());
    (mount, program)
}

/// Soon a server that is silent counts as away.
fn assert_away(mount: &Mount) {
    let is_away = || status(mount.path())["connected"] == false;
    assert!(eventually(LIMIT, is_away), "{:#}", status(mount.path()));
}

fn ended(mut mount: Mount, begin: Instant) {
    let status = mount.daemon().wait(SECONDS);
    let (took, log) = (begin.elapsed(), mount.log());
    let point = mount.path().to_owned();
    assert!(status.is_some(), "its daemon goes on: {log}");
    assert!(took < SECONDS, "{took:?}");
    assert!(
        log.contains("8192 changed bytes of 1 files") && log.contains("lost"),
        "{log}"
    );
    assert!(fuse::mount::await_gone(&point, Duration::from_secs(5)).unwrap());
    mount.forget();
}

fn freed(mut program: Program) {
    let answer = program.hear();
    assert!(["107", "103", "5"].contains(&answer.as_str()), "{answer}");
}

#[test]
fn a_mount_is_ended_by_force_whatever_the_server_does() {
    if !real_system("away-force") {
        return;
    }
    let Some(mut cell) = Cell::start("away-force") else {
        return;
    };
    let (mount, program) = owing(&mut cell);
    assert_away(&mount);
    // Without force it says what to do, and nothing has changed.
    let output = run(&mut ariel(&[Path::new("umount"), mount.path()]));
    assert!(text(&output).contains("--force"), "{}", text(&output));
    assert!(crate::harness::scratch::is_mounted(mount.path()));
    let begin = Instant::now();
    let words = [Path::new("umount"), Path::new("--force"), mount.path()];
    let output = run(&mut ariel(&words));
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("8192 changed bytes of 1 files"),
        "{}",
        text(&output)
    );
    freed(program);
    ended(mount, begin);
    cell.go_on();
}

#[test]
fn a_mount_that_others_abort_and_unmount_ends_by_itself() {
    if !real_system("away-abort") {
        return;
    }
    let Some(mut cell) = Cell::start("away-abort") else {
        return;
    };
    let (mount, program) = owing(&mut cell);
    assert_away(&mount);
    let begin = Instant::now();
    // In use: this aborts the connection only.
    run(Command::new("umount").arg("-f").arg(mount.path()));
    freed(program);
    // Nothing tells when the kernel lets go of what was under way.
    let unmounted = || {
        let output = run(Command::new("umount").arg(mount.path()));
        output.status.success()
    };
    assert!(eventually(LIMIT, unmounted), "it is in use");
    ended(mount, begin);
    cell.go_on();
}

#[test]
fn a_daemon_told_to_end_does_so_within_seconds_without_a_server() {
    if !real_system("away-term") {
        return;
    }
    let Some(mut cell) = Cell::start("away-term") else {
        return;
    };
    let (mut mount, program) = owing(&mut cell);
    let begin = Instant::now();
    mount.daemon().signal(Signal::TERM);
    freed(program);
    ended(mount, begin);
    cell.go_on();
}

#[test]
fn a_lost_server_and_the_sessions_of_one_are_told_of() {
    if !real_system("away-status") {
        return;
    }
    let Some(mut cell) = Cell::start("away-status") else {
        return;
    };
    let mount = cell.mount();
    let there = status(mount.path());
    assert_eq!(there["disconnected"], serde_json::Value::Null);
    let name = status(cell.addr())["sessions"][0]["name"].clone();
    let shown = |target: &Path| {
        let output = run(&mut ariel(&[Path::new("status"), target]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!shown(mount.path()).contains("disconnected"));
    let told = |cell: &Cell| {
        let of_server = status(cell.addr());
        let one = of_server["sessions"][0].clone();
        assert!(one["address"].as_str().unwrap().contains(':'), "{one}");
        assert_eq!((&one["lease"], &one["name"]), (&"runs".into(), &name));
        assert!(one["for_s"].is_u64(), "{one}");
    };
    told(&cell);
    let line = shown(Path::new(cell.addr()));
    assert!(line.contains("its lease runs"), "{line}");
    cell.kill9();
    assert_away(&mount);
    let refused = || {
        let lost = status(mount.path())["disconnected"].clone();
        assert!(lost["for_s"].is_u64(), "{lost}");
        lost["why"].as_str().unwrap().contains("refused")
    };
    assert!(eventually(LIMIT, refused), "{:#}", status(mount.path()));
    let line = shown(mount.path());
    assert!(line.contains("disconnected         for "), "{line}");
    cell.start_server();
    let back = || status(mount.path())["disconnected"].is_null();
    assert!(eventually(LIMIT, back), "{:#}", status(mount.path()));
    // It goes on in its session, which the server had forgotten the name of.
    told(&cell);
}
