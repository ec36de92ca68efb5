//! `ariel torture`: the command line of crate `torture`, its clock and its worker processes.

use crate::args::{Cooperation, TortureArgs, TortureWorkerArgs, Victim};
use crate::clock::monotonic_ns;
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::signals;
use crate::trial::{self, Cell, Kind, Passage, Shared};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use torture::{Hook, Kills, Limit, Link, Options, Outside, Plan, Progress};

/// A worker that takes longer for one round hangs. A crash of a server may hold a mount up for its
/// whole grace period.
const HANG_NS: u64 = 120_000_000_000;
/// Where neither a time nor a number is given.
const DEFAULT_NS: u64 = 10_000_000_000;
/// How often a terminal is told how far the run is.
const SHOW_NS: u64 = 500_000_000;

fn could_not(what: impl std::fmt::Display) -> Failure {
    Failure::new(NOT_RUN, format_args!("torture: {what}"))
}

pub(crate) fn torture(args: &TortureArgs) -> Result<ExitCode, Failure> {
    let stop = stop_on_signal().map_err(could_not)?;
    let dir = std::env::temp_dir().join(format!("ariel-torture-{}", std::process::id()));
    let cell = args.cell.map(|count| start_cell(args, &dir, count));
    let cell = cell.transpose()?;
    let mounts = match &cell {
        Some((_, mounts)) => mounts.clone(),
        None => given(args)?,
    };
    let cell = cell.map(|(cell, _)| cell);
    let mut show = Show::new();
    let ran = torture::run(
        &options(args, mounts),
        Outside {
            clock: monotonic_ns,
            launch: &mut launch,
            kills: kills(args, cell.as_ref()),
            progress: &mut |progress| {
                show.progress(progress);
                !stop.load(Ordering::Acquire)
            },
        },
    );
    show.clear();
    // The cell ends whatever the outcome.
    let faults = cell.as_ref().map(Shared::end);
    let kept = format!("logs and data are kept in {}", dir.display());
    let mut report = ran.map_err(|error| match &cell {
        Some(_) => could_not(format_args!("{error}; {kept}")),
        None => could_not(error),
    })?;
    if let Some(faults) = faults {
        if faults.is_empty() {
            report.notes.push("the server's store is whole".to_owned());
        }
        report.faults.extend(faults);
        if report.is_clean() {
            let removed = trial::remove(&dir);
            removed.map_err(|error| could_not(format_args!("{}: {error}", dir.display())))?;
        } else {
            report.notes.push(kept);
        }
    }
    let text = if args.json {
        format!("{}\n", report.json())
    } else {
        report.text()
    };
    // A reader that closes the pipe has seen enough; the exit code still tells.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if report.is_clean() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        FAILED,
        "torture: the mounts did not behave as one machine: see the history above",
    ))
}

/// True as soon as this process is told to end; the run then ends with its round.
fn stop_on_signal() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    signals::on_end(move || told.store(true, Ordering::Release))?;
    Ok(stop)
}

fn start_cell(
    args: &TortureArgs,
    dir: &Path,
    count: u32,
) -> Result<(Shared, Vec<PathBuf>), Failure> {
    let mut how: Vec<OsString> = vec!["--cache".into(), args.cache.to_string().into()];
    how.extend(["--transport".into(), args.transport.word().into()]);
    let kind = Kind {
        cooperation: args.cooperate,
        ..Passage::Tls.into()
    };
    if args.cooperate != Cooperation::Off {
        // Also while the machine is busy with all of this.
        how.extend(["--lend".into(), "always".into()]);
    }
    let started = Cell::start(dir, &vec![how; count as usize], kind);
    let cell = started.map_err(|error| {
        // The rest of the cell is of no use; a directory that is still mounted stays.
        let _ = trial::remove(dir);
        could_not(error)
    })?;
    let (mounts, shared) = (cell.mounts(), Shared::new(cell));
    Ok((shared, mounts))
}

