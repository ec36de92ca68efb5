//! Advisory locks: requests of the kernel into calls, and back.
//!
//! Guarantees: a process's locks of a file are given up when it closes any descriptor of it, the
//! locks of an open file when its last descriptor is closed. The kernel tells the first by `FLUSH`,
//! which costs each close a question; so descriptors for reading only are opened without it, as
//! long as nobody on this machine has locked bytes of the file. (If such a descriptor is used to
//! lock, that is given up at its last close.) A caller that waits for a lock and is interrupted is
//! answered soon, whichever of the two requests comes here first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::front::{Call, Completion, Done};
use parking_lot::Mutex;
use wire::{Access, Fid, Lock, LockMode, LockOwner, LockWait, Refusal};

use super::convert::{self, Opening};
use super::errno;
use super::handler::{Tree, nothing, refuse, refuse_done};
use crate::abi::{FileLock, LK_FLOCK, LkIn};
use crate::reply::Reply;
use crate::request::Header;

/// The kernel's `F_RDLCK`, `F_WRLCK` and `F_UNLCK`.
const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;
/// The last byte that the kernel knows.
const LAST: u64 = i64::MAX as u64;
/// Of so many files it is remembered that bytes were locked; above that, it is assumed of all.
const FILES: usize = 1 << 16;
/// Interruptions that came before what they interrupt; there are as many at most as threads.
const EARLY: usize = 64;

/// Files of which somebody on this machine has locked bytes.
#[derive(Default)]
pub(super) struct LockedFiles {
    /// Are there any? Asked at each open.
    any: AtomicBool,
    files: Mutex<HashSet<Fid>>,
}

impl LockedFiles {
    fn note(&self, fid: Fid) {
        let mut files = self.files.lock();
        if files.len() < FILES {
            files.insert(fid);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Must the kernel tell each close of this descriptor?
    pub(super) fn needs_flush(&self, fid: Fid, access: Access) -> bool {
        if access.write {
            return true;
        }
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let files = self.files.lock();
        files.contains(&fid) || files.len() >= FILES
    }
}

/// A request of the kernel that may wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The call is being made.
    Beginning,
    /// The same, and its caller has been interrupted.
    Interrupted,
    /// The call.
    Called(u64),
}

/// The calls that wait for locks, by the numbers of the kernel's requests.
#[derive(Default)]
pub(super) struct Waiters(Mutex<WaitersState>);

#[derive(Default)]
struct WaitersState {
    waiting: HashMap<u64, Waiting>,
    /// Interruptions of requests that are not known here: most of them of other kinds.
    early: VecDeque<u64>,
}

impl Waiters {
    /// A request begins to wait; false: it has been interrupted.
    fn begin(&self, unique: u64) -> bool {
        let mut state = self.0.lock();
        let early = state.early.iter().position(|known| *known == unique);
        if let Some(early) = early {
            state.early.remove(early);
            return false;
        }
        state.waiting.insert(unique, Waiting::Beginning);
        true
    }

    /// Its call has been made; true: the call is to be interrupted.
    fn called(&self, unique: u64, ticket: u64) -> bool {
        let mut state = self.0.lock();
        let Some(waiting) = state.waiting.get_mut(&unique) else {
            return false; // it is answered
        };
        let interrupted = *waiting == Waiting::Interrupted;
        *waiting = Waiting::Called(ticket);
        interrupted
    }

    fn end(&self, unique: u64) {
        self.0.lock().waiting.remove(&unique);
    }

