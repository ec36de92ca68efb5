//! Follows a plan: makes its moves one after the other.
//!
//! Guarantees: a move that is not made ends nothing but the moves that count on it, and each move
//! of the plan is either made or told of with the reason.

use super::plan::Step;
use std::fmt;

/// Why a move was not made.
#[derive(Debug, PartialEq)]
enum Why {
    Failed(String),
    /// It counts on this volume's move, which was not made.
    Without(String),
}

/// A move that was not made.
#[derive(Debug, PartialEq)]
pub(super) struct NotMade<'s> {
    pub(super) step: &'s Step,
    why: Why,
}

impl fmt::Display for NotMade<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { volume, to, .. } = self.step;
        match &self.why {
            Why::Failed(why) => write!(f, "the move of {volume} to {to} was not made: {why}"),
            Why::Without(other) => write!(
                f,
                "the move of {volume} to {to} was not begun: it counts on that of {other}"
            ),
        }
    }
}

/// Was a move planned because another one comes before it? That one was to make room on its target,
/// or to bring its source the work that it takes away.
fn counts_on(step: &Step, before: &Step) -> bool {
    step.to == before.from || step.from == before.to
}

/// Makes the moves of a plan. `make` makes one, or says why it cannot; `tell` is told at once of a
/// move that is not made. Those that were not made.
///
/// # Errors
/// What `make` cannot go on after.
pub(super) fn follow<'s, E>(
    steps: &'s [Step],
    mut make: impl FnMut(&Step) -> Result<Result<(), String>, E>,
    mut tell: impl FnMut(&NotMade<'s>),
) -> Result<Vec<NotMade<'s>>, E> {
    let mut not_made: Vec<NotMade<'s>> = Vec::new();
    for step in steps {
        let missing = not_made.iter().find(|one| counts_on(step, one.step));
        let why = match missing {
            Some(missing) => Why::Without(missing.step.volume.clone()),
            None => match make(step)? {
                Ok(()) => continue,
                Err(why) => Why::Failed(why),
            },
        };
        let one = NotMade { step, why };
        tell(&one);
        not_made.push(one);
    }
    Ok(not_made)
}

/// The moves of a plan that were made, and those that were not, for people.
pub(super) fn summary(steps: &[Step], not_made: &[NotMade<'_>]) -> String {
    let list = |made: bool| {
        let is_made = |step: &&Step| !not_made.iter().any(|one| one.step == *step);
        let steps = steps.iter().filter(|step| is_made(step) == made);
        let names: Vec<String> = steps
            .map(|Step { volume, to, .. }| format!("{volume} to {to}"))
            .collect();
        match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        }
    };
    format!(
        "moves that were made: {}\nmoves that were not: {}\n",
        list(true),
        list(false)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::convert::Infallible;

    fn step(volume: &str, from: &str, to: &str) -> Step {
        Step {
            volume: volume.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            bytes: 0,
            work: (0.0, 0.0),
        }
    }

    /// Which moves are tried, and what is told at the end, where these volumes do not move.
    fn tried(steps: &[Step], refused: &[&str]) -> (Vec<String>, Vec<String>, String) {
        let (tried, told) = (RefCell::default(), RefCell::new(Vec::new()));
        let make = |step: &Step| -> Result<_, Infallible> {
            let mut tried: std::cell::RefMut<'_, Vec<String>> = tried.borrow_mut();
            tried.push(step.volume.clone());
            let is_refused = refused.contains(&step.volume.as_str());
            Ok(if is_refused { Err("no".into()) } else { Ok(()) })
        };
        let tell = |one: &NotMade<'_>| told.borrow_mut().push(one.to_string());
        let not_made = follow(steps, make, tell).unwrap();
        let summary = summary(steps, &not_made);
        drop(not_made);
        (tried.into_inner(), told.into_inner(), summary)
    }

    #[test]
    fn moves_go_on_behind_one_that_is_refused() {
        let steps = [
            step("a", "one", "two"),
            step("b", "one", "three"),
            step("c", "one", "two"),
        ];
        let (tried, told, summary) = tried(&steps, &["a"]);
        assert_eq!(tried, ["a", "b", "c"]);
        assert_eq!(told, ["the move of a to two was not made: no"]);
        assert_eq!(
            summary,
            "moves that were made: b to three, c to two\nmoves that were not: a to two\n"
        );
    }

    #[test]
    fn a_move_that_counts_on_one_that_was_not_made_is_not_begun() {
        let steps = [
            step("a", "one", "two"),
            // Into the room that the first one was to make.
            step("b", "three", "one"),
            // From where the first one was to bring work.
            step("c", "two", "four"),
            // Into the room of one that was not begun.
            step("d", "five", "three"),
            step("e", "six", "seven"),
        ];
        let (tried, told, summary) = tried(&steps, &["a"]);
        assert_eq!(tried, ["a", "e"]);
        assert_eq!(
            told,
            [
                "the move of a to two was not made: no",
                "the move of b to one was not begun: it counts on that of a",
                "the move of c to four was not begun: it counts on that of a",
                "the move of d to three was not begun: it counts on that of b",
            ]
        );
        assert!(summary.starts_with("moves that were made: e to seven\n"));
    }
}
