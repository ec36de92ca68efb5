//! One live TCP connection: a bounded queue of frames to write, and an orderly end.
//!
//! Guarantees: messages leave in the order of [`Link::send`], but that short ones go before long
//! ones ([`crate::queue`]); no method blocks on the peer; after an overrun not one later frame
//! leaves, so the peer never sees a gap. Closing writes what is queued,
//! shuts down the writing half and reads until the peer's end, all within [`LINGER_NS`], because
//! closing a socket with unread input resets it and takes the last replies from the peer.
//!
//! `out` holds every decision and is never held during a system call that may wait. While
//! `out.writing` is set, one thread writes, and it alone touches `pen`: the one that called
//! `flush`, until the socket is full; then the link's writer thread, started when first needed.
//!
//! | stage   | queue     | frames read | next                                                     |
//! |---------|-----------|-------------|----------------------------------------------------------|
//! | Open    | accepts   | delivered   | Closing by close or the peer's end; Broken; Aborted      |
//! | Broken  | dropped   | delivered   | the reader finds the end after what had already arrived  |
//! | Closing | drains    | discarded   | the reader finds the end, or Aborted after LINGER_NS     |
//! | Aborted | dropped   | discarded   | the reader finds the end at once                         |

use crate::frame::Kind;
use crate::greeting::Agreed;
use crate::id::LinkId;
use crate::identity::Identity;
use crate::pen::Pen;
use crate::queue::{Bulk, CONGESTED_BYTES, Outgoing, Queue};
use crate::reason::CloseReason;
use crate::tls::record::Sealer;
use crate::{Events, clock, greeting, receive, socket};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most bytes that wait while the reading thread delivers more short frames.
const HELD_BYTES_MAX: usize = 64 << 10;
/// How long an orderly end may take before the connection is cut.
pub const LINGER_NS: u64 = 2_000_000_000;
/// The bytes that a thread writes for others before the writer thread takes over: it has its own
/// work.
const INLINE_BYTES: usize = 4 << 20;
/// How often a writer that waits for a full socket looks whether the link has ended.
const POLL_NS: i64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Broken,
    Closing,
    Aborted,
}

struct Outbound {
    stage: Stage,
    reason: Option<CloseReason>,
    /// When Closing becomes Aborted.
    close_by_ns: u64,
    queue: Queue,
    /// Of `queue` and `pen` together.
    queued_bytes: usize,
    /// Somebody wants to know when the link is no longer congested.
    told_room: bool,
    writing: bool,
    /// The writing is left to the writer thread, which has not taken it up yet.
    handed: bool,
    /// The reader has seen the end; the writer thread must end too.
    ended: bool,
    writer: Option<JoinHandle<()>>,
}

/// Why `pump` stopped.
enum Pumped {
    /// Nothing is left, or nothing more can be written; `writing` is false again.
    Done,
    /// The socket is full or the budget spent; the caller still owns the writing.
    Left,
    /// The link is no longer congested, which somebody wants to know; the caller still owns the
    /// writing.
    Room,
}

/// A connection. Belongs to a [`crate::Listener`] or a [`crate::Dialer`], which read from it.
pub struct Link {
    id: LinkId,
    peer: SocketAddr,
    identity: Identity,
    socket: TcpStream,
    events: Weak<dyn Events>,
    /// Most bytes that may wait.
    most_bytes: usize,
    out: Mutex<Outbound>,
    /// Something in `out` changed that a waiting thread may care for.
    changed: Condvar,
    pen: Mutex<Pen>,
    /// The stage is Closing or Aborted; read for each frame without the lock.
    discarding: AtomicBool,
    /// The version that both ends speak, from their greetings on.
    pub(crate) agreed: Agreed,
}

impl Link {
    /// Prepares a fresh connection whose peer is known, on which at most so many bytes may wait.
    pub(crate) fn new(
        (socket, peer): (TcpStream, SocketAddr),
        (identity, sealer): (Identity, Option<Sealer>),
        events: &Arc<dyn Events>,
        most_bytes: usize,
    ) -> io::Result<Arc<Link>> {
        socket::prepare(&socket)?;
        Ok(Arc::new(Link {
            id: LinkId::next(),
            peer,
            identity,
            socket,
            events: Arc::downgrade(events),
            most_bytes,
            out: Mutex::new(Outbound {
                stage: Stage::Open,
                reason: None,
                close_by_ns: 0,
                queue: Queue::default(),
                queued_bytes: 0,
                told_room: false,
                writing: false,
                handed: false,
                ended: false,
                writer: None,
            }),
            changed: Condvar::new(),
            pen: Mutex::new(Pen::new(sealer)),
            discarding: AtomicBool::new(false),
            agreed: Agreed::default(),
        }))
    }

    /// The link's name.
    #[must_use]
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The address at the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address, as the peer's network sees it.
    #[must_use]
    pub fn own_ip(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok().map(|addr| addr.ip())
    }

