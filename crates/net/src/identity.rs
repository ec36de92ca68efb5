//! The identity of the other end of a link.
//!
//! Guarantees: no link exists whose peer was not identified here, or by a [`crate::Door`] from the
//! key that the peer proved to hold. Without TLS the only proof is that the address is a loopback
//! one: the peer runs on this machine, which its kernel vouches for.

use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// A peer's proven identity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// A process on this machine, whoever runs it.
    Loopback,
    /// A server that holds a certificate of the cell, as its clients see it.
    Server,
    /// A machine of the cell, as another one that is no server sees it.
    Peer {
        /// The print of its key.
        key: KeyPrint,
    },
    /// A machine of the cell, as its servers see it.
    Machine {
        /// The number by which the cell knows it; never zero.
        id: u64,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Loopback => f.write_str("a process of this machine"),
            Identity::Server => f.write_str("the server"),
            Identity::Peer { key } => write!(f, "the machine with the key {key}"),
            Identity::Machine { name, .. } => write!(f, "machine {name}"),
        }
    }
}

/// The address is of another machine, which cannot prove who it is without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{addr} is not a loopback address, and --insecure-loopback allows no others: leave that option \
     out, so that TLS protects the connection"
)]
pub struct NotLoopback {
    /// The refused address.
    pub addr: SocketAddr,
}

impl Identity {
    /// The identity of a peer at this address without TLS.
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

/// The SHA-256 of a public key (of its SubjectPublicKeyInfo, as in RFC 7469): a machine is known by
/// it, and a join line pins it. A renewed certificate of the same key has the same print.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPrint(pub [u8; 32]);

impl KeyPrint {
    /// The print of a key given as its SubjectPublicKeyInfo.
    #[must_use]
    pub fn of_key(spki: &[u8]) -> KeyPrint {
        let digest = ring::digest::digest(&ring::digest::SHA256, spki);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        KeyPrint(bytes)
    }

    /// The print of a certificate's key.
    ///
    /// # Errors
    /// The bytes are no certificate.
    pub fn of_certificate(der: &CertificateDer<'_>) -> Result<KeyPrint, rustls::Error> {
        let parsed = ParsedCertificate::try_from(der)?;
        Ok(KeyPrint::of_key(&parsed.subject_public_key_info()))
    }
}

impl fmt::Display for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
