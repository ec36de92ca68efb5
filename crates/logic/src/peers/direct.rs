//! Direct client cooperation (section 2.1 of the paper): blocks that overflow go to an idle
//! machine's memory, which nobody but its owner may use. The server does not know of it.

use super::client::{ALL, COPIES, Client, Step};

/// The block used longest ago moves to the other machine, and there the oldest one makes room.
pub(super) fn evict(client: &mut Client, now: u32) -> Step {
    let Some(slot) = client.own.oldest_of(ALL) else {
        return Step::Done;
    };
    let name = client.own.remove(slot);
    if client.away.capacity() == 0 {
        return Step::Drop(name);
    }
    let oldest = client.away.oldest(COPIES).filter(|_| client.away.is_full());
    let gone = oldest.map(|oldest| client.away.remove(oldest));
    client.away.insert(now, name, COPIES);
    Step::Away { gone }
}
