//! Reassertion to a restarted server, or to one that has taken something: what this client holds
//! and has open, and which changes its callers have not seen answered.
//!
//! The last run of the server may have applied such a change. The callers' kernel shows the old
//! state until they are answered, so the server must show it too: it may not learn of the change
//! first from the repeated request, when others have asked already.

use super::asked::Why;
use crate::client::api::{Call, How};
use crate::client::mutant::Mutant;
use crate::client::{Client, Step};
use crate::footprint::{Deed, Footprint};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use wire::{Epoch, Fid, Holding, Name, Op, RequestId, Right, Time, ToServer, Unseen};

/// The reassertion that is being sent to a restarted server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassertion {
    /// Parts of `Reassert`, until the server has noted all.
    pub(crate) parts: Vec<ToServer>,
    /// When the greeting was sent that this followed.
    pub(crate) since: Time,
    /// The versions of files with changed bytes, as they were then. Until it is known whether the
    /// token was taken an answer may tell of what others have made of the file.
    pub(crate) bases: BTreeMap<Fid, u64>,
    /// Requests that are to be repeated later.
    pub(crate) held_back: BTreeSet<RequestId>,
    /// The last request that was to be repeated.
    pub(crate) repeated: RequestId,
}

impl Client {
    /// Says in parts what the server does not know, or not any more; they are repeated until it has
    /// all. `boot`: of a server that has restarted.
    pub(crate) fn reassert(&mut self, step: &mut Step<'_>, term: Epoch, boot: Option<Epoch>) {
        self.settle_taken(step);
        let stamp = self.stamp();
        self.reassertion.since = self.session.greeted;
        for fid in self.cache.changed_files() {
            let version = self.nodes.get(&fid).map_or(0, |node| node.version);
            self.reassertion.bases.entry(fid).or_insert(version);
        }
        for node in self.nodes.values_mut() {
            // The restarted server counts what is reasserted as granted at its start.
            node.token.seen = node.token.seen.max(boot.unwrap_or(0));
        }
        if boot.is_some() {
            self.claim_no_spent_room();
        }
        let holding = |fid: Fid, node: &crate::client::Node| Holding {
            fid,
            // Which names of a directory the kernel has in hand is not known here.
            right: if node.directory {
                node.token.right.max(Right::Transient)
            } else {
                node.token.right
            },
            hold: node.hold(stamp),
        };
        let holds = |holding: &Holding| holding.right > Right::None || holding.hold.open;
        // An object that is to be made is none of the server's business before the server has been
        // told of it; one that the server may have made by now is.
        let kept = |node: &crate::client::Node| {
            let made = self.asked.requests.get(&node.untold.unborn);
            node.untold.unborn != 0 && made.is_none_or(|sent| sent.kept)
        };
        let nodes = self.nodes.iter().filter(|(_, node)| !kept(node));
        let all = nodes.map(|(fid, node)| holding(*fid, node));
        let holdings: Vec<Holding> = all.filter(holds).collect();
        let unseen = self.unseen();
        if let Some(boot) = boot {
            self.end_lock_delegations(boot);
        }
        self.taken = Default::default();
        let forgets = self.options.mutant == Some(Mutant::ForgetsLocks);
        let locks = match forgets {
            true => vec![],
            false => self.claim_locks(boot.is_some()),
        };
        let most = self.options.part.max(1);
        let parts = [holdings.len(), unseen.len(), locks.len()];
        let parts = parts
            .into_iter()
            .max()
            .unwrap_or_default()
            .div_ceil(most)
            .max(1);
        let say = |part: usize| ToServer::Reassert {
            term,
            part: (part as u32, parts as u32),
            again: self.unstable.count(),
            holdings: slice(&holdings, part, most),
            unseen: slice(&unseen, part, most),
            locks: slice(&locks, part, most),
        };
        self.reassertion.parts = (0..parts).map(say).collect();
        for part in self.reassertion.parts.clone() {
            self.say(step, part);
        }
    }

    /// Changes asked for that the server has not answered, also of killed callers, whose kernel
    /// shows the old state until then; those answered whose callers wait for the kernel to drop
    /// something, and those that the kernel may not have taken in.
    fn unseen(&self) -> Vec<Unseen> {
        let asked = self
            .asked
            .requests
            .iter()
            .filter_map(|(&id, sent)| match sent.why {
                Why::Call(ticket) => Some((ticket, id)),
                Why::Fill { .. }
                | Why::Back { .. }
                | Why::Lock
                | Why::Walk
                | Why::Names
                | Why::Numbers
                | Why::Room { .. }
                | Why::Stable
                | Why::Privileges { .. }
                | Why::Stranded(_)
                | Why::Delegated(_) => None,
            });
        let answered = self
            .asked
            .unfinished
            .iter()
            .map(|(&ticket, (id, _))| (ticket, *id))
            .filter(|(_, id)| !self.kernel.is_unseen(*id));
        asked
            .chain(answered)
            .filter_map(|(ticket, id)| self.touches(id, self.called(ticket)?))
            .chain(self.kernel.unseen_changes())
            .collect()
    }

    /// The names and objects that others must not be shown yet if this call's change has been
    /// applied. The objects that names named are known to the server only.
    pub(crate) fn touches(&self, request: RequestId, call: &Call) -> Option<Unseen> {
        let none = Footprint::new(&Op::StatFs);
        let (footprint, bytes) = match call {
            Call::Op(op) => (Footprint::new(op), None),
            Call::Write {
                fid,
                how: How::Direct | How::Append,
                ..
            } => (none, Some(*fid)),
            _ => return None,
        };
        let (bytes, object) = match footprint.deed {
            Deed::Writes => (footprint.object, None),
            _ => (bytes, footprint.changed_object()),
        };
        let names = footprint.changed_names();
        let names: Vec<(Fid, Name)> = names.map(|(dir, name)| (dir, name.clone())).collect();
        let fids: Vec<Fid> = bytes.or(object).into_iter().collect();
        if names.is_empty() && fids.is_empty() {
            return None;
        }
        Some(Unseen {
            request,
            names,
            fids,
        })
    }
}

fn slice<T: Clone>(all: &[T], part: usize, most: usize) -> Vec<T> {
    all.iter().skip(part * most).take(most).cloned().collect()
}
