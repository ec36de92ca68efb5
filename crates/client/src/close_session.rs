//! The last word for a client whose process was killed.
//!
//! A server has to assume that a client which it does not hear is cut off and goes on showing what
//! it has cached: others wait for the end of its lease. A process that knows that the client's is
//! dead, and that its kernel shows nothing of it any more, can say so, and nobody waits.

use crate::{ClientError, Server, speaks};
use net::{Bulk, CloseReason, Dialer, Events, Link, LinkId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use wire::{SessionId, ToServer};

struct Burial {
    session: SessionId,
    said: AtomicBool,
    over: Mutex<Sender<()>>,
}

impl Events for Burial {
    fn opened(&self, link: &Arc<Link>) {
        if self.said.swap(true, Ordering::AcqRel) {
            return;
        }
        let hello = ToServer::Hello {
            version: link.version(),
            session: self.session,
            name: b"the guard of a client that was killed".to_vec(),
            volume: Vec::new(),
        };
        for message in [hello, ToServer::Goodbye] {
            link.send(wire::encode(&message), Bulk::empty());
        }
        link.flush();
    }

    fn frame(&self, _: &Arc<Link>, _: &[u8], _: Vec<u8>) {}

    fn closed(&self, _: LinkId, _: &CloseReason) {
        // Nobody waits any more when the time is over.
        let _ = self.over.lock().send(());
    }
}

/// Ends the session of a client that is dead, as if it had said goodbye. Changes that it had not
/// written back died with it. To be called only when its kernel shows nothing of it any more.
///
/// # Errors
/// The server did not take it within `timeout`: it will fence the session when its lease is over.
pub fn close_session(
    server: Server,
    session: SessionId,
    timeout: Duration,
) -> Result<(), ClientError> {
    let Server { addresses, passage } = server;
    let (send, over) = mpsc::channel();
    let burial = Burial {
        session,
        said: AtomicBool::new(false),
        over: Mutex::new(send),
    };
    let how = (passage, speaks());
    let dialer = Dialer::new(addresses.clone(), how, Arc::new(burial));
    let dialer = dialer.map_err(ClientError::Thread)?;
    // The server ends the connection when it has heard the goodbye.
    let ended = over.recv_timeout(timeout);
    dialer.stop();
    ended.map_err(|_| ClientError::NoSession {
        server: addresses,
        last_end: None,
    })
}
