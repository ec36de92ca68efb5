//! Centrally coordinated caching (section 2.3 of the paper): the server manages a share of each
//! client's memory as an extension of its own. A block that its own memory gives up takes the place
//! of the one that was used longest ago in all these shares; the client that had this one is to
//! keep it.

use super::shelf::Shelf;
use super::{Name, Peer};

/// The client in whose share a slot lies.
fn place(slot: u32, share: usize) -> Peer {
    (slot as usize / share.max(1)) as Peer
}

/// The client that keeps the block; a use counts.
pub(super) fn find(managed: &mut Shelf, now: u32, name: Name, share: usize) -> Option<Peer> {
    let slot = managed.find(name)?;
    managed.touch(now, slot, 0);
    Some(place(slot, share))
}

/// Takes a block that the server's memory gives up. Returns the client that is to keep it, if none
/// does yet.
pub(super) fn keep(managed: &mut Shelf, now: u32, name: Name, share: usize) -> Option<Peer> {
    if managed.capacity() == 0 || find(managed, now, name, share).is_some() {
        return None;
    }
    if managed.is_full()
        && let Some(oldest) = managed.oldest(0)
    {
        managed.remove(oldest);
    }
    let slot = managed.insert(now, name, 0);
    Some(place(slot, share))
}
