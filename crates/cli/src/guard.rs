//! The guard: a second process that outlives a mount's daemon. When the daemon was killed, the
//! mount stays and answers ENOTCONN; the guard ends what hangs, tells the server, so that nobody
//! has to wait for the end of the dead client's lease, and mounts again: at once, or after a pause
//! that grows while the new daemon dies soon as well. It never uncovers what lies below the mount,
//! unless the daemon was told to end.
//!
//! A daemon in the foreground was started by something that sees its death, and starts it again:
//! `ariel mount` takes the place of a dead mount.
//!
//! The kernel gives the numbers of connections again, so the guard takes the control of its own one
//! at its beginning, and ends no other.

use crate::failure::Failure;
use crate::{control, daemon, log, runtime};
use cell::Shown;
use fuse::front::Mount;
use fuse::guard::{Daemon, Left};
use fuse::mount::{Control, MountId};
use net::{Addresses, Passage};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the guard tries to reach the server.
const BURIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the dead daemon may need to be gone, with its lock of the place.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// A daemon that has lived for so long did not die of how it was started.
const SETTLED: Duration = Duration::from_secs(60);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The daemon was told to end: its mount is to go with it.
const ENDING: &str = "ending";
/// The mount has one more session, or one at another server than before: its number and its server
/// follow.
const ALSO: &str = "also";
/// The first of the words that a guard adds to a command line.
const AGAIN: &str = "--again";

/// How the daemon is to be started again.
#[derive(Debug)]
pub(crate) struct Again {
    /// Its command line, without the program.
    pub(crate) words: Vec<OsString>,
    /// How often in a row it has died soon.
    pub(crate) deaths: u32,
    /// Where it logs, and its guard as well.
    pub(crate) log: PathBuf,
}

/// The daemon's end of it.
pub(crate) struct Guard {
    process: Mutex<Child>,
    ear: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard of a mount of this process.
    pub(crate) fn start(
        mount: &Mount,
        (credentials, again): (Option<PathBuf>, Option<Again>),
    ) -> io::Result<Guard> {
        let mut command = Command::new(daemon::own_program());
        command
            .arg("__guard")
            .arg(mount.mount_point())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let told = Told {
            pid: std::process::id().cast_signed(),
            canary: fuse::guard::canary()?,
            connection: mount.connection_id(),
            id: mount.id(),
            dir: mount.mount_point().to_owned(),
            server: mount.client().server(),
            credentials,
            // After the loss of a session the daemon has another one: its lease must end then.
            session: mount.client().session(),
            again,
        };
        let mut process = fuse::guard::start(command)?;
        let guard = Guard {
            ear: process.stdin.take(),
            process: Mutex::new(process),
        };
        guard.say(&told.to_json().to_string())?;
        Ok(guard)
    }

    fn say(&self, line: &str) -> io::Result<()> {
        let Some(mut ear) = self.ear.as_ref() else {
            return Ok(());
        };
        ear.write_all(format!("{line}\n").as_bytes())
    }

    /// The daemon was told to end: if it cannot remove its mount, the guard does.
    pub(crate) fn is_ending(&self) {
        let _ = self.say(ENDING);
    }

    /// The mount has a session with this server, which is told of the daemon's death: one more, or
    /// one that it had with another server before.
    pub(crate) fn also(&self, server: &Addresses, session: u64) {
        // A guard that has died tells nobody.
        let _ = self.say(&format!("{ALSO} {session} {server}"));
    }

    /// Ends the guard: there is nothing to guard any more.
    pub(crate) fn dismiss(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that it has ended already.
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// The guard's knowledge of the daemon.
#[derive(Debug)]
struct Told {
    pid: i32,
    canary: i32,
    connection: u32,
    id: MountId,
    dir: PathBuf,
    server: Addresses,
    /// Directory of the credential with which the server is reached; none: without TLS.
    credentials: Option<PathBuf>,
    session: u64,
    again: Option<Again>,
}

/// Paths and words need not be text.
fn bytes(text: &OsStr) -> Value {
    text.as_bytes().into()
}

fn text(value: &Value) -> Option<OsString> {
    let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
    let bytes: Option<Vec<u8>> = value.as_array()?.iter().map(byte).collect();
    bytes.map(OsString::from_vec)
}

/// The sessions of which the daemon has told later, and their servers, as it said last.
fn further(said: &str) -> BTreeMap<u64, Addresses> {
    let lines = said.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let is_also = words.next() == Some(ALSO);
        let session = words.next().filter(|_| is_also)?.parse().ok()?;
        Some((session, words.next()?.parse().ok()?))
    });
    lines.collect()
}

impl Told {
    /// The same machine at another server.
    fn at(&self, server: &Addresses) -> client::Server {
        client::Server {
            addresses: server.clone(),
            ..self.server()
        }
    }

    fn server(&self) -> client::Server {
        let passage = match &self.credentials {
            Some(dir) => Passage::Tls(Arc::new(Shown::of(dir))),
            None => Passage::InsecureLoopback,
        };
        client::Server {
            addresses: self.server.clone(),
            passage,
        }
    }

