//! What the kernel of this machine may still believe, and how it is taken back.

pub(super) mod dentries;
pub(super) mod lookup_barrier;
pub(super) mod name_revoke;
pub(super) mod notify_done;
pub(super) mod open_prefill;
pub(super) mod page_sizes;
pub(super) mod reply_ack;
pub(super) mod stale_replies;
pub(super) mod uncovered_sizes;
pub(super) mod wound_wait;
