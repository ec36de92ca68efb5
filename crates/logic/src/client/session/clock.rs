//! The volume's clock, as far as it is known here: writes to the cache are stamped with it, so that
//! files have the times of one clock on whichever machine they were changed, and however wrong the
//! clock of a machine is.
//!
//! Guarantees: it never runs backwards; it is never behind what the server has said, so that a
//! change that a program makes after it has seen somebody else's is not stamped with an earlier
//! time; of the server's clock it is behind by no more than a message takes, and ahead by no more
//! than that, each with what two clocks can part between two answers to `KeepAlive`. A client that
//! is ahead comes back, even if answers with its own times in them never cease.

use wire::Time;

/// The client's knowledge of the volume's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VolumeClock {
    /// It showed this...
    said: Time,
    /// ...when the own clock showed this.
    at: Time,
    /// It has been seen to show this here.
    shown: Time,
    /// The server has answered when nothing had a later time than this.
    least: Time,
}

impl VolumeClock {
    /// The time that it shows: each time a later one.
    pub(crate) fn shows(&mut self, now: Time) -> Time {
        let newest = self.shown.max(self.least);
        self.shown = self.reckon(now).max(newest.saturating_add(1));
        self.shown
    }

    /// The same, and later than this, which something has been stamped with: the server's clock may
    /// have been ahead of itself then, for a client whose clock is.
    pub(crate) fn shows_after(&mut self, now: Time, stamped: Time) -> Time {
        self.shown = self.shown.max(stamped);
        self.shows(now)
    }

    /// The time that it showed last, if anybody has looked at it.
    pub(crate) fn last_shown(&self) -> Time {
        self.shown
    }

    /// The same for a look at it that stamps nothing.
    pub(crate) fn about(&self, now: Time) -> Time {
        self.reckon(now)
    }

    fn reckon(&self, now: Time) -> Time {
        self.said.saturating_add(now.saturating_sub(self.at))
    }

    /// The server has answered when nothing had a later time: nothing gets an earlier one now. It
    /// may be a time of this client's, so it says nothing of how late it is.
    pub(crate) fn not_before(&mut self, said: Time) {
        self.least = self.least.max(said);
    }

    /// The server may have begun anew: a time that it has said before, and did not have on its
    /// disk, is no more.
    pub(crate) fn begin_anew(&mut self) {
        self.least = 0;
    }

    /// The server has said what its own clock shows: it shows that at least.
    fn hear(&mut self, now: Time, said: Time) {
        if said > self.reckon(now) {
            (self.said, self.at) = (said, now);
        }
    }

    /// The same in answer to a message sent then: the clock cannot show more than `said` and the
    /// time that has passed since.
    pub(crate) fn hear_within(&mut self, now: Time, said: Time, sent: Time) {
        self.hear(now, said);
        let most = said.saturating_add(now.saturating_sub(sent));
        if self.reckon(now) > most {
            (self.said, self.at) = (most, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that was set differently, and runs a twentieth too fast or too slow.
    fn of_server(clock: Time, slower: bool) -> Time {
        let gained = clock / 20;
        1_000_000_000 + clock - if slower { gained } else { 0 }
    }

    #[test]
    fn it_is_near_the_servers_and_never_goes_back() {
        for slower in [false, true] {
            let mut clock = VolumeClock::default();
            let mut last = 0;
            for round in 1..1000_u64 {
                let sent = round * 5_000;
                let said = of_server(sent + 30, slower);
                clock.hear_within(sent + 100, said, sent);
                for now in (sent + 100..sent + 5_000).step_by(70) {
                    let (shown, right) = (clock.shows(now), of_server(now, slower));
                    assert!(shown > last, "{round}");
                    assert!(shown.abs_diff(right) <= 400, "{round}: {shown} at {right}");
                    last = shown;
                }
            }
        }
    }

    #[test]
    fn it_is_not_behind_what_was_heard() {
        let mut clock = VolumeClock::default();
        clock.hear(50, 7_000);
        assert_eq!(clock.shows(60), 7_010);
        clock.hear(61, 9_000);
        assert_eq!(clock.shows(61), 9_000);
        clock.hear(62, 100);
        assert_eq!(clock.shows(62), 9_001, "a message that comes late");
        assert_eq!(clock.shows(62), 9_002, "the next one is later");
    }

    #[test]
    fn who_is_ahead_comes_back_while_answers_bring_its_own_times() {
        let mut clock = VolumeClock::default();
        clock.hear(0, 9_000);
        assert_eq!(clock.shows(0), 9_000);
        // The server's clock shows a thousand at that time, but nothing later than the client's.
        for now in (10..8_000).step_by(10) {
            clock.hear_within(now, 1_000 + now, now);
            let shown = clock.shows(now);
            assert!((9_000..10_000).contains(&shown), "{shown} at {now}");
            clock.not_before(shown);
        }
        clock.hear_within(9_500, 10_500, 9_500);
        assert_eq!(clock.shows(9_500), 10_500);
    }

    #[test]
    fn an_answer_says_what_nothing_is_before() {
        let mut clock = VolumeClock::default();
        clock.hear(0, 1_000);
        clock.not_before(5_000);
        assert_eq!(clock.shows(10), 5_001);
        assert_eq!(
            clock.shows(20),
            5_002,
            "it stands until the server's comes up to it"
        );
        clock.not_before(3_000);
        assert_eq!(clock.shows(4_500), 5_500);
        clock.not_before(90_000);
        clock.begin_anew();
        assert_eq!(clock.shows(4_600), 5_600);
    }

    #[test]
    fn what_is_changed_again_is_stamped_later() {
        let mut clock = VolumeClock::default();
        clock.hear(50, 7_000);
        // The server's clock was ahead of itself.
        clock.hear_within(60, 5_000, 55);
        assert_eq!(clock.shows_after(61, 7_000), 7_001);
        assert_eq!(clock.last_shown(), 7_001, "the server is told");
        assert_eq!(clock.shows_after(5_060, 7_000), 10_005);
    }
}
