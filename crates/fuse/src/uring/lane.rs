//! A lane: one thread with one ring, which serves the requests that programs on one processor make.
//!
//! An answer is given by any thread, and taken by the kernel in a call of the lane's thread. The
//! number of an answered request is put into the lane's post; the lane's own thread has it taken
//! when it is through with the request, and others wake that thread. So an answer that was given
//! may not have arrived yet: [`settle`] waits until all have. A thread that is about to take back
//! what answers say, or to report it to others, must do that first.
//!
//! A request occupies a seat until it is answered, and some wait for long. The kernel hands out
//! seats only: when there is none left, requests lie there until an answer is committed, which may
//! itself depend on one of them. So a lane adds seats before there is none left; and since there
//! may have been none, it then asks a question about the root from its own processor, and again as
//! long as that shows that more requests lie there: each time an answer is committed, the kernel
//! puts one of those into its seat at once.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::How;
use super::ask::ask;
use super::memory::{Seats, Taken};
use super::ring::{Alarm, Ring};
use crate::device::Device;
use crate::idle_policy::Handover;

/// Seats of a queue at the beginning.
const SEATS: usize = 16;
/// The same, of a processor that is off.
const SEATS_OFF: usize = 2;
/// The queue of the lane's own processor, among its queues.
const HOME: usize = 0;
/// Most seats of a queue.
const SEATS_MAX: usize = 1024;
/// A lane that had nothing to do for so long gives memory back.
const IDLE: Duration = Duration::from_secs(1);

/// An answer that lies in its seat.
#[derive(Clone, Copy)]
pub(super) struct Commit {
    pub(super) token: u64,
    pub(super) commit_id: u64,
}

#[derive(Default)]
struct Post {
    waiting: Vec<Commit>,
    /// How many were posted, and how many of them were committed.
    posted: u64,
    committed: u64,
    /// The thread has ended: nobody wants answers any more.
    closed: bool,
}

/// The part of a lane that other threads see.
pub(crate) struct Lane {
    alarm: Alarm,
    /// The thread waits, or is about to: a thread that posts must wake it.
    asleep: AtomicBool,
    over: AtomicBool,
    /// There was no seat left: requests may lie in the kernel.
    starved: AtomicBool,
    post: Mutex<Post>,
    committed: Condvar,
    /// Answers posted and not committed, in all lanes.
    under_way: Arc<AtomicUsize>,
}

impl Lane {
    pub(super) fn new(alarm: Alarm, under_way: Arc<AtomicUsize>) -> Lane {
        Lane {
            alarm,
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            post: Mutex::default(),
            committed: Condvar::new(),
            under_way,
        }
    }

    /// Has an answer taken; false: nobody wants it any more. The lane's own thread does so when it
    /// is through with the request: the program that it answers may run at once, in its place.
    pub(super) fn commit(&self, commit: Commit) -> bool {
        let mut post = self.post.lock();
        if post.closed {
            return false;
        }
        post.waiting.push(commit);
        post.posted += 1;
        self.under_way.fetch_add(1, Ordering::SeqCst);
        drop(post);
        self.wake();
        true
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.alarm.ring();
        }
    }

    /// Ends the lane: its connection is over.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.asleep.store(false, Ordering::SeqCst);
        self.alarm.ring();
    }

    /// May requests lie in the kernel that found no seat?
    fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Acquire) && !self.over.load(Ordering::Acquire)
    }

    /// Takes what was posted.
    fn collect(&self, into: &mut Vec<Commit>) {
        into.append(&mut self.post.lock().waiting);
    }

    /// So many of what was posted have been committed.
    fn report(&self, count: usize) {
        self.post.lock().committed += count as u64;
        self.under_way.fetch_sub(count, Ordering::SeqCst);
        self.committed.notify_all();
    }

    fn close(&self) {
        let mut post = self.post.lock();
        post.closed = true;
        let left = (post.posted - post.committed) as usize;
        post.waiting.clear();
        post.committed = post.posted;
        self.under_way.fetch_sub(left, Ordering::SeqCst);
        self.committed.notify_all();
    }

    fn await_posted(&self) {
        let mut post = self.post.lock();
        let until = post.posted;
        while post.committed < until {
            self.committed.wait(&mut post);
        }
    }
}

/// Returns when every answer given so far has been taken. A lane's own thread takes those of the
/// lane here, and must not wait for more: nobody else does.
pub(super) fn settle(lanes: &[Arc<Lane>], under_way: &AtomicUsize) {
    if under_way.load(Ordering::SeqCst) == 0 {
        return;
    }
    let own = with_own(|own| {
        own.commit_posted();
        Arc::clone(&own.lane)
    });
    let is_own = |lane: &Arc<Lane>| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, lane));
    for lane in lanes.iter().filter(|lane| !is_own(lane)) {
        lane.await_posted();
    }
}

