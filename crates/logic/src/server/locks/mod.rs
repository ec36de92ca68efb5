//! Advisory locks: their table, and files whose locks a client decides.

pub(super) mod delegation;
pub(super) mod requests;