    /// A request was interrupted: the call that is to be told of it, if there is one.
    fn interrupt(&self, unique: u64) -> Option<u64> {
        let mut state = self.0.lock();
        match state.waiting.get_mut(&unique) {
            Some(Waiting::Called(ticket)) => Some(*ticket),
            Some(waiting) => {
                *waiting = Waiting::Interrupted;
                None
            }
            None => {
                if state.early.len() == EARLY {
                    state.early.pop_front();
                }
                state.early.push_back(unique);
                None
            }
        }
    }
}

impl Tree {
    /// `SETLK` and `SETLKW`.
    pub(super) fn set_lock(
        self: &Arc<Self>,
        header: &Header,
        lk: &LkIn,
        waits: bool,
        reply: Reply,
    ) {
        let fid = self.fid(header.nodeid);
        let Some((first, last)) = range(lk) else {
            return refuse(reply, Refusal::Invalid);
        };
        let owner = owner(lk);
        if !owner.is_whole() {
            self.locked.note(fid);
        }
        let mode = match lk.lk.kind {
            READ => LockMode::Shared,
            WRITE => LockMode::Exclusive,
            UNLOCK => {
                let call = Call::Unlock {
                    fid,
                    owner,
                    first,
                    last,
                };
                return self.call(convert::asker(header), call, nothing(reply));
            }
            _ => return refuse(reply, Refusal::Invalid),
        };
        let wait = match (waits, owner) {
            (false, _) => LockWait::Never,
            (true, LockOwner::Whole(_)) => LockWait::Always,
            (true, LockOwner::Bytes(_)) if asks_for_description(header.pid) => LockWait::Always,
            (true, LockOwner::Bytes(_)) => LockWait::UnlessDeadlocked,
        };
        let lock = Lock {
            owner,
            mode,
            first,
            last,
            pid: lk.lk.pid,
        };
        let call = Call::Lock {
            fid,
            lock,
            wait,
            handle: lk.fh,
        };
        if !waits {
            return self.call(convert::asker(header), call, nothing(reply));
        }
        self.wait_for_lock(header, call, reply);
    }

    fn wait_for_lock(self: &Arc<Self>, header: &Header, call: Call, reply: Reply) {
        let unique = header.unique;
        if !self.waiters.begin(unique) {
            return refuse(reply, Refusal::Interrupted);
        }
        let tree = Arc::clone(self);
        let answer = nothing(reply);
        let done = move |completion: Completion| {
            tree.waiters.end(unique);
            answer(completion);
        };
        let asker = self.asker(header);
        let ticket = self.client.call(asker, call, &[], Box::new(done));
        if self.waiters.called(unique, ticket) {
            self.client.interrupt(ticket);
        }
    }

    /// `INTERRUPT`: a call that waits for a lock is answered soon, any other if its thread is
    /// ending.
    pub(super) fn interrupt(&self, unique: u64) {
        if let Some(ticket) = self.waiters.interrupt(unique) {
            self.client.interrupt(ticket);
        }
        self.client.signalled(unique);
    }

