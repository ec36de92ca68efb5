//! A mount of its own for one program and what it starts: `ariel group without`.
//!
//! A kernel judges by what it has cached for a mount and a user, not for a process. So a program
//! that is to have less than its user has gets a mount of its own, with caches of its own. A user
//! may not mount: the daemon of the mount in whose place it is to be does it, and the user puts it
//! there in a namespace of his own.
//!
//! Guarantees: the program begins when all that it is not to have was given up; the mount is taken
//! from where the daemon has put it when the command ends, however that is, and ends with the last
//! process that sees it.

use crate::args::{GroupWithoutArgs, WithinArgs};
use crate::control::{self, Answer};
use crate::failure::Failure;
use crate::{daemon, group, login, run, runtime};
use anyhow::{Context, bail};
use cell::GroupDeed;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::clear_ambient_capability_set;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Mounts of a user, and in all, that one daemon has begun and that have not ended.
const OF_USER_MAX: usize = 8;
const ALL_MAX: usize = 64;
/// The mount that a program of such a tree does not see, and the one in its place.
const OF: &str = "ARIEL_APART_OF";
const AT: &str = "ARIEL_APART_AT";

/// The place of the mount that this process has to itself, if it has one.
pub(crate) fn own() -> Option<PathBuf> {
    std::env::var_os(AT).map(PathBuf::from)
}

/// The place by which the daemon of a mount knows it, which this process sees there.
pub(crate) fn seen_for(point: PathBuf) -> PathBuf {
    let of = std::env::var_os(OF).is_some_and(|of| Path::new(&of) == point);
    own().filter(|_| of).unwrap_or(point)
}

/// How many mounts each user has.
static BEGUN: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());
/// The number of the next one.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A mount that counts until this is dropped.
struct Counted(u32);

impl Counted {
    fn new(uid: u32) -> anyhow::Result<Counted> {
        let mut begun = BEGUN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = begun.get(&uid).copied().unwrap_or(0);
        if own >= OF_USER_MAX || begun.values().sum::<usize>() >= ALL_MAX {
            bail!(
                "a user has {OF_USER_MAX} such programs at a time, and a machine {ALL_MAX}: wait \
                 until one has ended"
            );
        }
        begun.insert(uid, own + 1);
        Ok(Counted(uid))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut begun = BEGUN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let left = begun
            .get(&self.0)
            .map_or(0, |count| count.saturating_sub(1));
        begun.insert(self.0, left);
        begun.retain(|_, count| *count > 0);
    }
}

/// The daemon's part: one more mount like its own, for as long as the asker stays on the line.
pub(crate) fn mount(words: &[OsString], of: &Path, question: &Value) -> Answer {
    let (words, of) = (words.to_vec(), of.to_owned());
    let uid = question["peer"].as_u64().unwrap_or(0) as u32;
    Answer::Lines(Box::new(move |stream| {
        let said = match begin(words, uid) {
            Ok(begun) => {
                let places = json!({ "at": begun.at, "of": of });
                let said = control::say(stream, &places);
                // He says nothing more: this waits for his end.
                let _ = (&**stream).read(&mut [0]);
                begun.end();
                said
            }
            Err(error) => control::say(stream, &control::refusal(format_args!("{error:#}"))),
        };
        if let Err(error) = said {
            tracing::debug!(%error, "the command that asked for a mount has gone");
        }
    }))
}

/// The names of the directories of such mounts begin so.
const PREFIX: &str = "apart-";

/// Is a mount there one that a program has for itself?
pub(crate) fn is_own(point: &Path) -> bool {
    let name = point.file_name().and_then(OsStr::to_str);
    let begins = name.is_some_and(|name| name.starts_with(PREFIX));
    begins
        && runtime::users_dirs()
            .iter()
            .any(|dir| point.parent() == Some(dir.as_path()))
}

/// A mount that a daemon has begun for somebody.
struct Begun {
    at: PathBuf,
    log: PathBuf,
    daemon: std::process::Child,
    counted: Counted,
}

