//! A session whose server does not have its volume any more goes on at the one that has it.
//!
//! Guarantees: the servers are asked, nothing is remembered; a change is logged, and the guard of
//! the mount is told of it, since the old server knows nothing of the session from then on.

use std::sync::Arc;

use client::front::{Addresses, Finder, Missing};
use tracing::info;
use wire::{SessionId, volume_numbers};

use super::elsewhere::Servers;
use super::options::MountOptions;

/// Finds the server of one session's volume again.
#[derive(Debug)]
struct Sought {
    servers: Arc<dyn Servers>,
    /// The volume's name, for people.
    name: String,
}

/// The finder of a session of the mount with a volume of this name; `None`: the mount knows of no
/// other servers.
pub(super) fn finder(options: &MountOptions, name: &str) -> Option<Arc<dyn Finder>> {
    let servers = options.servers.clone()?;
    let name = name.to_owned();
    Some(Arc::new(Sought { servers, name }))
}

impl Finder for Sought {
    fn find(&self, volume: u32, missing: Missing) -> Option<Addresses> {
        self.servers.again(volume, missing)
    }

    fn moved(&self, volume: u32, session: SessionId, (from, to): (&Addresses, &Addresses)) {
        let name = &self.name;
        match volume_numbers::is_replica(volume) {
            true => info!(name, volume, %from, %to, "a replica is sought at another server"),
            false => info!(name, volume, %from, %to, "a volume is at another server now"),
        }
        self.servers.has_session(to, session);
    }
}
