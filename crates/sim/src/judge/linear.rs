//! Is there an order in which these calls could have happened one at a time?
//!
//! Exact, for one value that a number describes. Calls are taken up in the order of their
//! beginnings and ends; at each end, every order of the calls open then is tried in which the
//! ending call has its turn (Lowe, "Testing for linearizability": just-in-time linearization).
//! The work of the open calls so far is a set of pairs: the value, and which of the open calls
//! had their turn. Calls that only look are given their turn as soon as they fit, since that takes
//! nothing away. Of two pairs with the same value that differ only in calls that never ended, the
//! one in which fewer of those had their turn can become all that the other one can: it is kept.
//! And of calls that never ended and do the same, the one that began first has its turn first.

use std::collections::BTreeSet;
use std::rc::Rc;

/// A call's change of the value, or its demand. The value 0 is "nothing there".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It becomes this.
    Put(u64),
    /// There was nothing; now there is this.
    Make(u64),
    /// There was this; now there is nothing.
    TakeThis(u64),
    /// It becomes at least this.
    Raise(u64),
    /// It may become one of these.
    Maybe(Rc<Vec<u64>>),
    /// It is this.
    See(u64),
    /// There is something.
    SeeAny,
    /// It is at least this.
    AtLeast(u64),
    /// It is at most this.
    AtMost(u64),
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) begin: u64,
    /// `u64::MAX`: it never ended, and may have had its turn or not.
    pub(crate) end: u64,
    pub(crate) act: Act,
    pub(crate) host: u32,
}

impl Act {
    /// The value afterwards; `None` if it could not have its turn now.
    fn turn(&self, value: u64) -> Option<u64> {
        match *self {
            Self::Put(new) => Some(new),
            Self::Make(new) => (value == 0).then_some(new),
            Self::TakeThis(this) => (value == this).then_some(0),
            Self::Raise(least) => Some(value.max(least)),
            Self::Maybe(_) => Some(value),
            Self::See(this) => (value == this).then_some(value),
            Self::SeeAny => (value != 0).then_some(value),
            Self::AtLeast(least) => (value >= least).then_some(value),
            Self::AtMost(most) => (value <= most).then_some(value),
        }
    }

    fn looks(&self) -> bool {
        matches!(
            self,
            Self::See(_) | Self::SeeAny | Self::AtLeast(_) | Self::AtMost(_)
        )
    }

    fn turns(&self, value: u64) -> impl Iterator<Item = u64> + '_ {
        let (many, one) = match self {
            Self::Maybe(values) => (values.as_slice(), None),
            act => (&[][..], act.turn(value)),
        };
        many.iter().copied().chain(one)
    }
}

/// The value, and which of the open calls have had their turn.
type State = (u64, u64);

/// More states than a value has whose calls can be judged in reasonable time.
const STATES: usize = 20_000;
/// More turns than are tried for one value: about half a second.
const TRIES: usize = 3_000_000;

/// A call that is open now.
#[derive(Clone, Copy)]
struct Open {
    /// Its bit in a state.
    bit: u64,
    index: usize,
    /// The bit of the one before that does the same, if neither ever ends.
    after: u64,
}

struct Search<'a> {
    turns: &'a [Turn],
    /// The calls open now, in the order of their beginnings.
    open: Vec<Open>,
    /// The bits of those that never end.
    endless: u64,
    /// Each once.
    states: Vec<State>,
    work: Vec<State>,
    tries: usize,
}

/// The judgement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is an order.
    Fine,
    /// There is none in which this call (by its index) has its turn.
    Impossible(usize),
    /// Too many calls were open at once: nothing was found, and not everything was tried.
    Unknown,
}

/// Judges calls on one value.
pub(crate) fn judge(start: u64, turns: &[Turn]) -> Verdict {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * turns.len());
    for (index, turn) in turns.iter().enumerate() {
        events.push((turn.begin, false, index));
        if turn.end != u64::MAX {
            events.push((turn.end, true, index));
        }
    }
    events.sort_unstable();
    let mut search = Search {
        turns,
        open: Vec::new(),
        endless: 0,
        states: vec![(start, 0)],
        work: Vec::new(),
        tries: 0,
    };
    for (_, ends, index) in events {
        if !ends {
            if !search.begin(index) {
                return Verdict::Unknown;
            }
        } else {
            search.end(index);
        }
        match search.states.len() {
            0 => return Verdict::Impossible(index),
            1..=STATES if search.tries <= TRIES => {}
            _ => return Verdict::Unknown,
        }
    }
    Verdict::Fine
}

