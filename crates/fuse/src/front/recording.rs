//! A recording: the accesses to files that the kernel asks this mount for, told to a listener.
//!
//! Guarantees: no request waits for the listener; accesses for which its queue has no room are
//! counted and left out. Without a listener a request pays one look at a flag. While there is one,
//! the kernel drops the pages of each file that is opened: else it would read them without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use client::front::now_ns;
use parking_lot::Mutex;
use wire::Fid;

use super::convert;
use super::handler::Tree;
use crate::abi::fopen;
use crate::request::{Header, Operation};

/// Accesses that wait for the listener: some 3 MB of them.
const WAITING_MAX: usize = 1 << 16;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accessed {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// The file was opened.
    Open,
    /// The file is gone, or was truncated to nothing.
    Remove,
    /// Attributes were asked for.
    Attributes,
}

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When, by the clock of [`now_ns`].
    pub time_ns: u64,
    /// Its kind.
    pub kind: Accessed,
    /// The file.
    pub fid: Fid,
    /// The first byte of a read or write.
    pub offset: u64,
    /// How many bytes of it; 0 where the whole file is meant.
    pub bytes: u32,
}

/// Where accesses are told, if anywhere.
#[derive(Debug, Default)]
pub(super) struct Recording {
    listens: AtomicBool,
    to: Mutex<Option<(Turn, SyncSender<Recorded>)>>,
    turns: AtomicU64,
    missed: AtomicU64,
}

/// The one that listens. Its end is that of the recording.
#[derive(Debug)]
pub struct Listener {
    accesses: Receiver<Recorded>,
    ends: Ends,
}

/// Which of the listeners, one after the other.
type Turn = u64;

/// Ends the recording of one listener, and of no later one.
#[derive(Clone, Debug)]
pub struct Ends {
    recording: Arc<Recording>,
    turn: Turn,
}

impl Ends {
    /// Nothing more is told; the listener hears the rest, and the end.
    pub fn end(&self) {
        let mut to = self.recording.to.lock();
        if to.as_ref().is_some_and(|(turn, _)| *turn == self.turn) {
            self.recording.listens.store(false, Ordering::Relaxed);
            *to = None;
        }
    }
}

impl Listener {
    /// The next access; `None`: the recording has ended. Waits for it.
    #[must_use]
    pub fn next(&self) -> Option<Recorded> {
        self.accesses.recv().ok()
    }

    /// The next access, if there is one already.
    #[must_use]
    pub fn next_at_once(&self) -> Option<Recorded> {
        self.accesses.try_recv().ok()
    }

    /// How many accesses were left out since the last call.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.ends.recording.missed.swap(0, Ordering::Relaxed)
    }

    /// For another thread, which ends the recording.
    #[must_use]
    pub fn ends(&self) -> Ends {
        self.ends.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ends.end();
    }
}

impl Recording {
    /// Listens from now on; `None`: somebody does already.
    pub(super) fn start(self: &Arc<Self>) -> Option<Listener> {
        let mut to = self.to.lock();
        if to.is_some() {
            return None;
        }
        let (send, accesses) = mpsc::sync_channel(WAITING_MAX);
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        *to = Some((turn, send));
        self.missed.store(0, Ordering::Relaxed);
        self.listens.store(true, Ordering::Relaxed);
        Some(Listener {
            accesses,
            ends: Ends {
                recording: Arc::clone(self),
                turn,
            },
        })
    }

    pub(super) fn is_on(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    /// Tells of an access, if somebody listens.
    pub(super) fn tell(&self, kind: Accessed, fid: Fid, (offset, bytes): (u64, usize)) {
        if !self.is_on() {
            return;
        }
        let recorded = Recorded {
            time_ns: now_ns(),
            kind,
            fid,
            offset,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        let to = self.to.lock();
        let sent = to.as_ref().map(|(_, to)| to.try_send(recorded));
        if matches!(sent, Some(Err(_))) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Tree {
    /// Tells of a request that names a file. (The reply to a read says how much of it is in the
    /// file, and the reply to a create which file it is: they are told from there.)
    pub(super) fn record(&self, header: &Header, operation: &Operation<'_>) {
        let fid = self.fid(header.nodeid);
        let (kind, piece) = match operation {
            Operation::Open(_) => (Accessed::Open, (0, 0)),
            Operation::Write(write) => (Accessed::Write, (write.offset, write.data.len())),
            Operation::Getattr { .. } | Operation::Statx(_) => (Accessed::Attributes, (0, 0)),
            Operation::Setattr(args) if convert::set(args).is_ok_and(|set| set.size == Some(0)) => {
                (Accessed::Remove, (0, 0))
            }
            _ => return,
        };
        self.recording.tell(kind, fid, piece);
    }

    /// The kernel forgets an object: a file without names is gone.
    pub(super) fn record_forget(&self, fid: Fid) {
        if self.recording.is_on() && self.client.has_lost_names(fid) {
            self.recording.tell(Accessed::Remove, fid, (0, 0));
        }
    }

    /// The flags of an open: while somebody listens, the kernel is to ask for the pages anew.
    pub(super) fn recorded_flags(&self, flags: u32) -> u32 {
        match self.recording.is_on() {
            true => flags & !fopen::KEEP_CACHE,
            false => flags,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn accesses_beyond_the_queue_are_counted_and_nobody_waits() {
        let recording = Arc::new(Recording::default());
        let fid = Fid::root(1);
        recording.tell(Accessed::Open, fid, (0, 0));
        let listener = recording.start().unwrap();
        assert!(recording.start().is_none(), "one listens already");
        for n in 0..WAITING_MAX + 3 {
            recording.tell(Accessed::Read, fid, (n as u64, 1));
        }
        assert_eq!(listener.missed(), 3);
        assert_eq!(listener.next().unwrap().offset, 0);
        listener.ends().end();
        let rest = std::iter::from_fn(|| listener.next()).count();
        assert_eq!(rest, WAITING_MAX - 1);
        // The end of the first, however late, is not that of the second.
        let second = recording.start().unwrap();
        drop(listener);
        recording.tell(Accessed::Open, fid, (0, 0));
        assert!(second.next_at_once().is_some());
    }
}
