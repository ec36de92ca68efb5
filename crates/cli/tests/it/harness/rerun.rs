//! Tests that are run once more, in a process of their own, with all mounts started another way.

use super::process::text;
use super::starts::start;
use super::{OF_ALL_MOUNTS, say};
use std::process::{Command, Stdio};

/// The tests of what programs may rely on, on one machine and on several: for the long form.
pub const EXACT: [&str; 13] = [
    "append::",
    "basics::",
    "basics_more::",
    "contention::",
    "exact::",
    "exact_names::",
    "excl::",
    "killed::",
    "local_disk::",
    "mmap::",
    "posix::",
    "restart::",
    "suites::",
];

/// Which tests, and on which mounts.
pub struct Rerun<'a> {
    /// The variable that passes the option to the tests: see [`OF_ALL_MOUNTS`].
    pub variable: &'static str,
    pub value: &'a str,
    pub tests: &'a [&'a str],
    /// Tests that can't be right on such mounts.
    pub but: &'a [&'a str],
}

impl Rerun<'_> {
    /// All of them pass, and there are at least so many.
    pub fn assert_passes(&self, least: u32) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(self.tests).args(["--test-threads", "2"]);
        for test in self.but {
            command.args(["--skip", test]);
        }
        for (variable, _) in OF_ALL_MOUNTS {
            command.env_remove(variable);
        }
        command
            .env(self.variable, self.value)
            .env_remove("ARIEL_LONG")
            .stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = start(&mut command).unwrap().wait_with_output().unwrap();
        let (how, said) = (format!("{}={}", self.variable, self.value), text(&output));
        assert!(output.status.success(), "{how}:\n{said}");
        let passed = passed(&said);
        assert!(passed >= least, "{passed} tests passed, {how}:\n{said}");
        say(&format!("{how}: {passed} tests passed"));
    }
}

/// How many tests passed, as the runner of tests says it.
fn passed(said: &str) -> u32 {
    let words = said.lines().find(|line| line.starts_with("test result:"));
    let number = words.and_then(|line| line.split_whitespace().nth(3));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
