//! Why a link ended, for people.
//!
//! Guarantees: each says which side it was, and what cures it where something does.

use crate::frame::FrameError;
use crate::greeting::NoCommonVersion;
use std::io;
use std::sync::Arc;

/// Why a link ended: the first cause wins.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloseReason {
    /// The peer ended the connection in order.
    #[error("the peer closed the connection")]
    Peer,
    /// The listener or dialer was stopped.
    #[error("this side is stopping")]
    Stopped,
    /// The room above refused what the peer said.
    #[error("the peer was refused: {0}")]
    Refused(String),
    /// The peer refused this side, and says why.
    #[error("{0}")]
    ByPeer(String),
    /// The peer says that another server has what this side asked for, or will have it soon.
    #[error("{}", crate::greeting::ELSEWHERE)]
    Elsewhere,
    /// The two have no version of the protocol in common.
    #[error("{0}")]
    Versions(NoCommonVersion),
    /// There is no connection that both ends trust.
    #[error("{0}")]
    Insecure(String),
    /// The bytes that came are no sequence of frames.
    #[error("{0}")]
    Frame(#[source] FrameError),
    /// The peer said nothing after connecting.
    #[error("the peer did not introduce itself in time: is it an Ariel of the same version?")]
    NoHello,
    /// Nothing came from the peer for too long: it, or the network, is gone.
    #[error("nothing was heard from the peer for too long")]
    Silent,
    /// The peer does not read what it is sent.
    #[error("{queued_bytes} bytes wait for a peer that does not read them; it must connect anew")]
    Overrun {
        /// Bytes that would have waited.
        queued_bytes: usize,
    },
    /// This side made a message longer than a frame may be.
    #[error("a message could not be sent: {0}")]
    Unsendable(#[source] FrameError),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[source] Arc<io::Error>),
}
