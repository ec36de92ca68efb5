//! Greedy forwarding (section 2.2 of the paper): the server lets any client that has a block answer
//! for it, and each client manages its memory for itself alone. Also what a client does on its own
//! under every policy that asks nothing more of it.

use super::client::{ALL, Client, Step};
use super::{Hints, Name, Peer};

/// The block used longest ago goes.
pub(super) fn evict(client: &mut Client) -> Step {
    match client.own.oldest_of(ALL) {
        Some(slot) => Step::Drop(client.own.remove(slot)),
        None => Step::Done,
    }
}

/// The client that answers for the server: the one that got the block last, since it will be the
/// last one to drop it.
pub(super) fn lender(hints: &Hints, name: Name, asker: Peer) -> Option<Peer> {
    let named = hints.named(name).iter().rev();
    named.copied().find(|peer| *peer != asker)
}
