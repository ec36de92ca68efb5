//! Watches: asks the server for the changes of objects, and hands them on.
//!
//! Guarantees: a watcher is given each change once, in the order of the server, or is told before
//! the next one that it has missed some: as after a restart of the server, or when this client was
//! too slow. A watch outlives connections, sessions and servers; it ends when it is given up, or
//! when the server says so.

use super::api::Output;
use super::session::LinkState;
use super::{Client, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Change, Fid, Refusal, ToServer, WatchId};

/// Something watched.
#[derive(Clone, Debug)]
struct Watch {
    fid: Fid,
    recursive: bool,
    /// The number of the next change; 0: the server has not answered yet.
    next: u64,
    /// The server has answered on this connection.
    answered: bool,
}

/// All that is watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches(BTreeMap<WatchId, Watch>);

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many wait for an answer.
    pub(crate) fn unanswered(&self) -> usize {
        self.0.values().filter(|watch| !watch.answered).count()
    }

    /// The requests to watch that a new connection begins with.
    pub(crate) fn questions(&self) -> Vec<ToServer> {
        let all = self.0.iter();
        all.map(|(id, watch)| watch.question(*id)).collect()
    }
}

impl Watch {
    fn question(&self, watch: WatchId) -> ToServer {
        let Self {
            fid,
            recursive,
            next,
            ..
        } = *self;
        ToServer::Watch {
            watch,
            fid,
            recursive,
            next,
        }
    }
}

impl Client {
    pub(crate) fn on_watch(
        &mut self,
        step: &mut Step<'_>,
        id: WatchId,
        (fid, recursive): (Fid, bool),
    ) {
        if self.owes(fid) {
            self.ship(step); // it may be to be made yet
        }
        let watch = Watch {
            fid,
            recursive,
            next: 0,
            answered: false,
        };
        let question = watch.question(id);
        self.watches.0.insert(id, watch);
        self.await_word(step.now);
        if self.session.state == LinkState::Up {
            self.say(step, question);
        }
    }

    pub(crate) fn on_unwatch(&mut self, step: &mut Step<'_>, watch: WatchId) {
        if self.watches.0.remove(&watch).is_some() && self.session.state == LinkState::Up {
            self.say(step, ToServer::Unwatch { watch });
        }
    }

    /// On a new connection: the server may know of no watch any more.
    pub(crate) fn watch_again(&mut self) {
        for watch in self.watches.0.values_mut() {
            watch.answered = false;
        }
    }

    pub(crate) fn on_watched(
        &mut self,
        step: &mut Step<'_>,
        (id, first): (WatchId, u64),
        (missed, mut changes): (bool, Vec<Change>),
        end: Option<Refusal>,
    ) {
        let Some(watch) = self.watches.0.get_mut(&id) else {
            return self.say(step, ToServer::Unwatch { watch: id });
        };
        watch.answered = true;
        let begins = watch.next == 0;
        let says = missed || !changes.is_empty();
        if first > watch.next && !missed && !begins {
            // It speaks of what an earlier message has told, which is still to come.
            return;
        }
        let missed = missed && first > watch.next;
        let told = if begins {
            0
        } else {
            watch.next.saturating_sub(first)
        };
        changes.drain(..(told as usize).min(changes.len()));
        let something = missed || !changes.is_empty();
        watch.next = watch.next.max(first) + changes.len() as u64;
        let next = watch.next;
        if end.is_some() {
            self.watches.0.remove(&id);
            self.say(step, ToServer::Unwatch { watch: id });
        } else if says {
            self.say(step, ToServer::Took { watch: id, next });
        }
        if something || begins || end.is_some() {
            step.out.push(Output::Watched {
                watch: id,
                missed,
                changes,
                end,
            });
        }
    }
}
