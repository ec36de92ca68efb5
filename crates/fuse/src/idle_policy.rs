//! Handing the processor over, for threads that answer requests: the lanes of io_uring, and the
//! one that reads the device alone ([`crate::readers`]), here called lanes too. A lane answers a
//! program that waits on the lane's own processor; but there the lane still runs, so that the
//! scheduler looks for another processor to wake the program on, and finds one asleep. To wake
//! that takes longer than all else that a request needs (15 us to 4 in the same virtual machine),
//! and both caches are cold. A processor on which only threads of the policy `SCHED_IDLE` run
//! counts as idle. So a lane to which requests come one behind the other takes this policy:
//! programs are woken where they slept, at once, and the lane runs on when they wait for it again.
//!
//! A thread of that policy runs when no other wants to. So there is a guard: a lane that did
//! not move from one of its looks to the next gets its old policy back ([`TICK`]). That costs it
//! one call if it had nothing to do: the program is on another processor now, and may be back
//! soon. If it wanted to run, and was kept from it while a request waited, the policy did harm:
//! the lane goes without it for a while, for longer each time ([`Pause`]). And a lane takes it
//! only if there is not more to run than processors at that moment. So a machine that is busy is
//! served as if there was none of this, but for a few milliseconds now and then.
//!
//! The way back is not open to everyone (`CAP_SYS_NICE`, or a limit `RLIMIT_NICE`): it is tried
//! first, and a lane that cannot take it does without the policy.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use client::front::now_ns;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use tracing::debug;

use crate::uring::processors;

/// From one look of the guard to the next: at first, and after some at which it had to help nobody.
const TICK: Duration = Duration::from_millis(1);
const TICK_MOST: Duration = Duration::from_millis(8);
/// So many requests within so long come one behind the other.
pub(crate) const DENSE: u32 = 8;
pub(crate) const DENSE_NS: u64 = 1_000_000;
/// A request that comes so soon after the guard helped has waited for that.
const SUSPECT_NS: u64 = 3_000_000;
/// A spell of the policy that went on for so long was worth it.
const WORTH_NS: u64 = 50_000_000;
/// How long a lane does without, at least and at most.
const PAUSE_LEAST_NS: u64 = 50_000_000;
const PAUSE_MOST_NS: u64 = 2_000_000_000;
/// A lane that finds more to run than processors looks again after this.
const CROWDED_NS: u64 = 10_000_000;

/// Takes a policy for a thread of this process, or for the calling one.
pub(crate) fn take_policy(thread: Option<Pid>, policy: libc::c_int) -> io::Result<()> {
    // A thread of the ordinary policies keeps its nice value; they have no other parameter.
    take_policy_with(thread, (policy, 0))
}

pub(crate) fn take_policy_with(
    thread: Option<Pid>,
    (policy, sched_priority): (libc::c_int, libc::c_int),
) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: it reads what the pointer points to, which outlives the call.
    let taken =
        unsafe { libc::sched_setscheduler(Pid::as_raw(thread), policy, &raw const parameters) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lanes of this process may have that policy, and be kept on one processor: these are those on
/// which it may run.
static EVERYWHERE: OnceLock<CpuSet> = OnceLock::new();

/// The calling thread runs like any other, wherever it may, whatever the one that started it does.
pub(crate) fn be_ordinary() {
    leave_policy();
    go_everywhere(None);
}

/// May lanes of this process be kept on this processor?
pub(crate) fn may_stay_on(processor: u16) -> bool {
    EVERYWHERE
        .get()
        .is_some_and(|everywhere| processors::can_run(everywhere, processor))
}

pub(crate) fn go_everywhere(thread: Option<Pid>) {
    if let Some(everywhere) = EVERYWHERE.get()
        && let Err(error) = sched_setaffinity(thread, everywhere)
    {
        tracing::warn!(%error, "a thread stays on one processor");
    }
}

/// The calling thread's policy is that of others again.
fn leave_policy() {
    // SAFETY: it takes no pointer.
    let is_idle = || unsafe { libc::sched_getscheduler(0) } == libc::SCHED_IDLE;
    if EVERYWHERE.get().is_some()
        && is_idle()
        && let Err(error) = take_policy(None, libc::SCHED_OTHER)
    {
        tracing::warn!(%error, "a thread keeps the policy SCHED_IDLE");
    }
}

/// May this process do so? Tried out on a thread of its own, which may be unable to come back.
fn is_possible() -> bool {
    let attempt = || -> io::Result<()> {
        // SAFETY: it takes no pointer.
        if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
            return Err(io::Error::other("the process has a policy of its own"));
        }
        take_policy(None, libc::SCHED_IDLE)?;
        take_policy(None, libc::SCHED_OTHER)
    };
    let thread = std::thread::Builder::new().name("ariel-policy".to_owned());
    let tried = thread.spawn(attempt).and_then(|thread| {
        let panicked = |_| Err(io::Error::other("a panic"));
        thread.join().unwrap_or_else(panicked)
    });
    match tried {
        Ok(()) => true,
        Err(error) => {
            debug!(%error, "lanes do not hand their processors over");
            false
        }
    }
}

