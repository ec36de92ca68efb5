//! `ariel mount`: a mount as a process, in the foreground or as a daemon.

use crate::args::{Cache, MountArgs, Opens, RemountArgs, Transport};
use crate::control::{self, Listener};
use crate::end::End;
use crate::failure::{Failure, NOT_RUN};
use crate::guard::{self, Again, Guard};
use crate::login::{Logins, Of};
use crate::place::Place;
use crate::servers::{OfMount, Running};
use crate::trace::relay as accesses;
use crate::watch::relay;
use crate::{daemon, end, log, metrics, paths, profile, runtime, servers, service, show, trust};
use cell::Renewal;
use client::{LeaveError, Owed};
use fuse::front::{Keeping, Mount, MountError, MountOptions, Servers};
use fuse::mount::MountId;
use net::Addresses;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long the end may take while not one changed block gets to the server: a machine that shuts
/// down gives its processes a minute or more, and others behind this one want some of it.
const END_TIME: Duration = Duration::from_secs(10);
/// How often that is looked at.
const END_STEP: Duration = Duration::from_millis(500);
/// A helper of mount(8) says that it waits when it has waited for so long; mount(8) is silent.
const LONG_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn mount(args: MountArgs, words: &[OsString]) -> Result<ExitCode, Failure> {
    let without = args.without.unwrap_or_default();
    if args.transport == Transport::Uring && without.has(fuse::Feature::Uring) {
        let what = "--transport uring and --without uring contradict each other: leave one out";
        return Err(Failure::new(NOT_RUN, format_args!("mount: {what}")));
    }
    let dir = args.again.at.as_ref().unwrap_or(&args.dir);
    // Where even that fails, mounting says why.
    let point = paths::mount_point(dir).unwrap_or_else(|_| dir.clone());
    if !args.foreground && !args.detached {
        // The new process takes the place again, and would wait without a word.
        let begin = Instant::now();
        let say = |text: &str| {
            if !args.quiet || begin.elapsed() >= LONG_WAIT {
                drop(writeln!(std::io::stderr(), "ariel: {text}"));
            }
        };
        drop(Place::take(&point, say)?);
        let line = daemon::launch(words)?;
        if !args.quiet {
            let log = log_file(&args, &point)?;
            show::print(&format!("{line}\nlog: {}", log.display()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.detached {
        daemon::detach()?;
        log::to_file();
        let file = log_file(&args, &point)?;
        log::use_file(&file).map_err(|error| Failure::of(&file.display().to_string(), error))?;
    } else {
        log::to_stderr("info");
    }
    log::end_on_panic();
    let (send, receive) = end::channel("mount", args.detached || service::is_managed())?;
    // Held until the process ends.
    let _place = Place::take(&point, |text| tracing::info!("{text}"))?;
    let (addresses, known, (server, credentials)) = reach(&args)?;
    let _renewal = credentials
        .as_deref()
        .map(|dir| keep_fresh(dir, &addresses));
    let servers = credentials.as_deref();
    let servers = servers.map(|dir| Arc::new(OfMount::new(&args.source.server, known, dir)));
    let mount = start(&args, (&point, server), servers.clone())?;
    let again = again(&args, (&point, credentials.as_deref()), words)?;
    let logins = credentials.as_deref();
    let logins = logins.and_then(|dir| take_logins(&mount, dir, (&args, &point), words));
    let guard = start_guard((&mount, servers.as_deref()), (credentials, again));
    let control = listen(&mount, &args, &point, send.clone());
    serve_metrics(&mount, &args, &point)?;
    watch(&mount, send).map_err(|error| Failure::of("mount", error))?;
    daemon::ready(&format!("mounted {addresses} at {}", dir.display()))?;
    if args.detached {
        daemon::let_go()?;
    }
    let answering = Arc::downgrade(&mount);
    service::watch(move || {
        let mount = answering.upgrade();
        mount.is_some_and(|mount| mount.client().figures().slots > 0)
    });
    let ended = wait(&mount, guard.as_deref(), receive);
    // Else the guard finds this process dead, and sees to the mount.
    if !mount.is_mounted()
        && let Some(guard) = guard
    {
        guard.dismiss();
    }
    drop((control, logins));
    ended.map(|()| ExitCode::SUCCESS)
}

/// The server that is to be mounted from, the servers of its cell that were asked, and how it is
/// reached.
type Reached = (Addresses, Running, (client::Server, Option<PathBuf>));

/// The server that has the volume, and the directory of the credential for it.
fn reach(args: &MountArgs) -> Result<Reached, Failure> {
    let at = (&args.trust, args.volume.as_ref());
    let (addresses, known) = servers::with_servers("mount", &args.source.server, at)?;
    let reached = trust::server("mount", &addresses, &args.trust)?;
    Ok((addresses, known, reached))
}

/// `mount -o remount,...`.
pub(crate) fn remount(args: &RemountArgs) -> Result<ExitCode, Failure> {
    let done = fuse::mount::remount(&args.dir, &args.words);
    done.map_err(|error| Failure::of("mount", error))?;
    Ok(ExitCode::SUCCESS)
}

/// Renews the credential before it expires. Where that cannot be, another process may.
fn keep_fresh(dir: &Path, servers: &Addresses) -> Option<Renewal> {
    Renewal::start(dir, servers.clone())
        .inspect_err(|error| tracing::warn!(%error, "the certificate is not renewed"))
        .ok()
}

/// The name of a mount for people, by which the cell knows it, too.
fn name(point: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), point.display())
}

fn options(args: &MountArgs, (point, server): (&Path, client::Server)) -> MountOptions {
    MountOptions {
        dir: point.to_owned(),
        server,
        transport: match args.transport {
            Transport::Auto => fuse::Transport::Auto,
            Transport::Uring => fuse::Transport::Uring,
            Transport::Dev => fuse::Transport::Device,
        },
        without: args.without.unwrap_or_default(),
        threads: args.threads as usize,
        silent_opens: args.opens == Opens::Silent,
        flags: match args.trusted {
            true => args.flags.unwrap_or_default().trusting(),
            false => args.flags.unwrap_or_default(),
        },
        replaces: args.again.replaces.map(MountId),
        keeping: match args.cache {
            Cache::Exact => Keeping::Exact,
            Cache::Ttl(time) => Keeping::Timed(time),
        },
        interruptible: args.intr,
        timeout_ns: args.timeout.filter(|ns| *ns > 0),
        cache: args.memory.size(),
        write_delay_ns: args.write_delay,
        name_delay_ns: args.name_delay,
        volume: args.volume.as_ref().map(ToString::to_string),
        part: args.source.part.clone(),
        servers: None,
        hides_snapshots: args.hide_snapshots,
        lends: args.lend.lends(),
        lend_limits: args.lend.limits(),
        name: name(point),
    }
}

const CREDENTIALS: &str = "--credentials";

/// Where the daemon logs.
fn log_file(args: &MountArgs, point: &Path) -> Result<PathBuf, Failure> {
    let chosen = args.log.as_deref().map(std::path::absolute).transpose();
    match chosen.map_err(|error| Failure::of("--log", error))? {
        Some(file) => Ok(file),
        None => Ok(runtime::dir()?
            .join(runtime::of_mount(point))
            .with_extension("log")),
    }
}

/// How a daemon is started again by its guard; one in the foreground is not.
fn again(
    args: &MountArgs,
    (point, credentials): (&Path, Option<&Path>),
    words: &[OsString],
) -> Result<Option<Again>, Failure> {
    if !args.detached || args.again.apart {
        return Ok(None);
    }
    Ok(Some(Again {
        words: words_again(credentials, words),
        deaths: args.again.deaths,
        log: log_file(args, point)?,
    }))
}

/// The command line of one more mount like this, from whatever directory.
fn words_again(credentials: Option<&Path>, words: &[OsString]) -> Vec<OsString> {
    let mut words = guard::without_added(words);
    let Some(dir) = credentials else {
        return words;
    };
    // A server that told where they are may be away then, and a path may be a relative one.
    if let Some(at) = words.iter().position(|word| word == CREDENTIALS) {
        words.drain(at..words.len().min(at + 2));
    }
    let joined = format!("{CREDENTIALS}=");
    words.retain(|word| !word.as_encoded_bytes().starts_with(joined.as_bytes()));
    words.extend([CREDENTIALS.into(), dir.into()]);
    words
}

/// Mounts; with the finder of other servers, if the cell may have some.
fn start(
    args: &MountArgs,
    (point, server): (&Path, client::Server),
    servers: Option<Arc<OfMount>>,
) -> Result<Arc<Mount>, Failure> {
    let mut options = options(args, (point, server));
    options.servers = servers.map(|servers| servers as Arc<dyn Servers>);
    let mount = Mount::start(options).map_err(|error| Failure::of("mount", error))?;
    Ok(Arc::new(mount))
}

/// Without a guard the mount works; only after a kill nobody would see to it.
fn start_guard(
    (mount, servers): (&Mount, Option<&OfMount>),
    (credentials, again): (Option<PathBuf>, Option<Again>),
) -> Option<Arc<Guard>> {
    let guard = Guard::start(mount, (credentials, again))
        .inspect_err(|error| tracing::warn!(%error, "no guard: a kill would leave a dead mount"))
        .ok()
        .map(Arc::new)?;
    if let Some(servers) = servers {
        servers.guarded_by(&guard);
    }
    Some(guard)
}

/// Takes logins of users. Without that the mount works all the same.
fn take_logins(
    mount: &Arc<Mount>,
    credentials: &Path,
    (args, point): (&MountArgs, &Path),
    words: &[OsString],
) -> Option<Logins> {
    let of = Of {
        credentials: credentials.to_owned(),
        servers: args.source.server.clone(),
        point: point.to_owned(),
        name: name(point),
        words: words_again(Some(credentials), words),
        is_apart: args.again.apart,
    };
    Logins::start(mount, of)
        .inspect_err(|error| tracing::warn!("`ariel login` will not work: {error:#}"))
        .ok()
}

/// Opens the control socket. Without it the mount works all the same.
fn listen(
    mount: &Arc<Mount>,
    args: &MountArgs,
    point: &Path,
    send: Sender<End>,
) -> Option<Listener> {
    let kept = args.cache.to_string();
    let name = runtime::of_mount(point);
    let (mount, point) = (Arc::clone(mount), point.to_owned());
    let answer = move |word: &str, question: &Value| match word {
        "status" => show::mount_status(&mount, &kept, &point).into(),
        "profile" => profile::of_mount(&mount).into(),
        "tokens" => show::mount_tokens(&mount.client().tokens()).into(),
        "watch" => relay::relay(&mount, question),
        "record" => accesses::relay(&mount),
        "unmount" => end::ask(&send, "mount", End::Asked).into(),
        "force" => end::ask(&send, "mount", End::Forced).into(),
        other => control::refusal(format_args!("a mount does not know {other:?}")).into(),
    };
    Listener::start(&name, Box::new(answer))
        .inspect_err(|error| {
            tracing::warn!("`ariel status` and `ariel umount` will not work: {error:#}");
        })
        .ok()
}

/// Shows what is counted, if that is wanted.
fn serve_metrics(mount: &Arc<Mount>, args: &MountArgs, point: &Path) -> Result<(), Failure> {
    let Some(addr) = args.metrics.filter(|_| !args.again.apart) else {
        return Ok(());
    };
    let kept = args.cache.to_string();
    let (mount, point) = (Arc::downgrade(mount), point.to_owned());
    let look = move || {
        let mount = mount.upgrade()?;
        let status = show::mount_status(&mount, &kept, &point);
        Some((status, profile::of_mount(&mount)))
    };
    metrics::serve(addr, Arc::new(look)).map(drop)
}

/// Sends when the mount is gone, whichever process unmounted it.
fn watch(mount: &Arc<Mount>, send: Sender<End>) -> std::io::Result<()> {
    let mount = Arc::clone(mount);
    let run = move || {
        mount.wait();
        // Nobody listens any more if it was unmounted from here.
        let _ = send.send(End::Itself);
    };
    thread::Builder::new().name("unmounted".into()).spawn(run)?;
    Ok(())
}

/// Waits for the end of the mount, and brings it about when it is asked for. Takes the questions
/// with it: a later asker is told that it is ending, and the control socket can be closed.
fn wait(mount: &Arc<Mount>, guard: Option<&Guard>, ends: Receiver<End>) -> Result<(), Failure> {
    loop {
        match ends.recv().unwrap_or(End::Itself) {
            End::Asked(reply) => {
                let ended = mount.unmount();
                end::tell(&reply, &ended);
                if ended.is_ok() {
                    return Ok(());
                }
            }
            End::Forced(reply) => {
                if let Some(guard) = guard {
                    guard.is_ending();
                }
                let forced = mount.force();
                let answer = match &forced {
                    Ok(lost) if lost.is_nothing() => json!({ "ok": true }),
                    Ok(lost) => json!({ "ok": true, "lost": format!("{lost} are lost") }),
                    Err(error) => control::refusal(error),
                };
                // It may be gone by now.
                let _ = reply.send(answer);
                return match forced {
                    Ok(lost) if lost.is_nothing() => Ok(()),
                    Ok(lost) => Err(lost_to(mount, lost)),
                    Err(error) => Err(Failure::of("mount", error)),
                };
            }
            // A process told to end does end, in use or not.
            End::Signal => {
                if let Some(guard) = guard {
                    guard.is_ending();
                }
                return end_in_time(mount);
            }
            // It is unmounted. Everything is written back, unless this says what is not.
            End::Itself => {
                return match mount.lost() {
                    Some(lost) => Err(lost_to(mount, lost)),
                    None => mount.ended().map_err(|error| Failure::of("mount", error)),
                };
            }
        }
    }
}

/// Ends the mount, or gives up: a process told to end cannot wait for a server for ever.
fn end_in_time(mount: &Arc<Mount>) -> Result<(), Failure> {
    let (send, ended) = mpsc::channel();
    let ending = Arc::clone(mount);
    let run = move || drop(send.send(ending.end()));
    let spawned = thread::Builder::new().name("ending".into()).spawn(run);
    spawned.map_err(|error| Failure::of("mount", error))?;
    let owed = || {
        let owed = mount.owed();
        (owed.bytes, owed.changes)
    };
    let mut left = owed();
    let mut idle = Duration::ZERO;
    while idle < END_TIME {
        match ended.recv_timeout(END_STEP) {
            Ok(Err(MountError::Leave(LeaveError::Stuck { owed, .. }))) => {
                return Err(lost_to(mount, owed));
            }
            Ok(ended) => return ended.map_err(|error| Failure::of("mount", error)),
            Err(_) => idle += END_STEP,
        }
        let before = std::mem::replace(&mut left, owed());
        if left < before {
            idle = Duration::ZERO;
        }
    }
    Err(lost_to(mount, mount.owed()))
}

/// The end while the server is away, and its price.
fn lost_to(mount: &Mount, lost: Owed) -> Failure {
    let server = mount.silent_server();
    let what = format!("ended while the server at {server} does not answer: {lost} are lost");
    Failure::of("mount", what)
}
