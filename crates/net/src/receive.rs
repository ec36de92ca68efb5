//! The life of a link as its reading thread lives it: greet, deliver, end.
//!
//! Guarantees: `opened` is called only after the peer showed that it speaks this protocol, and then
//! `closed` exactly once, after everything else, also if an event panics. The thread does not
//! outlive the peer's end, or the cutting of the link, by more than one call of an event.

use crate::Events;
use crate::clock;
use crate::frame::{Frame, FrameError, FrameReader, Kind};
use crate::greeting::{self, Speaks};
use crate::id::LinkId;
use crate::link::Link;
use crate::reason::CloseReason;
use crate::tls::record::{Incoming, Opener};
use std::cell::Cell;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a peer may take.
pub(crate) struct Patience {
    /// To introduce itself.
    pub(crate) hello: Duration,
    /// To say anything, afterwards; none: for ever.
    pub(crate) silence: Option<Duration>,
}

/// Answers to frames are written after so long at most, if more frames follow.
const HELD_NS: u64 = 200_000;

/// The end that the reader found.
struct End {
    reason: CloseReason,
    /// Nothing more can be read.
    at_end: bool,
}

/// Frees the connection even if an event panics; tells `closed` if `opened` was told.
struct Ending<'a> {
    link: &'a Arc<Link>,
    events: &'a dyn Events,
    opened: bool,
    reason: Option<CloseReason>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let panicked = CloseReason::Refused("an event handler panicked".into());
        let reason = self.link.end(self.reason.take().unwrap_or(panicked));
        tracing::debug!(link = self.link.id().0, %reason, "closed");
        if self.opened {
            self.events.closed(self.link.id(), &reason);
        }
    }
}

/// Reads the link to its end, and says why it ended. `on_open` follows `Events::opened`. An error:
/// it never opened.
pub(crate) fn run(
    (link, opener): (&Arc<Link>, Option<Opener>),
    events: &dyn Events,
    (speaks, patience): (&Speaks, &Patience),
    on_open: impl FnOnce(),
) -> Result<CloseReason, CloseReason> {
    let mut frames = FrameReader::new(Incoming::new(link.socket(), opener));
    let mut ending = Ending {
        link,
        events,
        opened: false,
        reason: None,
    };
    if let Err(end) = greet(link, &mut frames, (speaks, patience)) {
        let reason = finish(link, end);
        ending.reason = Some(reason.clone());
        return Err(reason);
    }
    tracing::debug!(link = link.id().0, peer = %link.peer(), "opened");
    ending.opened = true;
    events.opened(link);
    on_open();
    let end = deliver(link, &mut frames, events);
    let reason = finish(link, end);
    ending.reason = Some(reason.clone());
    Ok(reason)
}

/// Exchanges Hellos.
fn greet(
    link: &Arc<Link>,
    frames: &mut FrameReader<Incoming<'_>>,
    (speaks, patience): (&Speaks, &Patience),
) -> Result<(), End> {
    let failed = |error| End {
        reason: CloseReason::Io(Arc::new(error)),
        at_end: true,
    };
    link.socket()
        .set_read_timeout(Some(patience.hello))
        .map_err(failed)?;
    link.send_hello(speaks);
    link.flush();
    match frames.next_frame() {
        Ok(Some(frame)) if frame.kind == Kind::Hello => {
            let theirs = Speaks::decode(frame.body);
            let theirs = theirs.ok_or_else(|| failing(FrameError::BadHeader))?;
            let common = speaks.common(&theirs).map_err(|none| End {
                reason: CloseReason::Versions(none),
                at_end: false,
            })?;
            link.greeted(common);
        }
        Ok(Some(frame)) => return Err(unexpected(&frame)),
        Ok(None) => {
            return Err(End {
                reason: CloseReason::Peer,
                at_end: true,
            });
        }
        Err(FrameError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
            // An orderly end is for a peer that reads.
            link.abort(CloseReason::NoHello);
            return Err(End {
                reason: CloseReason::NoHello,
                at_end: true,
            });
        }
        Err(error) => return Err(failing(error)),
    }
    let silence = patience.silence;
    link.socket().set_read_timeout(silence).map_err(failed)
}

thread_local! {
    /// The link whose frames are short and follow each other on this thread: the answers of the
    /// events to them are written together.
    static HELD: Cell<Option<LinkId>> = const { Cell::new(None) };
}

/// While it is there, the calling thread writes nothing to the link.
struct Held;

impl Held {
    fn new(link: LinkId) -> Held {
        HELD.set(Some(link));
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(None);
    }
}

/// Does the calling thread deliver a link's frames, and write when it is done with some more?
pub(crate) fn is_held(link: LinkId) -> bool {
    HELD.get() == Some(link)
}

/// Delivers messages until the stream or the link ends.
fn deliver(link: &Arc<Link>, frames: &mut FrameReader<Incoming<'_>>, events: &dyn Events) -> End {
    let mut held_since_ns = None;
    loop {
        let next = frames.next_frame();
        if link.is_discarding() {
            // The reason is the link's; whether the stream is at its end is found by reading on.
            return End {
                reason: CloseReason::Stopped,
                at_end: matches!(next, Ok(None)),
            };
        }
        match next {
            Ok(Some(frame)) if frame.kind == Kind::Message => {
                // A call of the system costs as much as a short frame and the answer to it.
                let now_ns = clock::now_ns();
                let since_ns = *held_since_ns.get_or_insert(now_ns);
                let hold = frame.short_follows && now_ns <= since_ns + HELD_NS;
                {
                    let _held = hold.then(|| Held::new(link.id()));
                    events.frame(link, frame.body, frame.bulk);
                }
                let goes_on = frame.short_follows;
                if !hold {
                    held_since_ns = None;
                    link.flush();
                    // A peer that asks without end leaves the processor to others, now and then.
                    if goes_on {
                        thread::yield_now();
                    }
                }
            }
            Ok(Some(frame)) => return unexpected(&frame),
            Ok(None) => {
                return End {
                    reason: CloseReason::Peer,
                    at_end: true,
                };
            }
            Err(FrameError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                // An orderly end is for a peer that reads.
                link.abort(CloseReason::Silent);
                return End {
                    reason: CloseReason::Silent,
                    at_end: true,
                };
            }
            Err(error) => return failing(error),
        }
    }
}

/// A frame that is no message where one should be.
fn unexpected(frame: &Frame<'_>) -> End {
    if frame.kind != Kind::Refused {
        return failing(FrameError::OutOfTurn(frame.kind));
    }
    End {
        reason: greeting::refused(frame.body),
        at_end: false,
    }
}

fn failing(error: FrameError) -> End {
    match error {
        FrameError::Io(error) => End {
            reason: CloseReason::Io(error),
            at_end: true,
        },
        FrameError::Truncated => End {
            reason: CloseReason::Frame(error),
            at_end: true,
        },
        _ => End {
            reason: CloseReason::Frame(error),
            at_end: false,
        },
    }
}

/// Lets what is queued leave, then reads until the peer's end.
fn finish(link: &Arc<Link>, end: End) -> CloseReason {
    if end.at_end {
        link.begin_close(end.reason.clone());
    } else {
        link.close(end.reason.clone());
        // Bounded by the link's writer thread, which cuts the link when its time is over.
        let mut rubbish = [0; 4096];
        loop {
            match link.socket().read(&mut rubbish) {
                Ok(0) => break,
                Err(error) if error.kind() != ErrorKind::Interrupted => break,
                Ok(_) | Err(_) => {}
            }
        }
    }
    link.wait_drained();
    end.reason
}
