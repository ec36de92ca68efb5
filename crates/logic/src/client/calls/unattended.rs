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
//! is held by a call that waits for us, all names expire, which takes none. They do after a while
//! in any case: a rename(2) of two directories may hold the lock, and wait in the kernel for the
//! other one. It may have a name in hand, so all directories are barred then
//! ([`crate::client::kernel::lookup_barrier`]).

use crate::Ticket;
use crate::client::kernel::name_revoke::UNKNOWN_HOLDER_WAIT_NS;
use crate::client::mutant::Mutant;
use crate::client::notices::Invalidate;
use crate::client::session::LinkState;
use crate::client::session::asked::{Sent, Why};
use crate::client::{After, Client, Step};
use crate::footprint::Footprint;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Fid, Name, RequestId, Time};

/// A change of names whose caller is gone.
#[derive(Clone, Debug)]
struct UnattendedChange {
    dirs: Vec<Fid>,
    /// Names that the kernel has not dropped yet.
    left: u32,
    /// Since when an answer waits for that.
    waited_for: Option<Time>,
    /// All names expire, since the lock cannot be waited for: in so many directories they have not
    /// yet.
    raised: Option<(Holder, u32)>,
}

impl UnattendedChange {
    /// Does the kernel keep none of the names any more?
    fn is_dropped(&self) -> bool {
        self.left == 0 || self.raised.is_some_and(|(_, left)| left == 0)
    }
}

/// The call that has the lock which is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Known,
    Unknown,
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

    /// When a lock has been waited for too long.
    fn due(&self) -> Option<Time> {
        let waits = |change: &&UnattendedChange| !change.is_dropped() && change.raised.is_none();
        let waiting = self.changes.values().filter(waits);
        let since = waiting.filter_map(|change| change.waited_for).min()?;
        Some(since + UNKNOWN_HOLDER_WAIT_NS)
    }
}

impl Client {
    /// A change of these names is under way, and its caller gone.
    pub(crate) fn doubt(&mut self, step: &mut Step<'_>, ticket: Ticket, names: Vec<(Fid, Name)>) {
        let mut dirs: Vec<Fid> = names.iter().map(|(dir, _)| *dir).collect();
        dirs.dedup();
        for dir in &dirs {
            self.node(*dir).dir.doubtful += 1;
        }
        let doubt = UnattendedChange {
            dirs,
            left: names.len() as u32,
            waited_for: None,
            raised: None,
        };
        self.callers.unattended.changes.insert(ticket, doubt);
        for (dir, name) in names {
            let node = self.node(dir);
            node.dir.names.remove(&name);
            node.not_whole();
            node.renew_listing();
            let what = Invalidate::Name { dir, name };
            self.invalidate(step, what, After::Doubt(ticket));
        }
    }

    /// The kernel has dropped one of them; `all`: all names of a directory have expired.
    pub(crate) fn on_doubt(&mut self, step: &mut Step<'_>, ticket: Ticket, all: bool) {
        let Some(doubt) = self.callers.unattended.changes.get_mut(&ticket) else {
            return;
        };
        let before = doubt.is_dropped();
        match &mut doubt.raised {
            Some((_, left)) if all => *left = left.saturating_sub(1),
            _ if all => {}
            _ => doubt.left = doubt.left.saturating_sub(1),
        }
        if before || !doubt.is_dropped() {
            return;
        }
        if doubt.raised == Some((Holder::Unknown, 0)) {
            self.bar_directories(step);
        }
        self.ask_early_again(step);
    }

    /// The change is answered.
    pub(crate) fn end_doubt(&mut self, step: &mut Step<'_>, ticket: Ticket) -> bool {
        let Some(doubt) = self.callers.unattended.changes.remove(&ticket) else {
            return false;
        };
        for dir in doubt.dirs {
            if let Some(node) = self.nodes.get_mut(&dir) {
                node.dir.doubtful = node.dir.doubtful.saturating_sub(1);
            }
        }
        self.ask_early_again(step);
        true
    }

    fn ask_early_again(&mut self, step: &mut Step<'_>) {
        for id in core::mem::take(&mut self.callers.unattended.early) {
            // Without a connection it is sent on the next one.
            if self.session.state == LinkState::Up && self.asked.requests.contains_key(&id) {
                self.send_request(step, id);
            }
        }
    }

    /// Does this answer come before the kernel has dropped what it may make wrong? Then it counts
    /// as lost.
    pub(crate) fn is_early(&mut self, step: &mut Step<'_>, id: RequestId) -> bool {
        if self.callers.unattended.changes.is_empty() {
            return false;
        }
        let Some(Sent { request, why, .. }) = self.asked.requests.get(&id) else {
            return false;
        };
        if !matches!(why, Why::Call(_) | Why::Walk | Why::Names) {
            return false;
        }
        let dirs = Footprint::new(&request.op).dirs();
        let about = |doubt: &&mut UnattendedChange| {
            let mut dirs = dirs.iter().flatten();
            !doubt.is_dropped() && dirs.any(|dir| doubt.dirs.contains(dir))
        };
        let mut early = false;
        for doubt in self.callers.unattended.changes.values_mut().filter(about) {
            doubt.waited_for.get_or_insert(step.now);
            early = true;
        }
        if !early {
            return false;
        }
        if !self.callers.unattended.early.contains(&id) {
            self.callers.unattended.early.push(id);
        }
        self.raise_doubts(step);
        true
    }

    /// A call has come: it may hold a lock that is waited for.
    pub(crate) fn on_doubtful_call(&mut self, step: &mut Step<'_>) {
        if !self.callers.unattended.early.is_empty() {
            self.raise_doubts(step);
        }
    }

    /// Has all names expire where a call that waits for us has the lock, or somebody has had it for
    /// too long.
    fn raise_doubts(&mut self, step: &mut Step<'_>) {
        let patient = self.is_patient();
        let holder = |doubt: &UnattendedChange| {
            let known = doubt.dirs.iter().any(|dir| self.kernel.may_lock(*dir));
            let since = doubt.waited_for.filter(|_| !patient);
            let late = since.is_some_and(|since| step.now >= since + UNKNOWN_HOLDER_WAIT_NS);
            match (known, late) {
                (true, _) => Some(Holder::Known),
                (false, true) => Some(Holder::Unknown),
                (false, false) => None,
            }
        };
        let stuck = self.callers.unattended.changes.iter();
        let stuck = stuck.filter(|(_, doubt)| !doubt.is_dropped() && doubt.raised.is_none());
        let stuck = stuck.filter_map(|(ticket, doubt)| Some((*ticket, holder(doubt)?)));
        let stuck: Vec<(Ticket, Holder)> = stuck.collect();
        for (ticket, holder) in stuck {
            let Some(doubt) = self.callers.unattended.changes.get_mut(&ticket) else {
                continue;
            };
            doubt.raised = Some((holder, doubt.dirs.len() as u32));
            for dir in doubt.dirs.clone() {
                self.invalidate(step, Invalidate::Names { dir }, After::DoubtOfAll(ticket));
            }
        }
    }

    pub(crate) fn tick_unattended(&mut self, step: &mut Step<'_>) {
        if self.unattended_due().is_some_and(|due| due <= step.now) {
            self.raise_doubts(step);
        }
    }

    pub(crate) fn unattended_due(&self) -> Option<Time> {
        self.callers.unattended.due().filter(|_| !self.is_patient())
    }

    /// A lock that is not known of would be waited for without end.
    fn is_patient(&self) -> bool {
        self.options.mutant == Some(Mutant::ForgetsALock)
    }
}
