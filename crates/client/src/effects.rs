//! The client's effects: messages, answers, invalidations. They leave in the machine's order,
//! always.
//!
//! The machine relies on the order of its outputs: an answer reaches the kernel before the message
//! that tells the server of it does, and before the invalidation of what it answered. Outputs are
//! queued here under the client's lock and carried out after it was let go; since several threads
//! may come from there at once, one of them carries out everything that is queued while the others
//! go on. A callback that makes a call finds the queue taken, and its effects follow.

use crate::front::{Completion, Front, Invalidate, News, OnDone, OnNews, Waiting};
use crate::peers::{Duty, Peers};
use net::{Bulk, CloseReason, Link};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::ToServer;

/// Something that leaves.
pub(crate) enum Effect {
    /// A message.
    Send(Arc<Link>, Box<ToServer>, Bulk),
    /// A call's answer.
    Reply(OnDone, Completion),
    /// The front must drop something.
    Invalidate(u64, Invalidate),
    /// The front must throw attributes away.
    Outdated(wire::Fid),
    /// The front must look at these.
    Look(Vec<Waiting>),
    /// A watcher is told something.
    News(OnNews, News),
    /// Something is to be done about other clients.
    Peer(Arc<Peers>, Duty),
    /// The connection is of no use.
    Hangup(Arc<Link>),
    /// Nothing is heard on the connection.
    GiveUp(Arc<Link>),
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Effect>,
    /// Somebody is carrying effects out.
    running: bool,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Effects(Mutex<Queue>);

impl Effects {
    /// Queues effects. Called under the client's lock, which makes their order the machine's.
    pub(crate) fn push(&self, effects: &mut Vec<Effect>) {
        if !effects.is_empty() {
            self.0.lock().waiting.extend(effects.drain(..));
        }
    }

    /// Carries out what is queued, unless somebody does already. Called without any lock.
    pub(crate) fn run(&self, front: &dyn Front) {
        let mut batch = VecDeque::new();
        {
            let mut queue = self.0.lock();
            if queue.running || queue.waiting.is_empty() {
                return;
            }
            queue.running = true;
            std::mem::swap(&mut queue.waiting, &mut batch);
        }
        loop {
            let unwritten = carry_out(&mut batch, front);
            let is_over = {
                let mut queue = self.0.lock();
                queue.running = !queue.waiting.is_empty();
                std::mem::swap(&mut queue.waiting, &mut batch);
                !queue.running
            };
            // The messages have their places on the wire already: nobody's answer waits for this.
            if let Some(link) = unwritten {
                link.flush();
            }
            if is_over {
                return;
            }
        }
    }
}

/// Carries out a batch, but for writing the last messages: to this link.
fn carry_out(batch: &mut VecDeque<Effect>, front: &dyn Front) -> Option<Arc<Link>> {
    let mut unwritten: Option<Arc<Link>> = None;
    for effect in batch.drain(..) {
        match effect {
            Effect::Send(link, message, bulk) => {
                front.settle();
                let body = wire::encode(&message);
                if message.is_last() {
                    link.send_behind(body, Bulk::empty());
                } else {
                    link.send(body, bulk);
                }
                if let Some(other) = unwritten.replace(link.clone())
                    && other.id() != link.id()
                {
                    other.flush();
                }
            }
            Effect::Reply(reply, completion) => reply(completion),
            Effect::Invalidate(id, what) => front.invalidate(id, what),
            Effect::Outdated(fid) => front.outdated(fid),
            Effect::Look(callers) => front.look(callers),
            Effect::News(tell, news) => tell(news),
            Effect::Peer(peers, duty) => peers.run(duty),
            Effect::GiveUp(link) => {
                let server = link.peer();
                tracing::warn!(%server, "nothing is heard of the server: a new connection");
                link.abort(CloseReason::Silent);
            }
            Effect::Hangup(link) => {
                tracing::warn!(server = %link.peer(), "the connection is of no use: a new one");
                link.close(CloseReason::Refused(
                    "it does not follow the protocol".to_owned(),
                ));
            }
        }
    }
    unwritten
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::front::Done;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;

    struct Telling(Mutex<Sender<u64>>);

    impl Front for Telling {
        fn invalidate(&self, id: u64, _: Invalidate) {
            self.0.lock().send(id).unwrap();
        }

        fn outdated(&self, _: wire::Fid) {}

        fn released(&self) {}

        fn look(&self, _: Vec<Waiting>) {}

        fn settle(&self) {}
    }

    fn reply(work: impl FnOnce() + Send + 'static) -> Effect {
        let completion = Completion {
            done: Done::Nothing,
            bytes: Bulk::empty(),
        };
        Effect::Reply(Box::new(move |_| work()), completion)
    }

    fn listing(id: u64) -> Effect {
        let dir = wire::Fid::root(1);
        Effect::Invalidate(id, Invalidate::Listing { dir })
    }

    #[test]
    fn what_was_decided_later_does_not_overtake_whichever_thread_it_comes_from() {
        let (told, heard): (_, Receiver<u64>) = mpsc::channel();
        let front = Telling(Mutex::new(told.clone()));
        let effects = Effects::default();
        let (entered, inside) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let slow = reply(move || {
            entered.send(()).unwrap();
            released.recv().unwrap();
            told.send(1).unwrap();
        });
        thread::scope(|scope| {
            effects.push(&mut vec![slow]);
            let first = scope.spawn(|| effects.run(&front));
            inside.recv().unwrap();
            // Another thread, while the first is in the callback: returns at once.
            effects.push(&mut vec![listing(2), listing(3)]);
            effects.run(&front);
            assert!(heard.try_recv().is_err(), "the first is not done yet");
            release.send(()).unwrap();
            first.join().unwrap();
        });
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
