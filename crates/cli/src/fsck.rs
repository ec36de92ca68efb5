//! `ariel fsck`: checks a store, its own or a running server's, and repairs it.

use crate::args::FsckArgs;
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::{control, runtime, show};
use serde_json::{Value, json};
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long a server may take to say which stores it has.
const LOOK: Duration = Duration::from_secs(2);

pub(crate) fn fsck(args: &FsckArgs) -> Result<ExitCode, Failure> {
    crate::log::to_stderr("warn");
    match args.target.parse::<SocketAddr>() {
        Ok(_) if args.repair => Err(not_run(
            "a store is repaired while no server has it open: stop the server and name its \
             directory. A damaged index needs no repair, the server makes it again by itself",
        )),
        Ok(addr) => told(args, &beside(addr)?),
        Err(_) if args.repair => repair(args),
        Err(_) => {
            let dir = Path::new(&args.target);
            let report = store::fsck(dir).map_err(|error| in_use(dir, error))?;
            told(args, &show::report(&report))
        }
    }
}

fn not_run(error: impl Display) -> Failure {
    Failure::new(NOT_RUN, format_args!("fsck: {error}"))
}

/// Why a store is not checked; of one that a server has open, how that one checks it.
fn in_use(dir: &Path, error: store::StoreError) -> Failure {
    let store::StoreError::InUse { pid, .. } = error else {
        return not_run(error);
    };
    let Some(addr) = server_of(dir) else {
        return not_run(format_args!(
            "{error}; the server of a store that runs on this machine checks it with `ariel fsck \
             ADDR`"
        ));
    };
    let process = pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    not_run(format_args!(
        "{} is open in the server at {addr}{process}: `ariel fsck {addr}` checks it while it \
         serves; or end that server first",
        dir.display()
    ))
}

/// The address of the server of this user that has a store open.
fn server_of(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let is_it = |data: &Value| {
        let data = data.as_str().map(Path::new);
        data.is_some_and(|data| data.canonicalize().is_ok_and(|data| data == dir))
    };
    let mut statuses = runtime::servers().into_iter().filter_map(|name| {
        let answer = control::ask(&name, "status", Some(LOOK));
        answer.ok().flatten()
    });
    let found = statuses.find(|status| {
        let further = status["stores"].as_array().into_iter().flatten();
        is_it(&status["data"]) || further.map(|one| &one["data"]).any(is_it)
    });
    Some(found?["addr"].as_str()?.to_owned())
}

/// Asks a server to check its store. It takes as long as it takes.
fn beside(addr: SocketAddr) -> Result<Value, Failure> {
    let answer = control::ask(&runtime::of_server(addr.port()), "fsck", None);
    let answer = answer.map_err(|error| not_run(format_args!("{error:#}")))?;
    answer.ok_or_else(|| {
        not_run(format_args!(
            "no server answers at {addr} on this machine: name the directory of its store"
        ))
    })
}

fn lines<'a>(found: &'a Value, what: &str) -> impl Iterator<Item = &'a str> {
    let list = found[what].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str)
}

/// Prints what a check found.
fn told(args: &FsckArgs, found: &Value) -> Result<ExitCode, Failure> {
    if args.json {
        show::print(&format!("{found:#}"));
    } else {
        for what in ["damages", "losses", "warnings"] {
            lines(found, what).for_each(show::print);
        }
        print_verdict(args, found);
    }
    let damages = lines(found, "damages").count();
    if damages == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let cure = match args.repair {
        true => "this could not be repaired: restore the files named above from a copy",
        false => {
            "restore the files named above from a copy; `ariel fsck --repair --dry-run` says what \
             a repair would save"
        }
    };
    Err(Failure::new(
        FAILED,
        format_args!("fsck: {damages} damages in {}: {cure}", args.target),
    ))
}

fn print_verdict(args: &FsckArgs, found: &Value) {
    let verdict = match lines(found, "damages").next() {
        None => "clean",
        Some(_) => "DAMAGED",
    };
    let (objects, bytes) = (&found["objects"], &found["bytes"]);
    let target = &args.target;
    let losses = match lines(found, "losses").count() {
        0 => String::new(),
        losses => format!(", {losses} pieces of files lost"),
    };
    show::print(&format!(
        "{target}: {verdict}: {objects} objects, {bytes} bytes{losses}"
    ));
}

fn repair(args: &FsckArgs) -> Result<ExitCode, Failure> {
    let options = store::Options {
        // Only of use where no segment is left that tells it.
        identity: net::entropy::seed(),
        ..store::Options::default()
    };
    let done = store::repair(Path::new(&args.target), &options, args.dry_run).map_err(not_run)?;
    let mut after = show::report(&done.after);
    if args.json {
        after["steps"] = json!(done.steps);
        after["lost_changes"] = json!(done.lost_changes);
        after["dry_run"] = json!(args.dry_run);
        show::print(&format!("{after:#}"));
        let clean = done.after.is_clean();
        return Ok(ExitCode::from(if clean { 0 } else { FAILED }));
    }
    let would = if args.dry_run { "would be done: " } else { "" };
    for step in &done.steps {
        show::print(&format!("{would}{step}"));
    }
    for change in &done.lost_changes {
        show::print(&format!("lost: {change}"));
    }
    if args.dry_run && !done.steps.is_empty() {
        show::print("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    told(args, &after)
}
