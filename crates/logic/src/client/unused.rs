//! Directories that somebody else changes alone, and that nobody uses here: they are given up.
//!
//! Who looked at a directory once keeps its token, and its kernel what it was told, until a change
//! takes back the one name. So to whoever changes it again and again it could never be delegated.
//! The server asks such holders ([`wire::What::Unused`]), waits for none of them, and they give all
//! of it up by a `Release`, if nobody uses the directory meanwhile.
//!
//! Guarantees: what is given up the kernel knows nothing of. First it gets the directory's lock, so
//! that all that it was told of names has been taken in; then all names lose their validity, and
//! the attributes go; then it gets the lock once more, so that no rename has a name in hand that it
//! looked up before. If anybody has been told anything of the directory since the beginning,
//! or asks for it, the token stays. Since all names of the machine are looked up once more after
//! that, it is done once in a while only.

use super::api::{Call, Invalidate};
use super::mutant::Mutant;
use super::{After, Client, Step};
use wire::{Epoch, Fid, Right, Time};

/// How long after one directory the next may be given up.
const PAUSE_NS: Time = 5_000_000_000;

/// A directory that is being given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivingUp {
    dir: Fid,
    since: Time,
    /// What the kernel is doing.
    id: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    TakingIn,
    Dropping,
    LettingGo,
}

/// Which one is, and when the next may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Unused {
    now: Option<GivingUp>,
    next: Time,
}

impl Client {
    /// The server asks for a directory if it is not used here.
    pub(super) fn on_unused(&mut self, step: &mut Step<'_>, dir: Fid, epoch: Epoch) {
        self.answer_recall(step, dir, epoch, None);
        if self.unused.now.is_some() || step.now < self.unused.next || !self.is_unused(dir) {
            return;
        }
        if self.options.mutant == Some(Mutant::GivesUpAtOnce) {
            return self.give_up(step, dir);
        }
        let (since, stage) = (step.now, Stage::TakingIn);
        let id = self.invalidate(step, Invalidate::Turn { fid: dir }, After::Unused(dir));
        self.unused.now = Some(GivingUp {
            dir,
            since,
            id,
            stage,
        });
    }

    /// Is nothing of this directory under way here?
    fn is_unused(&self, dir: Fid) -> bool {
        let Some(node) = self.nodes.get(&dir) else {
            return false;
        };
        let held = matches!(node.right, Right::Transient | Right::Shared);
        let calls = || self.calls.values().any(|running| uses(&running.call, dir));
        let still = node.quiet() && node.drain.is_none() && node.delegated == 0;
        node.directory && held && still && !calls()
    }

    /// A call has come: what it uses is used.
    pub(super) fn note_use(&mut self, call: &Call) {
        if self.unused.now.is_some_and(|giving| uses(call, giving.dir)) {
            self.unused.now = None;
        }
    }

    /// The kernel has done what it was told for this.
    pub(super) fn on_unused_step(&mut self, step: &mut Step<'_>, dir: Fid, id: u64) {
        let Some(mut giving) = self.unused.now.filter(|giving| giving.id == id) else {
            return;
        };
        self.unused.now = None;
        let told = self.nodes.get(&dir).map(|node| node.told.max(node.asked));
        if !self.is_unused(dir) || told.is_none_or(|told| told >= giving.since) {
            return;
        }
        let (what, stage) = match giving.stage {
            Stage::TakingIn => (Invalidate::Names { dir }, Stage::Dropping),
            Stage::Dropping => (Invalidate::Turn { fid: dir }, Stage::LettingGo),
            Stage::LettingGo => return self.give_up(step, dir),
        };
        self.unused.next = step.now + PAUSE_NS;
        giving.id = self.invalidate(step, what, After::Unused(dir));
        giving.stage = stage;
        self.unused.now = Some(giving);
    }

    fn give_up(&mut self, step: &mut Step<'_>, dir: Fid) {
        self.void(dir);
        self.release(step, dir, Right::None);
        self.retire(step, dir);
    }

    /// The session is over, and with it what was to be given up.
    pub(super) fn lose_unused(&mut self) {
        self.unused = Unused::default();
    }
}

/// Is the call about this directory, or about a name in it?
fn uses(call: &Call, dir: Fid) -> bool {
    match call {
        Call::Op(op) => super::ship::about(op).contains(&Some(dir)),
        Call::List { dir: of, .. } => *of == dir,
        Call::Seek { fid } | Call::Open { fid, .. } | Call::Sync { fid } => *fid == dir,
        _ => false,
    }
}
