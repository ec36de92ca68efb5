//! Who is at the other end of a link.
//!
//! Guarantees: no link exists whose peer was not identified here. Today the only proof is that the
//! address is a loopback one: the peer runs on this machine, which its kernel vouches for. Machines
//! with certificates will be further variants, decided in this file.

use std::io;
use std::net::SocketAddr;

/// A peer's proven identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// A process on this machine.
    Loopback,
}

/// The address is of another machine, which cannot prove who it is yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{addr} is not a loopback address: plain TCP is allowed on loopback only until machines have \
     certificates; use 127.0.0.1 or [::1]"
)]
pub struct NotLoopback {
    /// The refused address.
    pub addr: SocketAddr,
}

impl Identity {
    /// Who may be reached at, or comes from, this address.
    ///
    /// # Errors
    /// The address is not a loopback one.
    pub fn check(addr: SocketAddr) -> Result<Identity, NotLoopback> {
        // A dual-stack socket shows IPv4 peers as ::ffff:127.0.0.1.
        if addr.ip().to_canonical().is_loopback() {
            Ok(Identity::Loopback)
        } else {
            Err(NotLoopback { addr })
        }
    }
}

impl From<NotLoopback> for io::Error {
    fn from(refused: NotLoopback) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, refused)
    }
}