/// Where the kernel says how many threads run or want to: in the fourth word, before a slash.
const LOAD: &str = "/proc/loadavg";

/// Does each thread that runs or wants to, the asking one too, have a processor to itself? Yes
/// where that cannot be known: the guard finds out.
fn is_calm(processors: usize) -> bool {
    let load = std::fs::read_to_string(LOAD).unwrap_or_default();
    wanting(&load).is_none_or(|threads| threads <= processors)
}

fn wanting(load: &str) -> Option<usize> {
    let (threads, _) = load.split_whitespace().nth(3)?.split_once('/')?;
    threads.parse().ok()
}

/// Does a thread of this process run, or want to? One that is asleep has nothing to do. Yes where
/// that cannot be known.
fn wants_to_run(thread: Pid) -> bool {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    is_asleep(&stat).is_none_or(|asleep| !asleep)
}

/// The state is the letter behind the name, which is in brackets.
fn is_asleep(stat: &str) -> Option<bool> {
    let (_, state) = stat.rsplit_once(") ")?;
    Some(state.starts_with('S'))
}

/// A lane's policy.
struct Policy {
    /// None: the lane has ended.
    thread: Option<Pid>,
    /// When the guard gave the old one back.
    restored_ns: u64,
    /// The lane wanted to run then.
    starved: bool,
}

/// A lane as the guard has it.
struct Stand {
    /// Changes whenever the lane moves.
    beat: AtomicU64,
    /// The policy is `SCHED_IDLE`, or about to be.
    idle: AtomicBool,
    /// It is kept on one processor only as long as it has that policy.
    roams: bool,
    policy: Mutex<Policy>,
}

impl Stand {
    /// Is the lane still to be looked after? `seen`: its beat at the last look.
    fn look(&self, seen: &mut u64) -> bool {
        if !self.idle.load(Ordering::Acquire) {
            return false;
        }
        let before = std::mem::replace(seen, self.beat.load(Ordering::Relaxed));
        if *seen == before {
            self.restore();
        }
        *seen != before
    }

    fn restore(&self) {
        let mut policy = self.policy.lock();
        policy.starved = policy.thread.is_some_and(wants_to_run);
        // Before the policy: a lane that takes it meanwhile sees that, and gives it back.
        self.idle.store(false, Ordering::Release);
        if let Some(thread) = policy.thread
            && let Err(error) = take_policy(Some(thread), libc::SCHED_OTHER)
        {
            // It was possible before; a lane that is too slow is better than none.
            tracing::warn!(%error, "a lane keeps the policy SCHED_IDLE");
        }
        if self.roams && policy.thread.is_some() {
            go_everywhere(policy.thread);
            go_everywhere(None); // the guard kept off there
        }
        policy.restored_ns = now_ns();
    }
}

#[derive(Default)]
struct Watch {
    /// Lanes of that policy may be there.
    wanted: bool,
    /// One has taken it since the last look.
    more: bool,
    over: bool,
}

