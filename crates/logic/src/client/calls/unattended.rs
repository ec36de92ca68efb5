//! Changes of names that are under way with nobody waiting: their callers were killed.
//!
//! While a caller waits, the kernel has the directory locked: nobody on its machine looks there
//! before the answer, by which the kernel knows what has changed. Without the caller it is not
//! locked any more, and the kernel's entries for these names may become wrong at any moment.
//!
//! Guarantees: nobody on this machine is told anything that may already be so because of the
//! change before the kernel has dropped the names; answers that come earlier are not taken in but
//! asked for once more. Until the change is answered the kernel keeps nothing of the directory, nor
//! does this machine know anything of these names. To drop them takes the directory's lock; if that
//! is held by a call that waits for us, all names expire, which takes none.

use crate::Ticket;
use crate::client::notices::Invalidate;
use crate::client::session::LinkState;
use crate::client::session::requests::{Sent, Why};
use crate::client::{After, Client, Step};
use crate::footprint::Footprint;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Fid, Name, RequestId};

/// A change of names whose caller is gone.
#[derive(Clone, Debug)]
struct UnattendedChange {
    dirs: Vec<Fid>,
    /// Names that the kernel has not dropped yet.
    left: u32,
    /// All names expire, since the lock cannot be waited for.
    raised: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnattendedChanges {
    changes: BTreeMap<Ticket, UnattendedChange>,
    /// Requests whose answers came too early.
    early: Vec<RequestId>,
}

impl UnattendedChanges {
    /// Is such a change under way?
    pub(crate) fn any(&self) -> bool {
        !self.changes.is_empty()
    }
}

impl Client {
    /// A change of these names is under way, and its caller gone.
    pub(crate) fn doubt(&mut self, step: &mut Step<'_>, ticket: Ticket, names: Vec<(Fid, Name)>) {
        let mut dirs: Vec<Fid> = names.iter().map(|(dir, _)| *dir).collect();
        dirs.dedup();
        for dir in &dirs {
            self.node(*dir).doubtful += 1;
        }
        let doubt = UnattendedChange {
            dirs,
            left: names.len() as u32,
            raised: false,
        };
        self.unattended.changes.insert(ticket, doubt);
        for (dir, name) in names {
            let node = self.node(dir);
            node.names.remove(&name);
            node.not_whole();
            node.renew_listing();
            let what = Invalidate::Name { dir, name };
            self.invalidate(step, what, After::Doubt(ticket));
        }
    }

    /// The kernel has dropped one of them.
    pub(crate) fn on_doubt(&mut self, step: &mut Step<'_>, ticket: Ticket, all: bool) {
        if let Some(doubt) = self.unattended.changes.get_mut(&ticket) {
            doubt.left = if all { 0 } else { doubt.left.saturating_sub(1) };
            if doubt.left == 0 {
                self.ask_early_again(step);
            }
        }
    }

    /// The change is answered.
    pub(crate) fn end_doubt(&mut self, step: &mut Step<'_>, ticket: Ticket) -> bool {
        let Some(doubt) = self.unattended.changes.remove(&ticket) else {
            return false;
        };
        for dir in doubt.dirs {
            if let Some(node) = self.nodes.get_mut(&dir) {
                node.doubtful = node.doubtful.saturating_sub(1);
            }
        }
        self.ask_early_again(step);
        true
    }

    fn ask_early_again(&mut self, step: &mut Step<'_>) {
        for id in core::mem::take(&mut self.unattended.early) {
            // Without a connection it is sent on the next one.
            if self.state == LinkState::Up && self.requests.contains_key(&id) {
                self.send_request(step, id);
            }
        }
    }

    /// Does this answer come before the kernel has dropped what it may make wrong? Then it counts
    /// as lost.
    pub(crate) fn is_early(&mut self, step: &mut Step<'_>, id: RequestId) -> bool {
        if self.unattended.changes.is_empty() {
            return false;
        }
        let Some(Sent { request, why, .. }) = self.requests.get(&id) else {
            return false;
        };
        if !matches!(why, Why::Call(_) | Why::Walk | Why::Names) {
            return false;
        }
        let dirs = Footprint::new(&request.op).dirs();
        let about = |doubt: &UnattendedChange| {
            let mut dirs = dirs.iter().flatten();
            doubt.left > 0 && dirs.any(|dir| doubt.dirs.contains(dir))
        };
        if !self.unattended.changes.values().any(about) {
            return false;
        }
        if !self.unattended.early.contains(&id) {
            self.unattended.early.push(id);
        }
        self.raise_doubts(step);
        true
    }

    /// A call has come: it may hold a lock that is waited for.
    pub(crate) fn on_doubtful_call(&mut self, step: &mut Step<'_>) {
        if !self.unattended.early.is_empty() {
            self.raise_doubts(step);
        }
    }

    /// Has all names expire where a call that waits for us has the lock.
    fn raise_doubts(&mut self, step: &mut Step<'_>) {
        let held = |dir: &Fid| self.kernel.may_lock(*dir);
        let stuck = self.unattended.changes.iter();
        let stuck = stuck.filter(|(_, doubt)| doubt.left > 0 && !doubt.raised);
        let stuck: Vec<(Ticket, Fid)> = stuck
            .filter_map(|(ticket, doubt)| Some((*ticket, *doubt.dirs.iter().find(|d| held(d))?)))
            .collect();
        for (ticket, dir) in stuck {
            if let Some(doubt) = self.unattended.changes.get_mut(&ticket) {
                doubt.raised = true;
            }
            let what = Invalidate::Names { dir };
            self.invalidate(step, what, After::DoubtOfAll(ticket));
        }
    }
}
