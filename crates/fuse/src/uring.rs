//! Requests over io_uring: for each processor a queue of the kernel and a thread here that stays on
//! that processor, so that a program and the thread that serves it hand over to each other without
//! waking another processor. Forgotten nodes, interruptions and notifications still go by the
//! device.
//!
//! The kernel switches over when every queue has a seat, and asks nothing before; so all that can
//! be known beforehand is made sure of before it is told that requests may come this way
//! ([`Rings::prepare`]). If it then does not take the seats, requests come by the device after all.

mod ask;
mod lane;
mod memory;
pub(crate) mod processors;
mod ring;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rustix::io::Errno;

use crate::device::{self, Device};
use crate::idle_policy::{Guard, Handover};
use lane::{Came, Commit, Lane};
use processors::Processors;
use ring::Ring;

/// Where the kernel says whether requests may come over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Why requests cannot come over io_uring, and the cure.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel does not know how.
    #[error(
        "this kernel has no FUSE over io_uring: use Linux 6.14 or later, built with \
         CONFIG_FUSE_IO_URING, or mount with `--transport dev`"
    )]
    Unknown,
    /// The kernel may not.
    #[error(
        "FUSE over io_uring is switched off on this machine: as root, `echo Y > {SWITCH}` and \
         mount again, or mount with `--transport dev`"
    )]
    SwitchedOff,
    /// This process may not use io_uring.
    #[error(
        "io_uring cannot be used here ({0}): see /proc/sys/kernel/io_uring_disabled, and what the \
         container allows, or mount with `--transport dev`"
    )]
    Ring(io::Error),
    /// The processors cannot be found out.
    #[error("the processors cannot be found out ({0}): mount with `--transport dev`")]
    Processors(io::Error),
    /// This process may not run on each of them.
    #[error(
        "this process may not run on every processor, as each is served from there: start it \
         without taskset or a cpuset, or mount with `--transport dev`"
    )]
    Confined,
    /// The kernel does not take what is registered.
    #[error("the kernel does not take the queues ({0}): mount with `--transport dev`")]
    Refused(io::Error),
}

/// A lane's function for a request: it takes the message, and the seat for the answer.
pub(crate) type Serve = Arc<dyn Fn(&[u8], Seat) + Send + Sync>;

/// How lanes are to be.
#[derive(Clone)]
pub(crate) struct How {
    /// Bytes of the largest read or write.
    pub(crate) payload_len: usize,
    /// Bytes of the longest request.
    pub(crate) message_len: usize,
    /// Where the tree is mounted.
    pub(crate) root: Option<PathBuf>,
    /// Lanes may hand their processors over.
    pub(crate) hands_over: bool,
}

/// Rings that wait for the kernel's consent.
pub(crate) struct Rings {
    rings: Vec<(Vec<u16>, Ring)>,
}

impl Rings {
    /// Makes all that is needed before the kernel is told. `offered`: it offers to do so.
    pub(crate) fn prepare(offered: bool) -> Result<Rings, Unavailable> {
        if !offered {
            return Err(match std::fs::exists(SWITCH) {
                Ok(true) => Unavailable::SwitchedOff,
                _ => Unavailable::Unknown,
            });
        }
        let rings = Processors::find()?.shares().into_iter();
        let rings = rings.map(|share| Ok((share, Ring::new().map_err(Unavailable::Ring)?)));
        Ok(Rings {
            rings: rings.collect::<Result<_, _>>()?,
        })
    }

    /// Starts the lanes.
    pub(crate) fn run(
        self,
        device: &Arc<Device>,
        how: &How,
        serve: &Serve,
    ) -> Result<(Lanes, Vec<JoinHandle<()>>), Unavailable> {
        let mut lanes = Lanes::default();
        let (begun, beginnings) = mpsc::channel();
        let mut threads = Vec::new();
        if let Some((guard, thread)) = how.hands_over.then(Guard::start).flatten() {
            lanes.guard = Some(guard);
            threads.push(thread);
        }
        for (queues, ring) in self.rings {
            let lane = Arc::new(Lane::new(ring.alarm(), Arc::clone(&lanes.under_way)));
            lanes.lanes.push(Arc::clone(&lane));
            let lane = LaneThread {
                lane,
                device: Arc::clone(device),
                queues,
                how: how.clone(),
                serve: Arc::clone(serve),
                guard: lanes.guard.clone(),
            };
            let begun = begun.clone();
            let name = format!("ariel-lane-{}", lane.queues[0]);
            let thread = std::thread::Builder::new().name(name);
            let started = thread.spawn(move || lane.run(ring, begun));
            threads.push(started.map_err(|error| lanes.give_up(Unavailable::Ring(error)))?);
        }
        drop(begun);
        for _ in &lanes.lanes {
            let ended = || Unavailable::Refused(io::Error::other("a lane ended"));
            let beginning = beginnings.recv().unwrap_or_else(|_| Err(ended()));
            beginning.map_err(|error| lanes.give_up(error))?;
        }
        Ok((lanes, threads))
    }
}

