//! Events of the network: connections and their messages become inputs of the machine.
//!
//! Guarantees: bytes that are no message, and bytes beside a message that break the bound, end
//! their connection with a logged reason and reach nothing else.

use crate::Gate;
use crate::core::Core;
use crate::state::{After, State};
use logic::server::Input;
use net::{CloseReason, Events, Identity, Link, LinkId};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::{MachineId, Rights, ToServer, limits};

impl Events for Core {
    fn opened(&self, link: &Arc<Link>) {
        self.enter(|state, after| {
            if state.store.is_some() {
                state.links.insert(link.id().0, Arc::clone(link));
                state.came(link, after);
            } else {
                link.close(CloseReason::Stopped);
            }
        });
    }

    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let message = match decode(body, &bulk) {
            Ok(message) => message,
            Err(reason) => {
                tracing::warn!(peer = %link.peer(), reason, "a connection is closed");
                return link.close(CloseReason::Refused(reason));
            }
        };
        self.enter(|state, after| {
            if state.store.is_none() || !state.links.contains_key(&link.id().0) {
                return;
            }
            state.received.add(message.kind());
            state.moved.received += (body.len() + bulk.len()) as u64;
            let message = at_home(link, message);
            let Some(message) = state.congested.keep(link, message) else {
                return;
            };
            let bulk_len = bulk.len() as u32;
            let input = Input::Message {
                from: link.id().0,
                message,
                bulk: state.bulks.keep(bulk),
                bulk_len,
            };
            state.handle(input, after);
        });
    }

    fn room(&self, link: &Arc<Link>) {
        self.enter(|state, after| state.on_room(link, after));
    }

    fn closed(&self, id: LinkId, reason: &CloseReason) {
        let link = self.enter(|state, after| {
            state.congested.forget(id.0);
            let link = state.links.remove(&id.0);
            if link.is_some() {
                state.handle(Input::Gone { conn: id.0 }, after);
            }
            link
        });
        let Some(peer) = link.map(|link| link.peer()) else {
            return;
        };
        match reason {
            // The ordinary ends, and those whose reason was told where they were decided.
            CloseReason::Peer | CloseReason::Stopped | CloseReason::Refused(_) => {
                tracing::debug!(%peer, %reason, "a connection has ended");
            }
            _ => tracing::warn!(%peer, %reason, "a connection was closed"),
        }
    }
}

impl State {
    /// Tells the machine of the peer at the other end, and of its rights.
    fn came(&mut self, link: &Link, after: &mut After) {
        let Identity::Machine { id, .. } = link.identity() else {
            return;
        };
        let input = Input::Came {
            conn: link.id().0,
            machine: *id,
            rights: self.rights_of(*id),
        };
        self.handle(input, after);
    }

    /// The rights of a machine at this moment.
    pub(crate) fn rights_of(&self, machine: MachineId) -> Rights {
        match &self.gate {
            Gate::Cell(machines) => machines.rights(machine),
            Gate::InsecureLoopback => Rights::all(),
        }
    }
}

/// A client lends at the address from which it has come, and nowhere else: others are not sent to
/// machines that have not asked for it.
fn at_home(link: &Link, message: ToServer) -> ToServer {
    let ToServer::Lends { addr, key } = message else {
        return message;
    };
    let said = str::from_utf8(&addr).ok();
    let said = said.and_then(|text| text.parse::<SocketAddr>().ok());
    let own = link.peer().ip().to_canonical();
    let addr = match said.is_some_and(|said| said.ip().to_canonical() == own) {
        true => addr,
        false => Vec::new(),
    };
    ToServer::Lends { addr, key }
}

fn decode(body: &[u8], bulk: &[u8]) -> Result<ToServer, String> {
    if bulk.len() > limits::BULK_BYTES as usize {
        let most = limits::BULK_BYTES;
        return Err(format!(
            "{} bytes beside a message, {most} allowed",
            bulk.len()
        ));
    }
    let message = wire::decode::<ToServer>(body).map_err(|error| error.to_string())?;
    if !bulk.is_empty() && !matches!(message, ToServer::Request(_)) {
        // The machine looks at the bytes of requests only, and would keep these for ever.
        return Err(format!("{} bytes beside a {}", bulk.len(), message.kind()));
    }
    Ok(message)
}
