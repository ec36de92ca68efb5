//! The threads that read the device. The kernel gives a request to the one that has waited longest,
//! on whichever processor that sleeps: waking it there, and the program here again, takes longer
//! than all else that a small request needs. So while one program asks for small things one behind
//! the other, one of them reads alone, on the processor on which that program runs, which it hands
//! over ([`crate::idle_policy`]). The others wait until it finds that somebody else asks beside
//! that program, or for much.
//!
//! One that reads alone and cannot run gets its policy and all processors back from the guard, at
//! its next look but one; and to answer takes none of them long ([`crate::session::Handler`]).

use std::fs;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use client::front::now_ns;
use parking_lot::{Condvar, Mutex};
use tracing::debug;
use zerocopy::FromBytes;

use crate::abi::{InHeader, Opcode, ReadIn};
use crate::idle_policy::{self, DENSE, DENSE_NS, Guard, Handover, Pause};
use crate::uring::processors;

/// More bytes than that are copied faster by two.
const SMALL_BYTES: usize = 16 << 10;
/// A thread that asks so soon after another one asks beside it.
const BESIDE_NS: u64 = 100_000;
/// Nobody reads alone.
const NOBODY: u32 = u32::MAX;

/// The thread that asked last.
#[derive(Default)]
struct Run {
    thread: u32,
    last_ns: u64,
    /// So many requests came from it since nobody else asked.
    came: u32,
    /// When the last [`DENSE`] of them began to come.
    since_ns: u64,
    /// Since when one reads alone, if nobody has asked beside it.
    alone_ns: Option<u64>,
    /// How long none begins to, after somebody asked beside the one that was read for.
    pause: Pause,
}

/// A request's hint for the way in which the next one is best read.
enum Next {
    /// Nothing: nobody waits for it, or not for long.
    Any,
    /// It is one of many, perhaps.
    Again,
    /// Readers are better off together.
    Together,
}

impl Run {
    fn note(&mut self, thread: u32, now_ns: u64) -> Next {
        let beside = now_ns.saturating_sub(self.last_ns) < BESIDE_NS;
        self.last_ns = now_ns;
        if self.thread != thread {
            (self.thread, self.came, self.since_ns) = (thread, 1, now_ns);
            if !beside {
                return Next::Any;
            }
            if let Some(began_ns) = self.alone_ns.take() {
                self.pause.learn((began_ns, now_ns), now_ns, true);
            }
            return Next::Together;
        }
        self.came = self.came.wrapping_add(1);
        if !self.came.is_multiple_of(DENSE) {
            return Next::Any;
        }
        let began_ns = std::mem::replace(&mut self.since_ns, now_ns);
        let dense = now_ns.saturating_sub(began_ns) <= DENSE_NS;
        match dense && self.pause.is_over(now_ns) {
            true => Next::Again,
            false => Next::Any,
        }
    }
}

/// All readers of one connection.
pub(crate) struct Readers {
    guard: Arc<Guard>,
    run: Mutex<Run>,
    /// The number of the one that reads alone.
    alone: AtomicU32,
    over: AtomicBool,
    waiting: Mutex<()>,
    turn: Condvar,
}

impl Readers {
    /// `None`: readers cannot hand over here.
    pub(crate) fn start() -> Option<(Arc<Readers>, JoinHandle<()>)> {
        let (guard, thread) = Guard::start()?;
        let readers = Readers {
            guard,
            run: Mutex::default(),
            alone: AtomicU32::new(NOBODY),
            over: AtomicBool::new(false),
            waiting: Mutex::default(),
            turn: Condvar::new(),
        };
        Some((Arc::new(readers), thread))
    }

    /// The connection is over, or a reader has failed: nobody waits for his turn any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.read_together();
        self.guard.end();
    }

    fn read_together(&self) {
        self.alone.store(NOBODY, Ordering::Release);
        // A reader that is about to wait has seen that, or is woken.
        let _waiting = self.waiting.lock();
        self.turn.notify_all();
    }
}

/// One of them, on its own thread.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    number: u32,
    handover: Handover,
    /// The processor that it keeps to while it has the policy of those who hand over.
    at: Option<u16>,
    /// How often somebody else had to run in its place, when it last looked.
    displaced: u64,
}

