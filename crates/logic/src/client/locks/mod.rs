//! Advisory locks of the programs of this machine.

pub(super) mod calls;
pub(super) mod delegation;
pub(super) mod local_decisions;
pub(super) mod owners;
