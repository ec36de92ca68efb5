//! Figures that a client's machine shows people about itself.

use super::calls::abandoned;
use super::node::Node;
use super::session::LinkState;
use super::{Client, is_dirty};
use alloc::vec::Vec;
use wire::{Epoch, Fid, Right, Room, Time};

/// A token as listed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLine {
    /// On what.
    pub fid: Fid,
    /// Which.
    pub right: Right,
    /// Epoch of its grant.
    pub epoch: Epoch,
    /// Open for reading, for writing: how many times.
    pub opens: (u32, u32),
    /// Dirty blocks.
    pub dirty: u32,
}

/// Figures of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Objects known.
    pub nodes: u64,
    /// Shared tokens.
    pub shared: u64,
    /// Exclusive tokens.
    pub exclusive: u64,
    /// Objects of which the kernel holds pages under a transient right.
    pub transient: u64,
    /// Opens that have not ended; those of which the kernel tells nothing are not in it.
    pub opens: u64,
    /// Slots that may be in use now.
    pub slots: u64,
    /// The most that may ever be.
    pub most_slots: u64,
    /// Slots in use.
    pub used: u64,
    /// Dirty slots.
    pub dirty: u64,
    /// Slots whose blocks could be given up at once.
    pub clean: u64,
    /// When the block was used that is given up next; 0: its kernel has all of it.
    pub oldest: Option<Time>,
    /// Files that these are of.
    pub dirty_files: u64,
    /// Changes that the server has made and may lose if its machine fails: it is asked for them
    /// again then.
    pub unstable: u64,
    /// Bytes that are kept with these.
    pub unstable_bytes: u64,
    /// Changes in its own directories that the server has not taken yet.
    pub untold: u64,
    /// Room that the server has given ahead.
    pub room: Room,
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks that had to be fetched.
    pub misses: u64,
    /// Recalls received.
    pub recalls: u64,
    /// Files with changed bytes of which others had the token while this client was away, and which
    /// nobody had touched.
    pub resumed: u64,
    /// This client's changes that are kept beside those that others made while it was away.
    pub conflicts: u64,
    /// Files of which it is not known yet which of these it will be.
    pub stranded: u64,
    /// When the server was heard last.
    pub heard_at: Time,
    /// By then a server that is there has said something again: it is asked every quarter of a
    /// lease.
    pub heard_by: Time,
    /// Calls that were answered since their callers waited no longer, and are under way.
    pub abandoned: u64,
    /// Requests that wait for the server.
    pub outstanding: u64,
    /// Is the session established?
    pub connected: bool,
    /// Parts of files that are locked.
    pub locks: u64,
    /// Calls that wait for a lock.
    pub lock_waits: u64,
    /// Files about whose locks this client decides.
    pub lock_files: u64,
    /// Calls about locks that it has decided.
    pub lock_calls: u64,
    /// Watches.
    pub watches: u64,
    /// Watches that the server has not answered.
    pub unwatched: u64,
    /// Blocks lent and borrowed.
    pub lending: super::LendingFigures,
}

/// Counters for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Blocks read from the cache.
    pub(crate) hits: u64,
    /// Blocks that were fetched for a read.
    pub(crate) misses: u64,
    /// Recalls of the server.
    pub(crate) recalls: u64,
    /// Files that nobody had touched while their token was away.
    pub(crate) resumed: u64,
    /// Changes that were kept beside those of others.
    pub(crate) conflicts: u64,
}

impl Client {
    /// Has the kernel been told of this object, and not said that it has forgotten it?
    pub fn has_handed(&self, fid: Fid) -> bool {
        let node = self.nodes.get(&fid);
        self.root == Some(fid) || node.is_some_and(|node| node.kernel.is_known())
    }

    /// All tokens, but those of what the server has not heard of.
    pub fn tokens(&self) -> Vec<TokenLine> {
        let line = |fid: Fid, node: &Node| TokenLine {
            fid,
            right: node.token.right,
            epoch: node.token.grant,
            opens: (node.opens.reads, node.opens.writes),
            dirty: self
                .cache
                .blocks(fid, 0)
                .filter(|(_, _, state)| is_dirty(*state) && !node.stranded)
                .count() as u32,
        };
        self.nodes
            .iter()
            .filter(|(_, node)| node.token.right > Right::None && node.untold.unborn == 0)
            .map(|(fid, node)| line(*fid, node))
            .collect()
    }
}

impl Client {
    /// Figures.
    pub fn figures(&self) -> Figures {
        let (locks, lock_waits) = self.lock_figures();
        let mut figures = Figures {
            room: self.all_room(),
            nodes: self.nodes.len() as u64,
            slots: self.cache.slots(),
            most_slots: u64::from(self.cache.most()),
            clean: self.cache.clean(),
            oldest: self.cache.oldest(),
            used: self.cache.used(),
            dirty: self.cache.dirty(),
            dirty_files: self.cache.changed_files().count() as u64,
            heard_at: self.session.heard_at,
            heard_by: self.session.heard_at
                + self.session.lease_ns / 4
                + abandoned::SERVER_REPLY_NS,
            unstable: self.unstable.len(),
            unstable_bytes: self.unstable.bytes(),
            untold: self.delegation.unanswered as u64,
            hits: self.counts.hits,
            misses: self.counts.misses,
            recalls: self.counts.recalls,
            resumed: self.counts.resumed,
            conflicts: self.counts.conflicts,
            stranded: self.stranded.len() as u64,
            outstanding: self.asked.requests.len() as u64,
            abandoned: self.callers.abandoned.len() as u64,
            connected: self.session.state == LinkState::Up,
            locks,
            lock_waits,
            lock_files: self.lock_delegation.own() as u64,
            lock_calls: self.lock_delegation.calls,
            watches: self.watches.len() as u64,
            unwatched: self.watches.unanswered() as u64,
            lending: self.lending(),
            ..Figures::default()
        };
        for node in self.nodes.values() {
            figures.opens += u64::from(node.opens.reads) + u64::from(node.opens.writes);
            match node.token.right {
                Right::None => {}
                Right::Transient => figures.transient += 1,
                Right::Shared => figures.shared += 1,
                Right::Exclusive => figures.exclusive += 1,
            }
        }
        figures
    }
}