impl Reader {
    /// The calling thread is this one.
    pub(crate) fn new(readers: &Arc<Readers>, number: u32) -> Reader {
        Reader {
            readers: Arc::clone(readers),
            number,
            handover: Handover::roaming(&readers.guard),
            at: None,
            displaced: 0,
        }
    }

    /// Waits while another one reads alone.
    pub(crate) fn wait_for_turn(&self) {
        let readers = &*self.readers;
        let barred = || {
            let alone = readers.alone.load(Ordering::Acquire);
            alone != NOBODY && alone != self.number && !readers.over.load(Ordering::Acquire)
        };
        if barred() {
            let mut waiting = readers.waiting.lock();
            while barred() {
                readers.turn.wait(&mut waiting);
            }
        }
    }

    /// A request has come, and is served next.
    pub(crate) fn came(&mut self, message: &[u8]) {
        self.handover.look(|| true);
        if !self.handover.is_taken() {
            self.go_anywhere(); // the guard has helped, perhaps while it went somewhere
        }
        let Ok((header, body)) = InHeader::read_from_prefix(message) else {
            return;
        };
        if !is_small(message, header.opcode, body) {
            return self.read_together();
        }
        // While a thread executes a program, the kernel holds what `/proc/<thread>/stat` waits for,
        // and closes files: a reader that looked there before it answers would wait for itself.
        if is_unawaited(header.opcode) || Opcode(header.opcode) == Opcode::FLUSH {
            return;
        }
        let now_ns = now_ns();
        let next = self.readers.run.lock().note(header.pid, now_ns);
        match next {
            Next::Any => {}
            Next::Together => self.read_together(),
            Next::Again if !self.handover.is_taken() => self.read_alone(header.pid, now_ns),
            Next::Again if self.is_apart() => self.follow(header.pid),
            Next::Again => {}
        }
    }

    /// Has the program run on another processor lately? Here it takes the reader's place whenever
    /// it is answered.
    fn is_apart(&mut self) -> bool {
        let before = std::mem::replace(&mut self.displaced, times_displaced());
        self.displaced.wrapping_sub(before) < u64::from(DENSE / 2)
    }

    fn read_alone(&mut self, thread: u32, now_ns: u64) {
        let alone = &self.readers.alone;
        let free = |number| number == NOBODY || number == self.number;
        let over = self.readers.over.load(Ordering::Acquire);
        if over || !free(alone.load(Ordering::Acquire)) || !self.handover.may_take(now_ns) {
            return;
        }
        self.follow(thread);
        if self.at.is_none() {
            return;
        }
        let alone = &self.readers.alone;
        let (to, ok, not) = (self.number, Ordering::AcqRel, Ordering::Acquire);
        match alone.compare_exchange(NOBODY, to, ok, not) {
            Err(other) if other != self.number => self.read_together(),
            _ => {
                self.readers.run.lock().alone_ns.get_or_insert(now_ns);
                self.handover.take_now(now_ns);
            }
        }
    }

    /// Goes to the processor on which this thread runs, and stays there.
    fn follow(&mut self, thread: u32) {
        let there = processor_of(thread).filter(|cpu| idle_policy::may_stay_on(*cpu));
        let Some(cpu) = there.filter(|cpu| self.at != Some(*cpu)) else {
            return;
        };
        match processors::stay_on(cpu) {
            Ok(()) => {
                self.at = Some(cpu);
                self.readers.guard.keep_off(cpu);
            }
            Err(error) => debug!(%error, "a reader cannot go to a program's processor"),
        }
    }

    fn read_together(&mut self) {
        self.handover.give_back();
        self.go_anywhere();
        if self.readers.alone.load(Ordering::Acquire) == self.number {
            self.readers.run.lock().alone_ns = None;
            self.readers.read_together();
        }
    }

    /// Keeps to no processor any more.
    fn go_anywhere(&mut self) {
        if self.at.take().is_some() {
            idle_policy::go_everywhere(None);
            self.readers.guard.keep_off_none();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.readers.end();
    }
}

/// How often the calling thread wanted to run on and somebody else ran instead.
fn times_displaced() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it writes what the pointer points to; all of it may be zeros.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw as u64
}