impl Search<'_> {
    /// The call may have its turn from now on; false if there is no bit for it.
    fn begin(&mut self, index: usize) -> bool {
        let taken = self.open.iter().fold(0, |taken, open| taken | open.bit);
        if taken == u64::MAX {
            return false;
        }
        let bit = 1 << (!taken).trailing_zeros();
        let mut after = 0;
        if self.turns[index].end == u64::MAX {
            let twin = |open: &&Open| {
                open.bit & self.endless != 0 && self.turns[open.index].act == self.turns[index].act
            };
            after = self.open.iter().rfind(twin).map_or(0, |twin| twin.bit);
            self.endless |= bit;
        }
        self.open.push(Open { bit, index, after });
        true
    }

    /// The call must have had its turn by now. Ends with too many states where there are too many.
    fn end(&mut self, index: usize) {
        let at = self.open.iter().position(|open| open.index == index);
        let at = at.expect("it began before it ended");
        if self.open.len() == 1 {
            self.open.clear();
            return self.end_alone(index);
        }
        let bit = self.open[at].bit;
        self.work.clone_from(&self.states);
        let mut met: BTreeSet<State> = self.states.drain(..).collect();
        while let Some(state) = self.work.pop() {
            if met.len() > 10 * STATES || self.tries > TRIES {
                self.states.extend(met);
                return;
            }
            let state = self.look(state);
            if state.1 & bit != 0 {
                self.states.push((state.0, state.1 & !bit));
                continue;
            }
            for &Open { bit, index, after } in &self.open {
                let act = &self.turns[index].act;
                if state.1 & bit != 0 || state.1 & after != after || act.looks() {
                    continue;
                }
                for value in act.turns(state.0) {
                    self.tries += 1;
                    let next = (value, state.1 | bit);
                    let idle = bit & self.endless != 0 && met.contains(&(value, state.1));
                    if !idle && met.insert(next) {
                        self.work.push(next);
                    }
                }
            }
        }
        self.open.remove(at);
        self.settle();
    }

    /// The same, where no other call is open: most calls end so.
    fn end_alone(&mut self, index: usize) {
        let act = &self.turns[index].act;
        for (value, had) in std::mem::take(&mut self.states) {
            if had != 0 {
                self.states.push((value, 0));
            } else {
                let turns = act.turns(value);
                self.states.extend(turns.map(|value| (value, 0)));
            }
        }
        self.settle();
    }

    /// Leaves each state once, and none of which another one can become the same.
    fn settle(&mut self) {
        let endless = self.endless;
        let key = |state: &State| (state.0, state.1 & !endless, state.1.count_ones(), state.1);
        self.states.sort_unstable_by_key(key);
        self.states.dedup();
        if endless == 0 || self.states.len() > STATES {
            return;
        }
        let mut kept: Vec<State> = Vec::with_capacity(self.states.len());
        for &state in &self.states {
            let alike = |other: &&State| key(other).0 == state.0 && key(other).1 == key(&state).1;
            let mut smaller = kept.iter().rev().take_while(alike);
            if !smaller.any(|other| other.1 & !state.1 == 0) {
                kept.push(state);
            }
        }
        self.states = kept;
    }

    /// Those that only look have their turn where they fit.
    fn look(&self, (value, mut had): State) -> State {
        for &Open { bit, index, .. } in &self.open {
            let act = &self.turns[index].act;
            if act.looks() && act.turn(value).is_some() {
                had |= bit;
            }
        }
        (value, had)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(begin: u64, end: u64, act: Act) -> Turn {
        Turn {
            begin,
            end,
            act,
            host: 0,
        }
    }

    #[test]
    fn a_read_returns_the_last_write_or_one_under_way() {
        let write = |begin, end, value| turn(begin, end, Act::Put(value));
        let read = |begin, end, value| turn(begin, end, Act::See(value));
        let fine = [write(1, 4, 7), read(2, 3, 0), read(5, 6, 7)];
        assert_eq!(judge(0, &fine), Verdict::Fine);
        let early = [write(1, 4, 7), read(2, 3, 7), read(5, 6, 7)];
        assert_eq!(judge(0, &early), Verdict::Fine);
        let stale = [write(1, 2, 7), read(3, 4, 0)];
        assert_eq!(judge(0, &stale), Verdict::Impossible(1));
    }

    #[test]
    fn nobody_goes_back_in_time() {
        let turns = [
            turn(1, 10, Act::Put(7)),
            turn(2, 3, Act::See(7)),
            turn(4, 5, Act::See(0)),
        ];
        assert_eq!(judge(0, &turns), Verdict::Impossible(2));
    }

    #[test]
    fn two_exclusive_makers_cannot_both_win() {
        let turns = [turn(1, 4, Act::Make(7)), turn(2, 3, Act::Make(8))];
        assert!(matches!(judge(0, &turns), Verdict::Impossible(_)));
    }

    #[test]
    fn what_never_ended_may_have_happened_or_not() {
        let open = turn(1, u64::MAX, Act::Put(7));
        let after = |value| turn(5, 6, Act::See(value));
        assert_eq!(judge(0, &[open.clone(), after(0)]), Verdict::Fine);
        assert_eq!(judge(0, &[open.clone(), after(7)]), Verdict::Fine);
        assert_eq!(
            judge(0, &[open, after(7), turn(7, 8, Act::See(0))]),
            Verdict::Impossible(2)
        );
    }

    #[test]
    fn of_many_that_never_ended_and_do_the_same_their_number_counts() {
        let values = Rc::new((0..40).collect::<Vec<u64>>());
        let mut turns: Vec<Turn> = (1..=40)
            .map(|n| turn(n, u64::MAX, Act::Maybe(Rc::clone(&values))))
            .collect();
        let see = |at, value| turn(at, at + 1, Act::See(value));
        turns.extend((1..=40).map(|n| see(100 + 2 * n, n % 3 + 1)));
        assert_eq!(judge(0, &turns), Verdict::Fine);
        turns.push(see(200, 7));
        assert_eq!(judge(0, &turns), Verdict::Impossible(80));
    }

    #[test]
    fn many_that_never_ended_are_still_judged() {
        let mut turns: Vec<Turn> = (1..=12)
            .map(|value| turn(value, u64::MAX, Act::Put(value)))
            .collect();
        let see = |at, value| turn(at, at + 1, Act::See(value));
        turns.extend((1..=6).map(|value| see(100 + 2 * value, value)));
        assert_eq!(judge(0, &turns), Verdict::Fine);
        // Each had one turn at most: nobody sees a value again after another one.
        turns.push(see(200, 3));
        assert_eq!(judge(0, &turns), Verdict::Impossible(18));
    }
}
