//! The places that bytes beside an output come from.

use super::Slot;
use crate::Ticket;
use wire::RequestId;

/// A piece of bytes: of a read's answer, or of a message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of a slot.
    Slot {
        /// Which.
        slot: Slot,
        /// From which byte of it.
        at: u32,
        /// How many.
        len: u32,
    },
    /// This many zero bytes.
    Zero {
        /// How many.
        len: u32,
    },
    /// Bytes beside the message that is being handled.
    Bulk {
        /// From which byte.
        from: u32,
        /// How many.
        len: u32,
    },
    /// All bytes that the room holds under the ticket of a write.
    Call {
        /// Which call.
        ticket: Ticket,
    },
    /// All bytes that the room keeps for a request.
    Kept {
        /// Which request.
        request: RequestId,
    },
}

impl Piece {
    /// How many bytes; unknown for those that the room holds.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Self::Slot { len, .. } | Self::Zero { len } | Self::Bulk { len, .. } => u64::from(len),
            Self::Call { .. } | Self::Kept { .. } => 0,
        }
    }
}
