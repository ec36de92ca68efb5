//! Requests: arrival, conflicts, waiting, rounds, fairness and execution.

pub(super) mod arrival;
pub(super) mod awaited;
pub(super) mod conflicts;
pub(super) mod execute;
pub(super) mod fairness;
pub(super) mod inline_data;
pub(super) mod listing_attrs;
pub(super) mod plan;
pub(super) mod replay;
pub(super) mod rounds;
pub(super) mod wound_wait;
