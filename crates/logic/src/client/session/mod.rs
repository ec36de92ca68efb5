//! The session with the server: greeting, requests, lease, restarts and the end.

pub(super) mod asked;
pub(super) mod away;
pub(super) mod clock;
pub(super) mod lease;
pub(super) mod leave;
pub(super) mod liveness;
pub(super) mod reassert;
pub(super) mod repeat_order;
pub(super) mod requests;
pub(super) mod unstable;
pub(super) mod versions;

use alloc::vec::Vec;
use wire::{Epoch, Rights, SessionId, Time};

/// The session, and the connection that it has now.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The machine's name, for people.
    pub(crate) name: Vec<u8>,
    pub(crate) state: LinkState,
    /// The version of the protocol that both ends of the connection speak.
    pub(crate) version: u32,
    /// The run of the server that is known.
    pub(crate) boot: Epoch,
    /// In which it has said, or says, what it holds.
    pub(crate) term: Epoch,
    /// Has anything but a welcome been heard in this session?
    pub(crate) begun: bool,
    pub(crate) lease_ns: Time,
    /// The rights that the server gives this machine: the caller of each call is believed within
    /// them.
    pub(crate) rights: Rights,
    /// From when the lease runs.
    pub(crate) leased: Time,
    /// When the last greeting was sent.
    pub(crate) greeted: Time,
    /// When the server said something last.
    pub(crate) heard_at: Time,
    /// The caches were emptied since the lease was near its end; nothing is served.
    pub(crate) suspended: bool,
    pub(crate) liveness: liveness::Liveness,
    /// The call that ends it, once everything is written back.
    pub(crate) leaving: Option<crate::Ticket>,
}

impl Session {
    pub(crate) fn new(id: SessionId, name: &[u8]) -> Self {
        Self {
            id: id.max(1),
            name: name.to_vec(),
            state: LinkState::Down,
            version: wire::VERSION,
            boot: 0,
            term: 0,
            begun: false,
            lease_ns: 0,
            rights: Rights::all(),
            leased: 0,
            greeted: 0,
            heard_at: 0,
            suspended: false,
            liveness: liveness::Liveness::default(),
            leaving: None,
        }
    }
}

/// Is there a connection, and does the server know us on it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Down,
    Greeting,
    Up,
    /// It has said goodbye: messages that were on their way then are about a session that is over.
    Left,
}

impl LinkState {
    /// Is the server to answer?
    pub(crate) fn talks(self) -> bool {
        matches!(self, Self::Greeting | Self::Up)
    }
}
