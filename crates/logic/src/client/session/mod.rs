//! The session with the server: greeting, requests, lease, restarts and the end.

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
