//! Trouble of the server's disk while the server runs: it is full, or calls fail.
//!
//! Guarantees: nothing is refused for a disk that is well, and no server stops that has a disk
//! that is well or merely full.

use super::{Closed, DiskRoom};
use crate::coverage::Rare;
use crate::inject::DiskStrike;
use crate::rng::Rng;
use logic::server::Bulk;
use store::{Failure, Fault, Verb};
use wire::{Limits, Outcome, Refusal};

/// Something is wrong with the disk for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// There is room for this many bytes more.
    Full { spare: u64 },
    /// Calls fail.
    Errors(Failure),
}

/// The troubles of a world's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    /// It is full at some time.
    pub(crate) full: bool,
    /// Calls fail at some time.
    pub(crate) errors: bool,
    /// Some of these find no room.
    pub(crate) no_room: bool,
    /// A byte rots at some time.
    pub(crate) rot: bool,
    /// The volume may have no more than this, for most of the time. That is no trouble.
    pub(crate) limits: Option<Limits>,
}

impl Troubles {
    pub(crate) fn any(self) -> bool {
        self.full || self.errors || self.rot
    }

    /// May a program be told this?
    pub(crate) fn excuse(self, refusal: Refusal) -> bool {
        match refusal {
            Refusal::NoSpace => self.full || self.no_room,
            Refusal::Disk => self.errors,
            Refusal::Damaged => self.rot,
            Refusal::Quota => self.limits.is_some(),
            _ => true,
        }
    }
}

/// The failing calls that a seed draws from: the verb, and the fault.
const ERRORS: [(Option<Verb>, Fault); 16] = [
    (Some(Verb::Write), Fault::Fail),
    (Some(Verb::Write), Fault::Half),
    (Some(Verb::Sync), Fault::Fail),
    (Some(Verb::Sync), Fault::Drop),
    (Some(Verb::Sync), Fault::Drop),
    (Some(Verb::SyncNames), Fault::Fail),
    (Some(Verb::Read), Fault::Fail),
    (Some(Verb::Read), Fault::Half),
    (Some(Verb::Look), Fault::Fail),
    (Some(Verb::Commit), Fault::Fail),
    (Some(Verb::Create), Fault::Fail),
    (Some(Verb::Reserve), Fault::Full),
    (Some(Verb::Remove), Fault::Fail),
    (Some(Verb::Resize), Fault::Fail),
    (None, Fault::Fail),
    (None, Fault::Half),
];

impl Trouble {
    /// The next sync fails, and the bytes that it should have made stable never will be.
    pub(crate) const SYNC: Self = Self::Errors(Failure {
        verb: Some(Verb::Sync),
        at: 1,
        fault: Fault::Drop,
        lasting: false,
    });

    /// This call fails, counted from now.
    pub(crate) fn strike(strike: DiskStrike, call: u32) -> Self {
        let (verb, fault) = match strike {
            DiskStrike::Fail => (None, Fault::Fail),
            DiskStrike::Half => (None, Fault::Half),
            DiskStrike::Full => (None, Fault::Full),
            DiskStrike::Sync => (Some(Verb::Sync), Fault::Drop),
            DiskStrike::Read => (Some(Verb::Read), Fault::Fail),
        };
        Self::Errors(Failure {
            verb,
            at: u64::from(call),
            fault,
            lasting: false,
        })
    }

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        if rng.chance(400) {
            let spare = *rng.pick(&[0, 0, 512, 2048]);
            return Self::Full { spare };
        }
        let (verb, fault) = *rng.pick(&ERRORS);
        Self::Errors(Failure {
            verb,
            at: rng.between(1, 4),
            fault,
            lasting: rng.chance(300),
        })
    }

    pub(crate) fn note(self, all: &mut Troubles) {
        match self {
            Self::Full { .. } => all.full = true,
            Self::Errors(failure) => {
                all.errors = true;
                all.no_room |= failure.fault == Fault::Full;
            }
        }
    }
}

impl DiskRoom {
    /// Something goes wrong from now on (`None`: nothing any more).
    pub(crate) fn trouble(&mut self, trouble: Option<Trouble>) {
        self.volume.trouble(trouble);
        self.troubled = trouble.is_some();
        self.shaken |= matches!(trouble, Some(Trouble::Errors(_)));
    }

    /// How many calls of it went wrong.
    pub(crate) fn failed_calls(&self) -> u64 {
        self.volume.failed_calls()
    }

    /// May the server stop for what the disk did since it was opened?
    pub(crate) fn shaken(&self) -> bool {
        self.shaken
    }

    /// Is something wrong with it?
    pub(crate) fn troubled(&self) -> bool {
        self.troubled
    }

    /// Nothing is wrong any more: the volume is open, and what failed before has been noticed.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.logged = true;
        let written = self.write_out();
        if let (Err(_), true) = (&written, self.shaken) {
            self.die();
        }
        match self.open() {
            Ok(()) => Ok(()),
            Err(Closed::Disk(what) | Closed::Wrong(what)) => Err(what),
        }
    }

    /// The end of a change: its bytes go, but not where there was no room for it.
    pub(super) fn let_go(&mut self, bulk: Bulk, outcome: &Outcome) {
        self.note_refused(outcome);
        let short = matches!(outcome, Outcome::Refused(Refusal::NoSpace | Refusal::Quota));
        if !short {
            self.bulks.remove(&bulk);
        }
    }

    /// Notes the rare event that a refusal by the disk shows.
    pub(super) fn note_refused(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Refused(Refusal::NoSpace) => self.meet(Rare::DiskFull),
            Outcome::Refused(Refusal::Damaged) => self.meet(Rare::RotRead),
            Outcome::Refused(Refusal::Disk) => self.meet(Rare::DiskFailed),
            _ => {}
        }
    }
}
