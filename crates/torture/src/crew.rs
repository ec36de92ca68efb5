//! The workers as the run sees them: started together, told what to do, waited for within a limit.

use crate::plan::{Options, Order, Plan, Reply};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long a worker may take to end.
const END: Duration = Duration::from_secs(5);

/// A worker's two ends.
pub struct Link {
    /// The pipe from which it reads.
    pub input: Box<dyn Write + Send>,
    /// The pipe to which it writes.
    pub output: Box<dyn Read + Send>,
    /// Its process, when it is one.
    pub child: Option<Child>,
}

/// The workers.
pub(crate) struct Crew {
    pub(crate) plans: Vec<Plan>,
    inputs: Vec<Box<dyn Write + Send>>,
    children: Vec<Option<Child>>,
    replies: Receiver<(usize, Result<Reply, String>)>,
    hang: Duration,
}

/// Why a run ends early.
pub(crate) enum End {
    /// It could not be run.
    Failed(String),
    /// These workers did not answer.
    Hanging(Vec<usize>),
}

impl Drop for Crew {
    fn drop(&mut self) {
        // A worker ends with its input, and its output with it; one that hangs in the kernel is not
        // waited for.
        self.inputs.clear();
        let mut ended = 0;
        while ended < self.children.len() {
            match self.replies.recv_timeout(END) {
                Ok((_, Err(_))) => ended += 1,
                Ok((_, Ok(_))) => {}
                Err(_) => break,
            }
        }
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.try_wait();
        }
    }
}

impl Crew {
    /// Starts them. `dir`: where they work; `kills`: crashes are to be expected.
    pub(crate) fn start(
        options: &Options,
        (dir, kills): (&str, bool),
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
                    processes: options.processes * options.mounts.len() as u32,
                    seed: options.seed,
                    dir: dir.to_owned(),
                    files: options.files,
                    kills,
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

    /// A worker for people.
    pub(crate) fn name(&self, worker: usize) -> String {
        let plan = &self.plans[worker];
        format!("process p{} at {}", plan.process, plan.mount.display())
    }

    /// Gives an order to some workers and waits for all their replies.
    pub(crate) fn order(&mut self, workers: &[usize], order: Order) -> Result<Vec<Reply>, End> {
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
