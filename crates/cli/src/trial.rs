//! A cell to try things on: a server and its mounts, in a directory of their own, that can be
//! killed.
//!
//! Guarantees: processes started here are ended here, in order, whatever the outcome; a kill is
//! over when the killed process works again; nothing is removed through a mount. The end of the
//! cell also checks its store.

use crate::args::Cooperation;
use crate::child::wait_within;
use crate::{membership, trust};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a server or a mount may take to work.
const READY: Duration = Duration::from_secs(60);
/// How long one may take to end.
const END: Duration = Duration::from_secs(60);

/// A server or a mount in the foreground. In a process group of its own: a Ctrl-C at the terminal
/// is for the process that started them, which ends them.
struct Daemon {
    what: String,
    child: Child,
}

impl Daemon {
    /// Starts one; gives what it says when it works.
    fn start(what: &str, arguments: &[OsString], log: &Path) -> Result<(Daemon, String), String> {
        let cannot = |error: std::io::Error| format!("{what} cannot be started: {error}");
        let append = File::options().create(true).append(true).open(log);
        let mut child = Command::new(std::env::current_exe().map_err(cannot)?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(append.map_err(cannot)?)
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let stdout = child.stdout.take();
        let daemon = Daemon {
            what: what.to_owned(),
            child,
        };
        let (send, said) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = stdout
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines());
            let _ = send.send(lines.next());
            lines.for_each(drop);
        });
        match said.recv_timeout(READY) {
            Ok(Some(Ok(line))) => Ok((daemon, line)),
            _ => {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let last = log.lines().last().unwrap_or("it said nothing").to_owned();
                Err(format!("{what} does not start: {last}"))
            }
        }
    }

    fn kill(&mut self) -> Result<(), String> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .map(drop)
            .map_err(|error| format!("{}: {error}", self.what))
    }

    /// Asks for the end and waits for it; an error when it was not a clean one.
    fn stop(&mut self) -> Result<(), String> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32)
            && matches!(self.child.try_wait(), Ok(None))
        {
            // Fails only if it has just ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        match wait_within(&mut self.child, END) {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(format!("{} ended with {status}", self.what)),
            Ok(None) => Err(format!("{} does not end", self.what)),
            Err(error) => Err(format!("{}: {error}", self.what)),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // In an orderly end there is nothing left to kill.
            let _ = self.kill();
        }
    }
}

/// How the mounts of a cell reach its server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    Tls,
    /// Plain, on loopback.
    Insecure,
}

/// How a cell is.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) passage: Passage,
    pub(crate) cooperation: Cooperation,
    /// Snapshots of its tree, made before anything else is done.
    pub(crate) snapshots: u32,
}

impl From<Passage> for Kind {
    fn from(passage: Passage) -> Kind {
        Kind {
            passage,
            cooperation: Cooperation::default(),
            snapshots: 0,
        }
    }
}

/// The flag that makes a server or a mount go without TLS.
const INSECURE: &str = "--insecure-loopback";

/// The cell.
pub(crate) struct Cell {
    dir: PathBuf,
    kind: Kind,
    addr: String,
    server: Daemon,
    mounts: Vec<Mount>,
}

/// One of its mounts.
struct Mount {
    point: PathBuf,
    /// How it is mounted: flags of `ariel mount`.
    how: Vec<OsString>,
    daemon: Daemon,
}

