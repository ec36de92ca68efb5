//! Cooperative caching: the memory of all clients as one cache. Six algorithms of Dahlin, Wang,
//! Anderson and Patterson (*Cooperative Caching: Using Remote Client Memory to Improve File System
//! Performance*, 1994) and one of our own, as the decisions that a client and a server have to
//! make.
//!
//! | file | what is decided there |
//! |---|---|
//! | `direct.rs` | a client parks what overflows in one idle machine, for itself |
//! | `greedy.rs` | the server lets a client answer for it; nobody does anything for the others |
//! | `central.rs` | the server manages a share of each client's memory as its own |
//! | `nchance.rs` | the last copy of a block goes to a random client, up to n times |
//! | `hash.rs` | the name of a block says which client keeps it for all |
//! | `weighted.rs` | what costs least to fetch again, for how long it lay unused, goes first |
//! | `fleet.rs` | ours: the server picks, without a question, what stays and where |
//!
//! Guarantees: no decision here is needed for correctness. The numbers of a block, (fid, block,
//! version), are mixed into a [`Name`], hints may be wrong, and a client that gets bytes checks
//! them. A [`Client`] and a [`Server`] see no bytes and no clock; the room moves what they name.
//! `now` counts in any unit, the same one for all, and never goes back.

mod central;
mod client;
mod direct;
mod fleet;
mod greedy;
mod hash;
mod hints;
mod nchance;
mod server;
mod shelf;
mod table;
mod weighted;

pub use client::{Arrival, Client, Found, Lent, Step};
pub use fleet::{Offer, Offered, Parts};
pub use hash::keeper;
pub use hints::{Hints, NAMED};
pub use server::{Answer, Fate, NOTICES, Server, Source, Spill, Told};
pub use weighted::{CANDIDATES, Oldest, cheapest};

/// The name of a block: its fid, number and version, mixed. Two blocks with one name do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub u64);

/// The number of a client among those that take part.
pub type Peer = u16;

/// An algorithm of cooperative caching: which client does what for which other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nobody does anything for others.
    Off,
    /// Direct client cooperation.
    Direct,
    /// Greedy forwarding.
    Greedy,
    /// Centrally coordinated caching.
    Central,
    /// N-chance forwarding.
    NChance,
    /// Hash-distributed caching.
    Hash,
    /// Weighted LRU.
    Weighted,
    /// Ours.
    Fleet,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 8] = [
        Policy::Off,
        Policy::Direct,
        Policy::Greedy,
        Policy::Central,
        Policy::NChance,
        Policy::Hash,
        Policy::Weighted,
        Policy::Fleet,
    ];

    /// The word for it in options and reports.
    pub fn word(self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::Direct => "direct",
            Policy::Greedy => "greedy",
            Policy::Central => "central",
            Policy::NChance => "n-chance",
            Policy::Hash => "hash",
            Policy::Weighted => "weighted",
            Policy::Fleet => "fleet",
        }
    }

    /// Does the server lend a client's copy to others?
    fn forwards(self) -> bool {
        matches!(
            self,
            Policy::Greedy | Policy::NChance | Policy::Weighted | Policy::Fleet
        )
    }
}

/// How real clients keep blocks for each other under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// The weight of the age of a copy beside that of a last copy, 16ths, where a client makes room
    /// for itself.
    pub copies_weigh: u32,
    /// The same where it makes room for a block of others.
    pub others_weigh: u32,
    /// How often a last copy is handed on that nobody uses.
    pub chances: u8,
    /// A random client takes it, or the one whose room is worth least.
    pub random: bool,
}

impl Policy {
    /// How clients keep blocks for each other; `None`: they do not.
    pub fn keeping(self) -> Option<Keeping> {
        match self {
            Policy::NChance => Some(Keeping {
                copies_weigh: 16,
                others_weigh: u32::MAX,
                chances: 2,
                random: true,
            }),
            Policy::Weighted => {
                let weigh = weighted::weight_of_copies(Costs::default()) as u32;
                Some(Keeping {
                    copies_weigh: weigh,
                    others_weigh: weigh,
                    chances: 1,
                    random: false,
                })
            }
            // On the traces these weights read as fast as those of `Parts` within 1 % (`build`: 2 %
            // slower, a recorded build up to 5 %), but each block that moves between real clients
            // costs both of them more than a message.
            Policy::Fleet => Some(Keeping {
                copies_weigh: 128,
                others_weigh: 256,
                chances: 1,
                random: false,
            }),
            _ => None,
        }
    }
}

/// How a fleet is set up. All memory is counted in blocks.
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithm.
    pub policy: Policy,
    /// How many clients there are.
    pub clients: Peer,
    /// Of each client's memory, the blocks that it manages itself.
    pub own_blocks: usize,
    /// Of each client's memory, the blocks that are managed for all: by the server (`Central`), or
    /// under a part of the names (`Hash`).
    pub managed_blocks: usize,
    /// Blocks that each client may use of another's memory (`Direct`).
    pub away_blocks: usize,
    /// The server's memory.
    pub server_blocks: usize,
    /// How many blocks the server keeps hints of.
    pub hints: usize,
    /// How many times a last copy is passed on (`NChance`), up to [`CHANCES`].
    pub chances: u8,
    /// The costs of fetching a block (`Weighted`, `Fleet`).
    pub costs: Costs,
    /// Which parts of `Fleet` are in use.
    pub parts: Parts,
    /// The seed of all that is drawn by lot.
    pub seed: u64,
}

/// The most chances that a block can be given.
pub const CHANCES: u8 = (shelf::LISTS - 2) as u8;

/// The share of a client's memory that is managed for all where a policy divides it (section
/// 4.2.3 of the paper).
pub const SHARE_PERCENT: usize = 80;

/// How long it takes to get a block, in any unit.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// From another client.
    pub peer: u32,
    /// From the disk.
    pub disk: u32,
}

impl Default for Costs {
    /// The paper's: from another client, and from a disk with a network, microseconds.
    fn default() -> Self {
        Self {
            peer: 1_000,
            disk: 15_600,
        }
    }
}

impl Options {
    /// The paper's choices for this policy, so many clients and so much memory.
    pub fn new(policy: Policy, clients: Peer, client_blocks: usize, server_blocks: usize) -> Self {
        let divided = matches!(policy, Policy::Central | Policy::Hash);
        let managed_blocks = if divided {
            client_blocks * SHARE_PERCENT / 100
        } else {
            0
        };
        Self {
            policy,
            clients,
            own_blocks: client_blocks - managed_blocks,
            managed_blocks,
            away_blocks: client_blocks,
            server_blocks,
            hints: usize::MAX,
            chances: 2,
            costs: Costs::default(),
            parts: Parts::default(),
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests;
