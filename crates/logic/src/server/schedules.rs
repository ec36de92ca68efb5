//! Schedules: snapshots that the server makes by itself, and takes away again.
//!
//! A volume has rules: a snapshot every so often, of which so many are kept. The operations that
//! are due follow from the rules, from the snapshots that there are, and from the time; nothing
//! else is kept. The snapshots of a rule are those whose names have the rule's form, so one that is
//! renamed is kept for good. A period begins at a multiple of its length in UTC, a week on Monday.
//! If the server was down when a snapshot was due, it makes one when it serves again; of several
//! that it missed, one. A snapshot beyond that number is deleted, and purged at once.
//!
//! Guarantees. Each of these is an operation like those that people ask for, with all that goes
//! before it (see [`super::volumes`]); so is the publication of a release, which the room asks for.
//! There is one at a time, and none before the clients of the last run have been heard. One that is
//! refused is tried again in a minute.

use super::api::Event;
use super::table::{Seq, Waiting};
use super::{Server, Step};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wire::{
    Name, Op, Outcome, Request, RequestId, ScheduleRule, SessionId, Time, VolumeInfo, VolumeOp,
    VolumeState, split_volume_name,
};

/// In the place of the session of what the server asks for itself: clients choose other numbers.
pub(crate) const OWN: SessionId = 0;

const SECOND_NS: Time = 1_000_000_000;
const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;
const WEEK_S: u64 = 7 * DAY_S;
/// From Monday to Thursday, which 1970 began with.
const MONDAY_S: u64 = 3 * DAY_S;
/// It looks again after so long: the clock of the machine may have been set.
const LOOK_NS: Time = 60 * SECOND_NS;
/// So many things are done in one step.
const AT_ONCE: usize = 16;

/// When the server looks at the schedules, and what it has asked itself for.
#[derive(Clone, Debug)]
pub(crate) struct Schedules {
    /// When it looks next; `Time::MAX`: there are none.
    at: Time,
    /// The request that waits for clients.
    own: Option<Seq>,
    last: RequestId,
}

impl Schedules {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            at: now,
            own: None,
            last: 0,
        }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        Some(self.at).filter(|at| *at < Time::MAX)
    }
}

/// The word with which the names of a rule's snapshots begin, before their time.
fn word(rule: &ScheduleRule) -> String {
    let every_s = u64::from(rule.every_s);
    match every_s {
        MINUTE_S => "minute".into(),
        HOUR_S => "hour".into(),
        DAY_S => "day".into(),
        WEEK_S => "week".into(),
        _ if every_s.is_multiple_of(DAY_S) => format!("{}d", every_s / DAY_S),
        _ if every_s.is_multiple_of(HOUR_S) => format!("{}h", every_s / HOUR_S),
        _ if every_s.is_multiple_of(MINUTE_S) => format!("{}m", every_s / MINUTE_S),
        _ => format!("{every_s}s"),
    }
}

/// Year, month and day of a day since 1970.
fn date(day: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the irregular month comes last.
    const DAYS_BEFORE_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let day = day + DAYS_BEFORE_1970;
    let within = day % DAYS_OF_400_YEARS;
    let leaps = within / 1460 - within / 36_524 + within / 146_096;
    let year = (within - leaps) / 365;
    let of_year = within - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (
        400 * (day / DAYS_OF_400_YEARS) + year + next,
        month,
        of_month,
    )
}

/// The name of a snapshot that a rule has made at this time.
fn name_at(rule: &ScheduleRule, time: Time) -> Name {
    let seconds = time / SECOND_NS;
    let (year, month, day) = date(seconds / DAY_S);
    let (hour, minute) = (seconds % DAY_S / HOUR_S, seconds % HOUR_S / MINUTE_S);
    let (word, second) = (word(rule), seconds % MINUTE_S);
    let text = format!("{word}-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}");
    Name::new(text.as_bytes()).expect("letters, digits and dashes")
}

