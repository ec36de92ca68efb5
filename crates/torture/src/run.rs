//! A run: starts the workers, gives them their rounds, kills what is to be killed, and has the
//! judge look at each round. A round ends when all workers have answered, so between rounds nothing
//! is under way, and histories stay short.
//!
//! This process never touches the mounts itself: one that hangs holds up a worker, not the verdict.

use crate::history::Operation;
use crate::judge::Judge;
use crate::plan::{Clock, Kills, Limit, Options, Order, Plan, Reply};
use crate::random::Random;
use crate::report::Report;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A worker's two ends.
pub struct Link {
    /// What it reads.
    pub input: Box<dyn Write + Send>,
    /// What it writes.
    pub output: Box<dyn Read + Send>,
    /// Its process, when it is one.
    pub child: Option<Child>,
}

struct Crew {
    plans: Vec<Plan>,
    inputs: Vec<Box<dyn Write + Send>>,
    children: Vec<Option<Child>>,
    replies: Receiver<(usize, Result<Reply, String>)>,
    hang: Duration,
}

/// Why a run ends early.
enum End {
    /// It could not be run.
    Failed(String),
    /// These workers did not answer.
    Hanging(Vec<usize>),
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.inputs.clear();
        for child in self.children.iter_mut().flatten() {
            // A worker ends with its input; one that hangs in the kernel is not waited for.
            let _ = child.kill();
            let _ = child.try_wait();
        }
    }
}

impl Crew {
    fn start(
        options: &Options,
        dir: &str,
        launch: &mut dyn FnMut(&Plan) -> std::io::Result<Link>,
    ) -> Result<Crew, String> {
        let (send, replies) = channel();
        let mut crew = Crew {
            plans: Vec::new(),
            inputs: Vec::new(),
            children: Vec::new(),
            replies,
            hang: Duration::from_nanos(options.hang_ns),
        };
        for _ in 0..options.processes {
            for (number, mount) in options.mounts.iter().enumerate() {
                let plan = Plan {
                    mount: mount.clone(),
                    mount_number: number as u32,
                    process: crew.plans.len() as u32,
                    seed: options.seed,
                    dir: dir.to_owned(),
                    files: options.files,
                    kills: options.kills.any(),
                };
                let link = launch(&plan).map_err(|error| format!("a worker: {error}"))?;
                listen(crew.plans.len(), link.output, send.clone());
                crew.plans.push(plan);
                crew.inputs.push(link.input);
                crew.children.push(link.child);
            }
        }
        Ok(crew)
    }

    fn name(&self, worker: usize) -> String {
        let plan = &self.plans[worker];
        format!("process p{} at {}", plan.process, plan.mount.display())
    }

    /// Gives an order to some workers and waits for all their replies.
    fn order(&mut self, workers: &[usize], order: Order) -> Result<Vec<Reply>, End> {
        let mut line = serde_json::to_vec(&order).map_err(|e| End::Failed(e.to_string()))?;
        line.push(b'\n');
        for worker in workers {
            let input = &mut self.inputs[*worker];
            let sent = input.write_all(&line).and_then(|()| input.flush());
            sent.map_err(|e| End::Failed(format!("{}: {e}", self.name(*worker))))?;
        }
        let (mut waiting, mut replies) = (workers.to_vec(), Vec::new());
        while !waiting.is_empty() {
            match self.replies.recv_timeout(self.hang) {
                Ok((worker, Ok(reply))) => {
                    waiting.retain(|one| *one != worker);
                    if let Some(error) = reply.error {
                        return Err(End::Failed(error));
                    }
                    replies.push(reply);
                }
                Ok((worker, Err(error))) => {
                    return Err(End::Failed(format!("{}: {error}", self.name(worker))));
                }
                Err(_) => return Err(End::Hanging(waiting)),
            }
        }
        Ok(replies)
    }
}

/// Reads a worker's answers in a thread of their own.
fn listen(
    worker: usize,
    output: Box<dyn Read + Send>,
    send: Sender<(usize, Result<Reply, String>)>,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let reply = line.map_err(|error| error.to_string());
            let reply = reply.and_then(|line| {
                serde_json::from_str(&line).map_err(|error| format!("its answer: {error}"))
            });
            let failed = reply.is_err();
            if send.send((worker, reply)).is_err() || failed {
                return;
            }
        }
        let _ = send.send((worker, Err("it ended unexpectedly".to_owned())));
    });
}

