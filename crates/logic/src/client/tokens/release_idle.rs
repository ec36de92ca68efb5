//! Directories that somebody else changes alone, and that nobody uses here: they are given up.
//!
//! A client that looked at a directory once keeps its token, and its kernel what it was told, until
//! a change takes back the one name. So the directory could never be delegated to a client that
//! changes it again and again. The server asks such holders ([`wire::What::Unused`]), waits for
//! none of them, and they give all of it up by a `Release`, if nobody uses the directory meanwhile.
//!
//! Guarantees: of what is given up the kernel believes nothing. First it gets the directory's lock,
//! and nothing of the directory was told for a second, so that all has been taken in; then each
//! name that it was handed loses its validity, and the attributes go; then it gets the lock once
//! more, so that no rename has a name in hand that it looked up before. (A directory that the
//! kernel does not know needs none of this.) If anybody has been told anything of the directory
//! since the beginning, or asks for it, the token stays.
//!
//! The names are still right, so they are not dropped: programs may work in these directories, and
//! something may be mounted on them. They are asked for again when they are used.

use crate::client::api::Call;
use crate::client::mutant::Mutant;
use crate::client::node::Node;
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Step};
use crate::footprint::Footprint;
use wire::{Epoch, Fid, Right, Time};

/// A directory that is being given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleRelease {
    since: Time,
    /// The notification that the kernel is handling.
    id: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    TakingIn,
    Expiring,
    LettingGo,
}

impl Client {
    /// The server asks for a directory if it is not used here.
    pub(crate) fn on_unused(&mut self, step: &mut Step<'_>, dir: Fid, epoch: Epoch) {
        let stamp = self.stamp();
        let node = self.node(dir);
        if let Some(drain) = node.drain.as_mut() {
            // The end of the drain is the answer.
            drain.epoch = drain.epoch.max(epoch);
            return;
        }
        // The kernel may have been told names without a right that is known here: the server must
        // go on to tell of their changes.
        let right = node.token.right.max(Right::Transient);
        self.say_returned(step, (dir, epoch), stamp, (right, None));
        if self.idle_releases.contains_key(&dir) || !self.is_unused(step.now, dir) {
            return;
        }
        let known = self.has_handed(dir);
        if !known || self.options.mutant == Some(Mutant::GivesUpAtOnce) {
            return self.give_up(step, dir);
        }
        let (since, stage) = (step.now, Stage::TakingIn);
        let id = self.invalidate(step, Invalidate::Turn { fid: dir }, After::Unused(dir));
        self.idle_releases
            .insert(dir, IdleRelease { since, id, stage });
    }

    /// Is nothing of this directory under way here? The kernel may not have taken in yet the names
    /// and attributes that it was sent a moment ago.
    fn is_unused(&self, now: Time, dir: Fid) -> bool {
        let Some(node) = self.nodes.get(&dir) else {
            return false;
        };
        let calls = || {
            self.callers
                .calls
                .values()
                .any(|running| uses(&running.call, dir))
        };
        let still = node.quiet() && node.drain.is_none() && node.untold.delegated == 0;
        let young = now < told(node) + self.options.still_ns;
        let listed = node.kernel.dentries().is_complete();
        node.directory
            && node.token.right < Right::Exclusive
            && still
            && listed
            && !young
            && !calls()
    }

    /// A call has come: directories that it uses are in use.
    pub(crate) fn note_use(&mut self, call: &Call) {
        self.idle_releases.retain(|dir, _| !uses(call, *dir));
    }

    /// The kernel has done what it was told for this.
    pub(crate) fn on_unused_step(&mut self, step: &mut Step<'_>, dir: Fid, id: u64) {
        let Some(mut giving) = self.idle_releases.get(&dir).copied() else {
            return;
        };
        if giving.id != id {
            return; // begun anew since
        }
        self.idle_releases.remove(&dir);
        let told_since = |node: &Node| told(node) >= giving.since;
        if self.nodes.get(&dir).is_none_or(|node| told_since(node))
            || !self.is_unused(step.now, dir)
        {
            return;
        }
        let (what, stage) = match giving.stage {
            Stage::TakingIn => {
                let names = self.node(dir).kernel.dentries().names();
                (Invalidate::Expire { dir, names }, Stage::Expiring)
            }
            Stage::Expiring => (Invalidate::Turn { fid: dir }, Stage::LettingGo),
            Stage::LettingGo => {
                self.node(dir).kernel.forgets_dentries();
                return self.give_up(step, dir);
            }
        };
        giving.id = self.invalidate(step, what, After::Unused(dir));
        giving.stage = stage;
        self.idle_releases.insert(dir, giving);
    }

    fn give_up(&mut self, step: &mut Step<'_>, dir: Fid) {
        self.void(dir);
        // The server may count this client as a holder although it has no token, when its kernel
        // knows the directory.
        let node = self.node(dir);
        node.token.right = node.token.right.max(Right::Transient);
        self.release(step, dir, Right::None);
        self.retire(step, dir);
    }
}

/// When the kernel was told anything of it last.
fn told(node: &Node) -> Time {
    node.kernel.anything_told_at()
}

/// Is the call about this directory, or about names in it?
fn uses(call: &Call, dir: Fid) -> bool {
    match call {
        Call::Op(op) => Footprint::new(op).fids().any(|fid| fid == dir),
        Call::List { dir: fid, .. }
        | Call::Seek { fid }
        | Call::Enter { fid }
        | Call::Open { fid, .. }
        | Call::Sync { fid, .. } => *fid == dir,
        _ => false,
    }
}