    fn to_json(&self) -> Value {
        let again = self.again.as_ref().map(|again| {
            let words: Vec<Value> = again.words.iter().map(|word| bytes(word)).collect();
            json!({ "words": words, "deaths": again.deaths, "log": bytes(again.log.as_os_str()) })
        });
        json!({
            "pid": self.pid,
            "canary": self.canary,
            "connection": self.connection,
            "mount": self.id.0,
            "dir": bytes(self.dir.as_os_str()),
            "server": self.server.to_string(),
            "credentials": self.credentials.as_ref().map(|dir| bytes(dir.as_os_str())),
            "session": self.session,
            "again": again,
        })
    }

    fn read(line: &str) -> Option<Told> {
        let said: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| said[name].as_u64();
        let again = match &said["again"] {
            Value::Null => None,
            again => Some(Again {
                words: again["words"]
                    .as_array()?
                    .iter()
                    .map(text)
                    .collect::<Option<_>>()?,
                deaths: again["deaths"].as_u64()? as u32,
                log: text(&again["log"])?.into(),
            }),
        };
        Some(Told {
            pid: number("pid")? as i32,
            canary: number("canary")? as i32,
            connection: number("connection")? as u32,
            id: MountId(number("mount")?),
            dir: text(&said["dir"])?.into(),
            server: said["server"].as_str()?.parse().ok()?,
            credentials: match &said["credentials"] {
                Value::Null => None,
                dir => Some(text(dir)?.into()),
            },
            session: number("session")?,
            again,
        })
    }
}

/// The pipe from the daemon: a line at the beginning, words later.
struct Ear(File);

impl Ear {
    fn open() -> io::Result<Ear> {
        let own = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Ear(own.into()))
    }

    /// The first line, once it is there. Later bytes are left.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.0.read(&mut byte)? == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// The words up to now. A daemon that cannot end keeps the pipe open.
    fn words(&mut self) -> String {
        let flags = fcntl_getfl(&self.0).unwrap_or(OFlags::empty());
        let mut said = String::new();
        if fcntl_setfl(&self.0, flags | OFlags::NONBLOCK).is_ok() {
            let mut bytes = [0; 256];
            while let Ok(len @ 1..) = self.0.read(&mut bytes) {
                said.push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        }
        said
    }
}

/// The guard itself.
pub(crate) fn guard() -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::of("guard", error);
    let mut ear = Ear::open().map_err(failed)?;
    let line = ear.line().map_err(failed)?;
    let told = Told::read(&line)
        .ok_or_else(|| Failure::of("guard", "started by `ariel mount`, and by nobody else"))?;
    if let Some(again) = &told.again {
        log::to_file();
        // Without its log it says what happens to the system's.
        let _ = log::use_file(&again.log);
    }
    let mount = (told.id, told.dir.as_path());
    let control = Control::of_mount(mount, told.connection).ok().flatten();
    let begin = Instant::now();
    // An error: it has died already.
    let daemon = Daemon::parent(told.pid, told.canary).ok();
    if let Some(daemon) = &daemon {
        daemon.await_death().map_err(failed)?;
    }
    let said = ear.words();
    let left = fuse::guard::cut(control.as_ref(), mount);
    if let Some(daemon) = &daemon
        && !daemon.await_end(END_TIMEOUT).map_err(failed)?
    {
        say(
            &told.dir,
            "its process has not ended, though nothing should keep it",
        );
    }
    control::remove_stale(&runtime::of_mount(&told.dir));
    let mut others = further(&said);
    let own = others.remove(&told.session);
    let others: Vec<_> = others
        .into_iter()
        .map(|(session, server)| {
            let server = told.at(&server);
            thread::spawn(move || client::close_session(server, session, BURIAL_TIMEOUT))
        })
        .collect();
    let (server, session) = (told.at(&own.unwrap_or(told.server.clone())), told.session);
    let burial = thread::spawn(move || client::close_session(server, session, BURIAL_TIMEOUT));
    match left {
        Left::Nothing => {}
        Left::DeadMount if said.contains(ENDING) => {
            fuse::mount::detach(&told.dir, told.id).map_err(|error| Failure::of("guard", error))?;
        }
        Left::DeadMount => see_to(&told, begin.elapsed()),
    }
    for other in others {
        if let Ok(Err(error)) = other.join() {
            say(
                &told.dir,
                &format!("another server is not told of that: {error}"),
            );
        }
    }
    match burial.join() {
        Ok(Ok(())) => Ok(ExitCode::SUCCESS),
        Ok(Err(error)) => Err(Failure::of("guard", error)),
        Err(_) => Err(Failure::of("guard", "the server could not be told")),
    }
}

