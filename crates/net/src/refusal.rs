//! The last frame of an end that does not serve its peer.
//!
//! Guarantees: all that was queued before it still leaves, and nothing leaves after it; the link
//! ends in order.

use crate::frame::Kind;
use crate::greeting;
use crate::link::Link;
use crate::queue::{Bulk, Outgoing};
use crate::reason::CloseReason;
use std::sync::Arc;

impl Link {
    /// Tells the peer why it is refused.
    pub fn refuse(self: &Arc<Self>, why: &str) {
        self.end_with(greeting::refusal(why), why);
    }

    /// Tells the peer that another server has what it asked for, or will have it soon. It hears
    /// [`CloseReason::Elsewhere`].
    pub fn send_elsewhere(self: &Arc<Self>) {
        self.end_with(greeting::elsewhere(), greeting::ELSEWHERE);
    }

    fn end_with(self: &Arc<Self>, body: Vec<u8>, why: &str) {
        if let Ok(frame) = Outgoing::new(Kind::Refused, body, Bulk::empty()) {
            self.enqueue(frame, true);
        }
        self.close(CloseReason::Refused(why.to_owned()));
    }
}