/// Does nobody wait for the answer?
fn is_unawaited(opcode: u32) -> bool {
    [
        Opcode::FORGET,
        Opcode::BATCH_FORGET,
        Opcode::INTERRUPT,
        Opcode::RELEASE,
        Opcode::RELEASEDIR,
    ]
    .contains(&Opcode(opcode))
}

fn is_small(message: &[u8], opcode: u32, body: &[u8]) -> bool {
    let asked = match Opcode(opcode) {
        Opcode::READ => ReadIn::read_from_prefix(body).map_or(0, |(read, _)| read.size as usize),
        _ => 0,
    };
    message.len() - size_of::<InHeader>() <= SMALL_BYTES && asked <= SMALL_BYTES
}

/// The processor on which a thread runs, or ran last. Never asked of a thread that may be executing
/// a program: see [`Reader::came`].
fn processor_of(thread: u32) -> Option<u16> {
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    processor_in(&stat)
}

/// The 39th word; the second one is a name in brackets, in which there may be anything.
fn processor_in(stat: &str) -> Option<u16> {
    let (_, words) = stat.rsplit_once(") ")?;
    words.split_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_s_processor_is_read() {
        let mut stat = "7 (a) b) S".to_owned();
        for word in 4..=52 {
            stat += &format!(" {word}");
        }
        assert_eq!(processor_in(&stat), Some(39));
        assert_eq!(processor_in("7 (a) S 1 2"), None);
        assert_eq!(processor_of(0), None);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mine = rustix::thread::sched_getaffinity(None).unwrap();
        assert!(processors::can_run(&mine, processor_of(own).unwrap()));
    }

    #[test]
    fn one_that_asks_again_and_again_is_told_from_several() {
        let mut run = Run::default();
        let mut now_ns = 1_000_000_000;
        let mut ask = |thread: u32, after_ns: u64| {
            now_ns += after_ns;
            run.note(thread, now_ns)
        };
        let dense = |next: Next| matches!(next, Next::Again);
        assert!(matches!(ask(1, 0), Next::Any));
        for n in 2..=3 * DENSE {
            assert_eq!(dense(ask(1, 20_000)), n.is_multiple_of(DENSE));
        }
        // One program behind the other, and two at once.
        assert!(matches!(ask(2, BESIDE_NS), Next::Any));
        assert!(matches!(ask(3, 20_000), Next::Together));
        assert!(matches!(ask(2, 20_000), Next::Together));
        // Now and then.
        for _ in 0..3 * DENSE {
            assert!(!dense(ask(2, DENSE_NS / 4)));
        }
    }

    fn message(thread: u32, data_bytes: usize) -> Vec<u8> {
        let mut message = vec![0; size_of::<InHeader>() + data_bytes];
        message[4..8].copy_from_slice(&Opcode::WRITE.0.to_ne_bytes());
        message[32..36].copy_from_slice(&thread.to_ne_bytes());
        message
    }

    /// One reads alone, and another one waits until this was done often enough.
    fn waits_until(mut done: impl FnMut(&mut Reader)) {
        let Some((readers, guard)) = Readers::start() else {
            eprintln!("NOT TESTED: this process cannot leave SCHED_IDLE again (run as root)");
            assert!(std::env::var_os("CI").is_none(), "CI must be able to");
            return;
        };
        let mut alone = Reader::new(&readers, 0);
        readers.alone.store(0, Ordering::Release);
        let (tell, told) = mpsc::channel();
        let other = std::thread::spawn(move || {
            let other = Reader::new(&readers, 1);
            other.wait_for_turn();
            tell.send(()).unwrap();
        });
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        let until = Instant::now() + Duration::from_secs(20);
        while told.try_recv().is_err() {
            assert!(Instant::now() < until, "it waits for ever");
            done(&mut alone);
            std::thread::yield_now();
        }
        other.join().unwrap();
        drop(alone);
        guard.join().unwrap();
    }

    #[test]
    fn others_wait_until_they_are_wanted() {
        // Beside, if the machine is not so slow that it is behind.
        waits_until(|alone| {
            alone.came(&message(7, 100));
            alone.came(&message(8, 100));
        });
        waits_until(|alone| alone.came(&message(7, SMALL_BYTES + 1)));
        waits_until(|alone| alone.came(&message(0, SMALL_BYTES + 1)));
        waits_until(|alone| alone.readers.end());
    }
}
