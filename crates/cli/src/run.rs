//! `ariel run`: an unchanged program whose large memory is paged to a cell.
//!
//! Guarantees: the program has the memory it was given, or does not start; its exit code is the
//! command's; when the command ends nothing of the program's memory is left anywhere.

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::{log, pager};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

const LIBRARY: &str = "libariel_segment.so";

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    log::to_stderr("warn");
    log::end_on_panic();
    let library = library("run")?;
    let served = pager::serve("run", (&args.place, &args.trust), args.memory)?;
    let mut preload = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD") {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&args.program[0]);
    command
        .args(&args.program[1..])
        .env("LD_PRELOAD", preload)
        .env("ARIEL_PAGER", &served.path)
        .env("ARIEL_FAR", args.far.to_string());
    let ended = to_its_end("run", &mut command);
    // Programs that it has started may go on, and need their memory.
    served.end();
    ended
}

/// Runs a program to its end; its exit code is the command's.
pub(crate) fn to_its_end(what: &str, command: &mut Command) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::of(what, error);
    // Before the program is there: a signal that comes early is not lost.
    let signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT]).map_err(failed)?;
    let started = command.spawn();
    let mut child = started.map_err(|error| {
        let program = command.get_program().display();
        Failure::of(what, format_args!("{program}: {error}"))
    })?;
    forward(signals, child.id()).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    Ok(ExitCode::from(code(status)))
}

/// The exit code, as shells tell it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Passes signals that would end this command to the program. A terminal sends its signals to both.
fn forward(mut signals: Signals, program: u32) -> std::io::Result<()> {
    let pid = Pid::from_raw(program as i32);
    let forward = move || {
        for signal in signals.forever() {
            let to = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            if let Some(pid) = pid {
                // A program that has ended needs none.
                let _ = kill_process(pid, to);
            }
        }
    };
    let builder = std::thread::Builder::new().name("signals".into());
    builder.spawn(forward).map(drop)
}

/// The library that is loaded into the program: beside this program, or where it is installed.
pub(crate) fn library(word: &str) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::of(word, error))?;
    let dir = program.parent().unwrap_or(&program);
    let places = [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.exists());
    found.cloned().ok_or_else(|| {
        Failure::of(
            word,
            format_args!(
                "{LIBRARY} is neither in {} nor in ../lib: build it with `make build`, or install \
                 it with `make install`",
                dir.display()
            ),
        )
    })
}