impl Cell {
    /// Starts a server and mounts with these flags, below a directory that is made for them.
    pub(crate) fn start(dir: &Path, mounts: &[Vec<OsString>], kind: Kind) -> Result<Cell, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        std::fs::create_dir(dir).map_err(failed)?;
        membership::init(&dir.join("data"), Some("torture")).map_err(|why| why.to_string())?;
        let (server, addr) = serve(dir, "127.0.0.1:0", kind)?;
        let mut cell = Cell {
            dir: dir.to_owned(),
            kind,
            addr,
            server,
            mounts: Vec::new(),
        };
        for (number, how) in (1..).zip(mounts) {
            let point = dir.join(format!("mount-{number}"));
            std::fs::create_dir(&point).map_err(failed)?;
            let daemon = cell.mount(&point, how)?;
            let how = how.clone();
            cell.mounts.push(Mount { point, how, daemon });
        }
        cell.make_snapshots()?;
        Ok(cell)
    }

    /// Makes the snapshots: a file is changed through the first mount before each, so that no two
    /// are of the same tree.
    fn make_snapshots(&self) -> Result<(), String> {
        let Some(mount) = self.mounts.first() else {
            return Ok(());
        };
        let changed = mount.point.join("changed");
        for number in 1..=self.kind.snapshots {
            let written = std::fs::write(&changed, number.to_string());
            written.map_err(|error| format!("{}: {error}", changed.display()))?;
            self.make_snapshot(&format!("s{number}"))?;
        }
        Ok(())
    }

    fn make_snapshot(&self, name: &str) -> Result<(), String> {
        let failed = |why: &dyn std::fmt::Display| format!("snapshot {name}: {why}");
        let exe = std::env::current_exe().map_err(|error| failed(&error))?;
        let output = Command::new(exe)
            .args(["volume", "snapshot", &self.addr, "root", name])
            .args(self.passage())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(&error))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(&String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// The flags by which a command or a mount reaches the server.
    fn passage(&self) -> Vec<OsString> {
        match self.kind.passage {
            Passage::Tls => vec!["--credentials".into(), Cell::credentials(&self.data())],
            Passage::Insecure => vec![INSECURE.into()],
        }
    }

    /// The mount points.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let points = self.mounts.iter().map(|mount| mount.point.clone());
        points.collect()
    }

    fn mount(&self, point: &Path, how: &[OsString]) -> Result<Daemon, String> {
        let mut arguments: Vec<OsString> = vec![
            "mount".into(),
            self.addr.as_str().into(),
            point.into(),
            "--foreground".into(),
        ];
        arguments.extend(self.passage());
        arguments.extend_from_slice(how);
        let what = format!("the mount at {}", point.display());
        let log = point.with_extension("log");
        Daemon::start(&what, &arguments, &log).map(|(daemon, _)| daemon)
    }

    /// Kills the server and starts it again.
    pub(crate) fn kill_server(&mut self) -> Result<(), String> {
        self.server.kill()?;
        self.server = serve(&self.dir, &self.addr, self.kind)?.0;
        Ok(())
    }

    /// Kills the client behind a mount point and mounts again.
    pub(crate) fn kill_client(&mut self, point: &Path) -> Result<(), String> {
        let at = self.at(point)?;
        self.mounts[at].daemon.kill()?;
        // The dead mount stays, and the new one takes its place.
        self.mounts[at].daemon = self.mount(point, &self.mounts[at].how)?;
        Ok(())
    }

    /// Takes a mount away in order and mounts again.
    pub(crate) fn remount(&mut self, point: &Path) -> Result<(), String> {
        let at = self.at(point)?;
        self.mounts[at].daemon.stop()?;
        self.mounts[at].daemon = self.mount(point, &self.mounts[at].how)?;
        Ok(())
    }

    /// Where its mounts find their credential, also while the server is dead.
    fn credentials(data: &Path) -> OsString {
        let dir = trust::cell_dir(data);
        cell::Cell::credentials(&dir, cell::Role::Machine).into()
    }

    fn at(&self, point: &Path) -> Result<usize, String> {
        let known = self.mounts.iter().position(|mount| mount.point == point);
        known.ok_or_else(|| format!("{} is no mount of the cell", point.display()))
    }

    /// The processes of the server, and of the client behind a mount point.
    pub(crate) fn processes(&self, point: &Path) -> Result<(u32, u32), String> {
        let client = &self.mounts[self.at(point)?].daemon;
        Ok((self.server.child.id(), client.child.id()))
    }

    /// Ends everything in order and checks the store; all that was not in order.
    pub(crate) fn end(mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for mount in &mut self.mounts {
            faults.extend(mount.daemon.stop().err());
        }
        faults.extend(self.server.stop().err());
        match store::fsck(&self.data()) {
            Ok(report) => {
                let told = |damage: &store::Damage| format!("the store is damaged: {damage}");
                faults.extend(report.damages.iter().map(told));
            }
            Err(error) => faults.push(format!("the store cannot be checked: {error}")),
        }
        faults
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
}

/// Removes the directory of a cell that has ended, unless something is still mounted in it.
pub(crate) fn remove(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none() && !path.ends_with("data") {
            // A mount point; fails for one in use.
            std::fs::remove_dir(path)?;
        }
    }
    std::fs::remove_dir_all(dir)
}

/// The cell as several threads share it: one kills, one ends it, one is asked to end early.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Option<Cell>>>);

impl Shared {
    pub(crate) fn new(cell: Cell) -> Shared {
        Shared(Arc::new(Mutex::new(Some(cell))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Cell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the cell while it lives.
    pub(crate) fn with(
        &self,
        work: impl FnOnce(&mut Cell) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut cell = self.lock();
        work(cell.as_mut().ok_or("the cell has been ended")?)
    }

    /// Ends the cell, or waits until somebody else has.
    pub(crate) fn end(&self) -> Vec<String> {
        let mut cell = self.lock();
        cell.take().map(Cell::end).unwrap_or_default()
    }
}

/// Starts the server; it and its address.
fn serve(dir: &Path, addr: &str, kind: Kind) -> Result<(Daemon, String), String> {
    let mut arguments: Vec<OsString> = vec![
        "serve".into(),
        "--data".into(),
        dir.join("data").into(),
        "--listen".into(),
        addr.into(),
        "--cooperate".into(),
        kind.cooperation.word().into(),
    ];
    if kind.passage == Passage::Insecure {
        arguments.push(INSECURE.into());
    }
    let (server, line) = Daemon::start("the server", &arguments, &dir.join("server.log"))?;
    match line.strip_prefix("listening on ") {
        Some(addr) => Ok((server, addr.to_owned())),
        None => Err(format!("the server says {line:?}")),
    }
}
