//! Watches: what a client wants to be told of changes.

pub(super) mod delivery;
pub(super) mod poll;
pub(super) mod queues;
