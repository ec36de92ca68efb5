//! The volume's clock, which stamps every change.
//!
//! Guarantees: it never runs backwards, over restarts neither; it is never behind a time that a
//! client has shown its programs (and that the server has been told of), so that no later change is
//! stamped with an earlier one; no two changes that the server makes are stamped alike (a stamp
//! that a client chooses may be that of a change of something else, too). It goes by the wall clock
//! of the server's machine. If that is set back, it runs a sixteenth slower until both agree again;
//! if it is set forward, it follows at once.
//!
//! A later run knows the times of all changes, from the disk. If a time was shown beside that is
//! much later, since the wall clock was set forward, or clients stamp what they have not sent yet,
//! the disk is told of that too: else a wall clock that is set back while the server is down would
//! put the volume's clock behind it.

use super::{Server, Step};
use wire::Time;

/// A client's clock may have run ahead of the server's by this much since it was last told: about
/// twice what two clocks part in a lease, each of which is off by a twentieth.
const CLIENT_AHEAD_NS: Time = 4_000_000_000;

/// Changes that a power failure has undone were made at most so long after the last one that is
/// left.
const REPLAY_LATER_NS: Time = 60_000_000_000;

/// Times that are later than what the disk knows by more than this are noted there: with what
/// clients have shown and not told they are still less ahead than is believed.
const NOTED_AHEAD_NS: Time = 1_000_000_000;

/// The volume's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeClock {
    /// It showed this...
    shown: Time,
    /// ...when the machine's steady clock showed this.
    at: Time,
    /// The next stamp is this at least: a client has shown the time right before it, or a change
    /// was stamped so.
    next: Time,
    /// A later run is to know that this was shown.
    latest: Time,
}

impl VolumeClock {
    /// `newest`: the latest time that it has shown in earlier runs.
    pub(crate) fn new(now: Time, newest: Time) -> Self {
        Self {
            shown: newest,
            at: now,
            next: 0,
            latest: newest,
        }
    }

    /// The time that the disk, which has noted `known`, must note before anybody is told a later
    /// one.
    fn late(&self, known: Time) -> Option<Time> {
        (self.latest > known.saturating_add(NOTED_AHEAD_NS)).then_some(self.latest)
    }

    /// The time that clients are told: nothing has a later one.
    pub(crate) fn shows(&mut self, now: Time, wall: Time) -> Time {
        self.goes(now, wall).max(self.next.saturating_sub(1))
    }

    /// The stamp of a change: later than everything before it. While a client's clock is ahead of
    /// this one, it is only just later.
    pub(crate) fn stamps(&mut self, now: Time, wall: Time) -> Time {
        let stamp = self.goes(now, wall).max(self.next);
        self.next = stamp.saturating_add(1);
        stamp
    }

    /// The time that it shows by itself, whatever clients have shown. By this they put their clocks
    /// right: else none that is ahead would ever come back.
    pub(crate) fn goes(&mut self, now: Time, wall: Time) -> Time {
        let passed = now.saturating_sub(self.at);
        let own = self.shown.saturating_add(passed - passed / 16);
        if wall > self.shown.saturating_add(passed + NOTED_AHEAD_NS) {
            self.latest = self.latest.max(wall); // it was set forward
        }
        (self.shown, self.at) = (own.max(wall), self.at.max(now));
        self.shown
    }

    /// A client has shown this time: from now on it shows a later one. An impossible time is not
    /// believed at all, or a client that lies would put the clock as far ahead as is believed.
    pub(crate) fn hear(&mut self, now: Time, wall: Time, shown: Time) {
        self.hear_within(now, wall, (shown, CLIENT_AHEAD_NS));
    }

    /// A change was made at this time, and is made again.
    pub(crate) fn hear_again(&mut self, now: Time, wall: Time, at: Time) {
        self.hear_within(now, wall, (at, REPLAY_LATER_NS));
    }

    fn hear_within(&mut self, now: Time, wall: Time, (shown, ahead_ns): (Time, Time)) {
        let own = self.goes(now, wall);
        if shown <= own.saturating_add(ahead_ns) {
            self.next = self.next.max(shown.saturating_add(1));
            self.latest = self.latest.max(shown);
        }
    }
}

impl Server {
    /// The time that the volume's clock shows by itself: by this clients put theirs right.
    pub(crate) fn own_time(&mut self, step: &mut Step<'_>) -> Time {
        let time = self.clock.goes(step.now, step.disk.wall());
        self.note_time(step);
        time
    }

    /// A client has shown its programs this time, by what it knows of the volume's clock.
    pub(crate) fn hear_time(&mut self, step: &mut Step<'_>, shown: Time) {
        self.clock.hear(step.now, step.disk.wall(), shown);
        self.note_time(step);
    }

