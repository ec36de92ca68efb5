//! Moves opaque messages between machines over TCP, and holds the two impure sources: the clock
//! and the entropy of the operating system.
//!
//! Guarantees: of one link, `opened`, every `frame`, and `closed` are called one after the other on
//! one thread; `closed` comes exactly once for each `opened`. Frames come in the order sent, but
//! that short messages go before long ones. But for [`Link::flush`] no method of [`Link`] calls
//! [`Events`], and none waits for the peer, so all others may be called under a lock that the
//! events take. A peer that is silent for too long is given up. Everything a peer can make this
//! crate hold is bounded. The meaning of a message is not known here.
#![forbid(unsafe_code)]

mod addresses;
mod announced;
pub mod clock;
mod dial;
mod door;
pub mod entropy;
mod frame;
mod greeting;
mod id;
mod identity;
mod link;
mod listen;
mod meter;
mod pause;
mod pen;
mod queue;
mod reason;
mod receive;
mod refusal;
mod seal;
mod seek;
mod socket;
pub mod spare;
mod timer;
mod tls;
mod told;
mod worker;

pub use addresses::{Addresses, NoAddress};
pub use announced::Source;
pub use dial::{DialError, Dialer, ask};
pub use door::{Credentials, Door, Entrance, Passage};
pub use frame::{
    BODY_BYTES_MAX, BULK_BYTES_MAX, Frame, FrameError, FrameReader, HEADER_BYTES, Header, Kind,
};
pub use greeting::{NoCommonVersion, Speaks};
pub use id::LinkId;
pub use identity::{Identity, KeyPrint, NotLoopback};
pub use link::{LINGER_NS, Link};
pub use listen::{CONNECTIONS_MAX, ListenOptions, Listener};
pub use meter::{Meter, Meters, Reading};
pub use queue::{Bulk, CONGESTED_BYTES, Held, QUEUE_BYTES_MAX};
pub use reason::CloseReason;
pub use seal::{digest_of, is_sealed, seal};
pub use seek::{Finder, Missing};
pub use timer::Timer;
pub use tls::{ClientTls, Pem, SERVER_NAME, ServerTls, TlsError, print_of_pem};
pub use worker::Worker;

use std::sync::Arc;

/// The events of a room's links. Called on the link's reading thread.
///
/// A method may send, flush and close links. It must not wait for [`Listener::stop`] or
/// [`Dialer::stop`] of another thread, because those wait for it.
pub trait Events: Send + Sync {
    /// A peer that speaks our protocol is at the other end; frames follow.
    fn opened(&self, link: &Arc<Link>);
    /// A frame came. While this runs, no other frame of the same link is delivered.
    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>);
    /// A link that was found to be congested ([`Link::is_congested`]) is so no more. Called on the
    /// thread that writes.
    fn room(&self, _link: &Arc<Link>) {}
    /// The link that was opened is gone; nothing more comes from it.
    fn closed(&self, id: LinkId, reason: &CloseReason);
}
