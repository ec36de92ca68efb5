//! `ariel bench`: the command line of crate `bench`, its clock and its cell.

use crate::args::{BenchArgs, Cooperation};
use crate::clock::monotonic_ns;
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::trial::{self, Cell, Kind, Passage};
use crate::{control, runtime, signals, usage};
use bench::{Figure, Fresh, Mounted, Options, Outside, Progress, Report, Tells, Told, Usage, Uses};
use serde_json::Value;
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
            let what = (args.rounds, args.only.clone());
            measure((args, what), &local, mounted, (None, None, None))?
        }
        None if args.cost_of_security => cost_of_security(args, &local)?,
        None if args.cost_of_cooperation.is_some() => cost_of_cooperation(args, &local)?,
        None if args.cost_of_snapshots.is_some() => cost_of_snapshots(args, &local)?,
        None => {
            let passage = match args.insecure_loopback {
                true => Passage::Insecure,
                false => Passage::Tls,
            };
            let (rounds, only) = (args.rounds, args.only.clone());
            on_own_cell((args, &local), passage.into(), (rounds, only))?
        }
    };
    if let Some(file) = &args.json {
        let written = std::fs::write(file, report.json() + "\n");
        written.map_err(|error| could_not(format_args!("{}: {error}", file.display())))?;
    }
    // A reader that closes the pipe has seen enough.
    let _ = io::stdout().lock().write_all(report.text().as_bytes());
    if args.strict && !report.is_met() {
        let what = "bench: a figure is below what it should be at least: see the table above";
        return Err(Failure::new(FAILED, what));
    }
    Ok(ExitCode::SUCCESS)
}

/// The measures by which the price of security is told, and the least ratio of each.
const COSTS: [(&str, f64); 4] = [
    ("cold-read", 0.7),
    ("write", 0.7),
    ("create", 0.97),
    ("andrew", 1.03),
];

/// Measures a cell as it is and one that protects nothing, a round of each in turn.
fn cost_of_security(args: &BenchArgs, local: &Path) -> Result<Report, Failure> {
    let taken = |name: &str| name != "andrew" || args.project.is_some();
    let costs = COSTS.map(|(name, _)| name.to_owned()).into_iter();
    let only = match args.only.is_empty() {
        true => costs.filter(|name| taken(name)).collect(),
        false => args.only.clone(),
    };
    let kinds = [Passage::Tls.into(), Passage::Insecure.into()];
    let (whole, plain) = in_turn((args, local), kinds, &only)?;
    let named = COSTS
        .iter()
        .filter(|(name, _)| only.iter().any(|it| it == name));
    let wishes: Vec<(&str, f64)> = named.copied().collect();
    Ok(whole.beside(plain, "plain", &wishes))
}

/// Measures a cell whose mounts lend to each other and one whose mounts do not, a round of each in
/// turn. Nobody has what another one misses: this is the price where cooperation brings nothing.
fn cost_of_cooperation(args: &BenchArgs, local: &Path) -> Result<Report, Failure> {
    let kinds = [
        args.cost_of_cooperation.unwrap_or(Cooperation::Off),
        Cooperation::Off,
    ];
    let kinds = kinds.map(|cooperation| Kind {
        cooperation,
        ..Passage::Tls.into()
    });
    let (with, without) = in_turn((args, local), kinds, &args.only)?;
    Ok(within(0.01, with, (without, "off")))
}

/// Measures a cell whose tree has snapshots and one whose tree has none, a round of each in turn.
fn cost_of_snapshots(args: &BenchArgs, local: &Path) -> Result<Report, Failure> {
    let kinds = [args.cost_of_snapshots.unwrap_or(0), 0].map(|snapshots| Kind {
        snapshots,
        ..Passage::Tls.into()
    });
    let (with, without) = in_turn((args, local), kinds, &args.only)?;
    Ok(within(0.05, with, (without, "none")))
}

