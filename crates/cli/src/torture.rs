//! `ariel torture`: the command line of crate `torture`, its clock and its worker processes.

use crate::args::{TortureArgs, TortureWorkerArgs};
use crate::failure::{FAILED, Failure, NOT_RUN};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use torture::{Kills, Limit, Link, Options, Plan};

/// A worker that takes longer for one round hangs. A crash of a server may hold a mount up for its
/// whole grace period.
const HANG_NS: u64 = 120_000_000_000;
/// Where neither a time nor a number is given.
const DEFAULT_NS: u64 = 10_000_000_000;

/// One clock for all processes of the machine.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn could_not(what: impl std::fmt::Display) -> Failure {
    Failure::new(NOT_RUN, format_args!("torture: {what}"))
}

pub(crate) fn torture(args: &TortureArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    let report = torture::run(&options, monotonic_ns, &mut launch).map_err(could_not)?;
    let text = if args.json {
        format!("{}\n", report.json())
    } else {
        report.text()
    };
    // Whoever closes the pipe has seen enough; the exit code still tells.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if report.is_clean() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        FAILED,
        "torture: the mounts did not behave as one machine: see the history above",
    ))
}

fn options(args: &TortureArgs) -> Result<Options, Failure> {
    let dirs = match &args.local {
        Some(dir) => vec![dir.clone(), dir.clone()],
        None => args.mount.clone(),
    };
    let mounts: Result<Vec<PathBuf>, Failure> = dirs.iter().map(|dir| directory(dir)).collect();
    let limit = match (args.seconds, args.operations) {
        (_, Some(count)) => Limit::Operations(count),
        (Some(ns), None) => Limit::Time(ns),
        (None, None) => Limit::Time(DEFAULT_NS),
    };
    Ok(Options {
        mounts: mounts?,
        limit,
        seed: args.seed,
        processes: args.processes,
        files: args.files,
        atomic: args.atomic,
        kills: Kills {
            client: args.kill_client.clone(),
            server: args.kill_server.clone(),
            every_ns: args.every,
        },
        hang_ns: HANG_NS,
    })
}

/// Absolute, so that workers and commands mean the same.
fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let found = dir.canonicalize();
    let found = found.map_err(|error| could_not(format_args!("{}: {error}", dir.display())))?;
    if found.is_dir() {
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
