//! The volume's clock, as far as it is known here: what is written to the cache is stamped with it,
//! so that files have the times of one clock on whichever machine they were changed, and however
//! wrong the clock of a machine is.
//!
//! Guarantees: it never runs backwards; it is never behind what the server has said, so that what a
//! program changes after it has seen somebody else's change is not stamped with an earlier time; of
//! the server's clock it is behind by no more than a message takes, and ahead by no more than two
//! clocks can part between two answers to `KeepAlive`.

use wire::Time;

/// What is known of the volume's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VolumeClock {
    /// It showed this...
    said: Time,
    /// ...when the own clock showed this.
    at: Time,
    /// It has been seen to show this here.
    shown: Time,
}

impl VolumeClock {
    /// What it shows: each time something later.
    pub(super) fn shows(&mut self, now: Time) -> Time {
        self.shown = self.reckon(now).max(self.shown.saturating_add(1));
        self.shown
    }

    /// The same, and later than this, which something has been stamped with: the server's clock may
    /// have been ahead of itself then, for a client whose clock is.
    pub(super) fn shows_after(&mut self, now: Time, stamped: Time) -> Time {
        self.shown = self.shown.max(stamped);
        self.shows(now)
    }

    /// What it showed last, if anybody has looked at it.
    pub(super) fn last_shown(&self) -> Time {
        self.shown
    }

    fn reckon(&self, now: Time) -> Time {
        self.said.saturating_add(now.saturating_sub(self.at))
    }

    /// The server has said what it shows: it shows that at least.
    pub(super) fn hear(&mut self, now: Time, said: Time) {
        if said > self.reckon(now) {
            (self.said, self.at) = (said, now);
        }
    }

    /// The same in answer to what was sent then: it cannot show more than that and what has passed
    /// since.
    pub(super) fn hear_within(&mut self, now: Time, said: Time, sent: Time) {
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