/// Looks after the lanes of one connection.
#[derive(Default)]
pub(crate) struct Guard {
    /// Its own thread, once that runs.
    thread: OnceLock<Pid>,
    stands: Mutex<Vec<Arc<Stand>>>,
    watch: Mutex<Watch>,
    changed: Condvar,
}

impl Guard {
    /// A guard and its thread. `None`: lanes cannot hand over here.
    pub(crate) fn start() -> Option<(Arc<Guard>, JoinHandle<()>)> {
        if !is_possible() {
            return None;
        }
        let everywhere = sched_getaffinity(None).ok()?;
        let _ = EVERYWHERE.set(everywhere); // not the first mount of this process
        let guard = Arc::new(Guard::default());
        let thread = std::thread::Builder::new().name("ariel-guard".to_owned());
        let run = Arc::clone(&guard);
        let thread = thread.spawn(move || run.run()).ok()?;
        Some((guard, thread))
    }

    /// The connection is over.
    pub(crate) fn end(&self) {
        self.watch.lock().over = true;
        self.changed.notify_all();
    }

    /// The guard's thread runs elsewhere from now on. Where it has run last it may count as one
    /// that wants to run although it sleeps (since Linux 6.12, until its share of time is used up):
    /// no program would be woken there.
    pub(crate) fn keep_off(&self, processor: u16) {
        // Without a lock: a holder that could not run would keep the guard from helping.
        let Some((thread, mut others)) = self.thread.get().zip(EVERYWHERE.get().copied()) else {
            return;
        };
        others.unset(processor.into());
        if others.count() > 0
            && let Err(error) = sched_setaffinity(Some(*thread), &others)
        {
            debug!(%error, "the guard shares a processor");
        }
    }

    /// No lane is kept on a processor any more.
    pub(crate) fn keep_off_none(&self) {
        if let Some(thread) = self.thread.get() {
            go_everywhere(Some(*thread));
        }
    }

    fn want(&self) {
        let mut watch = self.watch.lock();
        (watch.wanted, watch.more) = (true, true);
        self.changed.notify_all();
    }

    /// Until the connection is over and every lane has ended.
    fn run(&self) {
        let (mut seen, mut tick) = (Vec::new(), TICK);
        let mut watch = self.watch.lock();
        let _ = self.thread.set(gettid()); // it runs once
        while !watch.over || self.has_lanes() {
            self.wait(&mut watch, &mut tick);
            let stands = self.stands.lock();
            seen.resize(stands.len(), 0);
            let looks = stands.iter().zip(&mut seen);
            // All are looked at, and a lane that begins meanwhile waits to say so.
            watch.wanted = looks.fold(false, |wanted, (stand, seen)| stand.look(seen) || wanted);
        }
    }

    /// Until it is time for the next look; for one that has just taken the policy, that is soon.
    fn wait(&self, watch: &mut MutexGuard<'_, Watch>, tick: &mut Duration) {
        if !watch.wanted {
            self.changed.wait(watch);
        }
        let soon_ns = |tick: Duration| now_ns() + tick.as_nanos() as u64;
        let mut due_ns = soon_ns(*tick);
        while watch.wanted {
            if std::mem::take(&mut watch.more) {
                *tick = TICK;
                due_ns = due_ns.min(soon_ns(TICK));
            }
            let left = Duration::from_nanos(due_ns.saturating_sub(now_ns()));
            if self.changed.wait_for(watch, left).timed_out() {
                break;
            }
        }
        *tick = (2 * *tick).min(TICK_MOST);
    }

    fn has_lanes(&self) -> bool {
        let stands = self.stands.lock();
        stands
            .iter()
            .any(|stand| stand.policy.lock().thread.is_some())
    }
}

/// How long is done without what did harm.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    len_ns: u64,
    until_ns: u64,
}

impl Pause {
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// The policy was taken at `began`, and given back by the guard at `restored`, which is known
    /// now; `waited`: the lane wanted to run then, and there is a request already.
    pub(crate) fn learn(&mut self, (began_ns, restored_ns): (u64, u64), now_ns: u64, waited: bool) {
        if restored_ns.saturating_sub(began_ns) >= WORTH_NS {
            self.len_ns = 0;
        }
        if waited && now_ns.saturating_sub(restored_ns) < SUSPECT_NS {
            self.len_ns = (self.len_ns * 2).clamp(PAUSE_LEAST_NS, PAUSE_MOST_NS);
            self.until_ns = now_ns + self.len_ns;
        }
    }
}

