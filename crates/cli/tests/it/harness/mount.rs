//! A mount: `ariel mount -f` as a child, unmounted at its end and proved to be gone, also when the
//! test fails.

use super::cell::{Cell, first_line};
use super::process::{Proc, ariel, ariel_named_by, run, stop, text};
use super::starts::closed_is_closed;
use super::watchdog::WatchId;
use super::{OF_ALL_MOUNTS, eventually, local, said, scratch, switch};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a mount may take to work, and to end.
const LIMIT: Duration = Duration::from_secs(30);

/// How long the kernel may take to let go of a mount that nobody uses any more.
const LETS_GO: Duration = Duration::from_secs(10);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Daemons that the tests have started: each second one is of another version, if one is given.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// The mount.
pub struct Mount {
    point: PathBuf,
    daemon: Option<Proc>,
    log: PathBuf,
}

impl Mount {
    /// Mounts the cell. In local mode every "mount" of a cell is the same directory.
    pub(super) fn start(cell: &Cell, args: &[&str]) -> Self {
        if local() {
            let split = std::env::var_os("ARIEL_IT_LOCAL").is_some_and(|v| v == "split");
            let number = if split {
                COUNT.fetch_add(1, Ordering::Relaxed)
            } else {
                0
            };
            let point = cell.scratch().dir(&format!("local-{number}"));
            return Self {
                point,
                daemon: None,
                log: PathBuf::new(),
            };
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let point = cell.scratch().dir(&format!("mount-{number}"));
        Self::start_at(cell, point, args)
    }

    /// Mounts the cell at a directory that is there.
    pub fn start_at(cell: &Cell, point: PathBuf, args: &[&str]) -> Self {
        Self::start_under(cell, point, (&[], args))
    }

    /// Mounts the cell with a daemon that these words start, which become it.
    pub fn start_by(cell: &Cell, by: &[&str]) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let point = cell.scratch().dir(&format!("mount-{number}"));
        Self::start_under(cell, point, (by, &[]))
    }

