//! A server and a mount under a service manager: readiness, watchdog, end, logs. The manager is a
//! socket that speaks its protocol (sd_notify(3)), and systemd itself where its unit is judged.

use crate::harness::process::Proc;
use crate::harness::{Cell, Scratch, ariel, eventually, real_system, run, say, text};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// The socket at which a service manager is told things.
struct Manager(UnixDatagram);

impl Manager {
    fn bind(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Manager(socket)
    }

    /// Waits until a line is told.
    #[track_caller]
    fn await_line(&self, line: &str) {
        let mut bytes = [0; 4096];
        loop {
            let len = self.0.recv(&mut bytes).expect(line);
            let told = String::from_utf8_lossy(&bytes[..len]);
            if told.lines().any(|one| one == line) {
                return;
            }
        }
    }
}

fn managed(scratch: &Scratch, args: &[&str]) -> (Manager, Command) {
    let socket = scratch.join("notify");
    let manager = Manager::bind(&socket);
    let mut command = ariel(args);
    command
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "200000");
    (manager, command)
}

#[test]
fn a_service_manager_is_told_of_a_servers_life() {
    let scratch = Scratch::new("service-server");
    let data = scratch.join("data");
    let args = [
        "serve",
        "--insecure-loopback",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let (manager, mut command) = managed(&scratch, &args);
    let mut server = Proc::spawn(&mut command, None).unwrap();
    manager.await_line("READY=1");
    for _ in 0..3 {
        manager.await_line("WATCHDOG=1");
    }
    // Nothing hangs up: a daemon is asked to open its log anew, and goes on.
    server.signal(Signal::HUP);
    manager.await_line("WATCHDOG=1");
    server.signal(Signal::TERM);
    manager.await_line("STOPPING=1");
    let status = server.wait(LIMIT).expect("it ends");
    assert!(status.success(), "{status}");
}

#[test]
fn the_first_start_makes_a_cell_and_later_ones_find_it() {
    let scratch = Scratch::new("service-init");
    let data = scratch.join("data");
    let authority = data.join("cell/authority.json");
    let args = |more: &[&'static str]| {
        let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--data"];
        args.push(data.to_str().unwrap());
        [&args[..], more].concat()
    };
    let output = run(&mut ariel(&args(&[])));
    assert!(
        text(&output).contains("ariel cell init"),
        "{}",
        text(&output)
    );
    let mut made = Vec::new();
    for _ in 0..2 {
        let (manager, mut command) = managed(&scratch, &args(&["--init"]));
        let mut server = Proc::spawn(&mut command, None).unwrap();
        manager.await_line("READY=1");
        server.signal(Signal::TERM);
        assert!(server.wait(LIMIT).expect("it ends").success());
        fs::remove_file(scratch.join("notify")).unwrap();
        made.push(fs::read(&authority).unwrap());
    }
    assert_eq!(made[0], made[1]);
    // It is never mixed up with a server of another cell.
    let output = run(&mut ariel(&args(&[
        "--init",
        "--join",
        "etcd://127.0.0.1:1",
    ])));
    let told = text(&output);
    assert!(
        told.contains("of a cell with one server") && told.contains("--data"),
        "{told}"
    );
    assert!(!output.status.success());
}

#[test]
fn a_service_manager_is_told_of_a_mounts_life() {
    if !real_system("service-mount") {
        return;
    }
    let Some(cell) = Cell::start("service-mount") else {
        return;
    };
    let point = cell.scratch().dir("mount");
    cell.watch().add_mount(&point);
    let addr = cell.addr().to_string();
    let args = ["mount", &addr, point.to_str().unwrap(), "-f"];
    let (manager, mut command) = managed(cell.scratch(), &args);
    let mut mount = Proc::spawn(&mut command, None).unwrap();
    manager.await_line("READY=1");
    fs::write(point.join("file"), b"bytes").unwrap();
    manager.await_line("WATCHDOG=1");
    mount.signal(Signal::TERM);
    manager.await_line("STOPPING=1");
    let status = mount.wait(LIMIT).expect("it ends");
    assert!(status.success(), "{status}");
    assert_eq!(fs::read(cell.mount().join("file")).unwrap(), b"bytes");
}

/// A server in the background, its pid file and its process.
fn background(scratch: &Scratch) -> (PathBuf, Pid) {
    let pid_file = scratch.join("pid");
    let insecure = "--insecure-loopback";
    let mut command = ariel(&["serve", insecure, "--listen", "127.0.0.1:0", "--daemon"]);
    command.arg("--data").arg(scratch.join("data"));
    let output = run(command.arg("--pid-file").arg(&pid_file));
    assert!(output.status.success(), "{}", text(&output));
    let pid = fs::read_to_string(&pid_file).unwrap();
    (
        pid_file,
        Pid::from_raw(pid.trim().parse().unwrap()).unwrap(),
    )
}

#[test]
fn a_log_that_was_renamed_is_begun_anew_on_sighup() {
    let scratch = Scratch::new("service-hup");
    let (pid_file, pid) = background(&scratch);
    let data = scratch.join("data");
    let log = data.join("server.log");
    fs::rename(&log, data.join("server.log.old")).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    let is_begun = || fs::read_to_string(&log).is_ok_and(|text| text.contains("opened anew"));
    let begun = eventually(LIMIT, is_begun);
    kill_process(pid, Signal::TERM).unwrap();
    let ended = eventually(LIMIT, || !pid_file.exists());
    assert!(begun && ended, "begun: {begun}, ended: {ended}");
}

#[test]
fn a_server_that_ends_leaves_the_pid_file_of_the_next_one() {
    let scratch = Scratch::new("service-pid");
    let (pid_file, pid) = background(&scratch);
    fs::write(&pid_file, "1\n").unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let has_ended = || test_kill_process(pid).is_err();
    assert!(eventually(LIMIT, has_ended), "the server does not end");
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), "1\n");
}

