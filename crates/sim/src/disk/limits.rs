//! A volume that may have only so much, for most of the time: whether that is kept, and whether all
//! of it can be used.

use super::{Change, DiskRoom};
use crate::wrong::{Wrong, wrong};
use wire::{Caller, Limits, Name, Op, Outcome, Refusal, RoomOfDisk, VolumeOp, WriteMode};

impl DiskRoom {
    /// How much the volume may have from now on; `None`: as much as there is room for.
    pub(crate) fn limit(&mut self, limits: Option<Limits>) {
        if self.limits == limits {
            return;
        }
        self.limits = limits;
        let of = Name::new(wire::FIRST_VOLUME).expect("the first volume has a name");
        let limits = limits.unwrap_or_default();
        let op = Op::Volume(VolumeOp::Limit { of, limits });
        let done = self.volume.apply(Change {
            now: 0,
            op: &op,
            caller: &Caller::root(),
            origin: None,
            data: &[],
            delegated: None,
            promised: None,
        });
        self.logged = true;
        if !matches!(done, Outcome::Volume(_)) {
            self.note_broken(wrong!("a volume cannot be limited: {done:?}"));
        }
    }

    fn note_broken(&self, wrong: Wrong) {
        self.broken.borrow_mut().replace(wrong);
    }

    /// A change was applied, or refused, beside what was promised to others.
    pub(super) fn check_limits(
        &mut self,
        (op, outcome): (&Op, &Outcome),
        (delegated, promised): (bool, Option<RoomOfDisk>),
    ) {
        let Some(limits) = self
            .limits
            .filter(|_| op.changes() && self.broken.borrow().is_none())
        else {
            return;
        };
        let ahead = matches!(
            op,
            Op::Write {
                mode: WriteMode::Back { .. } | WriteMode::Lazy,
                ..
            }
        );
        let promised = promised.unwrap_or_default().volume;
        let beside = match op {
            _ if ahead || delegated => 0,
            Op::Make { .. } | Op::MakeNameless { .. } => promised.objects,
            Op::Write { .. } | Op::Copy { .. } => promised.bytes,
            _ => 0,
        };
        if *outcome == Outcome::Refused(Refusal::Quota) && beside > 0 {
            self.note_broken(wrong!(
                "{} is refused, and clients have room that they do not use: {promised:?}",
                op.kind()
            ));
        }
        let first = self.volume.volumes().into_iter().next();
        let Some(info) = first.filter(|_| !matches!(outcome, Outcome::Refused(_))) else {
            return;
        };
        if info.bytes > limits.bytes || info.objects > limits.objects {
            self.note_broken(wrong!(
                "the volume has {} bytes and {} objects, and may have {limits:?}",
                info.bytes,
                info.objects
            ));
        }
    }
}
