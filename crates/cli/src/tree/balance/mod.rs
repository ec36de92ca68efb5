//! `ariel volume balance`: measures the work of all servers, and proposes or makes moves.

mod follow;
mod plan;

use super::moving::moved;
use super::names::size_text;
use super::progress::bar;
use super::volume::say;
use crate::args::{AtArgs, BalanceArgs, MoveArgs};
use crate::at_once;
use crate::failure::{FAILED, Failure};
use crate::servers::{One, Running, ask_about, running};
use cell::{AskError, Load, StoreAnswer, StoreLoad, StoreQuestion};
use follow::{follow, summary};
use plan::{Server, Step, Store, plan};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use wire::Name;

const WHAT: &str = "volume balance";
const LINE: &str = "{spinner} measuring: {pos} of {len} s";

/// The loads of the servers that answer, by name; and the names of the others, with the reasons.
type Heard = (BTreeMap<String, Load>, Vec<String>);

fn ask_all(servers: &[One], credentials: &Path) -> Heard {
    let credentials = credentials.to_owned();
    let answers = at_once::ask(servers.to_vec(), move |one: One| {
        let load = match ask_about((&one.addresses, &credentials), StoreQuestion::Load) {
            Ok(StoreAnswer::Load(load)) => Ok(load),
            Ok(_) => Err(AskError::Strange.to_string()),
            Err(error) => Err(error),
        };
        (one.name, load)
    });
    let (mut loads, mut silent) = (BTreeMap::new(), Vec::new());
    for (_, (name, load)) in answers {
        match load {
            Ok(load) => drop(loads.insert(name, load)),
            Err(error) => silent.push(format!("{name}: {error}")),
        }
    }
    (loads, silent)
}

/// Waits while the work is measured, and shows for how long still.
fn wait(args: &BalanceArgs) {
    let bar = bar(args.quiet, LINE, Some(u64::from(args.seconds)));
    let end = Instant::now() + Duration::from_secs(u64::from(args.seconds));
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        // The time is the measure: nothing ends it sooner.
        thread::sleep(left.min(Duration::from_secs(1)));
        bar.inc(1);
    }
    bar.finish_and_clear();
}

/// The work of a store between two answers, units/s. One that was opened meanwhile counts from
/// there.
fn rate(before: Option<&StoreLoad>, now: &StoreLoad, seconds: f64) -> f64 {
    let known = before.map_or(now.work(), StoreLoad::work);
    let more = now.work().checked_sub(known);
    more.unwrap_or(now.work()) as f64 / seconds
}

/// Tells what is not as it should be. Where standard error is gone, there is nobody to tell.
fn warn(text: impl Display) {
    let _ = writeln!(io::stderr(), "ariel: {WHAT}: {text}");
}

fn measured(name: &str, before: Option<&Load>, now: &Load, seconds: f64) -> Server {
    let store = |of: &StoreLoad| {
        let same = |known: &&StoreLoad| known.first_volume == of.first_volume;
        let known = before.and_then(|load| load.stores.iter().find(same));
        Store {
            volume: of.volume.clone(),
            bytes: of.store_bytes,
            work: rate(known, of, seconds),
        }
    };
    Server {
        name: name.to_owned(),
        disk_bytes: now.disk_bytes,
        free_bytes: now.free_bytes,
        stores: now.stores.iter().map(store).collect(),
    }
}

fn table(servers: &[Server]) -> String {
    let width = servers.iter().map(|server| server.name.len()).max();
    let width = width.unwrap_or(0).max("SERVER".len());
    let mut text = format!(
        "{:width$}  {:>9}  {:>11}  {:>9}  {:>7}\n",
        "SERVER", "WORK/S", "FREE", "DISK USED", "VOLUMES"
    );
    for server in servers {
        let volumes = server.stores.iter().filter(|store| store.volume.is_some());
        text.push_str(&format!(
            "{:width$}  {:>9.1}  {:>11}  {:>7.0} %  {:>7}\n",
            server.name,
            server.work(),
            size_text(server.free_bytes),
            server.fullness(0.0) * 100.0,
            volumes.count(),
        ));
    }
    text.push_str("VOLUMES: those that can move\n");
    text
}

