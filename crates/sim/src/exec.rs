//! Virtual time and the tasks that run on it.
//!
//! Guarantees: one thing happens at a time, in an order that depends on nothing but the order in
//! which things were asked for; time passes only when nothing can happen at the present moment. A
//! program, a system call and a kernel's notification are each a task, written as straight code; a
//! task belongs to a machine and dies with it. Each has a sequence of random numbers of its own, a
//! branch of that of the task that began it.

use crate::rng::Rng;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use wire::Time;

/// Numbers a task from 1 on; never reused.
pub(crate) type TaskId = usize;

type Body = Pin<Box<dyn Future<Output = ()>>>;
type Action = Box<dyn FnOnce()>;

enum Item {
    Wake(TaskId),
    Run(Action, Rng),
}

struct Entry {
    at: (Time, u64),
    item: Item,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

struct Task {
    owner: u32,
    rng: Rng,
    body: Body,
}

/// The clock, the queue of what is to come, and the tasks.
pub(crate) struct Sched {
    now: Cell<Time>,
    moments: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Entry>>>,
    ready: RefCell<VecDeque<TaskId>>,
    /// Whose, and what is left to do, by number; nothing of those that have ended.
    tasks: RefCell<Vec<Option<Task>>>,
    current: Cell<TaskId>,
    /// The sequence of what happens now.
    rng: Rc<RefCell<Rng>>,
}

impl Sched {
    pub(crate) fn new(start: Time, rng: Rng) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(start),
            moments: Cell::new(0),
            queue: RefCell::default(),
            ready: RefCell::default(),
            tasks: RefCell::new(vec![None]), // nobody is number 0
            current: Cell::new(0),
            rng: Rc::new(RefCell::new(rng)),
        })
    }

    /// The random numbers of what happens now.
    pub(crate) fn rng(&self) -> &Rc<RefCell<Rng>> {
        &self.rng
    }

    /// Does something with another sequence.
    pub(crate) fn with_rng<T>(&self, rng: Rng, action: impl FnOnce() -> T) -> T {
        let outer = self.rng.replace(rng);
        let result = action();
        self.rng.replace(outer);
        result
    }

    pub(crate) fn now(&self) -> Time {
        self.now.get()
    }

    /// A number above all numbered moments so far: orders what happens at the same time.
    pub(crate) fn moment(&self) -> u64 {
        self.moments.set(self.moments.get() + 1);
        self.moments.get()
    }

    /// Does something at a later time.
    pub(crate) fn at(&self, time: Time, action: impl FnOnce() + 'static) {
        let rng = self.rng.borrow_mut().branch();
        self.push(time, Item::Run(Box::new(action), rng));
    }

    fn push(&self, time: Time, item: Item) {
        let at = (time.max(self.now()), self.moment());
        self.queue.borrow_mut().push(Reverse(Entry { at, item }));
    }

    /// The task that is at work; 0: none.
    pub(crate) fn task(&self) -> TaskId {
        self.current.get()
    }

    /// Begins a task of a machine.
    pub(crate) fn spawn(&self, owner: u32, body: impl Future<Output = ()> + 'static) {
        let rng = self.rng.borrow_mut().branch();
        let body = Box::pin(body);
        let id = {
            let mut tasks = self.tasks.borrow_mut();
            tasks.push(Some(Task { owner, rng, body }));
            tasks.len() - 1
        };
        self.wake(id);
    }

    fn wake(&self, id: TaskId) {
        self.ready.borrow_mut().push_back(id);
    }

    /// Ends all tasks of a machine where they are.
    pub(crate) fn kill(&self, owner: u32) {
        let tasks = self.tasks.borrow().len();
        for id in 0..tasks {
            let dead = {
                let task = &mut self.tasks.borrow_mut()[id];
                task.take_if(|task| task.owner == owner)
            };
            drop(dead); // only now, since dropping it may wake others
        }
    }

    /// Ends everything, so that nothing keeps anything else alive.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop(queue);
    }

    /// Lets the next thing happen; false if there is nothing.
    pub(crate) fn step(&self) -> bool {
        let next = self.ready.borrow_mut().pop_front();
        if let Some(id) = next {
            self.poll(id);
            return true;
        }
        let Some(Reverse(entry)) = self.queue.borrow_mut().pop() else {
            return false;
        };
        self.now.set(entry.at.0);
        match entry.item {
            Item::Wake(id) => self.wake(id),
            Item::Run(action, rng) => self.with_rng(rng, action),
        }
        true
    }

    fn poll(&self, id: TaskId) {
        let task = self.tasks.borrow_mut().get_mut(id).and_then(Option::take);
        let Some(mut task) = task else {
            return;
        };
        self.current.set(id);
        let mut context = Context::from_waker(Waker::noop());
        let outer = self.rng.replace(task.rng);
        let pending = task.body.as_mut().poll(&mut context).is_pending();
        task.rng = self.rng.replace(outer);
        if pending {
            self.tasks.borrow_mut()[id] = Some(task);
        }
        self.current.set(0);
    }

    /// Lets time pass for the present task.
    pub(crate) fn sleep(self: &Rc<Self>, ns: Time) -> impl Future<Output = ()> + use<> {
        Sleep {
            sched: Rc::clone(self),
            until: self.now() + ns,
            armed: false,
        }
    }
}

