//! Tokens: grants, recalls and returns.

pub(super) mod grants;
pub(super) mod recall_batch;
pub(super) mod recall_order;
pub(super) mod returns;
pub(super) mod sizes_told;