/// The command that makes a move, and what comes of it.
fn line(args: &BalanceArgs, step: &Step) -> String {
    format!(
        "ariel volume move {} {} {}  # {} from {}; then {:.1} and {:.1} work/s\n",
        args.at.server,
        step.volume,
        step.to,
        size_text(step.bytes),
        step.from,
        step.work.0,
        step.work.1,
    )
}

fn servers(args: &BalanceArgs) -> Result<(Running, PathBuf), Failure> {
    let running = running(WHAT, &args.at.server, &args.at.trust)?;
    let credentials = running.trust.credentials.clone();
    match credentials.filter(|_| running.servers.len() > 1) {
        Some(credentials) => Ok((running, credentials)),
        None => Err(Failure::of(
            WHAT,
            "fewer than two servers of the cell run: there is nothing to move to. `ariel serve \
             --join` adds one, in a cell whose database is in etcd",
        )),
    }
}

pub(super) fn balance(args: &BalanceArgs) -> Result<ExitCode, Failure> {
    let (running, credentials) = servers(args)?;
    let began = Instant::now();
    let (before, mut silent) = ask_all(&running.servers, &credentials);
    wait(args);
    let seconds = began.elapsed().as_secs_f64();
    let (mut now, silent_now) = ask_all(&running.servers, &credentials);
    silent.extend(silent_now);
    // A server that has answered once would be taken for an idle one.
    now.retain(|name, _| before.contains_key(name));
    for server in &silent {
        warn(format_args!("left out: {server}"));
    }
    let servers = now.iter();
    let servers = servers.map(|(name, load)| measured(name, before.get(name), load, seconds));
    let servers: Vec<Server> = servers.collect();
    say(&table(&servers))?;
    let steps = plan(servers);
    if steps.is_empty() {
        say("no move would gain much\n")?;
    }
    let is_done = match args.plan {
        true => propose(args, &steps).map(|()| true),
        false => make_all(args, &steps),
    }?;
    match is_done && silent.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(FAILED)),
    }
}

fn propose(args: &BalanceArgs, steps: &[Step]) -> Result<(), Failure> {
    steps.iter().try_for_each(|step| say(&line(args, step)))
}

/// Makes the moves; were all of them made?
fn make_all(args: &BalanceArgs, steps: &[Step]) -> Result<bool, Failure> {
    let make = |step: &Step| {
        say(&line(args, step))?;
        match made(args, step) {
            Ok(told) => say(&told).map(Ok),
            Err(failure) => Ok(Err(failure.to_string())),
        }
    };
    let not_made = follow(steps, make, |one| warn(one))?;
    if !not_made.is_empty() {
        say(&summary(steps, &not_made))?;
    }
    Ok(not_made.is_empty())
}

/// Makes a move; what is to be told of it.
fn made(args: &BalanceArgs, step: &Step) -> Result<String, Failure> {
    let name = Name::new(step.volume.as_bytes());
    let name = name.map_err(|_| Failure::of(WHAT, AskError::Strange))?;
    moved(&MoveArgs {
        at: AtArgs {
            trust: args.at.trust.clone(),
            server: args.at.server.clone(),
        },
        name,
        to: step.to.clone(),
        cancel: false,
        quiet: args.quiet,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_opened_anew_counts_from_there() {
        let load = |messages, moved_bytes| StoreLoad {
            messages,
            moved_bytes,
            ..StoreLoad::default()
        };
        let now = load(300, 128 << 10);
        assert_eq!(rate(Some(&load(100, 0)), &now, 2.0), 101.0);
        assert_eq!(rate(None, &now, 2.0), 0.0, "nobody knows since when");
        assert_eq!(rate(Some(&load(9000, 0)), &now, 2.0), 151.0);
    }
}