thread_local! {
    /// There on a lane's own thread. Never borrowed while a handler runs.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

fn with_own<T>(work: impl FnOnce(&mut Own) -> T) -> Option<T> {
    let done = OWN.try_with(|own| own.borrow_mut().as_mut().map(work));
    done.ok().flatten()
}

/// One seat of the lane.
struct Place {
    seats: Arc<Seats>,
    /// Its number among these.
    seat: usize,
    queue: usize,
    /// It holds a request.
    busy: bool,
}

/// The state of a queue that the lane's thread alone sees.
struct Queue {
    qid: u16,
    total: usize,
    busy: usize,
}

/// A lane, as its own thread has it.
struct Own {
    lane: Arc<Lane>,
    ring: Ring,
    payload_len: usize,
    root: Option<PathBuf>,
    handover: Option<Handover>,
    /// The seat of which an answer was committed last, after there was none left: another request
    /// there at once has lain in the kernel.
    probe: Option<u64>,
    places: Vec<Place>,
    groups: Vec<Arc<Seats>>,
    queues: Vec<Queue>,
    /// Reused, to spare allocations.
    commits: Vec<Commit>,
    completed: Vec<(u64, i32)>,
}

/// A request that came.
pub(super) struct Came {
    pub(super) lane: Arc<Lane>,
    pub(super) seats: Arc<Seats>,
    pub(super) seat: usize,
    pub(super) token: u64,
    pub(super) taken: Taken,
}

/// Makes the calling thread the lane's: its ring is enabled, and its seats are registered.
pub(super) fn begin(
    (lane, device, mut ring): (Arc<Lane>, &Device, Ring),
    queues: &[u16],
    how: &How,
    handover: Option<Handover>,
) -> io::Result<()> {
    ring.enable(device)?;
    let mut own = Own {
        lane,
        ring,
        payload_len: how.payload_len,
        root: how.root.clone(),
        handover,
        probe: None,
        places: Vec::new(),
        groups: Vec::new(),
        queues: Vec::new(),
        commits: Vec::new(),
        completed: Vec::new(),
    };
    for (number, &qid) in queues.iter().enumerate() {
        own.queues.push(Queue {
            qid,
            total: 0,
            busy: 0,
        });
        own.add_seats(number, if number == HOME { SEATS } else { SEATS_OFF })?;
        own.check_registered()?;
    }
    OWN.set(Some(own));
    Ok(())
}

/// Ends what `begin` began.
pub(super) fn end(lane: &Lane) {
    lane.close();
    OWN.set(None);
}

/// Waits for requests, and gives their tokens; false: the lane is over.
pub(super) fn next(tokens: &mut Vec<u64>) -> bool {
    with_own(|own| own.next(tokens)).unwrap_or(false)
}

/// Has all answers taken that were given to requests of the lane.
pub(super) fn commit_posted() {
    with_own(Own::commit_posted);
}

/// Takes a request out of its seat. `None`: it was none that a handler must see.
pub(super) fn take(token: u64, message: &mut [u8]) -> Option<Came> {
    with_own(|own| own.take(token, message)).flatten()
}

impl Own {
    fn add_seats(&mut self, queue: usize, count: usize) -> io::Result<()> {
        let seats = Arc::new(Seats::new(count, self.payload_len)?);
        self.groups.push(Arc::clone(&seats));
        for seat in 0..count {
            let token = self.places.len() as u64;
            let qid = self.queues[queue].qid;
            self.places.push(Place {
                seats: Arc::clone(&seats),
                seat,
                queue,
                busy: false,
            });
            self.queues[queue].total += 1;
            self.ring.register(token, qid, &seats.parts(seat))?;
        }
        Ok(())
    }

    /// The kernel says at once what it does not register. With one seat a queue works.
    fn check_registered(&mut self) -> io::Result<()> {
        let mut completed = Vec::new();
        self.ring.completions(&mut completed)?;
        for &(token, result) in &completed {
            if result < 0 {
                let queue = &mut self.queues[self.places[token as usize].queue];
                queue.total -= 1;
                if queue.total == 0 {
                    return Err(io::Error::from_raw_os_error(-result));
                }
            }
        }
        // Another lane may have registered its last seat, so that this one has requests already.
        self.completed
            .extend(completed.into_iter().filter(|(_, result)| *result >= 0));
        Ok(())
    }

    fn commit(&mut self, commits: &[Commit]) {
        for &Commit { token, commit_id } in commits {
            let place = &mut self.places[token as usize];
            let queue = &mut self.queues[place.queue];
            place.busy = false;
            queue.busy -= 1;
            if place.queue == HOME {
                self.probe = Some(token);
            }
            let pushed = self.ring.commit(token, queue.qid, commit_id);
            self.lane.check(pushed);
        }
        let submitted = self.ring.submit();
        self.lane.check(submitted);
    }

    /// Commits what other threads have answered.
    fn commit_posted(&mut self) {
        let mut commits = std::mem::take(&mut self.commits);
        self.lane.collect(&mut commits);
        if !commits.is_empty() {
            self.commit(&commits);
            self.lane.report(commits.len());
            commits.clear();
        }
        self.commits = commits;
    }

    fn next(&mut self, tokens: &mut Vec<u64>) -> bool {
        self.commit_posted();
        let lane = Arc::clone(&self.lane);
        lane.asleep.store(true, Ordering::SeqCst);
        let posted = !lane.post.lock().waiting.is_empty();
        if lane.over.load(Ordering::Acquire) {
            return false;
        }
        let waits = !posted && self.completed.is_empty();
        if waits {
            let large = self.groups.iter().any(|seats| seats.any_large());
            let waited = self.ring.wait(large.then_some(IDLE));
            lane.check(waited);
        }
        lane.asleep.store(false, Ordering::SeqCst);
        self.receive(tokens);
        if let Some(handover) = &mut self.handover {
            handover.moved(tokens.len(), || !lane.post.lock().waiting.is_empty());
        }
        self.look_for_more(tokens, waits);
        for queue in 0..self.queues.len() {
            self.tend(queue);
        }
        if tokens.is_empty() && !posted {
            self.trim();
        }
        !lane.over.load(Ordering::Acquire)
    }

    fn receive(&mut self, tokens: &mut Vec<u64>) {
        let mut completed = std::mem::take(&mut self.completed);
        let received = self.ring.completions(&mut completed);
        self.lane.check(received);
        for (token, result) in completed.drain(..) {
            let place = &mut self.places[token as usize];
            let queue = &mut self.queues[place.queue];
            if result < 0 {
                queue.total -= 1;
                self.lane.lose(result);
                continue;
            }
            place.busy = true;
            queue.busy += 1;
            tokens.push(token);
        }
        self.completed = completed;
    }

    /// Do requests lie in the kernel? `all`: `tokens` are all that there were.
    fn look_for_more(&mut self, tokens: &[u64], all: bool) {
        let home = &self.queues[HOME];
        if home.busy == home.total {
            // Earlier commits show nothing any more.
            self.probe = None;
            self.lane.starved.store(true, Ordering::Release);
        }
        match self.probe {
            Some(probe) if tokens.contains(&probe) => self.probe = None,
            Some(_) if all => {
                self.probe = None;
                self.lane.starved.store(false, Ordering::Release);
            }
            _ => {}
        }
    }

    /// Sees to it that there are seats.
    fn tend(&mut self, number: usize) {
        let queue = &self.queues[number];
        let free = queue.total - queue.busy;
        if free <= queue.total / 4 && queue.total < SEATS_MAX {
            let more = queue.total.clamp(1, SEATS_MAX - queue.total);
            debug!(
                qid = queue.qid,
                total = queue.total,
                more,
                "more seats for requests"
            );
            if let Err(error) = self.add_seats(number, more) {
                return warn!(%error, "no memory for more requests at once; some may wait");
            }
            // The kernel may have been without seats for a moment that is not seen here: those that
            // were left may be taken already, by requests that come next.
            if let Some(root) = self.root.as_ref().filter(|_| number == HOME) {
                self.probe = None;
                self.lane.starved.store(true, Ordering::Release);
                let lane = Arc::clone(&self.lane);
                let is_wanted = move || lane.is_starved();
                ask(self.queues[number].qid, root.clone(), is_wanted);
            }
        }
    }

    fn take(&mut self, token: u64, message: &mut [u8]) -> Option<Came> {
        let place = &self.places[token as usize];
        let (seats, seat) = (Arc::clone(&place.seats), place.seat);
        let taken = match seats.take(seat, message) {
            Ok(taken) => taken,
            Err(commit_id) => {
                tracing::error!("malformed request from the kernel");
                let answer = (commit_id, -Errno::IO.raw_os_error());
                self.finish(token, answer);
                return None;
            }
        };
        Some(Came {
            lane: Arc::clone(&self.lane),
            seats,
            seat,
            token,
            taken,
        })
    }

    /// Answers a request without bytes.
    fn finish(&mut self, token: u64, answer: (u64, i32)) {
        let place = &self.places[token as usize];
        // No bytes are never too many.
        let _ = place.seats.put(place.seat, answer, &[]);
        let commit_id = answer.0;
        self.commit(&[Commit { token, commit_id }]);
    }

    /// Gives back the memory of large requests that are over.
    fn trim(&mut self) {
        for seats in &self.groups {
            seats.begin_trim();
        }
        for place in &self.places {
            match place.busy {
                false => place.seats.trim(place.seat),
                true => place.seats.trim_later(place.seat),
            }
        }
    }
}

impl Lane {
    /// An error of the ring itself ends the lane: nothing can be answered any more.
    fn check(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::error!(%error, "the ring for requests fails; this lane stops serving");
            self.over.store(true, Ordering::Release);
        }
    }

    /// A seat is of no use any more, as a rule since the connection is over.
    fn lose(&self, result: i32) {
        let errno = Errno::from_raw_os_error(-result);
        debug!(%errno, "a seat was given back");
        if matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) {
            self.over.store(true, Ordering::Release);
        }
    }
}