#[test]
fn the_unit_of_the_server_is_one_that_systemd_accepts() {
    let Ok(found) = Command::new("systemd-analyze").arg("--version").output() else {
        // `tools/setup suites` installs it.
        assert!(
            std::env::var_os("CI").is_none(),
            "systemd-analyze is missing"
        );
        return say("SKIPPED: systemd-analyze is missing");
    };
    assert!(found.status.success(), "{}", text(&found));
    let scratch = Scratch::new("service-unit");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = fs::read_to_string(root.join("packaging/ariel-server.service")).unwrap();
    // Its program is not installed where tests run.
    let unit = unit.replace("/usr/bin/ariel", env!("CARGO_BIN_EXE_ariel"));
    let path = scratch.join("ariel-server.service");
    fs::write(&path, unit).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(&path);
    let output = run(&mut verify);
    let said = text(&output);
    let complaints: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("ariel-server"))
        .collect();
    assert!(output.status.success() && complaints.is_empty(), "{said}");
}

/// The answer to one request over HTTP.
fn asked(addr: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[track_caller]
fn assert_shows(addr: &str, wanted: &[&str]) {
    let page = asked(addr, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("content-type: text/plain; version=0.0.4"),
        "{page}"
    );
    for line in wanted {
        assert!(page.lines().any(|one| one == *line), "{line} in:\n{page}");
    }
}

/// A port that was free a moment ago.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn metrics_are_shown_while_the_process_works() {
    if !real_system("service-metrics") {
        return;
    }
    let scratch = Scratch::new("service-metrics");
    let (data, point) = (scratch.join("data"), scratch.dir("mount"));
    let of_server = free_port();
    let made = run(ariel(&["cell", "init", "--data"]).arg(&data));
    assert!(made.status.success(), "{}", text(&made));
    let mut command = ariel(&["serve", "--listen", "127.0.0.1:0", "--metrics", &of_server]);
    command.arg("--data").arg(&data).stdout(Stdio::piped());
    let mut server = Proc::spawn(&mut command, None).unwrap();
    let mut line = String::new();
    let stdout = server.child().stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("listening on ").expect(&line);
    let of_mount = free_port();
    let args = [
        "mount",
        addr,
        point.to_str().unwrap(),
        "--metrics",
        &of_mount,
    ];
    let output = run(&mut ariel(&args));
    assert!(output.status.success(), "{}", text(&output));
    fs::write(point.join("file"), [7; 10_000]).unwrap();
    assert_shows(
        &of_mount,
        &[
            "ariel_mount_connected 1.0",
            "ariel_mount_cache_dirty_blocks 3.0",
        ],
    );
    let output = run(&mut ariel(&["umount", point.to_str().unwrap()]));
    assert!(output.status.success(), "{}", text(&output));
    let written = ["ariel_store_bytes 10000.0", "ariel_server_clients 0.0"];
    assert_shows(&of_server, &written);
    let elsewhere = asked(&of_server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(elsewhere.starts_with("HTTP/1.1 404"), "{elsewhere}");
    let posted = asked(&of_server, "POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
    assert!(asked(&of_server, "rubbish\r\n\r\n").starts_with("HTTP/1.1 400"));
    // Such as say nothing take a few places at most, and not for long.
    let silent: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(&of_server).unwrap())
        .collect();
    assert_shows(&of_server, &written);
    drop(silent);
    server.signal(Signal::TERM);
    let status = server.wait(LIMIT).expect("it ends");
    assert!(status.success(), "{status}");
}