    /// The same, with the daemon started by another program, which becomes it.
    fn start_under(cell: &Cell, point: PathBuf, (by, args): (&[&str], &[&str])) -> Self {
        let name = point.file_name().unwrap().to_str().unwrap();
        let log = cell.scratch().join(&format!("{name}.log"));
        let mut words = vec!["mount", cell.addr(), point.to_str().unwrap(), "-f"];
        let trust = cell.trust();
        words.extend(trust.iter().map(String::as_str));
        words.extend(args);
        let said = OF_ALL_MOUNTS.map(|(variable, option)| (option, said(variable)));
        for (option, value) in &said {
            if let Some(value) = value.as_ref().filter(|_| !args.contains(option)) {
                words.extend([option, &**value]);
            }
        }
        // Needed until it is agreed.
        let _switch = words
            .contains(&"uring")
            .then(|| switch::hold(true).unwrap());
        let mut command = match by {
            [] => match STARTED.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => ariel(&words),
                _ => ariel_named_by("ARIEL_IT_OTHER_MOUNT", &words),
            },
            [program, more @ ..] => {
                let mut command = Command::new(program);
                command.args(more).arg(env!("CARGO_BIN_EXE_ariel"));
                command.args(&words).stdin(Stdio::null());
                command
            }
        };
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        command.stdout(Stdio::piped()).stderr(stderr);
        cell.watch().add_mount(&point);
        let mut daemon = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
        let line = first_line(&mut daemon, LIMIT);
        let mount = Self {
            point,
            daemon: Some(daemon),
            log,
        };
        let expected = format!("mounted {} at {}", cell.addr(), mount.point.display());
        assert_eq!(line.as_deref(), Ok(expected.as_str()), "{}", mount.log());
        assert!(
            scratch::is_mounted(&mount.point),
            "{} is no mount",
            mount.point.display()
        );
        mount
    }

    /// A mount on a machine whose clocks are wrong by so many seconds.
    pub fn with_wrong_clock(cell: &Cell, seconds: u32) -> Self {
        if local() {
            return cell.mount();
        }
        let point = cell.scratch().dir(&format!("wrong-{seconds}"));
        let ahead = seconds.to_string();
        let unshare = [
            "unshare",
            "--time",
            "--monotonic",
            &ahead,
            "--boottime",
            &ahead,
            "--",
        ];
        Self::start_under(cell, point, (&unshare, &[]))
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The daemon's process, unless in local mode.
    pub fn daemon(&mut self) -> &mut Proc {
        self.daemon.as_mut().expect("a real mount has a daemon")
    }

    /// Stops the daemon until [`Mount::go_on`]; when this returns all its threads stand. Nothing
    /// of the mount may be open in the test's own process: see [`super::holder`].
    pub fn stand(&mut self) {
        let open = open_here(&self.point);
        assert!(
            open.is_empty(),
            "each process that a test starts would wait for the stopped daemon: {open:?} are open"
        );
        // A child that another test has begun to start may have a copy of what was closed here: it
        // would wait for the daemon, and all that waits for such a child.
        closed_is_closed();
        let daemon = self.daemon();
        // Tells the judge of hangs, too.
        daemon.signal(Signal::STOP);
        stop(daemon.child().id());
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        self.daemon().signal(Signal::CONT);
    }

    /// For a mount that has ended by itself: there is nothing to unmount any more.
    pub fn forget(mut self) {
        self.daemon = None;
    }

    /// Ends the daemon as `kill -9` does. Its mount stays and answers that nobody is there, as a
    /// mount of the foreground does until somebody mounts again.
    pub fn kill9_and_stay(mut self) -> PathBuf {
        let mut daemon = self.daemon.take().expect("a real mount has a daemon");
        daemon.signal(rustix::process::Signal::KILL);
        let ended = daemon.wait(LIMIT);
        if ended.is_none() {
            scratch::force_unmount(&self.point);
        }
        assert!(ended.is_some(), "a killed daemon stays");
        assert!(is_dead(&self.point), "{} is alive", self.point.display());
        self.point.clone()
    }

    /// The same, and takes the dead mount away, as a person would.
    pub fn kill9(self) {
        let point = self.kill9_and_stay();
        let output = run(&mut ariel(&[Path::new("umount"), &point]));
        let gone = !scratch::is_mounted(&point);
        scratch::force_unmount(&point);
        assert!(output.status.success() && gone, "{}", text(&output));
    }

    fn end(&mut self, daemon: &mut Proc) -> Result<(), String> {
        closed_is_closed();
        let umount = || run(&mut ariel(&[Path::new("umount"), &self.point]));
        let mut output = umount();
        // The kernel keeps a mount in use until what a killed program asked is answered, and
        // nothing tells when it lets go.
        eventually(LETS_GO, || {
            let is_used = text(&output).contains("is in use");
            if is_used {
                output = umount();
            }
            !is_used
        });
        if !output.status.success() {
            return Err(format!("ariel umount: {}", text(&output)));
        }
        let status = daemon
            .wait(LIMIT)
            .ok_or("the daemon goes on after the unmount")?;
        if !status.success() {
            return Err(format!("the daemon ended with {status}"));
        }
        if scratch::is_mounted(&self.point) {
            return Err("the mount is still there".to_owned());
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        if std::thread::panicking() {
            // The mount itself may have failed: nothing is asked of it any more.
            scratch::force_unmount(&self.point);
            daemon.wait(Duration::from_secs(5));
            return;
        }
        let result = self.end(&mut daemon);
        scratch::force_unmount(&self.point);
        drop(daemon);
        if let Err(why) = result {
            panic!("{}: {why}\n{}", self.point.display(), self.log());
        }
    }
}

/// The files of a mount that this process has open.
fn open_here(point: &Path) -> Vec<PathBuf> {
    let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    // One that was closed meanwhile is not open.
    let files = own.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    files.filter(|file| file.starts_with(point)).collect()
}

/// Is nobody behind a mount? Only an answer of the kernel itself says so: it still shows its cache.
/// Requests that were under way over io_uring end with ECANCELED before that.
pub fn is_dead(point: &Path) -> bool {
    let not_connected = Some(rustix::io::Errno::NOTCONN.raw_os_error());
    let is_told = || match File::create(point.join("nobody makes it")) {
        Ok(_) => panic!("{} can be written to", point.display()),
        Err(error) => error.raw_os_error() == not_connected,
    };
    eventually(Duration::from_secs(20), is_told)
}

/// A mount in the background, as people have them. Dropped, it is gone, with its guard.
pub struct Background {
    point: PathBuf,
    log: PathBuf,
    watch: WatchId,
}

impl Background {
    pub fn start(cell: &Cell, name: &str, args: &[&str]) -> Self {
        let point = cell.scratch().dir(name);
        cell.watch().add_mount(&point);
        let log = cell.scratch().join(&format!("{name}.log"));
        let watch = cell.watch();
        let mount = Self { point, log, watch };
        let mut words = vec!["mount", cell.addr(), mount.point.to_str().unwrap()];
        let trust = cell.trust();
        words.extend(trust.iter().map(String::as_str));
        words.extend(["--log", mount.log.to_str().unwrap()]);
        words.extend(args);
        let output = run(&mut ariel(&words));
        assert!(output.status.success(), "{}", text(&output));
        mount
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The status of its daemon; `None` while there is none.
    pub fn status(&self) -> Option<serde_json::Value> {
        let words = [Path::new("status"), Path::new("--json"), &self.point];
        let output = run(&mut ariel(&words));
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Number of the daemon's process.
    pub fn process(&self) -> i32 {
        let status = self.status().expect("a mount that works");
        i32::try_from(status["pid"].as_i64().unwrap()).unwrap()
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: rustix::process::Signal) {
        self.watch.disturbed();
        kill_process(Pid::from_raw(self.process()).unwrap(), signal).unwrap();
    }

    /// Ends the guard as `kill -9` does.
    pub fn kill_guard(&self) {
        for guard in self.guards() {
            kill_process(guard, Signal::KILL).unwrap();
        }
    }

    /// The guards of this mount point: by their command lines, since they outlive daemons.
    fn guards(&self) -> Vec<Pid> {
        let wanted = format!("__guard\0{}\0", self.point.display());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let guards = processes.filter(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).ends_with(&wanted)
        });
        let number = |name: std::ffi::OsString| name.to_str()?.parse().ok();
        guards
            .filter_map(|guard| Pid::from_raw(number(guard.file_name())?))
            .collect()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Nothing is to mount again what is taken away now.
        self.kill_guard();
        if !std::thread::panicking() && scratch::is_mounted(&self.point) {
            let output = run(&mut ariel(&[Path::new("umount"), &self.point]));
            assert!(output.status.success(), "{}", text(&output));
        }
        scratch::force_unmount(&self.point);
    }
}
