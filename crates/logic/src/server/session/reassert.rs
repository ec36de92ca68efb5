//! What a client says after a restart that it holds: whether it can be so, and how it is entered.

use crate::server::Server;
use crate::server::api::Disk;
use wire::{Holding, Kind, Right, SessionId};

impl Server {
    /// Does it exclude what another session has said to hold? Both were never granted: who came
    /// first is believed, the other one is as lost as if it had not come. (Of a directory a client
    /// does not know what its kernel has in hand, and says that it has something: who holds it
    /// Exclusive was granted that when others had nothing.)
    pub(crate) fn contradicts(&self, disk: &impl Disk, id: SessionId, holding: &Holding) -> bool {
        if self.claims_too_much(disk, id, holding) {
            return true;
        }
        let Some(file) = self.files.get(&holding.fid) else {
            return false;
        };
        let others = file.holders.iter().filter(|(session, _)| **session != id);
        let excluded = others.filter_map(|(_, other)| {
            let other = other.right;
            let (weaker, stronger) = (other.min(holding.right), other.max(holding.right));
            (stronger == Right::Exclusive && weaker > Right::None).then_some(weaker)
        });
        // The disk is asked only if it may matter: clients say a great many rights.
        excluded.max().is_some_and(|weaker| {
            let kind = disk.attr(holding.fid).ok().flatten().map(|attr| attr.kind);
            // The disk does not know the kind of a change that is to be made again.
            kind.is_some_and(|kind| kind != Kind::Directory) || weaker > Right::Transient
        })
    }

    pub(crate) fn reassert(&mut self, id: SessionId, holding: &Holding) {
        let file = self.files.entry(holding.fid).or_default();
        // What this client was asked for since an earlier part stays asked: others wait for it.
        let holder = file.holders.of(id);
        holder.right = holding.right;
        (holder.epoch, holder.exclusive) = (self.boot, self.boot);
        (holder.hold, holder.known) = (holding.hold, holding.right < Right::Shared);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.fids.insert(holding.fid);
        }
        self.held.push((id, holding.fid));
    }
}
