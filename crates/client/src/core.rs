//! The client's lock and what happens around it: inputs enter, effects leave after it.
//!
//! Guarantees: the front is never called, and the network never waited for, by a thread that
//! holds the lock.

use crate::effects::Effects;
use crate::front::{Asker, Completion, Front, Memory, OnDone, OnNews};
use crate::memory::Watch;
use crate::state::State;
use blocks::Pool;
use logic::Ticket;
use logic::client::{Call, Input};
use net::{CloseReason, Events, Link, LinkId, Timer};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::{Fid, Refusal, ToClient, WatchId, limits};

/// A server that has refused a client so often for one reason goes on doing so: of several servers
/// of a cell others may have been asked in between.
const REFUSALS: u32 = 3;

/// The state that the threads of a client share.
pub(crate) struct Core {
    state: Mutex<State>,
    /// The root became known, the server greeted the client, or the client was stopped.
    changed: Condvar,
    root: OnceLock<Fid>,
    effects: Effects,
    timer: OnceLock<Timer>,
    front: Arc<dyn Front>,
    stopped: AtomicBool,
    /// Where the memory of blocks comes from.
    pool: Pool,
    /// How much of it the cache may have.
    memory: Mutex<Memory>,
    watch: OnceLock<Watch>,
}

impl Core {
    pub(crate) fn new(state: State, front: Arc<dyn Front>, memory: Memory) -> Core {
        Core {
            pool: state.pool(),
            memory: Mutex::new(memory),
            watch: OnceLock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            root: OnceLock::new(),
            effects: Effects::default(),
            timer: OnceLock::new(),
            front,
            stopped: AtomicBool::new(false),
        }
    }

