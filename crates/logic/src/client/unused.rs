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
//! looked up before. (A directory that the kernel does not know needs none of this.) If anybody has
//! been told anything of the directory since the beginning, or asks for it, the token stays.
//!
//! All names of the machine are looked up once more after that, in the daemon. So there is a pause
//! after each attempt, which grows when the directory was used after all, and shrinks when not.

use super::api::{Call, Invalidate};
use super::mutant::Mutant;
use super::taken::LONGEST_NS;
use super::{After, Client, Step};
use wire::{Epoch, Fid, Right, Time};

/// How long after one directory the next may be given up, at least and at most.
const PAUSE_LEAST_NS: Time = 5_000_000_000;
const PAUSE_MOST_NS: Time = 600_000_000_000;

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
#[derive(Clone, Debug)]
pub(super) struct Unused {
    now: Option<GivingUp>,
    /// The last one that was given up at the cost of all names.
    last: Option<Fid>,
    next: Time,
    pause: Time,
}

impl Default for Unused {
    fn default() -> Unused {
        Unused {
            now: None,
            last: None,
            next: 0,
            pause: PAUSE_LEAST_NS,
        }
    }
}

impl Unused {
    /// It cost all names, and was in vain.
    fn regret(&mut self, now: Time) {
        self.pause = (2 * self.pause).min(PAUSE_MOST_NS);
        self.next = now + self.pause;
        self.last = None;
    }
}

impl Client {
    /// The server asks for a directory if it is not used here.
    pub(super) fn on_unused(&mut self, step: &mut Step<'_>, dir: Fid, epoch: Epoch) {
        let stamp = self.stamp();
        let node = self.node(dir);
        if let Some(drain) = node.drain.as_mut() {
            // The end of the drain is the answer.
            drain.epoch = drain.epoch.max(epoch);
            return;
        }
        // The kernel may have been told names without a right that is known here: the server must
        // go on to tell of their changes.
        let right = node.right.max(Right::Transient);
        self.say_returned(step, (dir, epoch), stamp, (right, None));
        if self.unused.now.is_some() || !self.is_unused(step.now, dir) {
            return;
        }
        let lookups = self.nodes.get(&dir).map_or(0, |node| node.lookups);
        let known = lookups > 0 || self.root == Some(dir);
        if !known || self.options.mutant == Some(Mutant::GivesUpAtOnce) {
            return self.give_up(step, dir);
        }
        if step.now < self.unused.next {
            return;
        }
        if self.unused.last.take().is_some() {
            // Nobody has missed it.
            self.unused.pause = (self.unused.pause / 2).max(PAUSE_LEAST_NS);
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

    /// Is nothing of this directory under way here? What was told of it a moment ago the kernel may
    /// not have taken in yet.
    fn is_unused(&self, now: Time, dir: Fid) -> bool {
        let Some(node) = self.nodes.get(&dir) else {
            return false;
        };
        let held = matches!(node.right, Right::Transient | Right::Shared);
        let calls = || self.calls.values().any(|running| uses(&running.call, dir));
        let still = node.quiet() && node.drain.is_none() && node.delegated == 0;
        let young = now < node.told.max(node.asked) + LONGEST_NS;
        node.directory && held && still && !young && !calls()
    }

    /// A call has come: what it uses is used.
    pub(super) fn note_use(&mut self, now: Time, call: &Call) {
        if let Some(giving) = self.unused.now.filter(|giving| uses(call, giving.dir)) {
            self.cancel_unused(now, giving);
        }
        if self.unused.last.is_some_and(|dir| uses(call, dir)) {
            self.unused.regret(now);
        }
    }

    fn cancel_unused(&mut self, now: Time, giving: GivingUp) {
        self.unused.now = None;
        if !matches!(giving.stage, Stage::TakingIn) {
            self.unused.regret(now);
        }
    }

    /// The kernel has done what it was told for this.
    pub(super) fn on_unused_step(&mut self, step: &mut Step<'_>, dir: Fid, id: u64) {
        let Some(mut giving) = self.unused.now.filter(|giving| giving.id == id) else {
            return;
        };
        let told = self.nodes.get(&dir).map(|node| node.told.max(node.asked));
        let untouched = told.is_some_and(|told| told < giving.since);
        if !untouched || !self.is_unused(step.now, dir) {
            return self.cancel_unused(step.now, giving);
        }
        let (what, stage) = match giving.stage {
            Stage::TakingIn => (Invalidate::Names { dir }, Stage::Dropping),
            Stage::Dropping => (Invalidate::Turn { fid: dir }, Stage::LettingGo),
            Stage::LettingGo => {
                self.unused.now = None;
                self.unused.last = Some(dir);
                return self.give_up(step, dir);
            }
        };
        self.unused.next = step.now + self.unused.pause;
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
