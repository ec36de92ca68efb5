//! The program `ariel`: every command is one file here, and none decides anything about files.
//!
//! Exit codes: 0 it is done; 1 it failed, or damage or a failing seed was found; 2 the command line
//! is wrong, or the check could not be run at all. What went wrong is one line on standard
//! error: `ariel: what: cure`.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cell;
mod child;
mod clock;
mod control;
mod daemon;
mod end;
mod failure;
mod fsck;
mod guard;
mod log;
mod mount;
mod paths;
mod profile;
mod runtime;
mod serve;
mod show;
mod signals;
mod sim;
mod status;
mod torture;
mod umount;
mod up;
mod usage;
mod watch;

use crate::args::{Args, Command};
use crate::failure::Failure;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Args::try_parse() {
        Ok(args) => run(args.command),
        Err(error) if !error.use_stderr() => {
            // Help and version are what was asked for.
            return ExitCode::from(u8::from(error.print().is_err()));
        }
        Err(error) => Err(args::failure(&error)),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            // Where standard error is gone, there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "ariel: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Up(args) => up::up(&args),
        Command::Down(args) => up::down(&args),
        Command::Serve(args) => serve::serve(args),
        Command::Mount(args) => mount::mount(args),
        Command::Umount(args) => umount::umount(&args.dir, args.force),
        Command::Status(args) => status::status(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Tokens(args) => status::tokens(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Fsck(args) => fsck::fsck(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Torture(args) => torture::torture(&args),
        Command::TortureWorker(args) => torture::worker(&args),
        Command::Guard(args) => guard::guard(&args),
    }
}
