//! A program that locks what it is told to, on whichever mount: `locker.py`.

use crate::harness::cell::Cell;
use crate::harness::process::{Proc, system_python};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The longest that an answer may take where none is late on purpose.
const LIMIT: Duration = Duration::from_secs(60);

/// The outcome of a command, and its time, by a clock that all processes of this machine share.
#[derive(Clone, Debug)]
pub struct Said {
    pub what: String,
    pub at_ns: u64,
}

/// The program. It does one thing after the other, but for what threads do.
pub struct Locker {
    process: Proc,
    answers: Receiver<Said>,
}

impl Locker {
    pub fn start(cell: &Cell, dir: &Path) -> Self {
        let mut command = Command::new(system_python());
        command.args(["-c", include_str!("locker.py")]);
        command.current_dir(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
        let out = process.child().stdout.take().unwrap();
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let (what, at) = line.split_once(' ').unwrap();
                let what = what.to_owned();
                let at_ns = at.parse().unwrap();
                // Nobody listens any more when the test has failed.
                let _ = send.send(Said { what, at_ns });
            }
        });
        Self { process, answers }
    }

    /// Tells it to do something.
    pub fn tell(&mut self, command: &str) {
        let input = self.process.child().stdin.as_mut().unwrap();
        writeln!(input, "{command}").unwrap();
    }

    /// The outcome of the oldest command not asked about yet; `None`: none came within this time.
    pub fn hear_within(&self, limit: Duration) -> Option<Said> {
        self.answers.recv_timeout(limit).ok()
    }

    pub fn hear(&self) -> Said {
        let said = self.hear_within(LIMIT);
        said.expect("a call of a program that locks does not return")
    }

    /// Does it and says what came of it.
    pub fn ask(&mut self, command: &str) -> Said {
        self.tell(command);
        self.hear()
    }

    /// Does something that must succeed.
    pub fn done(&mut self, command: &str) -> Said {
        let said = self.ask(command);
        assert_eq!(said.what, "ok", "{command}");
        said
    }

    /// Does something that must fail with this error.
    pub fn fails(&mut self, command: &str, error: &str) {
        assert_eq!(self.ask(command).what, error, "{command}");
    }

    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// Its input ends, and so does it, with all that it has.
    pub fn end(&mut self) {
        drop(self.process.child().stdin.take());
        assert!(
            self.process.wait(LIMIT).is_some(),
            "a program hangs at its end"
        );
    }
}
