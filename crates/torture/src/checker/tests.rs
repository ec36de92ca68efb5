//! The search against one that leaves nothing out.

use super::*;
use crate::history::{Moved, Run};
use crate::model::oracle;
use crate::random::Random;

const KINDS: [Object; 4] = [
    Object::Register { file: 0, slot: 0 },
    Object::Size { file: 0 },
    Object::Log { round: 0, file: 0 },
    Object::Names { group: 0 },
];

/// Tries every order: whatever has not ended before another begins may be next.
fn explained(state: &State, left: &[Operation], oracle: &[u64]) -> bool {
    if left.iter().all(|one| !one.known) {
        return true;
    }
    let ends = left.iter().filter(|one| one.known).map(|one| one.end_ns);
    let first_end_ns = ends.min().unwrap_or(u64::MAX);
    left.iter().enumerate().any(|(index, next)| {
        let after = step(state, &next.action, oracle).filter(|_| next.begin_ns <= first_end_ns);
        after.is_some_and(|after| {
            let mut left = left.to_vec();
            left.remove(index);
            explained(&after, &left, oracle)
        })
    })
}

fn action(object: Object, value: u64, random: &mut Random) -> Action {
    let seen = random.below(value + 1);
    let (name, to) = (random.below(3) as u8, random.below(3) as u8);
    let done = random.below(3) > 0;
    match (object, random.below(4)) {
        (Object::Register { .. }, 0 | 1) => Action::Write(value),
        (Object::Register { .. }, _) => Action::Read(vec![Run {
            words: 1,
            value: seen,
        }]),
        (Object::Size { .. }, 0) => Action::SetSize(random.below(3)),
        (Object::Size { .. }, 1) => Action::GrowTo(random.below(3)),
        (Object::Size { .. }, _) => Action::Size(random.below(3)),
        (Object::Log { .. }, 0 | 1) => Action::Append(value),
        (Object::Log { .. }, 2) => Action::LogLength(random.below(4)),
        (Object::Log { .. }, _) => Action::ReadLog((1..=random.below(4)).collect()),
        (_, 0) => Action::Create {
            name,
            id: value,
            done,
        },
        (_, 1) => Action::Remove { name, done },
        (_, 2) if name != to && done => Action::Rename {
            from: name,
            to,
            done: random.below(3) > 0,
        },
        (_, 2) if name != to => Action::Move {
            from: name,
            to,
            moved: [Moved::Done, Moved::Missing, Moved::Taken][random.below(3) as usize],
        },
        (_, _) => Action::Look {
            name,
            found: (seen > 0).then_some(seen),
        },
    }
}

fn history(object: Object, random: &mut Random) -> Vec<Operation> {
    let operation = |value: u64, random: &mut Random| {
        let begin_ns = random.below(30);
        let action = action(object, value, random);
        Operation {
            object,
            mount: 0,
            process: 0,
            opened_ns: 0,
            begin_ns,
            end_ns: begin_ns + 1 + random.below(12),
            known: action.observes() || random.below(2) == 0,
            action,
        }
    };
    (1..=3 + random.below(5))
        .map(|value| operation(value, random))
        .collect()
}

#[test]
fn what_is_pruned_changes_no_verdict() {
    let (mut verdicts, mut unknown) = ([[0; 2]; KINDS.len()], 0);
    for seed in 0..60_000 {
        let mut random = Random::of(seed, 5);
        let kind = seed as usize % KINDS.len();
        let history = history(KINDS[kind], &mut random);
        let oracle = oracle(&history);
        let expected = explained(&State::initial(KINDS[kind]), &history, &oracle);
        let found = Checker::new(KINDS[kind]).go_on(&history, &oracle, &mut |_, _| ());
        assert_eq!(found.is_ok(), expected, "seed {seed}: {history:#?}");
        assert_ne!(found, Err(Stop::Undecided), "seed {seed}");
        // In haste it may not know, and is not wrong either.
        let mut hasty = Checker::new(KINDS[kind]);
        hasty.enough = 1;
        match hasty.go_on(&history, &oracle, &mut |_, _| ()) {
            Ok(()) => assert!(expected, "seed {seed}: {history:#?}"),
            Err(Stop::Violation { .. }) => assert!(!expected, "seed {seed}: {history:#?}"),
            Err(Stop::Undecided) => unknown += 1,
        }
        verdicts[kind][usize::from(expected)] += 1;
    }
    assert!(unknown > 0 && unknown < 6000, "{unknown}");
    let both = verdicts.iter().flatten().all(|count| *count > 500);
    assert!(both, "{verdicts:?}");
}
