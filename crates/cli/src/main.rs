//! The program `ariel`: every command is one file here, and none decides anything about files.
//!
//! Exit codes: 0 it is done; 1 it failed, or damage or a failing seed was found; 2 the command line
//! is wrong, or the check could not be run at all. An error is one line on standard error: `ariel:
//! what: cure`.
#![forbid(unsafe_code)]

mod acl;
mod apart;
mod args;
mod at_once;
mod bench;
mod child;
mod clock;
mod config;
mod conflicts;
mod control;
mod cooperate;
mod daemon;
mod end;
mod failure;
mod fsck;
mod gate;
mod group;
mod guard;
mod known;
mod log;
mod login;
mod membership;
mod metrics;
mod mount;
mod pager;
mod pages;
mod paths;
mod place;
mod profile;
mod releases;
mod reproduce;
mod run;
mod runtime;
mod segment;
mod serve;
mod servers;
mod service;
mod show;
mod signals;
mod sim;
mod status;
mod stores;
mod torture;
mod trace;
mod tree;
mod trial;
mod trust;
mod umount;
mod up;
mod usage;
mod users;
mod watch;

use crate::args::{Args, Command};
use crate::failure::Failure;
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // An option of a file may be a list of mount(8), as on a command line.
    let words = args::words(std::env::args_os().collect())
        .and_then(config::apply)
        .and_then(args::words);
    let words = match words {
        Ok(words) => words,
        Err(failure) => return tell(&failure),
    };
    let result = match Args::try_parse_from(&words) {
        Ok(args) => carry_out(args.command, &words[1..]),
        Err(error) if !error.use_stderr() => {
            // Help and version are what was asked for.
            return ExitCode::from(u8::from(error.print().is_err()));
        }
        Err(error) => Err(args::failure(&error)),
    };
    match result {
        Ok(code) => code,
        Err(failure) => tell(&failure),
    }
}

fn tell(failure: &Failure) -> ExitCode {
    // Where standard error is gone, there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "ariel: {failure}");
    ExitCode::from(failure.code)
}

/// `words`: the command line, from the command on.
fn carry_out(command: Command, words: &[OsString]) -> Result<ExitCode, Failure> {
    match command {
        Command::Up(args) => up::up(&args),
        Command::Down(args) => up::down(&args),
        Command::Cell(args) => membership::cell(&args),
        Command::JoinToken(args) => membership::join_token(&args),
        Command::Join(args) => membership::join(&args),
        Command::Machine(args) => membership::machine(&args),
        Command::User(command) => users::user(&command),
        Command::Login(args) => login::login(&args),
        Command::Logout(args) => login::logout(&args),
        Command::Whoami(args) => login::whoami(&args),
        Command::Token(command) => login::token(&command),
        Command::Group(command) => group::group(&command),
        Command::Acl(args) => acl::acl(&args),
        Command::Serve(args) => serve::serve(args, words),
        Command::Mount(args) => mount::mount(args, words),
        Command::Umount(args) => umount::umount(&args.dir, args.force),
        Command::Status(args) => status::status(&args),
        Command::Conflicts(args) => conflicts::conflicts(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Tokens(args) => status::tokens(&args),
        Command::Cooperate(args) => cooperate::cooperate(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Ls(args) => tree::ls(&args),
        Command::Cat(args) => tree::cat(&args),
        Command::Put(args) => tree::put(&args),
        Command::Get(args) => tree::get(&args),
        Command::Rm(args) => tree::rm(&args),
        Command::Mv(args) => tree::mv(&args),
        Command::Mkdir(args) => tree::mkdir(&args),
        Command::Stat(args) => tree::stat(&args),
        Command::Volume(args) => tree::volume(&args),
        Command::Run(args) => run::run(&args),
        Command::Segment(args) => segment::segment(&args),
        Command::Pager(args) => pager::pager(&args),
        Command::Reproduce(args) => reproduce::reproduce(&args),
        Command::Config(args) => config::show(&args),
        Command::Fsck(args) => fsck::fsck(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Torture(args) => torture::torture(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::TortureWorker(args) => torture::worker(&args),
        Command::Guard(_) => guard::guard(),
        Command::Remount(args) => mount::remount(&args),
        Command::Within(args) => apart::within(&args),
        Command::Pages(args) => pages::pages(&args),
    }
}
