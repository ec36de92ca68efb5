//! Calls of the front: how one starts, waits, is abandoned and is answered.

pub(super) mod abandoned;
pub(super) mod replies;
pub(super) mod reply_order;
pub(super) mod root_squash;
pub(super) mod start;
pub(super) mod unattended;