/// Has a rule made this snapshot?
fn is_of(rule: &ScheduleRule, info: &VolumeInfo) -> bool {
    let (_, short) = split_volume_name(&info.name);
    let time = short.and_then(|short| short.strip_prefix(word(rule).as_bytes()));
    let form = |(at, byte): (usize, &u8)| match at {
        0 | 9 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    time.is_some_and(|time| time.len() == 16 && time.iter().enumerate().all(form))
}

/// When the period of a rule began in which this time lies.
fn begin(rule: &ScheduleRule, time: Time) -> Time {
    let every = u64::from(rule.every_s.max(1)) * SECOND_NS;
    let shift = match u64::from(rule.every_s).is_multiple_of(WEEK_S) {
        true => MONDAY_S * SECOND_NS,
        false => 0,
    };
    ((time + shift) / every * every).saturating_sub(shift)
}

/// The operation that one rule of a volume asks for now.
fn due_of(
    all: &[VolumeInfo],
    (volume, rule): (&VolumeInfo, &ScheduleRule),
    time: Time,
) -> Option<VolumeOp> {
    let own = |info: &&VolumeInfo| info.snapshot_of == Some(volume.id) && is_of(rule, info);
    let mut own: Vec<&VolumeInfo> = all.iter().filter(own).collect();
    own.sort_unstable_by_key(|info| core::cmp::Reverse(info.made));
    let begun = begin(rule, time);
    if own.first().is_none_or(|newest| newest.made < begun) {
        return Some(VolumeOp::Snapshot {
            of: volume.name.clone(),
            name: name_at(rule, time),
        });
    }
    // Those that people have deleted can be undone for as long as they would be kept.
    let mut present = own.iter().filter(|info| info.state == VolumeState::Present);
    let oldest = present.nth(usize::from(rule.keep.max(1)) - 1)?.made;
    let over = own.iter().find(|info| info.made < oldest)?;
    Some(match over.state {
        VolumeState::Present => VolumeOp::Delete {
            of: over.name.clone(),
        },
        VolumeState::Deleted(_) => VolumeOp::Purge { volume: over.id },
        // The server makes none of those.
        VolumeState::Receiving => return None,
    })
}

/// The operation that is due now, and when a period ends next, if there is any schedule.
fn due(all: &[VolumeInfo], time: Time) -> (Option<VolumeOp>, Option<Time>) {
    let there = |info: &&VolumeInfo| info.state == VolumeState::Present;
    let volumes = all.iter().filter(there);
    let rules = volumes.flat_map(|info| info.schedule.iter().map(move |rule| (info, rule)));
    let rules: Vec<_> = rules.collect();
    let end = |(_, rule): &(&VolumeInfo, &ScheduleRule)| {
        begin(rule, time).saturating_add(u64::from(rule.every_s.max(1)) * SECOND_NS)
    };
    let next = rules.iter().map(end).min();
    let op = rules.into_iter().find_map(|rule| due_of(all, rule, time));
    (op, next)
}

impl Server {
    /// Does what the schedules ask for, if it is time to look.
    pub(crate) fn keep_schedules(&mut self, step: &mut Step<'_>) {
        if step.now < self.schedules.at {
            return;
        }
        for _ in 0..AT_ONCE {
            let all = step.disk.volumes();
            let (op, next) = due(&all, self.clock.goes(step.now, step.disk.wall()));
            let Some(next) = next else {
                self.schedules.at = Time::MAX;
                return;
            };
            let Some(op) = op.filter(|_| self.may_ask_itself()) else {
                let time = self.clock.goes(step.now, step.disk.wall());
                let pause = next.saturating_sub(time).clamp(SECOND_NS, LOOK_NS);
                self.schedules.at = step.now + pause;
                return;
            };
            self.schedules.at = step.now + LOOK_NS;
            self.ask_itself(step, op);
            if step.now < self.schedules.at {
                return; // it waits, or was refused
            }
        }
    }

    /// Does nothing wait that it has asked itself for, and have all been heard?
    fn may_ask_itself(&mut self) -> bool {
        let own = self.schedules.own;
        self.schedules.own = own.filter(|seq| self.waiting.contains_key(seq));
        self.schedules.own.is_none() && self.locks_in_doubt().is_none()
    }

    /// Publishes what was received: whoever has sent it may be gone.
    pub(crate) fn on_publish(&mut self, step: &mut Step<'_>, volume: u32) {
        if self.may_ask_itself() {
            self.ask_itself(step, VolumeOp::Publish { volume });
        }
    }

    /// The schedules, or the volumes, have changed.
    pub(crate) fn look_at_schedules(&mut self, now: Time) {
        self.schedules.at = now;
    }

    fn ask_itself(&mut self, step: &mut Step<'_>, op: VolumeOp) {
        self.schedules.last += 1;
        let request = Request {
            ..Request::new(self.schedules.last, Op::Volume(op))
        };
        self.last_seq += 1;
        let seq = self.last_seq;
        let waiting = Waiting::new((seq, self.epoch), OWN, (request, 0));
        let Ok(plan) = self.plan(step.disk, &waiting) else {
            return;
        };
        let needs = self.needs(&waiting, &plan);
        if needs.0.is_empty() && needs.1.is_empty() {
            return self.execute(step, waiting, &plan);
        }
        self.schedules.own = Some(seq);
        self.wait_for(step, (seq, waiting), plan, needs);
    }

    /// A request of the server to itself is done, or refused.
    pub(crate) fn note_scheduled(
        &mut self,
        step: &mut Step<'_>,
        (request, outcome): (&Request, &Outcome),
    ) {
        let Op::Volume(op) = request.op.clone() else {
            return;
        };
        let refused = match outcome {
            Outcome::Refused(refusal) => Some(*refusal),
            _ => None,
        };
        self.schedules.at = match refused {
            Some(_) => step.now + LOOK_NS,
            None => step.now,
        };
        let event = Event::Scheduled { op, refused };
        step.out.push(super::Output::Event(event));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use wire::snapshot_name;

    const HOUR: ScheduleRule = ScheduleRule {
        every_s: HOUR_S as u32,
        keep: 3,
    };
    const DAY: ScheduleRule = ScheduleRule {
        every_s: DAY_S as u32,
        keep: 2,
    };
    const DAY_NS: Time = DAY_S * SECOND_NS;
    const HOUR_NS: Time = HOUR_S * SECOND_NS;

    fn volume(schedule: Vec<ScheduleRule>) -> VolumeInfo {
        VolumeInfo {
            id: 1,
            name: Name::new(b"home").unwrap(),
            snapshot_of: None,
            cloned_from: None,
            state: VolumeState::Present,
            made: 0,
            objects: 1,
            bytes: 0,
            schedule,
            limits: wire::Limits::default(),
            provenance: wire::Provenance::default(),
        }
    }

    /// Does all that is due at this time, as the store would.
    fn work(all: &mut Vec<VolumeInfo>, time: &mut Time) -> usize {
        for count in 0.. {
            *time += 1;
            match due(all, *time).0 {
                None => return count,
                Some(VolumeOp::Snapshot { of, name }) => {
                    let name = snapshot_name(of.as_bytes(), name.as_bytes()).unwrap();
                    assert!(all.iter().all(|info| info.name != name));
                    all.push(VolumeInfo {
                        id: 1 + all.iter().map(|info| info.id).max().unwrap(),
                        name,
                        snapshot_of: Some(1),
                        made: *time,
                        schedule: vec![],
                        ..all[0].clone()
                    });
                }
                Some(VolumeOp::Delete { of }) => {
                    let at = all.iter().position(|info| info.name == of).unwrap();
                    all[at].state = VolumeState::Deleted(*time);
                }
                Some(VolumeOp::Purge { volume }) => {
                    let deleted = |info: &VolumeInfo| info.state != VolumeState::Present;
                    assert!(all.iter().any(|info| info.id == volume && deleted(info)));
                    all.retain(|info| info.id != volume);
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        0
    }

    fn names(all: &[VolumeInfo]) -> Vec<String> {
        let present = all.iter().filter(|info| info.state == VolumeState::Present);
        present.skip(1).map(|info| info.name.to_string()).collect()
    }

    #[test]
    fn days_have_their_dates() {
        for (day, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (789, (1972, 2, 29)),
            (11_016, (2000, 2, 29)),
            (20_417, (2025, 11, 25)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), expected, "{day}");
        }
        let rule = ScheduleRule {
            every_s: 15 * 60,
            keep: 1,
        };
        let time = (20_417 * DAY_S + 9 * HOUR_S + 7 * MINUTE_S + 5) * SECOND_NS;
        assert_eq!(name_at(&rule, time).to_string(), "15m-20251125-090705");
        assert_eq!(name_at(&HOUR, time).to_string(), "hour-20251125-090705");
    }

    #[test]
    fn each_period_has_one_and_so_many_are_kept() {
        let mut all = vec![volume(vec![HOUR, DAY])];
        let mut time = 20_417 * DAY_NS + HOUR_NS / 2;
        assert_eq!(work(&mut all, &mut time), 2);
        assert_eq!(work(&mut all, &mut time), 0, "all is done");
        for hour in 1..=50 {
            time = 20_417 * DAY_NS + hour * HOUR_NS;
            work(&mut all, &mut time);
            let (op, next) = due(&all, time);
            assert_eq!(op, None);
            assert_eq!(next, Some(20_417 * DAY_NS + (hour + 1) * HOUR_NS));
        }
        let expected = [
            "home@day-20251126-000000",
            "home@hour-20251127-000000",
            "home@day-20251127-000000",
            "home@hour-20251127-010000",
            "home@hour-20251127-020000",
        ];
        assert_eq!(names(&all), expected);
        assert_eq!(all.len(), 1 + expected.len(), "what is over is purged");
        // After three days without a server one of each is made.
        time += 3 * DAY_NS;
        assert_eq!(work(&mut all, &mut time), 2 + 2 + 2);
        assert_eq!(names(&all).len(), 5);
    }

    #[test]
    fn what_people_name_or_delete_is_theirs() {
        let mut all = vec![volume(vec![HOUR])];
        let mut time = 20_417 * DAY_NS;
        work(&mut all, &mut time);
        all[1].name = Name::new(b"home@before-the-move").unwrap();
        for hour in 0..9 {
            time = 20_417 * DAY_NS + hour * HOUR_NS;
            work(&mut all, &mut time);
        }
        assert_eq!(names(&all).len(), 4, "the renamed one, and three");
        // A deleted one can be undone for as long as it would be there.
        let newest = all.len() - 1;
        all[newest].state = VolumeState::Deleted(time);
        assert_eq!(work(&mut all, &mut time), 0, "none is made in its place");
        time += HOUR_NS;
        work(&mut all, &mut time);
        assert_eq!(all.len(), 1 + 1 + 3 + 1);
        for _ in 0..3 {
            time += HOUR_NS;
            work(&mut all, &mut time);
        }
        assert_eq!(all.len(), 1 + 1 + 3);
        let plain = vec![volume(vec![])];
        assert_eq!(due(&plain, time), (None, None));
    }

    #[test]
    fn weeks_begin_on_monday() {
        let rule = ScheduleRule {
            every_s: WEEK_S as u32,
            keep: 1,
        };
        let monday = 20_416 * DAY_NS; // 2025-11-24
        for time in [monday, monday + 5 * DAY_NS, monday + 7 * DAY_NS - 1] {
            assert_eq!(begin(&rule, time), monday);
        }
        assert_eq!(begin(&rule, monday + 7 * DAY_NS), monday + 7 * DAY_NS);
        assert_eq!(begin(&rule, 0), 0);
    }
}