/// The lanes of a connection.
#[derive(Default)]
pub(crate) struct Lanes {
    lanes: Vec<Arc<Lane>>,
    under_way: Arc<AtomicUsize>,
    guard: Option<Arc<Guard>>,
}

impl Lanes {
    /// Do they hand their processors over?
    pub(crate) fn hand_over(&self) -> bool {
        self.guard.is_some()
    }

    /// Returns when every answer given so far has been taken.
    pub(crate) fn settle(&self) {
        lane::settle(&self.lanes, &self.under_way);
    }

    /// The connection is over.
    pub(crate) fn end(&self) {
        for lane in &self.lanes {
            lane.end();
        }
        if let Some(guard) = &self.guard {
            guard.end();
        }
    }

    fn give_up(&self, error: Unavailable) -> Unavailable {
        self.end();
        error
    }
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings")
            .field("rings", &self.rings.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes")
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

/// Lanes that may come to be.
pub(crate) type MaybeLanes = Arc<OnceLock<Lanes>>;

/// The state of a lane's thread.
struct LaneThread {
    lane: Arc<Lane>,
    device: Arc<Device>,
    queues: Vec<u16>,
    how: How,
    serve: Serve,
    guard: Option<Arc<Guard>>,
}

impl LaneThread {
    fn run(self, ring: Ring, begun: Sender<Result<(), Unavailable>>) {
        device::mark_serving_thread();
        let _ending = Ending(&self.lane);
        let begin = || {
            processors::stay_on(self.queues[0])?;
            let own = (Arc::clone(&self.lane), &*self.device, ring);
            let handover = self.guard.as_ref().map(Handover::new);
            lane::begin(own, &self.queues, &self.how, handover).map_err(Unavailable::Refused)
        };
        let beginning = begin();
        let works = beginning.is_ok();
        // It is waited for until one lane could not begin.
        let _ = begun.send(beginning);
        drop(begun);
        if works {
            self.work();
        }
    }

    fn work(&self) {
        let mut message = vec![0; self.how.message_len];
        let mut tokens = Vec::new();
        while lane::next(&mut tokens) {
            for token in tokens.drain(..) {
                if let Some(came) = lane::take(token, &mut message) {
                    let len = came.taken.len;
                    (self.serve)(&message[..len], Seat(came));
                    lane::commit_posted();
                }
            }
        }
    }
}

/// Nobody waits for a lane whose thread has ended, however it did.
struct Ending<'a>(&'a Lane);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        lane::end(self.0);
    }
}

/// Where the answer to one request goes. Must be answered once: the kernel waits.
pub(crate) struct Seat(Came);

impl Seat {
    /// The request's number, by which it is answered.
    pub(crate) fn unique(&self) -> u64 {
        self.0.taken.commit_id
    }

    /// Gives the answer. EINVAL: it is too long, and EIO is answered. ENODEV: nobody wants it.
    pub(crate) fn answer(&self, unique: u64, error: i32, slices: &[&[u8]]) -> Result<(), Errno> {
        let Came { seats, seat, .. } = &self.0;
        let put = seats.put(*seat, (unique, error), slices);
        if put.is_err() {
            // No bytes are never too many.
            let _ = seats.put(*seat, (unique, -Errno::IO.raw_os_error()), &[]);
        }
        let Came { lane, token, .. } = &self.0;
        let commit_id = self.0.taken.commit_id;
        let token = *token;
        if !lane.commit(Commit { token, commit_id }) {
            return Err(Errno::NODEV);
        }
        put
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("token", &self.0.token)
            .finish_non_exhaustive()
    }
}
