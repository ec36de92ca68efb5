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
//! - A block that is new to the fleet stays apart, in a tenth of the memory, until it is used
//!   again: a scan, or a set that is larger than all memory, then does not push out what is there.
//!   The tenth is that of all memory: what leaves that of one client goes to another one that has
//!   room in its own, or older blocks. A second use may be that of another client; what has been
//!   used again stays where it is, and further readers have it as they have new blocks, until
//!   theirs is the only copy.

use super::client::{Arrival, COPIES, Client, LAST, Step};
use super::server::Fate;
use super::weighted::{self, NEVER, Oldest};
use super::{Name, Peer};

/// The list of new blocks.
pub(super) const FRESH: u8 = 2;

/// New blocks have a tenth of the memory ...
const FRESH_PART: usize = 10;
/// ... but so many at least: in a tenth of a small memory nothing is used again.
const FRESH_LEAST: usize = 64;

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
    /// New blocks are kept apart.
    pub apart: bool,
    /// New blocks of one client go to the room for new blocks of others.
    pub spread: bool,
    /// The second use of a block may be that of another client.
    pub again: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            placed: true,
            exclusive: true,
            copies_weigh: 32,
            others_weigh: 1024,
            apart: true,
            spread: true,
            again: true,
        }
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
}

/// A block that would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its name.
    pub name: Name,
    /// When it was used last.
    pub stamp: u32,
    /// It was not used since it came.
    pub fresh: bool,
}

/// Are there as many new blocks here as there should be?
fn has_enough_new(client: &Client) -> bool {
    let room = (client.own.capacity() / FRESH_PART).max(FRESH_LEAST);
    client.own.length(FRESH) >= room
}

/// When the oldest new block was used; free room, and room for new blocks, are older than that.
pub(super) fn oldest_new(client: &Client) -> u32 {
    match client.own.oldest(FRESH) {
        _ if !has_enough_new(client) => 1,
        oldest => oldest.map_or(NEVER, |slot| client.own.entry(slot).stamp),
    }
}

/// The block that goes; `of_copies`: how the ages of copies count.
fn victim(client: &Client, now: u32, of_copies: u32) -> Option<u32> {
    let fresh = client.own.oldest(FRESH).filter(|_| has_enough_new(client));
    fresh.or_else(|| used_victim(client, now, of_copies))
}

/// The same of those that were used again, if there are any.
fn used_victim(client: &Client, now: u32, of_copies: u32) -> Option<u32> {
    let used = weighted::victim(client, now, u64::from(of_copies));
    used.or(client.own.oldest(FRESH))
}

pub(super) fn offer(client: &mut Client, now: u32) -> Option<Offer> {
    let goes =
        victim(client, now, client.options.parts.copies_weigh).filter(|_| client.own.is_full());
    client.offered = goes.map(|slot| client.own.entry(slot).name);
    let block = goes.map(|slot| {
        let entry = client.own.entry(slot);
        Offered {
            name: entry.name,
            stamp: entry.stamp,
            fresh: entry.list == FRESH,
        }
    });
    Some(Offer {
        block,
        oldest: weighted::oldest(client),
        heard: client.heard.take(),
    })
}

/// The list for a block that has come.
pub(super) fn list(client: &Client, arrival: Arrival) -> u8 {
    let parts = client.options.parts;
    let used = arrival.again && parts.again;
    match arrival.last {
        _ if parts.apart && client.own.is_full() && !used => FRESH,
        true => LAST,
        false => COPIES,
    }
}

/// The list for a block that was used here.
pub(super) fn used(list: u8) -> u8 {
    list.min(LAST)
}

/// A new block here is, or is not, the only copy. One that was not, and is now, has been used more
/// than once in the fleet: it takes the place of the copy that has gone.
pub(super) fn on_told(client: &mut Client, slot: u32, last: bool) {
    let was_last = core::mem::replace(&mut client.own.entry_mut(slot).last, last);
    if last && !was_last {
        client.own.shift(slot, LAST);
    }
}

/// The server has said what becomes of the block that was offered.
pub(super) fn evict(client: &mut Client, now: u32, fate: Fate) -> Step {
    // It is that one, whatever the server has said of others since.
    let offered = client.offered.take();
    let offered = offered.and_then(|name| client.own.find(name));
    let Some(slot) = offered.or_else(|| victim(client, now, client.options.parts.copies_weigh))
    else {
        return Step::Done;
    };
    let fresh = client.own.entry(slot).list == FRESH;
    let name = client.own.remove(slot);
    match fate {
        Fate::Park { to, last } if offered.is_some() => Step::Park {
            name,
            to,
            chances: 1,
            last,
            fresh,
        },
        _ => Step::Drop(name),
    }
}

/// A last copy of another client comes.
pub(super) fn park(client: &mut Client, now: u32, name: Name, fresh: bool) -> Step {
    let weigh = client.options.parts.others_weigh;
    let full = client.own.is_full();
    let goes = match fresh {
        true => victim(client, now, weigh),
        false => used_victim(client, now, weigh),
    };
    let step = match goes {
        Some(slot) if full => Step::Drop(client.own.remove(slot)),
        _ => Step::Done,
    };
    // Free room is for anything.
    client
        .own
        .insert(now, name, if fresh && full { FRESH } else { LAST });
    step
}