    /// The identity of the other end.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.out.lock().queued_bytes
    }

    /// Do more bytes wait than is good? If so, [`Events::room`] is called when it is over.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        let mut out = self.out.lock();
        let congested = out.stage == Stage::Open && out.queued_bytes > CONGESTED_BYTES;
        out.told_room |= congested;
        congested
    }

    /// Queues a message; a later [`Link::flush`] writes it. The order of calls is the order on the
    /// wire, but that short messages without a bulk go before all others. On a link that is
    /// closing the message is dropped: [`crate::Events::closed`] tells.
    pub fn send(&self, body: Vec<u8>, bulk: Bulk) {
        self.send_as(body, bulk, false);
    }

    /// The same for a message that goes before no other, however short it is.
    pub fn send_behind(&self, body: Vec<u8>, bulk: Bulk) {
        self.send_as(body, bulk, true);
    }

    fn send_as(&self, body: Vec<u8>, bulk: Bulk, behind: bool) {
        match Outgoing::new(Kind::Message, body, bulk) {
            Ok(message) => self.enqueue(message, behind),
            Err(error) => {
                tracing::error!(link = self.id.0, %error, "unsendable message, closing");
                self.abort(CloseReason::Unsendable(error));
            }
        }
    }

    pub(crate) fn send_hello(&self, speaks: &greeting::Speaks) {
        if let Ok(frame) = Outgoing::new(Kind::Hello, speaks.encode(), Bulk::empty()) {
            self.enqueue(frame, false);
        }
    }

    pub(crate) fn enqueue(&self, message: Outgoing, behind: bool) {
        let mut out = self.out.lock();
        if out.stage != Stage::Open {
            return;
        }
        let queued_bytes = out.queued_bytes + message.len();
        if queued_bytes > self.most_bytes {
            // Under the same lock: a smaller one sent next must not slip past the lost one.
            self.abort_locked(&mut out, CloseReason::Overrun { queued_bytes });
            return;
        }
        out.queued_bytes = queued_bytes;
        out.queue.push(message, behind);
    }

    /// Writes what is queued, unless somebody is writing already (they will write this too). The
    /// reading thread, while more short frames are there already, does so behind the last of them.
    pub fn flush(self: &Arc<Self>) {
        {
            let mut out = self.out.lock();
            let held = receive::is_held(self.id) && out.queued_bytes <= HELD_BYTES_MAX;
            if held || out.writing || out.queue.is_empty() {
                return;
            }
            out.writing = true;
        }
        self.pump_or_hand_over();
    }

    /// Ends the link in order: queued messages still leave, frames that come are no longer
    /// delivered. Returns at once; [`crate::Events::closed`] is called when the end is reached.
    pub fn close(self: &Arc<Self>, reason: CloseReason) {
        if self.begin_close(reason) {
            let mut out = self.out.lock();
            // The reader may wait for bytes that never come: the writer thread bounds that.
            if !out.ended {
                self.ensure_writer(&mut out);
                self.changed.notify_all();
            }
        }
    }

    /// The same for the reader itself, which bounds its own waiting. False if already ending.
    pub(crate) fn begin_close(self: &Arc<Self>, reason: CloseReason) -> bool {
        {
            let mut out = self.out.lock();
            if out.stage != Stage::Open {
                return false;
            }
            out.stage = Stage::Closing;
            out.reason = Some(reason);
            out.close_by_ns = clock::now_ns() + LINGER_NS;
            self.discarding.store(true, Ordering::Release);
            if out.writing {
                // The thread that writes finds the stage when the queue is empty.
                self.changed.notify_all();
                return true;
            }
            out.writing = true;
        }
        self.pump_or_hand_over();
        true
    }

    /// Cuts the link: nothing more leaves, nothing more is delivered, and nobody is waited for.
    pub fn abort(&self, reason: CloseReason) {
        if matches!(reason, CloseReason::Silent) {
            socket::give_up(&self.socket);
        }
        self.abort_locked(&mut self.out.lock(), reason);
    }

    fn abort_locked(&self, out: &mut Outbound, reason: CloseReason) {
        self.discarding.store(true, Ordering::Release);
        self.cut(out, Stage::Aborted, reason);
    }

    fn cut(&self, out: &mut Outbound, stage: Stage, reason: CloseReason) {
        out.stage = stage;
        out.reason.get_or_insert(reason);
        out.queue.clear();
        out.queued_bytes = 0;
        // Wakes the reader and a writer in poll. An error means the connection is gone already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.changed.notify_all();
    }

    /// Writes as the owner of `writing`, leaving the rest to the writer thread.
    fn pump_or_hand_over(self: &Arc<Self>) {
        if let Pumped::Left = self.pump_telling(INLINE_BYTES) {
            let mut out = self.out.lock();
            if out.ended {
                // The writer thread is gone, and so is the connection.
                out.writing = false;
                return;
            }
            out.handed = true;
            self.ensure_writer(&mut out);
            self.changed.notify_all();
        }
    }

    /// The same as `pump`, and tells who wants to know when there is room again.
    fn pump_telling(self: &Arc<Self>, budget: usize) -> Pumped {
        loop {
            match self.pump(budget) {
                Pumped::Room => {
                    if let Some(events) = self.events.upgrade() {
                        events.room(self);
                    }
                }
                pumped => return pumped,
            }
        }
    }

    /// Writes up to about `budget` bytes without waiting. The caller owns `writing`.
    fn pump(&self, budget: usize) -> Pumped {
        let mut pen = self.pen.lock();
        let (mut written, mut total) = (0, 0);
        loop {
            {
                let mut out = self.out.lock();
                if !matches!(out.stage, Stage::Open | Stage::Closing) {
                    pen.clear();
                    self.stop_writing(&mut out);
                    return Pumped::Done;
                }
                out.queued_bytes -= std::mem::take(&mut written);
                if out.told_room && out.queued_bytes <= CONGESTED_BYTES / 2 {
                    out.told_room = false;
                    return Pumped::Room;
                }
                if pen.is_empty() {
                    out.queued_bytes += pen.take(&mut out.queue);
                }
                if pen.is_empty() {
                    if out.stage == Stage::Closing {
                        // The peer reads the end after the last frame.
                        let _ = self.socket.shutdown(Shutdown::Write);
                    }
                    self.stop_writing(&mut out);
                    return Pumped::Done;
                }
            }
            if total >= budget {
                return Pumped::Left;
            }
            match pen.write(&self.socket) {
                Ok(bytes) => {
                    written = bytes;
                    total += bytes;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Pumped::Left,
                Err(error) => self.break_off(error.into()),
            }
        }
    }

    fn stop_writing(&self, out: &mut Outbound) {
        out.writing = false;
        self.changed.notify_all();
    }

    /// Writing failed. Frames that the peer sent before it went are still read.
    fn break_off(&self, error: io::Error) {
        let mut out = self.out.lock();
        if out.stage == Stage::Open {
            self.cut(&mut out, Stage::Broken, CloseReason::Io(Arc::new(error)));
        } else {
            self.abort_locked(&mut out, CloseReason::Io(Arc::new(error)));
        }
    }

    /// Starts the writer thread before it is needed.
    pub(crate) fn have_writer(self: &Arc<Self>) {
        let mut out = self.out.lock();
        if !out.ended {
            self.ensure_writer(&mut out);
        }
    }

    fn ensure_writer(self: &Arc<Self>, out: &mut Outbound) {
        if out.writer.is_some() {
            return;
        }
        let link = Arc::clone(self);
        let name = format!("net-write-{}", self.id.0);
        match thread::Builder::new()
            .name(name)
            .spawn(move || link.writer())
        {
            Ok(thread) => out.writer = Some(thread),
            Err(error) => {
                // Nobody is left to finish what was handed over.
                if std::mem::take(&mut out.handed) {
                    out.writing = false;
                }
                self.abort_locked(out, CloseReason::Io(Arc::new(error)));
            }
        }
    }

    /// The writer thread: finishes what was handed over, and bounds an orderly end.
    fn writer(self: Arc<Self>) {
        let mut out = self.out.lock();
        loop {
            if out.ended && !out.handed {
                return;
            }
            if std::mem::take(&mut out.handed) {
                drop(out);
                self.pump_patiently();
                out = self.out.lock();
            } else if out.stage == Stage::Closing {
                self.wait_closing(&mut out);
            } else {
                self.changed.wait(&mut out);
            }
        }
    }

    /// Writes until nothing is left, waiting for the peer to read.
    fn pump_patiently(self: &Arc<Self>) {
        while let Pumped::Left = self.pump_telling(usize::MAX) {
            let tick = Timespec {
                tv_sec: 0,
                tv_nsec: POLL_NS,
            };
            // Errors and hang-ups show at the next write.
            let _ = poll(
                &mut [PollFd::new(&self.socket, PollFlags::OUT)],
                Some(&tick),
            );
            let mut out = self.out.lock();
            if out.stage == Stage::Closing && clock::now_ns() >= out.close_by_ns {
                self.abort_locked(&mut out, CloseReason::Stopped);
            }
        }
    }

    /// One wait of an orderly end; cuts the link when its time is over.
    fn wait_closing(&self, out: &mut parking_lot::MutexGuard<'_, Outbound>) {
        let left_ns = out.close_by_ns.saturating_sub(clock::now_ns());
        if left_ns == 0 {
            self.abort_locked(out, CloseReason::Stopped);
        } else {
            self.changed.wait_for(out, Duration::from_nanos(left_ns));
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn is_discarding(&self) -> bool {
        self.discarding.load(Ordering::Acquire)
    }

    /// Waits until the messages queued before the end have left, at most until the end is due.
    pub(crate) fn wait_drained(&self) {
        let mut out = self.out.lock();
        while out.stage == Stage::Closing && out.writing {
            self.wait_closing(&mut out);
        }
    }

    /// The reader's last word: frees the connection, whoever still holds the link.
    pub(crate) fn end(&self, otherwise: CloseReason) -> CloseReason {
        let (writer, reason) = {
            let mut out = self.out.lock();
            self.abort_locked(&mut out, otherwise.clone());
            out.ended = true;
            (out.writer.take(), out.reason.clone().unwrap_or(otherwise))
        };
        if let Some(writer) = writer {
            // It sees `ended` at once; a panic in it has been reported by its own thread.
            let _ = writer.join();
        }
        reason
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.id, self.peer)
    }
}
