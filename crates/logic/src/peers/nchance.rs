//! N-chance forwarding (section 2.4 of the paper): greedy forwarding, but the last copy of a block
//! that has to go is sent to a random client, up to n times without a use.
//!
//! The receiver drops its oldest block of which others have a copy, else the parked block with the
//! fewest chances left; nothing that it drops is sent on, so nothing ripples through the fleet.
//! Blocks that it finds to be last copies on the way are marked, and not asked about again.

use super::client::{ALL, COPIES, Client, LAST, PARKED, Step};
use super::weighted::CANDIDATES;
use super::{Name, Peer};

/// Makes room for a block that a program here asked for.
pub(super) fn evict(client: &mut Client) -> Step {
    let Some(slot) = client.own.oldest_of(ALL) else {
        return Step::Done;
    };
    let entry = *client.own.entry(slot);
    let name = client.own.remove(slot);
    match entry.list {
        // Nobody has used it since it was parked here.
        PARKED.. => pass_on(client, name, entry.list - PARKED),
        _ if client.options.chances == 0 => Step::Drop(name),
        _ if entry.last => fate(client, name, true),
        _ => Step::Ask(name),
    }
}

/// The action for a block that had to go, now that the server has answered.
pub(super) fn fate(client: &mut Client, name: Name, last: bool) -> Step {
    match last {
        true => pass_on(client, name, client.options.chances),
        false => Step::Drop(name),
    }
}

fn pass_on(client: &mut Client, name: Name, chances: u8) -> Step {
    match random_peer(client) {
        Some(to) if chances > 0 => Step::Park {
            name,
            to,
            chances,
            last: [None; CANDIDATES],
            fresh: false,
        },
        _ => Step::Drop(name),
    }
}

/// Any client but this one.
fn random_peer(client: &mut Client) -> Option<Peer> {
    let others = u64::from(client.options.clients.checked_sub(1)?);
    if others == 0 {
        return None;
    }
    let drawn = (wire::splitmix64(&mut client.lots) % others) as Peer;
    Some(if drawn >= client.me { drawn + 1 } else { drawn })
}

/// Goes on making room for the parked block that came first.
pub(super) fn make_room(client: &mut Client, now: u32) -> Step {
    while client.own.is_full() {
        match client.own.oldest(COPIES) {
            Some(slot) if client.own.entry(slot).last => client.own.shift(slot, LAST),
            Some(slot) => return Step::Ask(client.own.entry(slot).name),
            None => return without_copies(client, now),
        }
    }
    settle(client, now)
}

/// The server has said whether a block is the last copy that stood in the way of a parked one.
pub(super) fn looked_at(client: &mut Client, now: u32, slot: u32, last: bool) -> Step {
    if last {
        client.own.entry_mut(slot).last = true;
        client.own.shift(slot, LAST);
        return make_room(client, now);
    }
    let name = client.own.remove(slot);
    settle(client, now);
    Step::Drop(name)
}

/// All blocks here are last copies: of the parked ones, the oldest with the fewest chances goes,
/// else the one that comes.
fn without_copies(client: &mut Client, now: u32) -> Step {
    let parked = (PARKED..=*ALL.end()).find_map(|list| client.own.oldest(list));
    let gone = match parked {
        Some(slot) => client.own.remove(slot),
        None => match client.arriving.pop_front() {
            Some((name, _)) => return Step::Drop(name),
            None => return Step::Done,
        },
    };
    settle(client, now);
    Step::Drop(gone)
}

/// There is room: the parked block is in.
fn settle(client: &mut Client, now: u32) -> Step {
    if let Some((name, chances)) = client.arriving.pop_front() {
        client.own.insert(now, name, PARKED + chances - 1);
    }
    Step::Done
}
