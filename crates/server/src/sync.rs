//! The thread beside those of the network: it makes things stable, which takes long, without the
//! server's lock.
//!
//! Guarantees: all who wait for stability while one call of it runs share the next one; the thread
//! does not run any more when `stop` has returned.

use crate::core::Core;
use logic::Ticket;
use net::Worker;
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Weak};
use store::Syncer;

/// Makes things stable.
pub(crate) struct SyncThread(Worker);

impl SyncThread {
    pub(crate) fn start(core: &Arc<Core>, syncer: Syncer) -> io::Result<SyncThread> {
        let (send, receive) = mpsc::channel();
        core.set_syncs(Some(send));
        let core = Arc::downgrade(core);
        let run = move || make_stable(&core, &syncer, &receive);
        Ok(SyncThread(Worker::start("sync", run)?))
    }

    pub(crate) fn stop(&self, core: &Core) {
        core.set_syncs(None);
        self.0.join();
    }
}

fn make_stable(core: &Weak<Core>, syncer: &Syncer, tickets: &Receiver<Ticket>) {
    while let Ok(first) = tickets.recv() {
        let mut group = vec![first];
        group.extend(tickets.try_iter());
        let result = syncer.sync().map_err(|error| error.to_string());
        let Some(core) = core.upgrade() else {
            return;
        };
        core.on_synced(&group, result);
    }
}
