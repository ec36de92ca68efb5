//! The stores beside a server's first one: made, opened and closed while it serves.

use crate::partition::Partition;
use crate::{Gate, Server, StartError, StopError, store_options};
use std::path::Path;
use std::sync::Arc;
use store::Store;
use wire::VolumeInfo;

/// Memory for the index of a further store.
const FURTHER_CACHE_BYTES: usize = 64 << 20;

impl Server {
    /// Makes one more store, whose first volume has this number, and serves it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_store(&self, data: &Path, first_volume: u32) -> Result<(), StartError> {
        let how = further_options(self.owner, first_volume);
        Store::create(data, &how)?.close()?;
        self.open_store(data, first_volume)
    }

    /// Serves one more store, which is there. When that store fails the others go on.
    ///
    /// # Errors
    /// It cannot be opened, or is another one.
    pub fn open_store(&self, data: &Path, first_volume: u32) -> Result<(), StartError> {
        let how = further_options(self.owner, first_volume);
        // Not made where it is missing: an empty store in its place would be taken for it.
        let store = Store::open(data, &how)?;
        self.serve(data, first_volume, store)
    }

    /// The same; a store that is not there is made.
    ///
    /// # Errors
    /// It cannot be opened or made, or is another one.
    pub fn open_or_make_store(&self, data: &Path, first_volume: u32) -> Result<(), StartError> {
        let how = further_options(self.owner, first_volume);
        let store = Store::open_or_create(data, &how)?;
        self.serve(data, first_volume, store)
    }

    fn serve(&self, data: &Path, first_volume: u32, store: Store) -> Result<(), StartError> {
        let shown = data.display().to_string();
        let on_failure = move |reason: &str| {
            tracing::error!(
                data = shown,
                reason,
                "the volumes of this store are not served any more: restart the server when the \
                 cause is cured"
            );
        };
        if store.root().volume != first_volume {
            let found = store.root().volume;
            return Err(StartError::Another(data.to_owned(), found));
        }
        let further = Partition::start(data, store, &self.common, Box::new(on_failure))?;
        further.core.cooperate(*self.common.policy.lock());
        let further = Arc::new(further);
        // While there was one store, nobody asked it what it had promised.
        for partition in self.router.all() {
            partition.core.note_promised();
        }
        tracing::info!(data = %data.display(), "serving a further store");
        self.router.add(&further);
        if let Gate::Cell(machines) = &self.common.gate {
            // A change of groups that is under way has been told to this store, or not: the cell
            // answers when it is made.
            further.core.set_members(machines.members());
        }
        Ok(())
    }

    fn further(&self, first_volume: u32) -> Option<Arc<Partition>> {
        let mut further = self.router.further().into_iter();
        further.find(|partition| partition.first_volume == first_volume)
    }

    /// Is this further store served?
    #[must_use]
    pub fn serves(&self, first_volume: u32) -> bool {
        self.further(first_volume).is_some()
    }

    /// The volumes of this further store, without its first one, which nobody sees; `None`: it is
    /// not served.
    #[must_use]
    pub fn volumes_in(&self, first_volume: u32) -> Option<Vec<VolumeInfo>> {
        self.further(first_volume).map(|one| seen(&one))
    }

    /// Publishes what was received under this number in a further store, unless something else is
    /// under way there: it is seen when it is done, and to be asked for again until then.
    pub fn publish(&self, first_volume: u32, volume: u32) {
        if let Some(further) = self.further(first_volume) {
            further.core.publish(volume);
        }
    }

    /// Serves a further store no more: when this returns, its directory is at rest, and clients
    /// that ask for its volumes hear that they are elsewhere, or on their way. False: it is not
    /// served here.
    ///
    /// # Errors
    /// It could not be closed in order; it recovers when it is opened again.
    pub fn close_store(&self, first_volume: u32) -> Result<bool, StopError> {
        let Some(partition) = self.router.remove(first_volume) else {
            return Ok(false);
        };
        let stopped = partition.stop();
        // Connections that came while it was being closed.
        partition.core.send_away();
        stopped?;
        tracing::info!(data = %partition.data.display(), "a further store is closed");
        Ok(true)
    }

    /// Has a further store no volume but its first one, which nobody sees? Its last one was purged,
    /// or the command that makes one has ended before.
    #[must_use]
    pub fn is_empty(&self, first_volume: u32) -> bool {
        let found = self.further(first_volume);
        found.is_some_and(|partition| partition.core.volumes().len() == 1)
    }
}

/// The volumes of a further store that anybody sees.
pub(crate) fn seen(further: &Partition) -> Vec<VolumeInfo> {
    let volumes = further.core.volumes().into_iter();
    volumes
        .filter(|info| info.id != further.first_volume)
        .collect()
}

/// The same of a further store.
fn further_options(owner: (u32, u32), first_volume: u32) -> store::Options {
    store::Options {
        volume: first_volume,
        index_cache_bytes: FURTHER_CACHE_BYTES,
        ..store_options(owner)
    }
}
