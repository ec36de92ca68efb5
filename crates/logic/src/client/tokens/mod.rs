//! Tokens: how they are taken over and recalled, and given back without a recall.

mod grants;
mod listing_recall;
pub(super) mod recall;
pub(super) mod reclaim;
pub(super) mod release_idle;
pub(super) mod replica_names;
