//! Sessions and their leases, as listed for people.

use crate::server::Server;
use crate::server::api::Conn;
use crate::server::table::Session;
use alloc::vec::Vec;
use wire::{SessionId, Time};

/// A session as listed for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLine {
    /// It.
    pub session: SessionId,
    /// The name of its client.
    pub name: Vec<u8>,
    /// Its connection, if it has one.
    pub conn: Option<Conn>,
    /// When it greeted this run of the server for the first time, if it has.
    pub since: Option<Time>,
    /// When something that it said renewed its lease last.
    pub heard: Time,
    /// How its lease is.
    pub lease: Lease,
}

/// How a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It runs.
    Runs,
    /// It is over: what others want of the session's tokens is taken.
    Over,
    /// The client is there, and leaves a question unanswered: nothing renews it.
    Stalled,
    /// Something was taken from the session since it was over, and the client has not heard of it.
    Taken,
    /// The session is an earlier run's of the server, and has not come back since.
    Awaited,
}

impl Server {
    /// All sessions.
    pub fn sessions(&self, now: Time) -> Vec<SessionLine> {
        let lease_of = |session: &Session| match session {
            session if session.away.is_some() => Lease::Taken,
            session if session.since.is_none() => Lease::Awaited,
            session if session.stalled => Lease::Stalled,
            session if now > session.heard + self.options.lease_ns => Lease::Over,
            _ => Lease::Runs,
        };
        let line = |(id, session): (&SessionId, &Session)| SessionLine {
            session: *id,
            name: session.name.clone(),
            conn: session.conn,
            since: session.since,
            heard: session.heard,
            lease: lease_of(session),
        };
        self.sessions.iter().map(line).collect()
    }
}