/// A lane's own part.
pub(crate) struct Handover {
    guard: Arc<Guard>,
    stand: Arc<Stand>,
    /// The lane took the policy, as far as it knows.
    taken: bool,
    began_ns: u64,
    pause: Pause,
    /// Requests since then.
    came: u32,
    since_ns: u64,
}

impl Handover {
    /// Of the calling thread, which stays on its processor.
    pub(crate) fn new(guard: &Arc<Guard>) -> Handover {
        Self::with(guard, false)
    }

    /// Of the calling thread, which is kept on a processor only while it hands that over.
    pub(crate) fn roaming(guard: &Arc<Guard>) -> Handover {
        Self::with(guard, true)
    }

    fn with(guard: &Arc<Guard>, roams: bool) -> Handover {
        let stand = Arc::new(Stand {
            beat: AtomicU64::new(1),
            idle: AtomicBool::new(false),
            roams,
            policy: Mutex::new(Policy {
                thread: Some(gettid()),
                restored_ns: 0,
                starved: false,
            }),
        });
        guard.stands.lock().push(Arc::clone(&stand));
        Handover {
            guard: Arc::clone(guard),
            stand,
            taken: false,
            began_ns: 0,
            pause: Pause::default(),
            came: 0,
            since_ns: 0,
        }
    }

    /// The lane has waited, and so many requests came; `posts`: are there answers for it to take?
    pub(crate) fn moved(&mut self, requests: usize, posts: impl FnOnce() -> bool) {
        self.look(|| requests > 0 || posts());
        self.came += requests as u32;
        if self.came >= DENSE {
            let now_ns = now_ns();
            let dense = now_ns - self.since_ns <= DENSE_NS;
            (self.came, self.since_ns) = (0, now_ns);
            if dense && !self.taken && self.may_take(now_ns) {
                self.take_now(now_ns);
            }
        }
    }

    /// Does the lane have the policy, as far as it knows?
    pub(crate) fn is_taken(&self) -> bool {
        self.taken
    }

    /// The lane moves, and learns what the guard has done; `work`: is there something to do?
    pub(crate) fn look(&mut self, work: impl FnOnce() -> bool) {
        let beat = self.stand.beat.load(Ordering::Relaxed);
        self.stand.beat.store(beat + 1, Ordering::Relaxed);
        if self.taken && !self.stand.idle.load(Ordering::Acquire) {
            self.taken = false;
            // It may have taken it while the guard gave it back.
            leave_policy();
            let (restored_ns, starved) = {
                let policy = self.stand.policy.lock();
                (policy.restored_ns, policy.starved)
            };
            let waited = starved && work();
            self.pause
                .learn((self.began_ns, restored_ns), now_ns(), waited);
        }
    }

    /// May it take the policy now?
    pub(crate) fn may_take(&mut self, now_ns: u64) -> bool {
        if !self.pause.is_over(now_ns) {
            return false;
        }
        let processors = EVERYWHERE.get().map_or(1, CpuSet::count) as usize;
        if !is_calm(processors) {
            self.pause.until_ns = now_ns + CROWDED_NS;
            return false;
        }
        true
    }

    /// The lane gives the policy back itself.
    pub(crate) fn give_back(&mut self) {
        if std::mem::take(&mut self.taken) {
            // In this order: until it is done the guard looks after it.
            leave_policy();
            self.stand.idle.store(false, Ordering::Release);
        }
    }