    /// `GETLK`.
    pub(super) fn test_lock(&self, header: &Header, lk: &LkIn, reply: Reply) {
        let (mode, range) = match lk.lk.kind {
            READ => (LockMode::Shared, range(lk)),
            WRITE => (LockMode::Exclusive, range(lk)),
            _ => (LockMode::Shared, None),
        };
        let Some((first, last)) = range else {
            return refuse(reply, Refusal::Invalid);
        };
        let lock = Lock {
            owner: owner(lk),
            mode,
            first,
            last,
            pid: lk.lk.pid,
        };
        let fid = self.fid(header.nodeid);
        let call = Call::TestLock { fid, lock };
        self.call(
            convert::asker(header),
            call,
            |completion| match completion.done {
                Done::InTheWay(found) => {
                    reply.lock(&in_the_way(found));
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// `FLUSH`: a process closes a descriptor, and with it gives up what it has locked of the file.
    pub(super) fn flush(&self, header: &Header, lock_owner: u64, reply: Reply) {
        if self.silent_opens {
            // From now on the kernel does not tell any more.
            reply.error(errno::NOT_IMPLEMENTED);
            return;
        }
        let call = Call::Unlock {
            fid: self.fid(header.nodeid),
            owner: LockOwner::Bytes(lock_owner),
            first: 0,
            last: u64::MAX,
        };
        self.call(convert::asker(header), call, nothing(reply));
    }

    /// The flags in the answer to an open.
    pub(super) fn open_flags(&self, fid: Fid, opening: Opening, cached: bool) -> u32 {
        let needed = self.locked.needs_flush(fid, opening.access) || !self.may_skip_flush;
        let flush = needed && !self.silent_opens;
        self.recorded_flags(convert::open_flags(cached, flush))
    }
}

fn owner(lk: &LkIn) -> LockOwner {
    if lk.lk_flags & LK_FLOCK != 0 {
        LockOwner::Whole(lk.owner)
    } else {
        LockOwner::Bytes(lk.owner)
    }
}

fn range(lk: &LkIn) -> Option<(u64, u64)> {
    if lk.lk_flags & LK_FLOCK != 0 {
        return Some((0, u64::MAX));
    }
    let last = if lk.lk.end >= LAST {
        u64::MAX
    } else {
        lk.lk.end
    };
    (lk.lk.start <= last).then_some((lk.lk.start, last))
}

/// A process of another machine is 0: no number that it has means anything here.
fn in_the_way(found: Option<Lock>) -> FileLock {
    let Some(held) = found else {
        return FileLock {
            start: 0,
            end: 0,
            kind: UNLOCK,
            pid: 0,
        };
    };
    FileLock {
        start: held.first.min(LAST),
        end: held.last.min(LAST),
        kind: match held.mode {
            LockMode::Shared => READ,
            LockMode::Exclusive => WRITE,
        },
        pid: held.pid,
    }
}

/// How often a thread that has just asked is looked at until it sleeps.
const LOOKS: u32 = 100;

/// Does this thread ask for a lock that an open file shall own? The kernel does not say, and Linux
/// finds deadlocks of processes only; but it shows which call the thread waits in. If it cannot be
/// seen, a process asks.
fn asks_for_description(thread: u32) -> bool {
    for _ in 0..LOOKS {
        match fs::read_to_string(format!("/proc/{thread}/syscall")) {
            Ok(text) if text.starts_with("running") => std::thread::yield_now(),
            Ok(text) => return is_description(&text),
            Err(_) => return false,
        }
    }
    false
}

/// `NUMBER ARGUMENT...`: the second argument of fcntl(2) is what it is to do.
fn is_description(syscall: &str) -> bool {
    const F_OFD_SETLKW: &str = "0x26";
    syscall.split_whitespace().nth(2) == Some(F_OFD_SETLKW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_interrupted_before_he_began_does_not_begin() {
        let waiters = Waiters::default();
        assert_eq!(waiters.interrupt(4), None);
        assert!(!waiters.begin(4));
        assert!(waiters.begin(4), "an interruption counts once");
    }

    #[test]
    fn who_is_interrupted_while_he_begins_is_told_when_he_has_begun() {
        let waiters = Waiters::default();
        assert!(waiters.begin(4));
        assert_eq!(waiters.interrupt(4), None);
        assert!(waiters.called(4, 77));
        assert_eq!(waiters.interrupt(4), Some(77));
    }

    #[test]
    fn who_is_answered_while_he_begins_is_not_remembered() {
        let waiters = Waiters::default();
        assert!(waiters.begin(4));
        waiters.end(4);
        assert!(!waiters.called(4, 77));
        assert!(waiters.0.lock().waiting.is_empty());
    }

    #[test]
    fn closes_are_told_of_what_is_written_or_was_locked() {
        let access = |write| Access { read: true, write };
        let fid = |vnode| Fid {
            vnode,
            ..Fid::root(1)
        };
        let locked = LockedFiles::default();
        assert!(locked.needs_flush(fid(5), access(true)));
        assert!(!locked.needs_flush(fid(5), access(false)));
        locked.note(fid(5));
        assert!(locked.needs_flush(fid(5), access(false)));
        assert!(!locked.needs_flush(fid(6), access(false)));
        (0..FILES as u64).for_each(|vnode| locked.note(fid(10 + vnode)));
        assert!(
            locked.needs_flush(fid(6), access(false)),
            "too many to know"
        );
    }

    #[test]
    fn the_call_that_a_thread_waits_in_is_read() {
        let seen = |text: &str| is_description(text);
        assert!(seen("72 0x3 0x26 0x7ffd 0x0 0x0 0x0 0x7ffd 0x7f0\n"));
        assert!(!seen("72 0x3 0x7 0x7ffd 0x0 0x0 0x0 0x7ffd 0x7f0\n"));
        assert!(!seen("-1 0x7ffd 0x7f0\n") && !seen(""));
    }

    #[test]
    fn the_end_of_the_file_is_the_last_number() {
        let mut lk = LkIn {
            fh: 0,
            owner: 9,
            lk: FileLock {
                start: 5,
                end: LAST,
                kind: READ,
                pid: 1,
            },
            lk_flags: 0,
            padding: 0,
        };
        assert_eq!(range(&lk), Some((5, u64::MAX)));
        lk.lk.end = 4;
        assert_eq!(range(&lk), None);
        lk.lk_flags = LK_FLOCK;
        assert_eq!(range(&lk), Some((0, u64::MAX)));
        assert_eq!(owner(&lk), LockOwner::Whole(9));
    }
}
