//! Ours. As in N-chance forwarding the last copy of a block is worth more than one of several, and
//! idle machines keep it; but nothing is asked and nothing is left to chance:
//!
//! - A client that asks for a block says which one it would give up for it. The answer says what
//!   becomes of that one, so the server's knowledge of last copies costs no message.
//! - A last copy goes where the oldest block lies, and only if that is older; else it is itself
//!   what the fleet needs least. How old blocks are, clients say with what they send anyway, and
//!   which copies they would give up next; if these are last copies by now, they learn it with
//!   the block.
//! - The server's memory gives up first what some client has. A block that a client would give
//!   up while the server still has it becomes the server's to keep.
//! - A client gives up a copy rather than a last copy that lay unused for up to twice as long,
//!   and to make room for a last copy of another client nearly always.
//! - When the fleet would do better so ([`Shadow`](super::shadow::Shadow)), new blocks are kept
//!   apart in a tenth of each memory until they are used again: a scan, or a set that is
//!   larger than all memory, then does not push out what is there.

use super::client::{COPIES, Client, LAST, Step};
use super::server::Fate;
use super::shadow::{FRESH_PART, is_sampled, sample_bits};
use super::weighted::{self, Oldest};
use super::{Name, Options, Peer};

/// The list of new blocks, where they are kept apart.
pub(super) const FRESH: u8 = 2;

/// Which parts are in use: each can be left out, to see what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// A last copy goes to where the oldest block is; else it is dropped.
    pub placed: bool,
    /// The server's memory gives up first what clients have.
    pub exclusive: bool,
    /// The ages of copies count so many 16ths where a client makes room for itself ...
    pub copies_weigh: u32,
    /// ... and so many where it makes room for a last copy of another client.
    pub others_weigh: u32,
    /// New blocks are kept apart when that is better.
    pub apart: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            placed: true,
            exclusive: true,
            copies_weigh: 32,
            others_weigh: 1024,
            apart: true,
        }
    }
}

/// How many uses a client tells at once.
const TOLD: usize = 6;

/// Uses of sampled blocks that the server has not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    names: [u64; TOLD],
    count: u8,
}

impl Uses {
    /// More than there is room for are not told.
    pub(super) fn push(&mut self, name: Name) {
        if let Some(free) = self.names.get_mut(usize::from(self.count)) {
            *free = name.0;
            self.count += 1;
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Name> + '_ {
        let told = &self.names[..usize::from(self.count)];
        told.iter().copied().map(Name)
    }
}

/// A client's offer to the server, which goes with its question for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The block that it would give up for it.
    pub block: Option<Offered>,
    /// How old its blocks are.
    pub(super) oldest: Oldest,
    /// The same of a client that it has sent a block to, as that one has answered.
    pub(super) heard: Option<(Peer, Oldest)>,
    /// Hits in its memory, for the server's sample.
    pub(super) uses: Uses,
}

/// A block that would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its name.
    pub name: Name,
    /// When it was used last.
    pub stamp: u32,
    /// It was not used since it came, and is not to stand in anybody's way.
    pub fresh: bool,
}

/// All memory of a fleet.
pub(super) fn all_blocks(options: &Options) -> usize {
    options.own_blocks * usize::from(options.clients) + options.server_blocks
}

/// A hit, which the server is told if it is in its sample.
pub(super) fn on_hit(client: &mut Client, name: Name) {
    if client.options.parts.apart && is_sampled(name, client.sampled) {
        client.uses.push(name);
    }
}

/// Which names clients tell the server of.
pub(super) fn sampled(options: &Options) -> u32 {
    sample_bits(all_blocks(options))
}

/// The block that goes; `of_copies`: how the ages of copies count.
fn victim(client: &Client, now: u32, of_copies: u32) -> Option<u32> {
    let fresh = client.own.oldest(FRESH);
    let many = client.own.length(FRESH) * FRESH_PART >= client.own.capacity();
    if client.apart && many && fresh.is_some() {
        return fresh;
    }
    let other = weighted::victim(client, now, u64::from(of_copies));
    // Blocks that were kept apart once are as good as last copies.
    match (fresh, other) {
        (Some(fresh), Some(other)) if !client.apart => {
            let older = client.own.entry(fresh).stamp < client.own.entry(other).stamp;
            Some(if older { fresh } else { other })
        }
        (fresh, other) => other.or(fresh),
    }
}

pub(super) fn offer(client: &mut Client, now: u32) -> Option<Offer> {
    let goes =
        victim(client, now, client.options.parts.copies_weigh).filter(|_| client.own.is_full());
    let block = goes.map(|slot| {
        let entry = client.own.entry(slot);
        Offered {
            name: entry.name,
            stamp: entry.stamp,
            fresh: client.apart && entry.list == FRESH,
        }
    });
    Some(Offer {
        block,
        oldest: weighted::oldest(client),
        heard: client.heard.take(),
        uses: core::mem::take(&mut client.uses),
    })
}

/// The list for a block that has come.
pub(super) fn list(client: &Client, last: bool) -> u8 {
    match last {
        _ if client.apart && client.own.is_full() => FRESH,
        true => LAST,
        false => COPIES,
    }
}

/// The list for a block that was used here.
pub(super) fn used(list: u8) -> u8 {
    list.min(LAST)
}

/// The server has said what becomes of the block that was offered.
pub(super) fn evict(client: &mut Client, now: u32, fate: Fate) -> Step {
    let Some(slot) = victim(client, now, client.options.parts.copies_weigh) else {
        return Step::Done;
    };
    let name = client.own.remove(slot);
    match fate {
        Fate::Park { to, last } => Step::Park {
            name,
            to,
            chances: 1,
            last,
        },
        _ => Step::Drop(name),
    }
}

/// A last copy of another client comes.
pub(super) fn park(client: &mut Client, now: u32, name: Name) -> Step {
    let step = match victim(client, now, client.options.parts.others_weigh) {
        Some(slot) if client.own.is_full() => Step::Drop(client.own.remove(slot)),
        _ => Step::Done,
    };
    client.own.insert(now, name, LAST);
    step
}