/// Kills at intervals until it is told to stop; the number of kills, or why one failed.
struct Killer {
    stop: Sender<()>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Killer {
    fn start(kills: &Kills, mounts: &[PathBuf], seed: u64) -> Killer {
        let (stop, stopped) = channel();
        let (kills, mounts) = (kills.clone(), mounts.to_vec());
        let thread = std::thread::spawn(move || {
            let mut random = Random::of(seed, u64::MAX);
            let mut count = 0;
            loop {
                // From half to one and a half of the interval.
                let every_ns = kills.every_ns / 2 + random.below(kills.every_ns.max(1));
                match stopped.recv_timeout(Duration::from_nanos(every_ns)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return Ok(count),
                }
                let mount = &mounts[random.below(mounts.len() as u64) as usize];
                let both = [&kills.client, &kills.server];
                let commands: Vec<&String> = both.into_iter().flatten().collect();
                if commands.is_empty() {
                    continue;
                }
                kill(
                    commands[random.below(commands.len() as u64) as usize],
                    mount,
                )?;
                count += 1;
            }
        });
        Killer { stop, thread }
    }

    fn end(self) -> Result<u64, String> {
        let _ = self.stop.send(());
        let ended = self.thread.join();
        ended.map_err(|_| "the thread that kills has panicked".to_owned())?
    }

    fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }
}

fn kill(command: &str, mount: &Path) -> Result<(), String> {
    let status = Command::new("/bin/sh")
        .args(["-c", command])
        .env("TORTURE_MOUNT", mount)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{command}`: {status}: it must end with 0")),
        Err(error) => Err(format!("`{command}`: {error}")),
    }
}

/// Runs; `launch` starts a worker that does `work`. An error says why it could not be run.
pub fn run(
    options: &Options,
    clock: Clock,
    launch: &mut dyn FnMut(&Plan) -> std::io::Result<Link>,
) -> Result<Report, String> {
    let dir = format!(".torture-{}-{}", options.seed, std::process::id());
    let mut report = Report {
        seed: options.seed,
        mounts: options
            .mounts
            .iter()
            .map(|mount| mount.display().to_string())
            .collect(),
        processes: options.processes * options.mounts.len() as u32,
        began_ns: clock(),
        took_ns: 0,
        rounds: 0,
        kills: 0,
        operations: 0,
        objects: 0,
        unknown: 0,
        torn: 0,
        undecided: 0,
        violations: Vec::new(),
        hanging: Vec::new(),
    };
    let mut crew = Crew::start(options, &dir, launch)?;
    let all: Vec<usize> = (0..crew.plans.len()).collect();
    let links = match set_up(&mut crew, &all) {
        Ok(links) => links,
        Err(end) => return Err(told(&crew, end)),
    };
    let killer = options
        .kills
        .any()
        .then(|| Killer::start(&options.kills, &options.mounts, options.seed));
    let mut judge = Judge::new(options.atomic);
    let ended = rounds(
        options,
        clock,
        &mut crew,
        (&mut judge, &mut report, links, killer.as_ref()),
    );
    report.took_ns = clock().saturating_sub(report.began_ns);
    report.count(&judge);
    if let Some(killer) = killer {
        report.kills = killer.end()?;
    }
    match ended {
        Ok(()) => {}
        Err(End::Hanging(workers)) => {
            report.hanging = workers.iter().map(|worker| crew.name(*worker)).collect();
            return Ok(report);
        }
        Err(end) => return Err(told(&crew, end)),
    }
    // What cannot be removed is no reason to withhold the verdict.
    let _ = crew.order(&[0], Order::Clean);
    Ok(report)
}

fn told(crew: &Crew, end: End) -> String {
    match end {
        End::Failed(error) => error,
        End::Hanging(workers) => {
            let names: Vec<String> = workers.iter().map(|worker| crew.name(*worker)).collect();
            format!("no answer while preparing from {}", names.join(", "))
        }
    }
}

fn set_up(crew: &mut Crew, all: &[usize]) -> Result<bool, End> {
    let replies = crew.order(&all[..1], Order::Setup)?;
    let links = replies.iter().all(|reply| reply.links);
    crew.order(&all[1..], Order::Find)
        .map_err(|end| match end {
            End::Failed(error) => {
                End::Failed(format!("{error}: do all mounts show the same tree?"))
            }
            end => end,
        })?;
    Ok(links)
}

fn rounds(
    options: &Options,
    clock: Clock,
    crew: &mut Crew,
    (judge, report, links, killer): (&mut Judge, &mut Report, bool, Option<&Killer>),
) -> Result<(), End> {
    let all: Vec<usize> = (0..crew.plans.len()).collect();
    let mut random = Random::of(options.seed, 0);
    loop {
        let ended = match options.limit {
            Limit::Time(ns) => clock().saturating_sub(report.began_ns) >= ns,
            Limit::Operations(count) => judge.operations() >= count,
        };
        if ended || !report.violations.is_empty() || killer.is_some_and(Killer::has_failed) {
            return Ok(());
        }
        let round = report.rounds;
        report.rounds += 1;
        let of = |salt: u64| [((round + salt) % all.len() as u64) as usize];
        crew.order(&of(0), Order::Begin { round })?;
        let operations = 20 + random.below(180) as u32;
        let work = Order::Work {
            round,
            operations,
            links,
        };
        let mut replies = crew.order(&all, work)?;
        replies.extend(crew.order(&of(1), Order::End { round })?);
        let seen: Vec<Operation> = replies.into_iter().flat_map(|one| one.operations).collect();
        report.violations = judge.round(seen);
        report.violations.sort_by_key(|one| one.operations.len());
        report.violations.truncate(3);
    }
}