/// The directories that the command line names.
fn given(args: &TortureArgs) -> Result<Vec<PathBuf>, Failure> {
    let dirs = match &args.local {
        Some(dir) => vec![dir.clone(), dir.clone()],
        None => args.mount.clone(),
    };
    dirs.iter().map(|dir| directory(dir)).collect()
}

fn kills(args: &TortureArgs, cell: Option<&Shared>) -> Kills {
    let hook = |victim: Victim, command: &Option<String>| match cell {
        Some(cell) => args
            .kill
            .contains(&victim)
            .then(|| hook(victim, cell.clone())),
        None => command.clone().map(torture::command),
    };
    Kills {
        client: hook(Victim::Client, &args.kill_client),
        server: hook(Victim::Server, &args.kill_server),
        every_ns: args.every,
    }
}

fn hook(victim: Victim, cell: Shared) -> Hook {
    Box::new(move |mount| match victim {
        Victim::Client => cell.with(|cell| cell.kill_client(mount)),
        Victim::Server => cell.with(Cell::kill_server),
    })
}

fn options(args: &TortureArgs, mounts: Vec<PathBuf>) -> Options {
    let limit = match (args.seconds, args.operations) {
        (_, Some(count)) => Limit::Operations(count),
        (Some(ns), None) => Limit::Time(ns),
        (None, None) => Limit::Time(DEFAULT_NS),
    };
    Options {
        mounts,
        limit,
        seed: args.seed,
        processes: args.processes,
        files: args.files,
        atomic: args.atomic,
        hang_ns: HANG_NS,
    }
}

/// Tells at a terminal how far the run is.
struct Show {
    terminal: bool,
    told_ns: u64,
}

impl Show {
    fn new() -> Show {
        Show {
            terminal: std::io::stderr().is_terminal(),
            told_ns: 0,
        }
    }

    fn progress(&mut self, progress: &Progress) {
        if !self.terminal || progress.elapsed_ns < self.told_ns + SHOW_NS {
            return;
        }
        self.told_ns = progress.elapsed_ns;
        let seconds = progress.elapsed_ns / 1_000_000_000;
        let (rounds, operations) = (progress.rounds, progress.operations);
        let kills = match progress.kills {
            0 => String::new(),
            kills => format!(", {kills} kills"),
        };
        self.line(&format!(
            "{seconds} s: {operations} operations in {rounds} rounds{kills}, no violation so far"
        ));
    }

    fn clear(&self) {
        self.line("");
    }

    /// Replaces what stands in the line.
    fn line(&self, text: &str) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
        }
    }
}

/// Absolute, so that workers and commands mean the same.
fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| could_not(format_args!("{}: {error}", dir.display()));
    // Links are not resolved: below `/proc/PID/root`, which is one, are mounts of other namespaces.
    let found = std::path::absolute(dir).map_err(failed)?;
    if std::fs::metadata(&found).map_err(failed)?.is_dir() {
        return Ok(found);
    }
    let what = format_args!("{}: not a directory: give mount points", dir.display()).to_string();
    Err(could_not(what))
}

/// A worker is this program again.
fn launch(plan: &Plan) -> std::io::Result<Link> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("__torture-worker")
        .arg(serde_json::to_string(plan)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A Ctrl-C at the terminal is not for it.
        .process_group(0)
        .spawn()?;
    let missing = || std::io::Error::other("a pipe to a worker is missing");
    Ok(Link {
        input: Box::new(child.stdin.take().ok_or_else(missing)?),
        output: Box::new(child.stdout.take().ok_or_else(missing)?),
        child: Some(child),
    })
}

pub(crate) fn worker(args: &TortureWorkerArgs) -> Result<ExitCode, Failure> {
    let plan: Plan = serde_json::from_str(&args.plan).map_err(could_not)?;
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    torture::work(&plan, monotonic_ns, input, output).map_err(could_not)?;
    Ok(ExitCode::SUCCESS)
}