    /// The guard knows before the lane may be kept from running.
    pub(crate) fn take_now(&mut self, now_ns: u64) {
        self.stand.idle.store(true, Ordering::Release);
        self.guard.want();
        if take_policy(None, libc::SCHED_IDLE).is_err() {
            self.stand.idle.store(false, Ordering::Release);
        } else if self.stand.idle.load(Ordering::Acquire) {
            (self.taken, self.began_ns) = (true, now_ns);
        } else {
            // It took so long that the guard has helped already.
            leave_policy();
        }
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if self.taken {
            leave_policy();
        }
        // The thread's number may be another one's soon.
        self.stand.policy.lock().thread = None;
        self.stand.idle.store(false, Ordering::Release);
        let _watch = self.guard.watch.lock();
        self.guard.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    fn policy_of(thread: Pid) -> libc::c_int {
        // SAFETY: it takes no pointer.
        unsafe { libc::sched_getscheduler(Pid::as_raw(Some(thread))) }
    }

    #[test]
    fn a_lane_that_does_not_move_gets_its_policy_back() {
        let Some((guard, thread)) = Guard::start() else {
            eprintln!("NOT TESTED: this process cannot leave SCHED_IDLE again (run as root)");
            assert!(std::env::var_os("CI").is_none(), "CI must be able to");
            return;
        };
        let (began, lane) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let run = Arc::clone(&guard);
        let lane_thread = std::thread::spawn(move || {
            let mut handover = Handover::new(&run);
            // On a busy machine the guard may have helped before this returns.
            handover.take_now(now_ns());
            began.send((gettid(), Arc::clone(&handover.stand))).unwrap();
            ended.recv().unwrap();
            handover.moved(1, || false);
            assert!(!handover.taken && handover.pause.len_ns <= PAUSE_LEAST_NS);
        });
        let (tid, stand) = lane.recv().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while stand.idle.load(Ordering::Acquire) {
            assert!(Instant::now() < until, "nobody looked after the lane");
            std::thread::yield_now();
        }
        drop(stand.policy.lock()); // the guard is through
        assert_eq!(policy_of(tid), libc::SCHED_OTHER);
        // The guard's thread outlives the connection for as long as there is a lane.
        guard.end();
        end.send(()).unwrap();
        lane_thread.join().unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn who_sleeps_does_not_want_to_run() {
        let (began, sleeper) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            began.send(gettid()).unwrap();
            let _ = ended.recv();
        });
        let tid = sleeper.recv().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while wants_to_run(tid) {
            assert!(Instant::now() < until, "it waits for nothing but the end");
            std::thread::yield_now();
        }
        assert!(wants_to_run(gettid()));
        drop(end);
        thread.join().unwrap();
        assert_eq!(is_asleep("7 (a) S) S 1 2"), Some(true));
        assert_eq!(is_asleep("7 (a) S (b) R 1 2"), Some(false));
        assert_eq!(is_asleep("7 a S"), None);
    }

    #[test]
    fn what_did_harm_is_left_for_longer_each_time() {
        let mut pause = Pause::default();
        let short = |at: u64| (at, at + 2_000_000);
        let mut lengths = Vec::new();
        let mut now = 1_000_000_000;
        for _ in 0..8 {
            pause.learn(short(now), now + 2_100_000, true);
            lengths.push(pause.len_ns / 1_000_000);
            assert!(!pause.is_over(now + 2_100_000 + pause.len_ns - 1));
            now += 2_100_000 + pause.len_ns;
            assert!(pause.is_over(now));
        }
        assert_eq!(lengths, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        // Nothing waited, or it came long after: no harm.
        pause.learn(short(now), now + 2_100_000, false);
        pause.learn(short(now), now + 500_000_000, true);
        assert!(pause.is_over(now));
        // A spell that went on for long before was worth it.
        pause.learn((now, now + WORTH_NS), now + WORTH_NS + 1_000_000, true);
        assert_eq!(pause.len_ns, PAUSE_LEAST_NS);
    }

    #[test]
    fn the_kernel_s_load_is_read() {
        assert_eq!(wanting("0.30 1.70 2.36 3/105 25739\n"), Some(3));
        for strange in ["", "0.30 1.70 2.36", "a b c d e", "1 2 3 4 5"] {
            assert_eq!(wanting(strange), None, "{strange}");
        }
        assert!(wanting(&std::fs::read_to_string(LOAD).unwrap()).is_some_and(|now| now > 0));
    }
}
