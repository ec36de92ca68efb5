//! The pager: serves the faults of programs from frames and backing files. Every decision is
//! `logic::pages`'.
//!
//! Guarantees: the machine's outputs are carried out in their order under its lock, but for reads
//! and writes of files; a frame is mapped only when it is filled; the segments of a program go
//! with its connection, however it ends. A page that cannot be had or kept ends its program, and no
//! other.
//!
//! Threads: one for each segment, which reads its faults (one userfaultfd for all would be one
//! queue for all); one for each connection; some that read and write files ahead and behind. A
//! thread of faults reads for a program of one thread itself, and leaves it to the others when
//! several threads of a program wait.

mod calls;
mod carry;
mod room;

use crate::error::{Error, Result};
use crate::store::{Backing, Store};
use logic::pages::{FileId, Input, JobId, Options, Output, Pages, Run, SegmentId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use room::Room;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

/// Threads that read and write files.
const WORKERS: usize = 4;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A backing file, made at its first store.
#[derive(Default)]
struct LazyFile(OnceLock<Box<dyn Backing>>);

/// A read or a write of a file.
struct Work {
    job: JobId,
    room: Arc<Room>,
    run: Run,
    file: Arc<LazyFile>,
    is_store: bool,
}

struct State {
    pages: Pages,
    /// Counts the inputs: the clock of the ages of pages.
    inputs: u64,
    rooms: BTreeMap<SegmentId, Arc<Room>>,
    files: BTreeMap<FileId, Arc<LazyFile>>,
    next: SegmentId,
    queue: VecDeque<Work>,
    /// Forks and discards that are answered.
    answered: BTreeSet<SegmentId>,
    outputs: Vec<Output>,
    connections: usize,
}

struct Shared {
    state: Mutex<State>,
    queued: Condvar,
    answered: Condvar,
    /// A connection has ended.
    left: Condvar,
    store: Box<dyn Store>,
}

/// How a pager is.
#[derive(Clone, Copy, Debug)]
pub struct PagerOptions {
    /// Most frames of all segments together.
    pub frames: u32,
    /// Writes of pages that were copied on reference are counted, at the price of a fault for each
    /// such page: for experiments.
    pub count_writes: bool,
}

impl Default for PagerOptions {
    fn default() -> Self {
        Self {
            frames: u32::MAX,
            count_writes: false,
        }
    }
}

/// A pager. It serves until the process ends.
#[derive(Clone)]
pub struct Pager(Arc<Shared>);

impl Pager {
    /// Starts the threads of a pager that uses at most so many frames of 4 KiB.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(store: impl Store + 'static, frames: u32) -> Result<Self> {
        let options = PagerOptions {
            frames,
            ..PagerOptions::default()
        };
        Self::start_with(store, options)
    }

    /// The same with all options.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start_with(store: impl Store + 'static, options: PagerOptions) -> Result<Self> {
        let options = Options {
            frames: options.frames,
            count_writes: options.count_writes,
            ..Options::default()
        };
        let state = State {
            pages: Pages::new(options),
            inputs: 0,
            rooms: BTreeMap::new(),
            files: BTreeMap::new(),
            next: 1,
            queue: VecDeque::new(),
            answered: BTreeSet::new(),
            outputs: Vec::new(),
            connections: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            queued: Condvar::new(),
            answered: Condvar::new(),
            left: Condvar::new(),
            store: Box::new(store),
        });
        for _ in 0..WORKERS {
            let shared = Arc::clone(&shared);
            spawn("segment files", move || shared.work())?;
        }
        Ok(Self(shared))
    }

    /// Accepts programs at a socket of this path until the process ends.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(&self, path: &Path) -> Result<()> {
        // The name is there only when the socket accepts: a program that finds one which does not
        // may take it for a dead pager's.
        let early = path.with_extension("new");
        let address = SocketAddrUnix::new(&early).map_err(Error::Pager)?;
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
        let socket = socket.map_err(Error::Pager)?;
        rustix::net::bind(&socket, &address).map_err(Error::Pager)?;
        rustix::net::listen(&socket, BACKLOG).map_err(Error::Pager)?;
        std::fs::rename(&early, path)?;
        let pager = self.clone();
        spawn("segment calls", move || pager.accept(&socket))
    }

    fn accept(&self, socket: &OwnedFd) {
        loop {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
                Ok(connection) => {
                    if let Err(error) = self.serve(connection) {
                        tracing::warn!(%error, "a program cannot be served");
                    }
                }
                Err(error) => tracing::debug!(%error, "a connection was given up"),
            }
        }
    }

    /// Serves one program, whose calls come on this socket.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(&self, calls: OwnedFd) -> Result<()> {
        self.0.state.lock().connections += 1;
        let shared = Arc::clone(&self.0);
        let served = spawn("segment program", move || {
            calls::Connection::new(&shared, calls).serve();
            shared.state.lock().connections -= 1;
            shared.left.notify_all();
        });
        if served.is_err() {
            self.0.state.lock().connections -= 1;
        }
        served
    }

    /// Waits until the last program is gone.
    pub fn wait_unused(&self) {
        let mut state = self.0.state.lock();
        while state.connections > 0 {
            self.0.left.wait(&mut state);
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(Error::Local)
}

impl Shared {
    /// Tells the machine, and carries out what follows. With `inline`, the first file read that a
    /// program waits for is left to the caller.
    fn tell(&self, input: Input, inline: bool) -> Option<Work> {
        let mut state = self.state.lock();
        self.tell_locked(&mut state, input, inline)
    }

    fn tell_locked(
        &self,
        state: &mut MutexGuard<'_, State>,
        input: Input,
        inline: bool,
    ) -> Option<Work> {
        let state = &mut **state;
        state.inputs += 1;
        let mut outputs = std::mem::take(&mut state.outputs);
        state.pages.handle(state.inputs, input, &mut outputs);
        let mut mine = None;
        state.carry_all(&outputs, inline, &mut mine);
        outputs.clear();
        state.outputs = outputs;
        if !state.queue.is_empty() {
            self.queued.notify_all();
        }
        if !state.answered.is_empty() {
            self.answered.notify_all();
        }
        mine
    }

    /// Waits until a fork or a discard of this segment is answered.
    fn wait_answer(&self, segment: SegmentId) {
        let mut state = self.state.lock();
        while !state.answered.remove(&segment) {
            self.answered.wait(&mut state);
        }
    }

    /// Does what a worker does, for ever.
    fn work(&self) {
        loop {
            let work = {
                let mut state = self.state.lock();
                loop {
                    match state.queue.pop_front() {
                        Some(work) => break work,
                        None => self.queued.wait(&mut state),
                    }
                }
            };
            self.finish(work);
        }
    }

    /// Reads or writes, and what has to be read because of that.
    fn finish(&self, work: Work) {
        let mut next = Some(work);
        while let Some(work) = next {
            let job = work.job;
            let input = match self.perform(&work) {
                Ok(()) => Input::Done { job },
                Err(error) => {
                    let segment = work.room.id;
                    tracing::error!(segment, %error, "a page cannot be had or kept");
                    Input::Failed { job }
                }
            };
            next = self.tell(input, true);
        }
    }

    fn perform(&self, work: &Work) -> Result<()> {
        if work.is_store {
            let file = match work.file.0.get() {
                Some(file) => file,
                None => {
                    let made = self.store.make()?;
                    // Another worker may have been first: its file is used, and this one goes.
                    work.file.0.get_or_init(|| made)
                }
            };
            work.room.write(work.run, &**file)
        } else {
            let file = work.file.0.get();
            let file = file.ok_or(Error::Refused("a file is read that was never written"))?;
            work.room.read(work.run, &**file)
        }
    }
}
