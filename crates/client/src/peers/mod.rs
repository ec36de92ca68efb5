//! Other clients: blocks are lent to them, and borrowed from them.
//!
//! Guarantees: a question of another client reaches the machine only with a seal that the server
//! alone can have made, for the machine that asks, whose key TLS has proved; bytes of another
//! client reach it only if the server's digests vouch for them. Nobody listens before the server
//! has said that clients lend, nor after it has said that they do so no more. Nothing here waits
//! for another machine: the machine gives up answers that do not come in time.

mod door;
mod lender;
mod load;
mod reader;

use crate::core::Core;
use lender::Lender;
use logic::client::{Input, PeerInput};
use net::{Bulk, Passage, Speaks, Timer};
use parking_lot::Mutex;
use reader::Reader;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use wire::{Elsewhere, Secret};

/// Something to be done about other clients.
pub(crate) enum Duty {
    /// Let them ask, at this address of the machine, with capabilities that are sealed with this.
    Listen(Option<IpAddr>, Secret),
    /// Say about every second how the machine is.
    Look,
    /// Let them ask no more.
    Close,
    /// Ask one of them.
    Borrow(u64, Elsewhere),
    /// It has not answered in time.
    GiveUp(u64),
    /// Answer a question later.
    Soon(u64),
    /// Answer a question.
    Lend(u64, Vec<u16>, Bulk),
}

/// All that a client has to do with others.
pub(crate) struct Peers {
    core: Weak<Core>,
    lender: Arc<Lender>,
    reader: Arc<Reader>,
    /// Looks how the machine is.
    looks: Mutex<Option<Timer>>,
}

impl Peers {
    /// Of a client that reaches its server like this.
    pub(crate) fn new(core: Weak<Core>, passage: &Passage) -> Peers {
        Peers {
            lender: Lender::new(core.clone(), passage.clone()),
            reader: Reader::new(core.clone(), passage.clone()),
            looks: Mutex::new(None),
            core,
        }
    }

    /// Does it. Called without any lock.
    pub(crate) fn run(&self, duty: Duty) {
        match duty {
            Duty::Listen(ip, secret) => match self.lender.listen(ip, secret) {
                Ok((addr, key)) => self.tell(PeerInput::Listening { addr, key }),
                Err(why) => tracing::warn!(why, "this client lends nothing to others"),
            },
            Duty::Look => self.look(),
            Duty::Close => self.close(),
            Duty::Borrow(id, elsewhere) => {
                if !self.reader.borrow(id, elsewhere) {
                    self.tell(nothing(id));
                }
            }
            Duty::GiveUp(id) => self.reader.give_up(id),
            Duty::Soon(ask) => self.lender.soon(ask),
            Duty::Lend(ask, have, bulk) => self.lender.lend(ask, have, bulk),
        }
    }

    /// Ends all connections with others.
    pub(crate) fn close(&self) {
        let looks = self.looks.lock().take();
        if let Some(timer) = looks {
            // It may be about to tell the client something.
            aside("peers-rest", move || timer.stop());
        }
        self.lender.close();
        self.reader.close();
    }

    fn look(&self) {
        let mut looks = self.looks.lock();
        if looks.is_some() {
            return;
        }
        let (core, load) = (self.core.clone(), Mutex::new(load::Load::new()));
        let look = move || {
            let core = core.upgrade()?;
            core.tell(Input::Peer(load.lock().look()));
            Some(net::clock::now_ns() + load::EVERY_NS)
        };
        match Timer::new(Box::new(look)) {
            Ok(timer) => {
                timer.set(net::clock::now_ns() + load::EVERY_NS);
                *looks = Some(timer);
            }
            Err(error) => tracing::warn!(%error, "a busy machine lends all the same"),
        }
    }

    fn tell(&self, input: PeerInput) {
        if let Some(core) = self.core.upgrade() {
            core.tell(Input::Peer(input));
        }
    }
}

/// Does something that waits, on a thread of its own.
fn aside(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
        tracing::warn!(%error, "a thread cannot be started: raise the limit (ulimit -u)");
    }
}

/// A lender has failed.
fn nothing(id: u64) -> PeerInput {
    PeerInput::Borrowed {
        id,
        have: Vec::new(),
        failing: true,
    }
}

/// The versions that clients speak to each other: those that they speak to servers.
fn speaks() -> Speaks {
    crate::speaks()
}
