//! Lending: other clients connect, show what the server gave them, and get blocks.
//!
//! Only the thread that holds its lock changes `State`. A question is there from when the machine
//! is told of it until it is answered or its connection ends; a later answer goes nowhere.

use super::door::ClientDoor;
use super::speaks;
use crate::core::Core;
use logic::client::{Input, PeerInput};
use net::{
    Bulk, CloseReason, Entrance, Events, Identity, Link, LinkId, ListenOptions, Listener, Passage,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::{Capability, Secret, ToLender, ToReader};

/// A reader that asks nothing for so long is let go: it connects again when it wants something.
const SILENCE: Duration = Duration::from_secs(60);
/// So many questions of one reader wait at once.
const ASKED: usize = 64;

/// A question, as its reader numbers it.
struct Question {
    link: Arc<Link>,
    ask: u64,
}

#[derive(Default)]
struct State {
    listener: Option<Arc<Listener>>,
    ip: Option<IpAddr>,
    key: Secret,
    secret: Secret,
    questions: HashMap<u64, Question>,
    last: u64,
}

/// The lending half.
pub(super) struct Lender {
    core: Weak<Core>,
    passage: Passage,
    own: Weak<Lender>,
    state: Mutex<State>,
}

impl Lender {
    pub(super) fn new(core: Weak<Core>, passage: Passage) -> Arc<Lender> {
        Arc::new_cyclic(|own| Lender {
            core,
            passage,
            own: own.clone(),
            state: Mutex::new(State::default()),
        })
    }

    /// Listens at this address of the machine: where, and by which key others know it.
    pub(super) fn listen(
        &self,
        ip: Option<IpAddr>,
        secret: Secret,
    ) -> Result<(Vec<u8>, Secret), String> {
        let ip = ip.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let mut state = self.state.lock();
        state.secret = secret;
        if state.listener.is_none() || state.ip != Some(ip) {
            let (entrance, key) = self.entrance()?;
            let options = ListenOptions {
                entrance,
                speaks: speaks(),
                silence: SILENCE,
            };
            let own = self.own.upgrade().ok_or("the client ends")?;
            let at = SocketAddr::new(ip, 0);
            let listener = Listener::bind(&[at], options, own)
                .map_err(|error| format!("nobody can be listened to at {at}: {error}"))?;
            let old = state.listener.replace(Arc::new(listener));
            (state.ip, state.key) = (Some(ip), key);
            bury(old);
        }
        let addr = state
            .listener
            .as_ref()
            .map(|listener| listener.local_addr());
        let addr = addr.map(|addr| addr.to_string().into_bytes());
        Ok((addr.unwrap_or_default(), state.key))
    }

    fn entrance(&self) -> Result<(Entrance, Secret), String> {
        match &self.passage {
            Passage::InsecureLoopback => Ok((Entrance::InsecureLoopback, [0; 32])),
            Passage::Tls(credentials) | Passage::ToMachine(credentials, _) => {
                let (tls, key) = credentials.as_called()?;
                let door = ClientDoor::new(Arc::clone(credentials), tls);
                Ok((Entrance::Tls(Arc::new(door)), key.0))
            }
        }
    }

    pub(super) fn close(&self) {
        let old = {
            let mut state = self.state.lock();
            state.questions.clear();
            state.listener.take()
        };
        bury(old);
    }

    /// The answer to a question comes later.
    pub(super) fn soon(&self, number: u64) {
        let question = {
            let state = self.state.lock();
            let question = state.questions.get(&number);
            question.map(|question| (Arc::clone(&question.link), question.ask))
        };
        if let Some((link, ask)) = question {
            say(&link, &ToReader::Soon { ask }, Bulk::empty());
        }
    }

    /// Answers a question.
    pub(super) fn lend(&self, number: u64, have: Vec<u16>, bulk: Bulk) {
        if let Some(Question { link, ask }) = self.state.lock().questions.remove(&number) {
            say(&link, &ToReader::Lent { ask, have }, bulk);
        }
    }

    /// Notes a question of somebody who may ask it: its number.
    fn note(&self, link: &Arc<Link>, ask: u64, capability: &Capability) -> Option<u64> {
        let mut state = self.state.lock();
        let reader = match link.identity() {
            Identity::Peer { key } => key.0,
            _ => [0; 32],
        };
        if capability.reader != reader || !is_sealed(&state.secret, capability) {
            tracing::debug!(peer = %link.peer(), "asks without the server's word");
            return None;
        }
        let its = |question: &&Question| question.link.id() == link.id();
        if state.questions.values().filter(its).count() >= ASKED {
            return None;
        }
        state.last += 1;
        let (number, link) = (state.last, Arc::clone(link));
        state.questions.insert(number, Question { link, ask });
        Some(number)
    }
}

impl Events for Lender {
    fn opened(&self, _: &Arc<Link>) {}

    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let Ok(ToLender::Borrow { ask, capability }) = wire::decode(body) else {
            return link.close(CloseReason::Refused("its bytes are no message".into()));
        };
        if !bulk.is_empty() {
            return link.close(CloseReason::Refused("bytes beside a question".into()));
        }
        match (self.note(link, ask, &capability), self.core.upgrade()) {
            (Some(ask), Some(core)) => core.tell(Input::Peer(PeerInput::Asked { ask, capability })),
            _ => {
                let have = Vec::new();
                say(link, &ToReader::Lent { ask, have }, Bulk::empty());
            }
        }
    }

    fn closed(&self, id: LinkId, _: &CloseReason) {
        let mut state = self.state.lock();
        state
            .questions
            .retain(|_, question| question.link.id() != id);
    }
}

fn say(link: &Arc<Link>, message: &ToReader, bulk: Bulk) {
    link.send(wire::encode(message), bulk);
    link.flush();
}

/// Is it the server's word?
fn is_sealed(secret: &Secret, capability: &Capability) -> bool {
    net::is_sealed(secret, &capability.sealed_text(), &capability.seal)
}

/// Ends a listener on a thread of its own: that waits for its connections.
fn bury(listener: Option<Arc<Listener>>) {
    if let Some(listener) = listener {
        super::aside("peers-close", move || listener.stop());
    }
}
