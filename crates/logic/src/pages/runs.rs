//! Pages in a row: what is said of each is said once, so that it is one call of the kernel.

use super::{Output, PageNo, Run};
use alloc::vec::Vec;

/// Collects pages in ascending order into runs.
#[derive(Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    pub(super) fn add(&mut self, page: PageNo) {
        match self.0.last_mut() {
            Some(run) if run.end() == page => run.count += 1,
            _ => self.0.push(Run::one(page)),
        }
    }

    pub(super) fn into_vec(self) -> Vec<Run> {
        self.0
    }
}

/// Appends an output. If the last one says the same of the pages just before, it is made longer
/// instead.
pub(super) fn join(outputs: &mut Vec<Output>, next: Output) {
    let is_joined = outputs.last_mut().is_some_and(|last| extend(last, next));
    if !is_joined {
        outputs.push(next);
    }
}

fn extend(last: &mut Output, next: Output) -> bool {
    let (run, more) = match (last, next) {
        (
            Output::Drop { segment, run },
            Output::Drop {
                segment: of,
                run: more,
            },
        )
        | (
            Output::Unprotect { segment, run },
            Output::Unprotect {
                segment: of,
                run: more,
            },
        ) if *segment == of => (run, more),
        (
            Output::Copy { from, to, run },
            Output::Copy {
                from: its_from,
                to: its_to,
                run: more,
            },
        ) if (*from, *to) == (its_from, its_to) => (run, more),
        _ => return false,
    };
    let follows = run.end() == more.page;
    if follows {
        run.count += more.count;
    }
    follows
}
