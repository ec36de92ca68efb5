//! Nobody hangs, and nothing is inexact, while four processes on each of two mounts fight for the
//! same names and the same pages. Every system call is timed: none may take longer than a second
//! (on a machine that is kept from running itself, than 30 steps take on the average).
//!
//! 10 seconds each; `ARIEL_LONG=1` makes it 60. The test judges:
//! - *Names*: eight tokens lie in a directory. A process that renames one to a name of its own has
//!   it alone: the rename of every other one fails. It reads the number in it, writes the next one,
//!   and puts it back. The same with a lock file made by O_EXCL and removed. At the end the numbers
//!   are exactly the sums of what all processes have added: one lost or doubled change shows.
//! - *Replacing*: complete files are renamed over a name that must therefore always be there,
//!   always be whole, and never go back to an older file of the same writer.
//! - *Pages*: each process owns every eighth 64-byte record in each page of four files, so that
//!   all write the same pages. It reads back what it wrote; records of others are whole and never
//!   older than what it saw before.

mod judge;
mod worker;

use crate::harness::cell::CellOptions;
use crate::harness::process::Proc;
use crate::harness::{Cell, Mount};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Processes on each mount, and in all.
const EACH: u32 = 4;
const WORKERS: u32 = 2 * EACH;
/// The promise.
const LONGEST_MS: u64 = 1_000;

fn seconds() -> u64 {
    if std::env::var_os("ARIEL_LONG").is_some() {
        60
    } else {
        10
    }
}

fn contend(name: &str, mount_args: &[&str]) {
    let limit = Duration::from_secs(seconds() + 120);
    let options = CellOptions {
        alone: true,
        limit,
        ..CellOptions::default()
    };
    let Some(cell) = Cell::start_with(name, options) else {
        return;
    };
    let mounts = [cell.mount_with(mount_args), cell.mount_with(mount_args)];
    worker::prepare(mounts[0].path());
    let reports = run_workers(&cell, &mounts);
    let roots = [mounts[0].path(), mounts[1].path()];
    judge::judge(&reports, roots);
}

/// Starts the processes, lets them begin together, and collects their reports.
fn run_workers(cell: &Cell, mounts: &[Mount; 2]) -> Vec<Value> {
    let control = cell.scratch().dir("control");
    let start = |id: u32| {
        let mount = mounts[(id % 2) as usize].path();
        start_worker(cell, mount, &control, id)
    };
    let mut workers: Vec<Proc> = (0..WORKERS).map(start).collect();
    let log =
        |id| std::fs::read_to_string(control.join(format!("worker-{id}.log"))).unwrap_or_default();
    // One that hangs is ended by the watchdog, and with it its output.
    for (id, worker) in workers.iter_mut().enumerate() {
        assert!(
            says_ready(worker),
            "process {id} does not get ready\n{}",
            log(id)
        );
    }
    // Each waits for the end of its input.
    for worker in &mut workers {
        drop(worker.child().stdin.take());
    }
    let limit = Duration::from_secs(seconds() + 60);
    let mut reports = Vec::new();
    for (id, worker) in workers.iter_mut().enumerate() {
        let status = worker
            .wait(limit)
            .unwrap_or_else(|| panic!("process {id} hangs"));
        assert!(status.success(), "process {id}: {status}\n{}", log(id));
        let report = std::fs::read(control.join(format!("report-{id}"))).unwrap();
        reports.push(serde_json::from_slice(&report).unwrap());
    }
    reports
}

/// Waits for the line that says so; later output of the process is thrown away.
fn says_ready(worker: &mut Proc) -> bool {
    let out = worker.child().stdout.take().expect("it is piped");
    let mut lines = BufReader::new(out).lines();
    let ready = lines.any(|line| line.is_ok_and(|line| line == worker::READY));
    std::thread::spawn(move || lines.for_each(drop));
    ready
}

/// A worker is this test program again, told by its environment to be one.
fn start_worker(cell: &Cell, mount: &Path, control: &Path, id: u32) -> Proc {
    let log = std::fs::File::create(control.join(format!("worker-{id}.log"))).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["contention::worker::process", "--exact", "--nocapture"]);
    command.env("ARIEL_IT_WORKER", id.to_string());
    command
        .env("ARIEL_IT_MOUNT", mount)
        .env("ARIEL_IT_CONTROL", control);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log);
    Proc::spawn(&mut command, Some(cell.watch())).unwrap()
}

#[test]
fn nobody_hangs_and_nothing_is_lost() {
    contend("contention", &[]);
}

#[test]
fn nobody_hangs_with_one_thread_each() {
    contend("contention-1", &["--threads", "1"]);
}