fn begin(mut words: Vec<OsString>, uid: u32) -> anyhow::Result<Begun> {
    if uid == 0 {
        bail!("root has all rights, whatever groups it is in: run this as another user");
    }
    let counted = Counted::new(uid)?;
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let at = runtime::users_dir()?.join(format!("{PREFIX}{own}-{number}"));
    std::fs::create_dir(&at).with_context(|| at.display().to_string())?;
    let log = runtime::dir()?
        .join(runtime::of_mount(&at))
        .with_extension("log");
    let added: [OsString; 5] = [
        "--at".into(),
        at.clone().into(),
        "--log".into(),
        log.clone().into(),
        "--apart".into(),
    ];
    words.extend(added);
    match daemon::start(&words) {
        Ok((_, daemon)) => Ok(Begun {
            at,
            log,
            daemon,
            counted,
        }),
        Err(failure) => {
            let _ = std::fs::remove_dir(&at);
            bail!("the mount for it cannot be made: {failure}")
        }
    }
}

impl Begun {
    /// Takes it away from here. A program that sees it elsewhere goes on with it.
    fn end(self) {
        let Begun {
            at,
            log,
            mut daemon,
            counted,
        } = self;
        if let Err(error) = unmount(&at, UnmountFlags::DETACH) {
            tracing::warn!(%error, "{} cannot be unmounted", at.display());
        }
        let _ = std::fs::remove_dir(&at);
        let wait = move || {
            // Its own log says how it ended, if that was not in order.
            if daemon.wait().is_ok_and(|ended| ended.success()) {
                let _ = std::fs::remove_file(log);
            }
            drop(counted);
        };
        let waiting = thread::Builder::new().name("apart".into()).spawn(wait);
        if let Err(error) = waiting {
            tracing::warn!(%error, "nothing waits for the end of a mount");
        }
    }
}

/// The command's part.
pub(crate) fn without(args: &GroupWithoutArgs) -> Result<ExitCode, Failure> {
    let failed = |error: anyhow::Error| Failure::of("group without", format_args!("{error:#}"));
    let (line, places) = ask(args.mount.as_deref()).map_err(failed)?;
    let place = |name: &str| PathBuf::from(places[name].as_str().unwrap_or_default());
    let (of, at) = (place("of"), place("at"));
    for name in &args.groups {
        let (name, held) = (name.clone(), false);
        group::through(Some(&at), &GroupDeed::Hold { name, held }).map_err(failed)?;
    }
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-current-user",
        "--keep-caps",
        "--mount",
        "--",
    ]);
    command.arg(daemon::own_program()).arg("__within");
    command.arg(&of).arg(&at).arg("--").args(&args.program);
    command.env(OF, &of).env(AT, &at);
    let ended = run::to_its_end("group without", &mut command);
    drop(line);
    ended
}

/// A mount of one's own, for as long as the stream is open.
fn ask(dir: Option<&Path>) -> anyhow::Result<(UnixStream, Value)> {
    let stream = login::connect(dir)?;
    control::say(&stream, &json!({ "ask": "apart" }))?;
    let places = control::hear(&stream)?;
    match places["error"].as_str() {
        Some(error) => bail!("{error}"),
        None => Ok((stream, places)),
    }
}

/// In the namespace: puts the mount into the place of the other one, and becomes the program.
pub(crate) fn within(args: &WithinArgs) -> Result<ExitCode, Failure> {
    let what = "group without";
    let failed = |error: &dyn std::fmt::Display| Failure::of(what, error);
    let here = std::env::current_dir();
    mount_bind(&args.at, &args.of).map_err(|error| failed(&error))?;
    // It stands in the mount that is covered now.
    if let Some(here) = here.ok().filter(|here| here.starts_with(&args.of)) {
        std::env::set_current_dir(here).map_err(|error| failed(&error))?;
    }
    clear_ambient_capability_set().map_err(|error| failed(&error))?;
    let error = Command::new(&args.program[0])
        .args(&args.program[1..])
        .exec();
    let program = args.program[0].display();
    Err(failed(&format_args!("{program}: {error}")))
}
