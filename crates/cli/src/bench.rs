//! `ariel bench`: the command line of crate `bench`, its clock and its cell.

use crate::args::BenchArgs;
use crate::cell::{self, Cell};
use crate::clock::monotonic_ns;
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::{signals, usage};
use bench::{Fresh, Mounted, Options, Outside, Progress, Report, Usage, Uses};
use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn could_not(what: impl std::fmt::Display) -> Failure {
    Failure::new(NOT_RUN, format_args!("bench: {what}"))
}

pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let local = args.local.clone().unwrap_or_else(std::env::temp_dir);
    let local = existing(&local)?;
    let report = match &args.mount {
        Some(mount) => {
            let mounted = Mounted {
                announced: existing(mount)?,
                silent: args.silent.as_deref().map(existing).transpose()?,
            };
            measure(args, &local, mounted, (None, None))?
        }
        None => on_own_cell(args, &local)?,
    };
    if let Some(file) = &args.json {
        let written = std::fs::write(file, report.json() + "\n");
        written.map_err(|error| could_not(format_args!("{}: {error}", file.display())))?;
    }
    // Whoever closes the pipe has seen enough.
    let _ = io::stdout().lock().write_all(report.text().as_bytes());
    if args.strict && !report.is_met() {
        let what = "bench: a figure is below what it should be at least: see the table above";
        return Err(Failure::new(FAILED, what));
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a server and two mounts beside the local directory, and ends them whatever comes out.
fn on_own_cell(args: &BenchArgs, local: &Path) -> Result<Report, Failure> {
    let dir = local.join(format!("ariel-bench-{}", std::process::id()));
    let transport = ["--transport".into(), args.transport.word().into()];
    let mut mounts = [transport.to_vec(), transport.to_vec()];
    mounts[1].extend(["--opens".into(), "silent".into()]);
    let started = Cell::start(&dir, &mounts);
    let cell = started.map_err(|error| {
        // What is left of it is of no use, and what is mounted stays.
        let _ = cell::remove(&dir);
        could_not(error)
    })?;
    let mut points = cell.mounts().into_iter();
    let mounted = Mounted {
        announced: points.next().unwrap_or_default(),
        silent: points.next(),
    };
    let cell = RefCell::new(cell);
    let mut fresh = |point: &Path| {
        let mounted = cell.borrow_mut().remount(point);
        mounted.map_err(io::Error::other)
    };
    let uses = |point: &Path| usage(&cell.borrow(), point);
    let report = measure(args, local, mounted, (Some(&mut fresh), Some(&uses)));
    let mut faults = cell.into_inner().end();
    if let Err(error) = cell::remove(&dir) {
        faults.push(format!("{}: {error}", dir.display()));
    }
    let report = report?;
    match faults.is_empty() {
        true => Ok(report),
        false => Err(could_not(faults.join("; "))),
    }
}

/// What the processes behind a mount of the cell use. The client's largest piece of memory is its
/// cache of file blocks.
fn usage(cell: &Cell, point: &Path) -> io::Result<Usage> {
    let (server, client) = cell.processes(point).map_err(io::Error::other)?;
    let (all, cache) = usage::memory_bytes(client)?;
    Ok(Usage {
        server_ns: usage::processor_ns(server)?,
        client_ns: usage::processor_ns(client)?,
        client_bytes: all - cache,
    })
}

fn measure(
    args: &BenchArgs,
    local: &Path,
    mounted: Mounted,
    (fresh, uses): (Option<&mut Fresh<'_>>, Option<&Uses<'_>>),
) -> Result<Report, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    signals::on_end(move || told.store(true, Ordering::Release)).map_err(could_not)?;
    let terminal = io::stderr().is_terminal();
    let project = args.project.as_deref().map(existing).transpose()?;
    let options = Options {
        local: local.to_owned(),
        mounted,
        rounds: args.rounds,
        only: args.only.clone(),
        files: args.files,
        large_bytes: u64::from(args.large_mib) << 20,
        project: project.map(|dir| (dir, args.build.clone())),
    };
    let outside = Outside {
        clock: monotonic_ns,
        // The same, for as long as the rest is there.
        fresh: fresh.map(|fresh| fresh as &mut Fresh<'_>),
        uses: uses.map(|uses| uses as &Uses<'_>),
        progress: &mut |progress| {
            if terminal {
                show(progress);
            }
            !stop.load(Ordering::Acquire)
        },
    };
    let report = bench::run(&options, outside).map_err(could_not);
    if terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    report
}

fn show(progress: &Progress) {
    let (taken, all) = progress.taken;
    let name = progress.name;
    let _ = write!(io::stderr(), "\r{taken} of {all}: {name}\x1b[K");
}

/// A directory that is there, with its whole path.
fn existing(dir: &Path) -> Result<PathBuf, Failure> {
    let found = dir.canonicalize();
    let found = found.map_err(|error| could_not(format_args!("{}: {error}", dir.display())))?;
    if found.is_dir() {
        return Ok(found);
    }
    Err(could_not(format_args!(
        "{}: not a directory",
        dir.display()
    )))
}
