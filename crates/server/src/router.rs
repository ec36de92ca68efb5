//! Which store a connection is for: one listener serves all stores of a server.
//!
//! Guarantees: the greeting decides, before any store hears of the connection: a session goes to
//! the store that knows it, a new one to the store that has the volume it names. Nobody waits for
//! another store's work than the one that a connection is for, after its greeting.

use crate::core::Core;
use crate::partition::Partition;
use net::{CloseReason, Events, Link, LinkId};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::{StoreOf, ToServer, VolumeState};

/// The stores, and the connections for them.
pub(crate) struct Router {
    first: Arc<Partition>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// By the numbers of their first volumes.
    further: BTreeMap<u32, Arc<Partition>>,
    /// Volumes of stores that were closed here, by name: they are elsewhere, or on their way.
    gone: BTreeSet<Vec<u8>>,
    routes: BTreeMap<LinkId, Arc<Core>>,
}

impl Router {
    pub(crate) fn new(first: Arc<Partition>) -> Router {
        Router {
            first,
            state: RwLock::default(),
        }
    }

    pub(crate) fn first(&self) -> &Arc<Partition> {
        &self.first
    }

    pub(crate) fn further(&self) -> Vec<Arc<Partition>> {
        self.state.read().further.values().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        let mut all = vec![Arc::clone(&self.first)];
        all.extend(self.further());
        all
    }

    /// Connections for this store are let in.
    pub(crate) fn add(&self, partition: &Arc<Partition>) {
        let names = names(partition);
        let mut state = self.state.write();
        state.gone.retain(|name| !names.contains(name));
        let (number, partition) = (partition.first_volume, Arc::clone(partition));
        state.further.insert(number, partition);
    }

    /// No connection is let in for this store any more, and those that are there end.
    pub(crate) fn remove(&self, first_volume: u32) -> Option<Arc<Partition>> {
        let partition = self.state.read().further.get(&first_volume).cloned()?;
        let names = names(&partition);
        let mut state = self.state.write();
        state.further.remove(&first_volume)?;
        state.gone.extend(names);
        drop(state);
        partition.core.send_away();
        Some(partition)
    }

    /// The store of this volume; `None`: the volume is elsewhere, or on its way. One that nobody
    /// knows is for the first store to refuse.
    fn of_volume(&self, volume: &[u8]) -> Option<Arc<Core>> {
        let name = match StoreOf::parse(volume) {
            None => volume,
            Some(StoreOf::Volume(name)) => name,
            Some(StoreOf::Number(first)) => {
                let state = self.state.read();
                return state.further.get(&first).map(|one| Arc::clone(&one.core));
            }
        };
        let first = || Arc::clone(&self.first.core);
        if name.is_empty() || name == wire::FIRST_VOLUME {
            return Some(first());
        }
        let all = self.all();
        let states = all
            .iter()
            .filter_map(|one| Some((one, state_of(one, name)?)));
        // One that is there goes before one of the same name that was deleted.
        let found = states.max_by_key(|(_, state)| *state == VolumeState::Present);
        match found {
            Some((partition, _)) => Some(Arc::clone(&partition.core)),
            None => (!self.state.read().gone.contains(name)).then(first),
        }
    }

    /// The store that a greeting is for, and the greeting as that store is to hear it.
    fn route(&self, body: &[u8]) -> Option<(Arc<Core>, Option<Vec<u8>>)> {
        let Ok(ToServer::Hello {
            version,
            session,
            name,
            volume,
        }) = wire::decode::<ToServer>(body)
        else {
            // It ends the connection wherever it comes.
            return Some((Arc::clone(&self.first.core), None));
        };
        let all = self.all();
        let core = match all.iter().find(|one| one.core.knows(session)) {
            Some(knows) => Arc::clone(&knows.core),
            None => self.of_volume(&volume)?,
        };
        let greeting = StoreOf::parse(&volume).map(|_| {
            wire::encode(&ToServer::Hello {
                version,
                session,
                name,
                volume: Vec::new(),
            })
        });
        Some((core, greeting))
    }

    fn core(&self, link: LinkId) -> Option<Arc<Core>> {
        self.state.read().routes.get(&link).cloned()
    }
}

/// The names of a further store's volumes. Its first one has the name of the server's, and nobody
/// asks for it.
fn names(partition: &Partition) -> BTreeSet<Vec<u8>> {
    let all = partition.core.volumes().into_iter();
    let others = all.filter(|info| info.id != partition.first_volume);
    others.map(|info| info.name.as_bytes().to_vec()).collect()
}

/// The state of a store's volume of this name, of one that is there before others.
fn state_of(partition: &Partition, name: &[u8]) -> Option<VolumeState> {
    let all = partition.core.volumes().into_iter();
    let named = all.filter(|info| info.name.as_bytes() == name);
    let states = named.map(|info| info.state);
    states.max_by_key(|state| *state == VolumeState::Present)
}

impl Events for Router {
    fn opened(&self, _: &Arc<Link>) {
        // Its greeting says which store it is for.
    }

    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        if let Some(core) = self.core(link.id()) {
            return core.frame(link, body, bulk);
        }
        let Some((core, greeting)) = self.route(body) else {
            tracing::debug!(peer = %link.peer(), "a client asks for a volume that is elsewhere");
            return link.send_elsewhere();
        };
        self.state
            .write()
            .routes
            .insert(link.id(), Arc::clone(&core));
        core.opened(link);
        core.frame(link, greeting.as_deref().unwrap_or(body), bulk);
    }

    fn room(&self, link: &Arc<Link>) {
        if let Some(core) = self.core(link.id()) {
            core.room(link);
        }
    }

    fn closed(&self, id: LinkId, reason: &CloseReason) {
        let core = self.state.write().routes.remove(&id);
        match core {
            Some(core) => core.closed(id, reason),
            None => tracing::debug!(%reason, "a connection ended before its greeting"),
        }
    }
}
