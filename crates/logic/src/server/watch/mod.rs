//! Watches: the changes that a client wants to be told of.

pub(super) mod delivery;
pub(super) mod poll;
pub(super) mod queues;
