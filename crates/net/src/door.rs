//! The door: a room above says which peers of a listener may come in.

use crate::identity::{Identity, KeyPrint};
use crate::tls::{ClientTls, ServerTls};
use std::sync::Arc;

/// A server's door. Called on the threads of connections, several at once.
pub trait Door: Send + Sync {
    /// How the server shows itself to the next peer: its certificate is renewed now and then.
    fn tls(&self) -> ServerTls;
    /// The owner of this key, which the peer has proved to hold with a certificate of the cell.
    ///
    /// # Errors
    /// The peer may not come in; it is told why, and what cures it.
    fn admit(&self, key: KeyPrint) -> Result<Identity, String>;
    /// Answers a question of somebody with this key, or of somebody without any.
    fn answer(&self, key: Option<KeyPrint>, question: &[u8]) -> Vec<u8>;
}

/// The demand of a listener on its peers.
#[derive(Clone)]
pub enum Entrance {
    /// To be on this machine. Nothing is protected.
    InsecureLoopback,
    /// To be let in by the door.
    Tls(Arc<dyn Door>),
}

/// A client's certificate and key.
pub trait Credentials: Send + Sync {
    /// How the client shows itself to the next server: the certificate is renewed now and then.
    ///
    /// # Errors
    /// There are none, in words that name the cure.
    fn tls(&self) -> Result<ClientTls, String>;
    /// How the machine shows itself to another one that is no server and calls it; and the print of
    /// its key, by which that one knows it.
    ///
    /// # Errors
    /// It is for calling servers alone, or as above.
    fn as_called(&self) -> Result<(ServerTls, KeyPrint), String> {
        Err("this credential is for calling servers alone".to_owned())
    }
}

/// How a client reaches servers.
#[derive(Clone)]
pub enum Passage {
    /// On this machine. Nothing is protected.
    InsecureLoopback,
    /// With these credentials.
    Tls(Arc<dyn Credentials>),
    /// With these credentials, to the machine of the cell with this key, which is no server.
    ToMachine(Arc<dyn Credentials>, KeyPrint),
}

impl std::fmt::Debug for Passage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Passage::InsecureLoopback => "InsecureLoopback",
            Passage::Tls(_) => "Tls",
            Passage::ToMachine(..) => "ToMachine",
        })
    }
}
