//! The front of a program that asks without a kernel between: the front keeps nothing, so there is
//! nothing to drop.
//!
//! Guarantees: each notification is answered as soon as it comes.

use client::Client;
use client::front::{Front, Invalidate, Waiting};
use std::sync::{OnceLock, Weak};

/// A front that keeps nothing.
#[derive(Default)]
pub(crate) struct Bare {
    client: OnceLock<Weak<Client>>,
}

impl Bare {
    /// The client that the answers go to.
    pub(crate) fn serves(&self, client: Weak<Client>) {
        // A tree makes its front for one client.
        let _ = self.client.set(client);
    }
}

impl Front for Bare {
    fn invalidate(&self, id: u64, _: Invalidate) {
        if let Some(client) = self.client.get().and_then(Weak::upgrade) {
            client.invalidated(id);
        }
    }

    fn outdated(&self, _: wire::Fid) {}

    fn released(&self) {}

    fn look(&self, _: Vec<Waiting>) {}

    fn settle(&self) {}
}
