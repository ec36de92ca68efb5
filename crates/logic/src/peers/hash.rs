//! Hash-distributed caching (section 2.5 of the paper): the name of a block says which client keeps
//! it for all. A client that misses a block asks that one, and the server only if it has it not;
//! the server sends there what its own memory gives up.

use super::shelf::Shelf;
use super::{Name, Peer};

/// The client that keeps this name for all.
pub fn keeper(name: Name, clients: Peer) -> Peer {
    (wire::mix64(name.0) % u64::from(clients.max(1))) as Peer
}

/// Is it kept here? A use counts.
pub(super) fn find(managed: &mut Shelf, now: u32, name: Name) -> bool {
    match managed.find(name) {
        Some(slot) => {
            managed.touch(now, slot, 0);
            true
        }
        None => false,
    }
}

/// Keeps it; the block that was used longest ago makes room.
pub(super) fn keep(managed: &mut Shelf, now: u32, name: Name) {
    if managed.capacity() == 0 || find(managed, now, name) {
        return;
    }
    if managed.is_full()
        && let Some(oldest) = managed.oldest(0)
    {
        managed.remove(oldest);
    }
    managed.insert(now, name, 0);
}
