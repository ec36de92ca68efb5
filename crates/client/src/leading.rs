//! The client's part in finding a server that is elsewhere: it says which volume is meant.
//!
//! Guarantees: before the client knows its volume nobody is asked for it; a finder that is asked
//! keeps no client from ending.

use crate::core::Core;
use crate::front::{Finder, Missing};
use net::Addresses;
use std::fmt;
use std::sync::{Arc, Weak};
use wire::volume_numbers;

/// The finder of a client, for its dialer.
pub(crate) struct Leading {
    core: Weak<Core>,
    finder: Arc<dyn Finder>,
}

impl Leading {
    pub(crate) fn finder(core: &Arc<Core>, finder: Arc<dyn Finder>) -> Arc<dyn net::Finder> {
        let core = Arc::downgrade(core);
        Arc::new(Leading { core, finder })
    }
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finder.fmt(f)
    }
}

impl net::Finder for Leading {
    fn find(&self, missing: Missing) -> Option<Addresses> {
        let root = self.core.upgrade()?.root()?;
        self.finder.find(root.volume, missing)
    }

    fn moved(&self, from: &Addresses, to: &Addresses) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        if let Some(root) = core.root() {
            let mut state = core.state();
            if volume_numbers::is_replica(root.volume) {
                state.dials_elsewhere(from, to);
            }
            let session = state.machine.session();
            drop(state);
            self.finder.moved(root.volume, session, (from, to));
        }
    }
}