    /// Does `work` under the lock, and afterwards what must be done without it.
    fn enter<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let (result, deadline) = {
            let mut state = self.state.lock();
            let result = work(&mut state);
            let mut effects = std::mem::take(&mut state.effects);
            self.effects.push(&mut effects);
            state.effects = effects;
            if self.root.get().is_none()
                && let Some(root) = state.machine.root()
                && self.root.set(root).is_ok()
            {
                self.changed.notify_all();
            }
            let deadline = (!state.stopped).then(|| state.deadline());
            (result, deadline.flatten())
        };
        self.effects.run(&*self.front);
        if let (Some(deadline), Some(timer)) = (deadline, self.timer.get()) {
            timer.set(deadline);
        }
        result
    }

    /// From now on deadlines are met.
    pub(crate) fn begin(&self, timer: Timer) {
        if self.timer.set(timer).is_ok() {
            self.enter(|_| ());
        }
    }

    /// The timer's callback: returns the next deadline.
    pub(crate) fn on_deadline(&self) -> Option<u64> {
        let (next, released) = self.enter(|state| {
            if state.stopped {
                return (None, false);
            }
            let now_ns = net::clock::now_ns();
            if state.machine.deadline().is_some_and(|due| due <= now_ns) {
                state.handle(Input::Tick, Vec::new());
            }
            let released = state.give_back(now_ns);
            (state.deadline(), released)
        });
        if released {
            self.pool.trim(0);
            self.front.released();
        }
        next
    }

    pub(crate) fn call(&self, asker: Asker, call: Call, data: &[u8], reply: OnDone) -> Ticket {
        let called = self.enter(|state| {
            if state.stopped {
                return Err(reply);
            }
            let ticket = state.ticket(reply);
            let Asker {
                caller,
                thread,
                waits,
            } = asker;
            let input = Input::Call {
                ticket,
                caller,
                thread,
                waits,
                call,
            };
            state.handle_call((ticket, data), input);
            Ok(ticket)
        });
        called.unwrap_or_else(|reply| {
            reply(Completion::refused(Refusal::SessionLost));
            0
        })
    }

    /// Somebody watches; `None`: the client is stopped.
    pub(crate) fn watch(&self, fid: Fid, recursive: bool, on_news: OnNews) -> Option<WatchId> {
        self.enter(|state| {
            if state.stopped {
                return None;
            }
            let watch = state.watch(on_news);
            let input = Input::Watch {
                watch,
                fid,
                recursive,
            };
            state.handle(input, Vec::new());
            Some(watch)
        })
    }

    pub(crate) fn unwatch(&self, watch: WatchId) {
        let watcher = self.enter(|state| {
            if !state.stopped {
                state.handle(Input::Unwatch { watch }, Vec::new());
            }
            state.watchers.remove(&watch)
        });
        drop(watcher);
    }

    /// An input without an answer.
    pub(crate) fn tell(&self, input: Input) {
        self.tell_with(input, Vec::new());
    }

    /// The same, with bytes beside it.
    pub(crate) fn tell_with(&self, input: Input, beside: Vec<u8>) {
        self.enter(|state| {
            if !state.stopped {
                state.handle(input, beside);
            }
        });
    }

    pub(crate) fn root(&self) -> Option<Fid> {
        self.root.get().copied()
    }

    /// Waits for the root; `Err`: does the server refuse this client, and why is there no root yet?
    pub(crate) fn wait_root(&self, timeout: Duration) -> Result<Fid, (bool, Option<String>)> {
        let known = |state: &State| match self.root() {
            Some(root) => Some(Ok(root)),
            None => (state.refusals >= REFUSALS).then(|| Err((true, state.last_end.clone()))),
        };
        let ended = self.wait_until(timeout, known);
        ended.unwrap_or_else(|state| Err((false, state.last_end.clone())))
    }

    /// Waits until `ready` gives something; `Err`: it did not in time, or the client was stopped.
    /// It is asked again after each greeting of the server.
    pub(crate) fn wait_until<T>(
        &self,
        timeout: Duration,
        ready: impl Fn(&State) -> Option<T>,
    ) -> Result<T, MutexGuard<'_, State>> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = net::clock::now_ns().saturating_add(timeout_ns);
        let mut state = self.state.lock();
        loop {
            if let Some(value) = ready(&state) {
                return Ok(value);
            }
            let left_ns = until_ns.saturating_sub(net::clock::now_ns());
            if left_ns == 0 || state.stopped {
                return Err(state);
            }
            self.changed
                .wait_for(&mut state, Duration::from_nanos(left_ns));
        }
    }

    /// Nothing is called any more. The answers that are still owed are dropped with their
    /// callbacks. False: it was stopped before.
    pub(crate) fn stop(&self) -> bool {
        if self.stopped.swap(true, Ordering::AcqRel) {
            return false;
        }
        let (owed, watchers) = self.enter(|state| {
            state.stopped = true;
            self.changed.notify_all();
            let watchers = std::mem::take(&mut state.watchers);
            (std::mem::take(&mut state.replies), watchers)
        });
        drop(watchers);
        let peers = self.state.lock().peers.take();
        if let Some(peers) = peers {
            peers.close();
        }
        if !owed.is_empty() {
            tracing::warn!(calls = owed.len(), "calls were not answered before the end");
        }
        drop(owed);
        if let Some(timer) = self.timer.get() {
            timer.stop();
        }
        if let Some(watch) = self.watch.get() {
            watch.stop();
        }
        true
    }

    /// The size of the cache varies from now on.
    pub(crate) fn watched(&self, watch: Watch) {
        // There is one: it is started once.
        let _ = self.watch.set(watch);
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn memory(&self) -> &Mutex<Memory> {
        &self.memory
    }

    pub(crate) fn front(&self) -> &dyn Front {
        &*self.front
    }

    /// A step of giving up what is beyond these limits. Is there more to do?
    pub(crate) fn shrink(&self, slots: u32, objects: usize) -> bool {
        self.enter(|state| {
            let before = state.machine.used_slots();
            if !state.stopped {
                state.handle(Input::Memory { slots, objects }, Vec::new());
            }
            state.machine.is_over() && state.machine.used_slots() < before
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Events for Core {
    fn opened(&self, link: &Arc<Link>) {
        self.enter(|state| {
            if state.stopped {
                return;
            }
            state.link = Some(Arc::clone(link));
            state.count_connection();
            let version = link.version();
            state.handle(Input::Connected { version }, Vec::new());
        });
    }

    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let message = match decode(body, &bulk) {
            Ok(message) => message,
            Err(reason) => {
                tracing::warn!(server = %link.peer(), reason, "the connection is closed");
                return link.close(CloseReason::Refused(reason));
            }
        };
        self.enter(|state| {
            let current = state.link.as_ref().map(|current| current.id());
            if state.stopped || current != Some(link.id()) {
                return;
            }
            state.count_received(message.kind());
            let bulk_len = bulk.len() as u32;
            let greets = matches!(message, ToClient::Welcome(_));
            let message = Box::new(message);
            state.handle(Input::Message { message, bulk_len }, bulk);
            if greets {
                state.is_greeted();
                self.changed.notify_all();
            }
        });
    }

    fn closed(&self, id: LinkId, reason: &CloseReason) {
        self.enter(|state| {
            if state.link.as_ref().is_none_or(|link| link.id() != id) {
                return;
            }
            state.link = None;
            let before = state.last_end.replace(reason.to_string());
            // A server that refuses the same again and again is told of once.
            let again = before == state.last_end;
            state.refusals = match reason {
                CloseReason::ByPeer(_) if again => state.refusals + 1,
                CloseReason::ByPeer(_) => 1,
                _ => 0,
            };
            self.changed.notify_all();
            if !state.stopped {
                if state.machine.has_left() {
                    tracing::debug!(%reason, "the connection to the server has ended, as asked");
                } else if again || matches!(reason, CloseReason::Elsewhere) {
                    tracing::debug!(%reason, "the connection to the server has ended");
                } else {
                    tracing::warn!(%reason, "the connection to the server has ended; trying again");
                }
                state.handle(Input::Gone, Vec::new());
            }
        });
    }
}

fn decode(body: &[u8], bulk: &[u8]) -> Result<ToClient, String> {
    if bulk.len() > limits::BULK_BYTES as usize {
        let most = limits::BULK_BYTES;
        return Err(format!(
            "{} bytes beside a message, {most} allowed",
            bulk.len()
        ));
    }
    wire::decode::<ToClient>(body).map_err(|error| error.to_string())
}
