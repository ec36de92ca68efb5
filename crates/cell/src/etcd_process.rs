//! A real etcd for tests, and servers that share it.
#![allow(clippy::unwrap_used)]

use super::Etcd;
use crate::members::LIFE_S;
use crate::{Cell, CellDoor, Location};
use net::clock;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long etcd may take to answer.
pub(super) const READY: Duration = Duration::from_secs(20);

/// A moment.
pub(super) struct Began(u64);

impl Began {
    pub(super) fn now() -> Began {
        Began(clock::now_ns())
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(clock::now_ns() - self.0)
    }
}

/// An etcd of this test.
pub(super) struct Process {
    child: Child,
    port: u16,
    /// It says here, as to systemd, when it is ready.
    ready: UnixDatagram,
    pub(super) dir: tempfile::TempDir,
}

/// The socket that it tells, in the directory of a test.
const NOTIFY: &str = "notify";

/// Ports that nobody else has at this moment.
fn free_ports() -> (u16, u16) {
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, other) = (listen(), listen());
    let port = |it: &TcpListener| it.local_addr().unwrap().port();
    (port(&one), port(&other))
}

fn spawn(dir: &Path, (port, peers): (u16, u16), scheme: &str) -> Child {
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(dir.join("etcd"));
    if scheme == "https" {
        let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        command.arg("--cert-file").arg(certificate);
        command.arg("--key-file").arg(key);
    }
    let peers = format!("http://127.0.0.1:{peers}");
    let clients = format!("{scheme}://127.0.0.1:{port}");
    for (option, url) in [
        ("--listen-client-urls", &clients),
        ("--advertise-client-urls", &clients),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
    ] {
        command.args([option, url]);
    }
    command.arg("--initial-cluster");
    command.arg(format!("default={peers}"));
    command
        .env("NOTIFY_SOCKET", dir.join(NOTIFY))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Process {
    /// `None`, said loudly, where there is no etcd.
    pub(super) fn start(test: &str) -> Option<Process> {
        Process::start_with(test, "http")
    }

    /// The same, over `https` with a certificate that no authority has made.
    pub(super) fn start_with(test: &str, scheme: &str) -> Option<Process> {
        let found = Command::new("etcd").arg("--version").output();
        if found.is_err() {
            let told = format!("{test}: etcd is missing: apt-get install etcd-server");
            assert!(std::env::var_os("CI").is_none(), "{told}");
            eprintln!("NOT TESTED: {told}");
            return None;
        }
        let (dir, ports) = (tempfile::tempdir().unwrap(), free_ports());
        let ready = UnixDatagram::bind(dir.path().join(NOTIFY)).unwrap();
        ready.set_read_timeout(Some(READY)).unwrap();
        let process = Process {
            child: spawn(dir.path(), ports, scheme),
            port: ports.0,
            ready,
            dir,
        };
        process.wait();
        Some(process)
    }

    /// Waits until it says that it is ready.
    fn wait(&self) {
        let mut word = [0; 64];
        let len = self.ready.recv(&mut word).expect("etcd is ready in time");
        assert_eq!(&word[..len], b"READY=1");
    }

    /// Starts it again at the same place.
    pub(super) fn start_again(&mut self) {
        let ports = (self.port, free_ports().0);
        self.child = spawn(self.dir.path(), ports, "http");
        self.wait();
    }

    /// Its place, as one that talks TLS.
    pub(super) fn secured(&self, ca: Option<&Path>) -> Location {
        let url = format!("etcds://localhost:{}", self.port);
        Location {
            url: url.parse().unwrap(),
            ca: ca.map(Path::to_path_buf),
            ..self.location("probe")
        }
    }

    pub(super) fn location(&self, prefix: &str) -> Location {
        Location {
            url: format!("etcd://127.0.0.1:{}/{prefix}", self.port)
                .parse()
                .unwrap(),
            ca: None,
            client: None,
            server: "one".into(),
            number: 0,
        }
    }

    pub(super) fn database(&self, prefix: &str) -> Etcd {
        Etcd::new(self.location(prefix)).unwrap()
    }

    /// A server of the cell in the database, and its directory.
    pub(super) fn server(&self, name: &str) -> (PathBuf, CellDoor) {
        let dir = self.dir.path().join(name);
        let location = Location {
            server: name.into(),
            ..self.location("cell")
        };
        match name {
            "one" => Cell::make_shared(&dir, &location, name).unwrap(),
            _ => {
                let number = Cell::number_server(&location).unwrap();
                let location = Location { number, ..location };
                Cell::join_shared(&dir, &location, name).unwrap();
            }
        }
        let door = CellDoor::open(&dir, LIFE_S).unwrap();
        door.tell_addresses(Some(&"127.0.0.1:1".parse().unwrap()))
            .unwrap();
        (dir, door)
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended in the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