struct Sleep {
    sched: Rc<Sched>,
    until: Time,
    armed: bool,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.sched.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.armed {
            self.armed = true;
            let id = self.sched.current.get();
            self.sched.push(self.until, Item::Wake(id));
        }
        Poll::Pending
    }
}

/// Something that one task waits for and somebody else brings.
pub(crate) struct Signal<T>(Rc<SignalState<T>>);

struct SignalState<T> {
    sched: Rc<Sched>,
    value: RefCell<Option<T>>,
    waiter: Cell<TaskId>,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Signal<T> {
    pub(crate) fn new(sched: &Rc<Sched>) -> Self {
        let sched = Rc::clone(sched);
        Self(Rc::new(SignalState {
            sched,
            value: RefCell::new(None),
            waiter: Cell::new(0),
        }))
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.value.borrow_mut() = Some(value);
        let waiter = self.0.waiter.replace(0);
        if waiter != 0 {
            self.0.sched.wake(waiter);
        }
    }

    pub(crate) fn wait(self) -> Wait<T> {
        Wait(self)
    }
}

/// Waits for a signal.
pub(crate) struct Wait<T>(Signal<T>);

impl<T> Future for Wait<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let state = &self.0.0;
        match state.value.borrow_mut().take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waiter.set(state.sched.current.get());
                Poll::Pending
            }
        }
    }
}

/// A lock that many may hold shared or one alone, granted in the order of asking.
#[derive(Default)]
pub(crate) struct Lock {
    state: RefCell<LockState>,
}

#[derive(Default)]
struct LockState {
    shared: u32,
    alone: bool,
    queue: VecDeque<(bool, Signal<Guard>)>,
}

/// Holds a lock until it is dropped.
pub(crate) struct Guard {
    lock: Rc<Lock>,
    alone: bool,
}

impl Lock {
    pub(crate) async fn lock(self: &Rc<Self>, sched: &Rc<Sched>, alone: bool) -> Guard {
        let signal = Signal::new(sched);
        self.state
            .borrow_mut()
            .queue
            .push_back((alone, signal.clone()));
        self.grant();
        signal.wait().await
    }

    /// Could it be had shared, or alone, without waiting?
    pub(crate) fn is_free(&self, alone: bool) -> bool {
        let state = self.state.borrow();
        !state.alone && (!alone || state.shared == 0)
    }

    fn grant(self: &Rc<Self>) {
        loop {
            let next = {
                let mut state = self.state.borrow_mut();
                let Some(&(alone, _)) = state.queue.front() else {
                    return;
                };
                if state.alone || (alone && state.shared > 0) {
                    return;
                }
                if alone {
                    state.alone = true;
                } else {
                    state.shared += 1;
                }
                state.queue.pop_front()
            };
            if let Some((alone, signal)) = next {
                signal.set(Guard {
                    lock: Rc::clone(self),
                    alone,
                });
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        {
            let mut state = self.lock.state.borrow_mut();
            if self.alone {
                state.alone = false;
            } else {
                state.shared -= 1;
            }
        }
        self.lock.grant();
    }
}
