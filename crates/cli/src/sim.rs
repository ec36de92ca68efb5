//! `ariel sim`: simulated worlds from seeds.

use crate::args::SimArgs;
use crate::failure::{FAILED, Failure};
use std::io::Write;
use std::process::ExitCode;

/// Worlds, where neither a seed nor a count is given.
const DEFAULT_COUNT: u64 = 100;

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    let first = args.seed.unwrap_or(1);
    let count = args.count.unwrap_or(if args.seed.is_some() {
        1
    } else {
        DEFAULT_COUNT
    });
    let mut stdout = std::io::stdout().lock();
    let mut lost = false;
    let failures = sim::run_seeds(first, count, args.trace, &mut |line| {
        // Whoever closes the pipe has seen enough; the exit code still tells.
        lost = lost || writeln!(stdout, "{line}").is_err();
    });
    let last = first.wrapping_add(count - 1);
    if failures == 0 {
        if !lost {
            let _ = writeln!(stdout, "seeds {first} to {last}: all {count} right");
        }
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        FAILED,
        format_args!(
            "sim: {failures} of {count} seeds failed: see above, and replay one with \
             `ariel sim --seed N --trace`"
        ),
    ))
}
