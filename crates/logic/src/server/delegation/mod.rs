//! Delegated directories: when one is delegated, and how its changes are applied.

pub(super) mod changes;
pub(super) mod policy;
