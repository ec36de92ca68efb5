//! Requests whose answers a connection has no room for.
//!
//! A client may ask for more than its network carries. Answers wait in memory, so requests that
//! bring bytes wait instead while many answers are there: requests are short. Everything else is
//! served meanwhile, keep-alives and answers to recalls above all.
//!
//! Guarantees: of one connection such requests are served in the order in which they came; of one
//! that has ended nothing is kept.

use crate::state::{After, State};
use logic::server::{Conn, Input};
use net::Link;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::ToServer;

/// So many requests of a connection wait at most; more are served at once, as those of a client
/// that has a thousand programs may be.
const WAITING_MAX: usize = 4096;

/// The waiting requests, by connection.
#[derive(Default)]
pub(crate) struct Congested(BTreeMap<Conn, VecDeque<ToServer>>);

impl Congested {
    /// Keeps a request if its answer has to wait for room; else gives it back.
    pub(crate) fn keep(&mut self, link: &Link, message: ToServer) -> Option<ToServer> {
        let brings = matches!(&message, ToServer::Request(request) if request.op.brings_bytes());
        if !brings {
            return Some(message);
        }
        let waiting = self.0.get(&link.id().0).map_or(0, VecDeque::len);
        let behind = waiting > 0 || link.is_congested();
        if !behind || waiting >= WAITING_MAX {
            return Some(message);
        }
        self.0.entry(link.id().0).or_default().push_back(message);
        None
    }

    /// The next one, if there is room for its answer.
    fn next(&mut self, link: &Link) -> Option<ToServer> {
        let waiting = self.0.get_mut(&link.id().0)?;
        if link.is_congested() {
            return None;
        }
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.0.remove(&link.id().0);
        }
        next
    }

    /// A connection has ended.
    pub(crate) fn forget(&mut self, conn: Conn) {
        self.0.remove(&conn);
    }
}

impl State {
    /// There is room again for answers on this connection.
    pub(crate) fn on_room(&mut self, link: &Arc<Link>, after: &mut After) {
        let from = link.id().0;
        while let Some(message) = self.congested.next(link) {
            let input = Input::Message {
                from,
                message,
                bulk: 0,
                bulk_len: 0,
            };
            self.handle(input, after);
        }
    }
}
