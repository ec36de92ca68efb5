//! The door for clients that ask for blocks: every machine of the cell may connect; the server's
//! seal says which blocks it is given.

use net::{Credentials, Door, Identity, KeyPrint, ServerTls};
use parking_lot::Mutex;
use std::sync::Arc;

/// The door of a client that lends.
pub(super) struct ClientDoor {
    credentials: Arc<dyn Credentials>,
    /// How it was shown last: if the credential cannot be read for a moment, that goes on.
    last: Mutex<ServerTls>,
}

impl ClientDoor {
    pub(super) fn new(credentials: Arc<dyn Credentials>, tls: ServerTls) -> ClientDoor {
        ClientDoor {
            credentials,
            last: Mutex::new(tls),
        }
    }
}

impl Door for ClientDoor {
    fn tls(&self) -> ServerTls {
        let mut last = self.last.lock();
        match self.credentials.as_called() {
            Ok((tls, _)) => *last = tls,
            Err(why) => tracing::warn!(why, "the credential is not read again"),
        }
        last.clone()
    }

    fn admit(&self, key: KeyPrint) -> Result<Identity, String> {
        Ok(Identity::Peer { key })
    }

    fn answer(&self, _: Option<KeyPrint>, _: &[u8]) -> Vec<u8> {
        Vec::new()
    }
}