/// A report beside another one: each figure should differ by no more than this share, for the
/// worse.
fn within(share: f64, report: Report, (other, called): (Report, &'static str)) -> Report {
    let least = |figure: &Figure| match figure.rises {
        true => (figure.name, 1.0 - share),
        false => (figure.name, 1.0 + share),
    };
    let wishes: Vec<(&str, f64)> = report.figures.iter().map(least).collect();
    report.beside(other, called, &wishes)
}

/// Measures two kinds of cells, a round of each in turn.
fn in_turn(
    of: (&BenchArgs, &Path),
    kinds: [Kind; 2],
    only: &[String],
) -> Result<(Report, Report), Failure> {
    let (mut first, mut second) = (Report::default(), Report::default());
    for round in 0..of.0.rounds {
        // Which of the two is first changes, as what the machine has cached does.
        let mut both = [(&mut first, kinds[0]), (&mut second, kinds[1])];
        if round % 2 == 1 {
            both.reverse();
        }
        for (report, kind) in both {
            report.add(on_own_cell(of, kind, (1, only.to_vec()))?);
        }
    }
    Ok((first, second))
}

/// Starts a server and two mounts beside the local directory, and ends them whatever comes out.
fn on_own_cell(
    (args, local): (&BenchArgs, &Path),
    kind: Kind,
    what: (u32, Vec<String>),
) -> Result<Report, Failure> {
    let dir = local.join(format!("ariel-bench-{}", std::process::id()));
    let transport = ["--transport".into(), args.transport.word().into()];
    let mut mounts = [transport.to_vec(), transport.to_vec()];
    mounts[1].extend(["--opens".into(), "silent".into()]);
    let started = Cell::start(&dir, &mounts, kind);
    let cell = started.map_err(|error| {
        // The rest of the cell is of no use; a directory that is still mounted stays.
        let _ = trial::remove(&dir);
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
    let known = (Some(&mut fresh as _), Some(&uses as _), Some(&told as _));
    let report = measure((args, what), local, mounted, known);
    let mut faults = cell.into_inner().end();
    if let Err(error) = trial::remove(&dir) {
        faults.push(format!("{}: {error}", dir.display()));
    }
    let report = report?;
    match faults.is_empty() {
        true => Ok(report),
        false => Err(could_not(faults.join("; "))),
    }
}

/// The resources of the processes behind a mount of the cell. The client's largest piece of memory
/// is its cache of file blocks.
fn usage(cell: &Cell, point: &Path) -> io::Result<Usage> {
    let (server, client) = cell.processes(point).map_err(io::Error::other)?;
    let (all, cache) = usage::memory_bytes(client)?;
    Ok(Usage {
        server_ns: usage::processor_ns(server)?,
        client_ns: usage::processor_ns(client)?,
        client_bytes: all - cache,
    })
}

/// The messages that the client behind a mount has sent to the server.
fn told(point: &Path) -> io::Result<Told> {
    let name = runtime::of_mount(point);
    let answer = control::ask(&name, "status", Some(control::ANSWER_TIMEOUT));
    let status = answer.map_err(|error| io::Error::other(format!("{error:#}")))?;
    let status = status.ok_or_else(|| io::Error::other("nobody answers for the mount"))?;
    read_told(&status).ok_or_else(|| io::Error::other("the mount does not say what it has sent"))
}

fn read_told(status: &Value) -> Option<Told> {
    // Contents of files, and what depends on time alone.
    let left_out = ["Write", "KeepAlive"];
    let sent = status["sent"].as_object()?.iter();
    let counted = sent.filter(|(kind, _)| !left_out.contains(&kind.as_str()));
    Some(Told {
        messages: counted.filter_map(|(_, count)| count.as_u64()).sum(),
        untold: status["untold_changes"].as_u64()?,
    })
}

fn measure(
    (args, (rounds, only)): (&BenchArgs, (u32, Vec<String>)),
    local: &Path,
    mounted: Mounted,
    (fresh, uses, told): (
        Option<&mut Fresh<'_>>,
        Option<&Uses<'_>>,
        Option<&Tells<'_>>,
    ),
) -> Result<Report, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&stop);
    signals::on_end(move || end.store(true, Ordering::Release)).map_err(could_not)?;
    let terminal = io::stderr().is_terminal();
    let project = args.project.as_deref().map(existing).transpose()?;
    let options = Options {
        local: local.to_owned(),
        mounted,
        rounds,
        only,
        files: args.files,
        large_bytes: u64::from(args.large_mib) << 20,
        project: project.map(|dir| (dir, args.build.clone())),
    };
    let outside = Outside {
        clock: monotonic_ns,
        // The same, for as long as the rest is there.
        fresh: fresh.map(|fresh| fresh as &mut Fresh<'_>),
        uses: uses.map(|uses| uses as &Uses<'_>),
        told: told.map(|told| told as &Tells<'_>),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_and_signs_of_life_are_not_counted() {
        let sent = json!({ "Write": 500, "KeepAlive": 3, "Requests": 2, "Reserve": 1 });
        let told = read_told(&json!({ "sent": sent, "untold_changes": 7 }));
        let expected = Told {
            messages: 3,
            untold: 7,
        };
        assert_eq!(told, Some(expected));
        assert_eq!(read_told(&json!({ "sent": {} })), None);
    }
}