/// Deals with a dead mount.
fn see_to(told: &Told, lived: Duration) {
    let what = "its process has died; the mount answers `Transport endpoint is not connected`";
    let Some(again) = &told.again else {
        let cure = "until it is mounted again by what has started it in the foreground";
        return say(&told.dir, &format!("{what} {cure}"));
    };
    if !rustix::process::geteuid().is_root() {
        let cure = "fusermount3 cannot mount again in its place: ariel umount, then ariel mount";
        return say(&told.dir, &format!("{what}; {cure}"));
    }
    say(&told.dir, &format!("{what} until it is mounted again"));
    let mut deaths = if lived < SETTLED { again.deaths } else { 0 };
    loop {
        let pause = pause(deaths);
        match fuse::mount::await_taken_away(&told.dir, told.id, pause) {
            Ok(false) => {}
            Ok(true) => return say(&told.dir, "the dead mount has been taken away"),
            Err(error) => return say(&told.dir, &format!("mounts cannot be seen: {error}")),
        }
        deaths += 1;
        match daemon::launch(&words(told, again, deaths)) {
            Ok(_) => return say(&told.dir, "mounted again"),
            Err(_) if !told.id.is_at(&told.dir) => {
                return say(&told.dir, "the dead mount has been taken away");
            }
            Err(failure) => {
                let next = self::pause(deaths).as_secs();
                let why = format!("it cannot be mounted again: {failure}; next try in {next} s");
                say(&told.dir, &why);
            }
        }
    }
}

/// How long to wait after so many deaths in a row.
fn pause(deaths: u32) -> Duration {
    match deaths {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1 << (deaths - 1).min(6)).min(PAUSE_MAX),
    }
}

/// The command line of the next daemon.
fn words(told: &Told, again: &Again, deaths: u32) -> Vec<OsString> {
    let mut words = again.words.clone();
    let added: [(&str, OsString); 4] = [
        (AGAIN, told.id.0.to_string().into()),
        ("--deaths", deaths.to_string().into()),
        ("--at", told.dir.clone().into()),
        ("--log", again.log.clone().into()),
    ];
    for (name, value) in added {
        words.extend([name.into(), value]);
    }
    words
}

/// The part of a command line that a guard has not added, for one more guard.
pub(crate) fn without_added(words: &[OsString]) -> Vec<OsString> {
    let of_people = words.iter().take_while(|word| *word != AGAIN);
    of_people
        .filter(|word| *word != "--detached")
        .cloned()
        .collect()
}

/// Says something of a mount to its log and to the system's.
fn say(dir: &Path, what: &str) {
    /// A daemon's warning (syslog(3)).
    const PRIORITY: u32 = (3 << 3) | 4;
    tracing::warn!("the mount at {}: {what}", dir.display());
    let line = format!(
        "<{PRIORITY}>ariel[{}]: the mount at {}: {what}",
        std::process::id(),
        dir.display()
    );
    // There may be no such log, as in most containers.
    let _ = UnixDatagram::unbound().and_then(|log| log.send_to(line.as_bytes(), "/dev/log"));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let word = OsString::from_vec(b"/m/\xff \n".to_vec());
        let told = |again| Told {
            pid: 5,
            canary: 6,
            connection: 7,
            id: MountId(1 << 63),
            dir: word.clone().into(),
            server: "127.0.0.1:9,a.example:1".parse().unwrap(),
            credentials: Some("/c".into()),
            session: u64::MAX,
            again,
        };
        let again = Again {
            words: vec!["mount".into(), word.clone()],
            deaths: 3,
            log: "/log".into(),
        };
        for told in [told(None), told(Some(again))] {
            let line = told.to_json().to_string();
            assert!(!line.contains('\n'));
            let read = Told::read(&line).unwrap();
            assert_eq!(format!("{read:?}"), format!("{told:?}"));
        }
        assert!(Told::read("").is_none() && Told::read("{}").is_none());
        let said = format!("{ALSO} 7 127.0.0.1:9,a.example:1\n{ENDING}\n{ALSO} x y\n{ALSO} 8\n");
        let addresses: Addresses = "127.0.0.1:9,a.example:1".parse().unwrap();
        assert_eq!(further(&said), BTreeMap::from([(7, addresses)]));
        // It has moved.
        let said = format!("{said}{ALSO} 5 a.example:2\n{ALSO} 7 a.example:2");
        let addresses: Addresses = "a.example:2".parse().unwrap();
        let at_both = BTreeMap::from([(5, addresses.clone()), (7, addresses)]);
        assert_eq!(further(&said), at_both);
    }

    #[test]
    fn pauses_grow_and_end_growing() {
        let seconds: Vec<u64> = (0..9).map(|deaths| pause(deaths).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX), PAUSE_MAX);
    }

    #[test]
    fn what_a_guard_adds_is_added_once() {
        let line: Vec<OsString> = ["mount", "127.0.0.1:1", "m"].map(OsString::from).to_vec();
        let again = Again {
            words: line.clone(),
            deaths: 0,
            log: "/log".into(),
        };
        let told = Told {
            pid: 1,
            canary: 2,
            connection: 3,
            id: MountId(4),
            dir: "/m".into(),
            server: "127.0.0.1:1".parse().unwrap(),
            credentials: None,
            session: 5,
            again: None,
        };
        let mut next = words(&told, &again, 1);
        next.push("--detached".into());
        assert_eq!(without_added(&next), line);
        assert!(next.contains(&"/m".into()));
    }
}
