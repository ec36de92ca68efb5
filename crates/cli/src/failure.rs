//! The report of a command that failed: one line with the error and the cure, and the exit code.

use std::fmt;

/// The exit code of a failure.
pub(crate) const FAILED: u8 = 1;
/// The exit code of a wrong command line, and of a check that could not be run.
pub(crate) const NOT_RUN: u8 = 2;

/// A failure.
#[derive(Debug)]
pub(crate) struct Failure {
    /// One line.
    text: String,
    /// Exit code.
    pub(crate) code: u8,
}

impl Failure {
    /// A failure with this text; lines are joined.
    pub(crate) fn new(code: u8, text: impl fmt::Display) -> Failure {
        let text = text.to_string();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Failure {
            text: lines.collect::<Vec<_>>().join(" "),
            code,
        }
    }

    /// The ordinary failure.
    pub(crate) fn of(what: &str, error: impl fmt::Display) -> Failure {
        Failure::new(FAILED, format_args!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(FAILED, format_args!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::of("mount", "first\n\n  second\n");
        assert_eq!(failure.to_string(), "mount: first second");
    }
}
