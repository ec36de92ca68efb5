//! A connection with the kernel: negotiated, then served by threads that take requests (from the
//! device, or over io_uring) and hand each to the handler with the right to answer it. A handler
//! answers at once or later, from any thread, and never blocks the thread it was called on; then
//! one thread is enough for any number of requests under way. The threads end when the connection
//! does (unmounted, aborted).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use client::front::now_ns;
use parking_lot::Mutex;
use rustix::io::Errno;
use tracing::{debug, error, info, warn};
use zerocopy::IntoBytes;

use crate::abi::{self, InitIn, Opcode};
use crate::counters::Counters;
use crate::device::{self, Device, Incoming};
use crate::init::{self, InitError, Negotiated, Options, Step, Transport};
use crate::notify::Notifier;
use crate::readers::{Reader, Readers};
use crate::reply::{self, Reply, Watch, Way};
use crate::request::{Dialect, Operation, ParseError, Request};
use crate::uring::{How, Lanes, MaybeLanes, Rings, Unavailable};

/// Room for what comes with the data of the largest request; names and attributes fit as well.
const HEAD_ROOM: usize = 16 << 10;
/// Room for `INIT`.
const INIT_ROOM: usize = 64 << 10;

/// The server of requests.
pub trait Handler: Send + Sync {
    /// Serves one request. Must not block: a request that has to wait takes the reply along and
    /// answers later. `FORGET` and `BATCH_FORGET` come with a reply that does nothing; to
    /// `INTERRUPT` only an error can be answered (EAGAIN: ask again), and none need be.
    fn handle(&self, request: Request<'_>, reply: Reply);
}

/// Why a session did not begin.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing could be agreed with the kernel.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The kernel's first request was not `INIT`.
    #[error("the kernel's first request is no INIT ({0}): is this a fresh FUSE descriptor?")]
    NoInit(String),
    /// The mount went away first.
    #[error("the mount was removed before it was served: mount again")]
    Over,
    /// The device failed.
    #[error("reading or writing /dev/fuse failed: {0}")]
    Device(#[from] Errno),
    /// Requests were to come over io_uring, and cannot.
    #[error(transparent)]
    Uring(#[from] Unavailable),
    /// No thread could be started.
    #[error("no thread could be started (is the limit on processes reached? ulimit -u): {0}")]
    Thread(#[from] io::Error),
}

/// A negotiated connection.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    negotiated: Negotiated,
    options: Options,
    counters: Arc<Counters>,
    notifier: Notifier,
    /// Prepared, and not yet in use.
    rings: Mutex<Option<Rings>>,
    lanes: MaybeLanes,
    readers_hand_over: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Session {
    /// Negotiates on the descriptor a mount gave.
    pub fn new(fd: OwnedFd, options: Options) -> Result<Self, SessionError> {
        let device = Arc::new(Device::new(fd));
        let counters = Arc::new(Counters::default());
        let (negotiated, rings) = initialise(&device, &options, &counters)?;
        info!(
            kernel_minor = negotiated.kernel_minor,
            flags = format_args!("{:#x}", negotiated.flags),
            max_write = negotiated.max_write,
            inc_epoch = negotiated.inc_epoch,
            "FUSE connection negotiated"
        );
        let lanes = MaybeLanes::default();
        let notifier = Notifier::new(Arc::clone(&device), Arc::clone(&lanes), &negotiated)?;
        Ok(Session {
            device,
            negotiated,
            options,
            counters,
            notifier,
            rings: Mutex::new(rings),
            lanes,
            readers_hand_over: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
        })
    }

    /// How requests come, once they are served.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self.lanes.get() {
            Some(_) => Transport::Uring,
            None => Transport::Device,
        }
    }

    /// Do those who serve requests hand their processors over to programs?
    #[must_use]
    pub fn hands_over(&self) -> bool {
        let readers = || self.readers_hand_over.load(Ordering::Acquire);
        self.lanes.get().map_or_else(readers, Lanes::hand_over)
    }

    /// The agreement with the kernel.
    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Takes back what the kernel caches. Clones can be kept.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Requests received, by kind.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Begins to serve, with the number of threads the options say. Called once.
    pub fn serve(&self, handler: Arc<dyn Handler>) -> Result<(), SessionError> {
        let server = Arc::new(Server {
            dialect: self.negotiated.dialect(),
            counters: Arc::clone(&self.counters),
            handler,
        });
        if let Some(rings) = self.rings.lock().take()
            && let Err(error) = self.start_lanes(rings, &server)
        {
            if self.options.transport == Transport::Uring {
                return Err(error.into());
            }
            warn!(%error, "requests come by the device");
        }
        let readers = match self.transport() {
            Transport::Uring => 1,
            _ => self.options.threads.max(1),
        };
        let mut threads = self.threads.lock();
        let hand_over = readers > 1 && self.negotiated.hands_over;
        let together = hand_over.then(Readers::start).flatten();
        let together = together.map(|(together, thread)| {
            threads.push(thread);
            together
        });
        self.readers_hand_over
            .store(together.is_some(), Ordering::Release);
        for number in 0..readers {
            let worker = Worker {
                number: number as u32,
                readers: together.clone(),
                device: self.queue(number),
                buffer_len: self.message_len(),
                server: Arc::clone(&server),
                lanes: Arc::clone(&self.lanes),
            };
            let name = format!("ariel-fuse-{number}");
            threads.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || worker.run())
                    .inspect_err(|_| {
                        if let Some(readers) = &together {
                            readers.end();
                        }
                    })?,
            );
        }
        Ok(())
    }

    fn start_lanes(&self, rings: Rings, server: &Arc<Server>) -> Result<(), Unavailable> {
        let server = Arc::clone(server);
        let serve = Arc::new(move |message: &[u8], seat| server.serve(message, Way::Seat(seat)));
        let how = How {
            payload_len: (self.negotiated.max_write as usize).max(abi::READ_BUFFER_LEAST),
            message_len: self.message_len(),
            root: self.options.root.clone(),
            hands_over: self.negotiated.hands_over,
        };
        let (lanes, threads) = rings.run(&self.device, &how, &(serve as _))?;
        // There were none: this is called once.
        let _ = self.lanes.set(lanes);
        self.threads.lock().extend(threads);
        Ok(())
    }

    /// Bytes of the longest message.
    fn message_len(&self) -> usize {
        (self.negotiated.max_write as usize + HEAD_ROOM).max(abi::READ_BUFFER_LEAST)
    }

    /// The device for one thread: the first keeps the mount's own, the others get one each so
    /// that they do not meet on its locks, or share it where the kernel gives none.
    fn queue(&self, number: usize) -> Arc<Device> {
        if number == 0 {
            return Arc::clone(&self.device);
        }
        match self.device.try_clone() {
            Ok(clone) => Arc::new(clone),
            Err(errno) => {
                warn!(%errno, "cannot clone the FUSE device; threads share one");
                Arc::clone(&self.device)
            }
        }
    }

    /// Returns when the connection is over and every serving thread has ended.
    pub fn wait(&self) {
        loop {
            let Some(thread) = self.threads.lock().pop() else {
                return;
            };
            if thread.join().is_err() {
                error!("a thread serving FUSE requests panicked");
            }
        }
    }
}

