//! Tokens: how they are recalled, and given back without a recall.

mod listing_recall;
pub(super) mod recall;
pub(super) mod reclaim;
pub(super) mod release_idle;
pub(super) mod replica_names;
