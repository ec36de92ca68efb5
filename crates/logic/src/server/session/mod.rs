//! Sessions: greeting, fencing, the grace after a restart, and the end.

pub(super) mod fencing;
pub(super) mod grace;
pub(super) mod holder_records;
pub(super) mod lease;
pub(super) mod lifecycle;
pub(super) mod limits;
pub(super) mod machines;
pub(super) mod reach;
pub(super) mod reassert;
pub(super) mod salvage;
pub(super) mod taking;
