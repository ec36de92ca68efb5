//! Machines of a test: network namespaces joined by a bridge, each with a name, an address of each
//! family, and its own /etc/ariel, /run/ariel, /srv and /mnt.

use super::cell::first_line;
use super::process::{Proc, run, run_within, text};
use super::scratch::set_mode;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Longer than any command of a test takes.
const LIMIT: Duration = Duration::from_secs(60);
/// The directories that each machine has for itself.
const OWN: [&str; 5] = [
    "/etc/ariel",
    "/run/ariel",
    "/run/ariel-users",
    "/srv",
    "/mnt",
];

/// One of them: a process that does nothing keeps its namespaces.
struct Machine {
    name: String,
    space: String,
    holder: Proc,
}

/// The network that the machines share. Its end takes all of them away.
pub struct Machines {
    tag: String,
    machines: Vec<Machine>,
    shared: tempfile::TempDir,
}

fn ip(words: &[&str]) {
    let output = run(Command::new("ip").args(words));
    assert!(output.status.success(), "ip {words:?}: {}", text(&output));
}

impl Machines {
    /// Machines of these names, in a network.
    pub fn new(names: &[&str]) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("a{}x{number}", std::process::id());
        ip(&["netns", "add", &tag]);
        let mut machines = Self {
            shared: tempfile::tempdir().unwrap(),
            machines: Vec::new(),
            tag,
        };
        ip(&[
            "-n",
            &machines.tag,
            "link",
            "add",
            "bridge0",
            "type",
            "bridge",
        ]);
        ip(&["-n", &machines.tag, "link", "set", "bridge0", "up"]);
        let line = |(at, name): (usize, &&str)| format!("10.77.0.{} {name}\n", at + 1);
        let hosts: String = names.iter().enumerate().map(line).collect();
        std::fs::write(
            machines.path().join("hosts"),
            format!("127.0.0.1 localhost\n{hosts}"),
        )
        .unwrap();
        names.iter().for_each(|name| machines.add(name));
        machines
    }

    fn add(&mut self, name: &str) {
        let space = format!("{}-{name}", self.tag);
        let last = self.machines.len() + 1;
        ip(&["netns", "add", &space]);
        let far = format!("v{last}");
        let link = ["link", "add", "eth0", "type", "veth", "peer", "name"];
        let to = [far.as_str(), "netns", &self.tag];
        ip(&[&["-n", space.as_str()], &link[..], &to].concat());
        ip(&[
            "-n", &self.tag, "link", "set", &far, "master", "bridge0", "up",
        ]);
        let (four, six) = (format!("10.77.0.{last}/24"), format!("fd77::{last}/64"));
        ip(&["-n", &space, "addr", "add", &four, "dev", "eth0"]);
        ip(&["-n", &space, "addr", "add", &six, "dev", "eth0", "nodad"]);
        ip(&["-n", &space, "link", "set", "eth0", "up"]);
        ip(&["-n", &space, "link", "set", "lo", "up"]);
        let mut script = format!(
            "hostname {name} && mount --bind {}/hosts /etc/hosts",
            self.path().display()
        );
        for (at, dir) in OWN.iter().enumerate() {
            let own = self.path().join(name).join(at.to_string());
            std::fs::create_dir_all(&own).unwrap();
            // Sockets are kept in nothing that others may look into; users come to their mounts.
            set_mode(&own, if *dir == "/srv" { 0o755 } else { 0o700 });
            script += &format!(" && mkdir -p {dir} && mount --bind {} {dir}", own.display());
        }
        script += " && echo ready && exec sleep 100000";
        let mut holder = Command::new("nsenter");
        holder.arg(format!("--net=/run/netns/{space}"));
        holder.args(["unshare", "--uts", "--mount", "--propagation", "private"]);
        holder.args(["sh", "-c", &script]).stdout(Stdio::piped());
        let mut holder = Proc::spawn(&mut holder, None).unwrap();
        let ready = first_line(&mut holder, LIMIT).unwrap();
        assert_eq!(ready, "ready", "{name}");
        self.machines.push(Machine {
            name: name.to_owned(),
            space,
            holder,
        });
    }

    /// Makes a cell: one machine serves `data`, in a shell that has done `first`; the others join.
    pub fn make_cell(&mut self, (server, clients): (&str, &[&str]), data: &str, first: &str) {
        self.must(server, &format!("ariel cell init --data {data}"));
        let serve = format!("ariel serve --data {data} --listen 0.0.0.0:7070 --daemon");
        self.must(server, &format!("{first} && exec {serve}"));
        let token = format!("ariel join-token --data {data} --expires 1h");
        let uses = clients.len();
        self.must(server, &format!("{token} --uses {uses} > line"));
        for client in clients {
            self.must(client, "ariel join < line");
        }
    }

    /// Each machine sends and gets so many bits in a second at most, from now on.
    pub fn slow(&self, mbit: u32) {
        let rate = format!("{mbit}mbit");
        let held = |space: &str, device: &str| {
            let mut tc = Command::new("tc");
            tc.args(["-n", space, "qdisc", "replace", "dev", device, "root"]);
            tc.args(["tbf", "rate", &rate, "burst", "256kb", "latency", "50ms"]);
            let output = run(&mut tc);
            assert!(output.status.success(), "{device}: {}", text(&output));
        };
        for (at, machine) in self.machines.iter().enumerate() {
            held(&machine.space, "eth0");
            held(&self.tag, &format!("v{}", at + 1));
        }
    }

    /// A directory that all machines see, where their commands run.
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    fn holder(&mut self, name: &str) -> u32 {
        let mut machines = self.machines.iter_mut();
        let machine = machines.find(|machine| machine.name == name);
        let machine = machine.unwrap_or_else(|| panic!("there is no machine {name}"));
        machine.holder.child().id()
    }

    /// The place at which the test sees this path of a machine, mounts included.
    pub fn at(&mut self, name: &str, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.holder(name)))
    }

    /// A command of the shell, on a machine.
    pub fn command(&mut self, name: &str, line: &str) -> Command {
        let holder = self.holder(name).to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &holder, "--net", "--uts", "--mount"]);
        command.arg(format!("--wd={}", self.path().display()));
        command.args(["sh", "-c", line]).stdin(Stdio::null());
        let bin = Path::new(env!("CARGO_BIN_EXE_ariel")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    }

    /// Sends a signal to the one process of a machine whose command line begins with these words.
    pub fn signal(&mut self, name: &str, words: &str, signal: Signal) {
        let machine = self.machines.iter().find(|machine| machine.name == name);
        let space = &machine.expect("there is such a machine").space;
        let line = |pid: &Pid| {
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
            String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ")
        };
        let mut all = pids(space);
        all.retain(|pid| {
            let line = line(pid);
            let program = line.split(' ').next().unwrap_or_default().len();
            let base = line[..program].rfind('/').map_or(0, |at| at + 1);
            line[base..].starts_with(words)
        });
        assert_eq!(all.len(), 1, "{name}: {words}");
        kill_process(all[0], signal).unwrap();
    }

    /// Runs it to its end.
    pub fn run(&mut self, name: &str, line: &str) -> Output {
        run_within(&mut self.command(name, line), LIMIT)
    }

    /// Runs a command that must succeed; returns its output.
    pub fn must(&mut self, name: &str, line: &str) -> String {
        let output = self.run(name, line);
        assert!(output.status.success(), "{name}: {line}\n{}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs what must be refused, with these words.
    pub fn refused(&mut self, name: &str, line: &str, words: &[&str]) {
        let output = self.run(name, line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success(),
            "{name}: {line}: {}",
            text(&output)
        );
        for word in words {
            assert!(told.contains(word), "{name}: {line}: {told} lacks {word:?}");
        }
    }
}

/// The processes of a namespace.
fn pids(space: &str) -> Vec<Pid> {
    let found = run(Command::new("ip").args(["netns", "pids", space]));
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    let pids = found.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

/// Kills what runs in a namespace; how much that was.
fn kill_all(space: &str) -> usize {
    let mut killed = 0;
    for pid in pids(space) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::KILL);
        killed += 1;
    }
    killed
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in &mut self.machines {
            // Daemons that the test has not ended, and what guards start in their place.
            while kill_all(&machine.space) > 1 {}
            machine.holder.kill9();
            run(Command::new("ip").args(["netns", "del", &machine.space]));
        }
        run(Command::new("ip").args(["netns", "del", &self.tag]));
    }
}