    /// A change that is made again was made at this time.
    pub(crate) fn hear_time_again(&mut self, step: &mut Step<'_>, at: Time) {
        self.clock.hear_again(step.now, step.disk.wall(), at);
    }

    /// The time that the volume's clock shows.
    pub(crate) fn time(&mut self, step: &mut Step<'_>) -> Time {
        let time = self.clock.shows(step.now, step.disk.wall());
        self.note_time(step);
        time
    }

    /// The stamp of a change that is made now.
    pub(crate) fn stamp(&mut self, step: &mut Step<'_>) -> Time {
        let stamp = self.clock.stamps(step.now, step.disk.wall());
        self.note_time(step);
        stamp
    }

    fn note_time(&mut self, step: &mut Step<'_>) {
        if let Some(shown) = self.clock.late(step.disk.newest()) {
            step.disk.note_time(shown);
            // So that it is known after a power failure too.
            step.disk.make_firm();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = 1_000_000_000;
    const HOUR: Time = 3600 * SECOND;

    #[test]
    fn it_never_goes_back_and_comes_to_agree_with_the_wall() {
        let mut clock = VolumeClock::new(0, 500 * HOUR);
        let mut last = 500 * HOUR;
        // Set back by an hour at the start, forward by ten after a while, and back by one.
        for second in 0..200_000 {
            let now = second * SECOND;
            let wall = 499 * HOUR + now;
            let wall = if second > 100_000 {
                wall + 10 * HOUR
            } else {
                wall
            };
            let wall = if second > 110_000 { wall - HOUR } else { wall };
            let shown = clock.shows(now, wall);
            assert!(shown >= last && shown >= wall, "{second}");
            last = shown;
            let agree = (60_000..=110_000).contains(&second) || second > 180_000;
            assert!(!agree || shown == wall, "{second}: {shown} by {wall}");
        }
    }

    #[test]
    fn it_is_not_behind_what_was_shown_and_believes_no_nonsense() {
        let mut clock = VolumeClock::new(0, 0);
        clock.hear(1, HOUR, HOUR + 7);
        assert_eq!(clock.shows(2, HOUR + 1), HOUR + 7);
        for lie in [u64::MAX, 2 * HOUR, HOUR + 3 + CLIENT_AHEAD_NS] {
            clock.hear(3, HOUR + 2, lie);
            assert_eq!(clock.shows(3, HOUR + 2), HOUR + 7);
        }
        clock.hear(3, HOUR + 2, HOUR + 2 + CLIENT_AHEAD_NS);
        assert_eq!(clock.stamps(3, HOUR + 2), HOUR + 3 + CLIENT_AHEAD_NS);
    }

    #[test]
    fn what_the_disk_cannot_know_is_noted() {
        let mut clock = VolumeClock::new(0, HOUR);
        clock.goes(SECOND, HOUR + SECOND);
        assert_eq!(clock.late(HOUR), None, "it went on");
        clock.goes(2 * SECOND, 2 * HOUR);
        assert_eq!(clock.late(HOUR), Some(2 * HOUR));
        let known = 2 * HOUR;
        clock.goes(60 * SECOND, known + 58 * SECOND);
        assert_eq!(clock.late(known), None, "nobody stamps anything");
        clock.hear(61 * SECOND, known + 59 * SECOND, known + 58 * SECOND);
        assert_eq!(clock.late(known), Some(known + 58 * SECOND));
        let changed = known + 57 * SECOND;
        assert_eq!(clock.late(changed), None, "a change says so");
        clock.hear(61 * SECOND, known + 59 * SECOND, known + 59 * SECOND);
        assert_eq!(clock.late(known + 58 * SECOND), None, "that is soon enough");
        clock.hear(62 * SECOND, HOUR, u64::MAX);
        assert_eq!(clock.late(known + 58 * SECOND), None, "nobody believes it");
    }

    #[test]
    fn no_two_changes_have_one_time_and_who_is_ahead_is_told() {
        let mut clock = VolumeClock::new(0, 0);
        clock.hear(0, HOUR, HOUR + SECOND);
        for change in 1..100 {
            // As much as a client is ahead, the clock seems to stand: but not to the nanosecond.
            assert_eq!(clock.stamps(change, HOUR + change), HOUR + SECOND + change);
            assert_eq!(clock.shows(change, HOUR + change), HOUR + SECOND + change);
            assert_eq!(clock.goes(change, HOUR + change), HOUR + change);
        }
        let later = HOUR + 2 * SECOND;
        assert_eq!(clock.stamps(2 * SECOND, later), later);
        assert_eq!(clock.stamps(2 * SECOND, later), later + 1);
    }
}