impl AsFd for Session {
    /// The device; a process that keeps it open lets the mount outlive this session.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Reads and answers `INIT`, again if the kernel's major version is ahead.
fn initialise(
    device: &Device,
    options: &Options,
    counters: &Counters,
) -> Result<(Negotiated, Option<Rings>), SessionError> {
    let mut buffer = vec![0; INIT_ROOM];
    loop {
        let Incoming::Request(len) = device.read(&mut buffer)? else {
            return Err(SessionError::Over);
        };
        let request = Request::parse(&buffer[..len])
            .map_err(|error| SessionError::NoInit(error.to_string()))?;
        counters.count(request.header.opcode);
        let unique = request.header.unique;
        let Operation::Init(offer) = request.operation else {
            return Err(SessionError::NoInit(request.header.opcode.to_string()));
        };
        match agree(&offer, options) {
            Ok((Step::Agree(answer, negotiated), rings)) => {
                reply::write(device, unique, 0, &[answer.as_bytes()])?;
                return Ok((negotiated, rings));
            }
            Ok((Step::AskAgain(answer), _)) => {
                reply::write(device, unique, 0, &[answer.as_bytes()])?;
            }
            Err(error) => {
                // The reason is returned; the kernel only needs to stop waiting.
                let _ = reply::write(device, unique, -Errno::PROTO.raw_os_error(), &[]);
                return Err(error);
            }
        }
    }
}

/// The answer to an offer, with the rings for the agreement. After consent the kernel waits
/// for them, so they are made before.
fn agree(offer: &InitIn, options: &Options) -> Result<(Step, Option<Rings>), SessionError> {
    let offered = init::offered(offer) & !options.without.flags();
    let offered = offered & abi::init::OVER_IO_URING != 0;
    let rings = match options.transport {
        Transport::Device => None,
        Transport::Uring => Some(Rings::prepare(offered)?),
        Transport::Auto if !offered => None,
        Transport::Auto => Rings::prepare(true)
            .inspect_err(|error| info!(%error, "requests come by the device"))
            .ok(),
    };
    let options = Options {
        transport: match rings {
            Some(_) => Transport::Uring,
            None => Transport::Device,
        },
        ..options.clone()
    };
    Ok((init::negotiate(offer, &options)?, rings))
}

/// Where requests come over io_uring, what comes by the device can wait: forgotten nodes, and now
/// and then an interruption, which is this much late. So it is left there for a moment. The kernel
/// hands over many forgotten nodes at once then, and a program that removes names need not wake
/// this thread for each.
const GATHERING: Duration = Duration::from_millis(2);

/// The state of one thread that reads the device.
struct Worker {
    number: u32,
    readers: Option<Arc<Readers>>,
    device: Arc<Device>,
    buffer_len: usize,
    server: Arc<Server>,
    lanes: MaybeLanes,
}

impl Worker {
    fn run(self) {
        device::mark_serving_thread();
        let mut buffer = vec![0; self.buffer_len];
        let reader = |readers| Reader::new(readers, self.number);
        let mut reader = self.readers.as_ref().map(reader);
        loop {
            if let Some(reader) = &reader {
                reader.wait_for_turn();
            }
            match self.device.read(&mut buffer) {
                Ok(Incoming::Request(len)) => {
                    if let Some(reader) = &mut reader {
                        reader.came(&buffer[..len]);
                    }
                    let way = Way::Device(Arc::clone(&self.device));
                    self.server.serve(&buffer[..len], way);
                    if self.lanes.get().is_some() {
                        std::thread::sleep(GATHERING);
                    }
                }
                Ok(Incoming::Over) => {
                    debug!("FUSE connection over");
                    break;
                }
                Err(errno) => {
                    error!(%errno, "reading /dev/fuse failed; this thread stops serving");
                    break;
                }
            }
        }
        if let Some(lanes) = self.lanes.get() {
            lanes.end();
        }
    }
}

/// The server of requests, whichever way they come.
struct Server {
    dialect: Dialect,
    counters: Arc<Counters>,
    handler: Arc<dyn Handler>,
}

impl Server {
    fn serve(&self, message: &[u8], way: Way) {
        let came_ns = now_ns();
        let request = match Request::parse_in(message, self.dialect) {
            Ok(request) => request,
            Err(error) => return refuse(&error, &way),
        };
        let opcode = request.header.opcode;
        self.counters.count(opcode);
        let watch = Watch::new(&self.counters, came_ns, message.len());
        let reply = Reply::new(way, request.header.unique, opcode, watch);
        if opcode == Opcode::INIT {
            // A second INIT is no request of a sane kernel.
            reply.error(Errno::IO);
            return;
        }
        // A bug in one request must not end the service of all others; the reply, dropped while
        // the panic unwinds, answers EIO.
        let served = catch_unwind(AssertUnwindSafe(|| self.handler.handle(request, reply)));
        if served.is_err() {
            error!(%opcode, "the handler panicked; the request was answered with EIO");
        }
    }
}

fn refuse(problem: &ParseError, way: &Way) {
    error!(%problem, "malformed request from the kernel");
    let unique = match way {
        Way::Device(_) => problem.awaits_reply(),
        Way::Seat(seat) => Some(seat.unique()),
    };
    if let Some(unique) = unique {
        // Fails only if the request has ended by itself.
        let _ = way.send(unique, -Errno::IO.raw_os_error(), &[]);
    }
}
