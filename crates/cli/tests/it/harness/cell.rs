//! A cell: a server process with its data, and the mounts of it. At its end everything is stopped
//! in order and `ariel fsck` must find the store clean.

use super::image::Image;
use super::mount::Mount;
use super::permits::{self, Permits};
use super::process::{COMMAND_LIMIT, Proc, ariel, ariel_named_by, run, run_within, stop, text};
use super::scratch::Scratch;
use super::watchdog::{Watch, WatchId};
use super::{can_mount, local, long};
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Names the program of servers, if it is another one than that of the tests.
const OF_SERVERS: &str = "ARIEL_IT_SERVER";

/// How long a server may take to be ready.
const READY: Duration = Duration::from_secs(20);
/// How long it may take to end cleanly.
const END: Duration = Duration::from_secs(30);

/// How long a check of what long forms of tests leave may take.
const FSCK_LONG: Duration = Duration::from_secs(600);

/// Without TLS.
pub const INSECURE: &str = "--insecure-loopback";

/// How a cell is to be.
pub struct CellOptions {
    /// A test that measures time works alone.
    pub alone: bool,
    /// The test has a cell already, and its turn with that: three tests that each waited for the
    /// turn of a second cell would wait for ever.
    pub second: bool,
    /// Nothing takes longer than this.
    pub limit: Duration,
    /// For the server's command line.
    pub serve_args: Vec<String>,
    /// The server's data is on a disk of its own, of this size.
    pub disk_mib: Option<u64>,
    /// It is on one that can lose its power, of this size.
    pub image_mib: Option<u64>,
}

impl Default for CellOptions {
    fn default() -> Self {
        Self {
            alone: false,
            second: false,
            limit: Duration::from_secs(240),
            serve_args: Vec::new(),
            disk_mib: None,
            image_mib: None,
        }
    }
}

/// The cell. Declare it before its mounts, so that it is dropped after them.
pub struct Cell {
    server: Option<Proc>,
    addr: String,
    serve_args: Vec<String>,
    expect_damage: bool,
    watch: Watch,
    disk: Option<Disk>,
    image: Option<Image>,
    scratch: Scratch,
    _permits: Permits,
}

/// A small disk, in memory.
struct Disk(PathBuf);

impl Disk {
    fn new(scratch: &Scratch, mib: u64) -> Self {
        let dir = scratch.dir("disk");
        let size = CString::new(format!("size={mib}m")).unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("ariel-it", &dir, "tmpfs", flags, size.as_c_str()).unwrap();
        Self(dir)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// The arguments of a server, whose clients lend to each other if all of the run are to.
fn with_cooperation(mut args: Vec<String>) -> Vec<String> {
    let said = args.iter().any(|word| word == "--cooperate");
    if let Some(policy) = std::env::var("ARIEL_IT_COOPERATE").ok().filter(|_| !said) {
        args.extend(["--cooperate".to_owned(), policy]);
    }
    args
}

impl Cell {
    /// A fresh cell; `None`, said loudly, where nothing can be mounted.
    pub fn start(name: &str) -> Option<Self> {
        Self::start_with(name, CellOptions::default())
    }

    pub fn start_with(name: &str, options: CellOptions) -> Option<Self> {
        if !can_mount(name) {
            return None;
        }
        let permits = permits::take(match (options.alone, options.second) {
            (_, true) => 0,
            (true, _) => permits::ALL,
            _ => 1,
        });
        let scratch = Scratch::new(name);
        let disk = options.disk_mib.map(|mib| Disk::new(&scratch, mib));
        let image = options.image_mib.map(|mib| Image::new(&scratch, mib));
        let mut cell = Self {
            server: None,
            addr: "127.0.0.1:0".to_owned(),
            serve_args: with_cooperation(options.serve_args),
            expect_damage: false,
            watch: Watch::new(name, options.limit),
            disk,
            image,
            scratch,
            _permits: permits,
        };
        cell.init();
        cell.start_server();
        Some(cell)
    }

    /// A directory of this test, on the local file system.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub fn watch(&self) -> WatchId {
        self.watch.id()
    }

    /// Where the server listens.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// The server's data.
    pub fn data(&self) -> PathBuf {
        match (&self.disk, &self.image) {
            (Some(disk), _) => disk.0.join("data"),
            (_, Some(image)) => image.path().join("data"),
            _ => self.scratch.join("data"),
        }
    }

    /// The server's log so far.
    pub fn server_log(&self) -> String {
        let bytes = std::fs::read(self.scratch.join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn mount(&self) -> Mount {
        self.mount_with(&[])
    }

    /// A mount with arguments for its command line.
    pub fn mount_with(&self, args: &[&str]) -> Mount {
        Mount::start(self, args)
    }

    /// Makes the cell proper: its server and its mounts speak over TLS, as everywhere.
    fn init(&self) {
        if !local() && !self.is_insecure() {
            let data = self.data();
            let words = ["cell", "init", "--data", data.to_str().unwrap()];
            let output = run(&mut ariel_named_by(OF_SERVERS, &words));
            assert!(
                output.status.success(),
                "ariel cell init: {}",
                text(&output)
            );
        }
    }

    /// Does everything of this cell speak without TLS?
    pub fn is_insecure(&self) -> bool {
        self.serve_args.iter().any(|word| word == INSECURE)
    }

    /// How a mount of the cell shows itself, for a command line.
    pub fn trust(&self) -> Vec<String> {
        if self.is_insecure() {
            return vec![INSECURE.to_owned()];
        }
        let dir = self.data().join("cell/machine");
        vec!["--credentials".to_owned(), dir.to_str().unwrap().to_owned()]
    }

    /// The server, for a client in the test's own process.
    pub fn server(&self) -> client::Server {
        let passage = if self.is_insecure() {
            net::Passage::InsecureLoopback
        } else {
            let shown = ::cell::Shown::of(&self.data().join("cell/machine"));
            net::Passage::Tls(std::sync::Arc::new(shown))
        };
        client::Server {
            addresses: self.addr().parse().unwrap(),
            passage,
        }
    }

    /// Starts the server, at the address of the first time.
    pub fn start_server(&mut self) {
        if local() {
            return;
        }
        let end = Instant::now() + READY;
        loop {
            match self.try_start() {
                Ok(addr) => {
                    self.addr = addr;
                    self.watch().server_is_back();
                    return;
                }
                Err(why) if Instant::now() >= end => {
                    panic!("the server does not start: {why}\n{}", self.server_log())
                }
                // The port may be taken by a connection of another test. Nothing tells when it is
                // free again, so this looks from time to time, until `end`.
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// The same at another address, which nobody has had before.
    pub fn start_elsewhere(&mut self) {
        // It would be given once more if nobody listened there.
        let taken = std::net::TcpListener::bind(&self.addr);
        self.addr = "127.0.0.1:0".to_owned();
        self.start_server();
        drop(taken);
    }

    fn try_start(&mut self) -> Result<String, String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.scratch.join("server.log"));
        let data = self.data();
        let mut args = vec![
            "serve",
            "--data",
            data.to_str().unwrap(),
            "--listen",
            &self.addr,
        ];
        args.extend(self.serve_args.iter().map(String::as_str));
        let mut command = ariel_named_by(OF_SERVERS, &args);
        command.stdout(Stdio::piped()).stderr(log.unwrap());
        let mut server = Proc::spawn(&mut command, Some(self.watch.id())).unwrap();
        let line = first_line(&mut server, READY)?;
        let addr = line.strip_prefix("listening on ");
        let addr = addr.ok_or_else(|| format!("the server's first line is {line:?}"))?;
        self.server = Some(server);
        Ok(addr.trim().to_owned())
    }

    /// Ends the server cleanly.
    pub fn stop_server(&mut self) {
        self.watch().server_goes();
        if let Some(mut server) = self.server.take() {
            server.signal(rustix::process::Signal::TERM);
            let status = server.wait(END);
            let status = status.unwrap_or_else(|| panic!("the server goes on after SIGTERM"));
            assert!(
                status.success(),
                "the server ended with {status}\n{}",
                self.server_log()
            );
        }
    }

    /// Ends the server and starts it again.
    pub fn restart(&mut self) {
        self.stop_server();
        self.start_server();
    }

    /// Ends the server as a power failure would end it.
    pub fn kill9(&mut self) {
        self.watch().server_goes();
        if let Some(mut server) = self.server.take() {
            server.kill9();
        }
    }

    /// The server's machine loses its power, with all that its disk has not been made to keep. It
    /// is back when this returns; the server is not.
    pub fn lose_power(&mut self) {
        // It says nothing of a disk that fails: a machine without power says nothing at all.
        self.stand();
        let image = self.image.as_ref().expect("its data is on an image");
        image.fail();
        if let Some(mut server) = self.server.take() {
            server.kill9();
        }
        image.come_back();
    }

    /// Stops the server's process until [`Cell::go_on`]; when this returns all its threads stand.
    pub fn stand(&mut self) {
        self.watch().server_goes();
        let server = self.server.as_mut().expect("a server runs");
        stop(server.child().id());
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        let server = self.server.as_mut().expect("a server runs");
        server.signal(rustix::process::Signal::CONT);
        self.watch().server_is_back();
    }

    /// Is the server still there?
    pub fn server_runs(&mut self) -> bool {
        self.server
            .as_mut()
            .is_some_and(|server| server.poll().is_none())
    }

    /// From now on `fsck` is expected to find damage.
    pub fn expect_damage(&mut self) {
        self.expect_damage = true;
    }

    /// Checks the store; its server must not run.
    pub fn fsck(&self) -> Output {
        let limit = if long() { FSCK_LONG } else { COMMAND_LIMIT };
        run_within(&mut ariel(&["fsck", self.data().to_str().unwrap()]), limit)
    }

    /// The store must be clean.
    pub fn assert_clean(&self) {
        if !local() {
            let output = self.fsck();
            assert!(output.status.success(), "ariel fsck: {}", text(&output));
        }
    }

    /// The last lines of everything that was logged, for a test that fails.
    fn tell_logs(&self) {
        let Ok(entries) = std::fs::read_dir(self.scratch.path()) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|e| e == "log") {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let log = String::from_utf8_lossy(&bytes);
                let lines: Vec<&str> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(30)..];
                println!("--- end of {}\n{}", path.display(), tail.join("\n"));
            }
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let stuck = self.watch().take_verdict();
        if std::thread::panicking() || stuck.is_some() {
            self.tell_logs();
            self.kill9();
            if !local() && self.data().exists() {
                println!("--- ariel fsck: {}", text(&self.fsck()));
            }
            assert!(std::thread::panicking() || stuck.is_none(), "{stuck:?}");
        } else {
            self.stop_server();
            if !self.expect_damage {
                self.assert_clean();
            }
        }
    }
}

/// The first line that a child prints, within a limit.
pub fn first_line(child: &mut Proc, limit: Duration) -> Result<String, String> {
    let stdout = child.child().stdout.take().expect("its output is a pipe");
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines();
        let _ = send.send(lines.next().transpose());
        // The pipe stays open and is read, so that the child can go on printing.
        lines.for_each(drop);
    });
    match receive.recv_timeout(limit) {
        Ok(Ok(Some(line))) => Ok(line),
        Ok(Ok(None)) => Err("it ended without a word".to_owned()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("it said nothing for {limit:?}")),
    }
}

/// Two mounts of one cell.
pub struct Pair {
    pub a: Mount,
    pub b: Mount,
    pub cell: Cell,
}

impl Pair {
    pub fn start(name: &str) -> Option<Self> {
        Self::start_with(name, CellOptions::default(), &[])
    }

    pub fn start_with(name: &str, options: CellOptions, mount_args: &[&str]) -> Option<Self> {
        let cell = Cell::start_with(name, options)?;
        let (a, b) = (cell.mount_with(mount_args), cell.mount_with(mount_args));
        Some(Self { a, b, cell })
    }

    /// The two mounts, the other way round in every second round.
    pub fn sides(&self, round: usize) -> (&Path, &Path) {
        let (a, b) = (self.a.path(), self.b.path());
        if round.is_multiple_of(2) {
            (a, b)
        } else {
            (b, a)
        }
    }
}
