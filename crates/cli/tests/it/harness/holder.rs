//! A program that has files of a mount open while the test stops the mount's daemon: `holder.py`.
//!
//! The test's own process must not: each process that any test starts has its descriptors until it
//! runs its own program, and closes them then. For one that is open for writing Linux asks the
//! daemon, so all of them would wait until that one goes on.

use super::process::{Proc, system_python};
use super::watchdog::WatchId;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

/// The program. It ends with its input.
pub struct Holder {
    process: Proc,
    out: BufReader<ChildStdout>,
}

impl Holder {
    /// Its files are below this directory.
    pub fn start(dir: &Path, watch: WatchId) -> Self {
        let mut command = Command::new(system_python());
        command.args(["-c", include_str!("holder.py")]);
        command.current_dir(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Proc::spawn(&mut command, Some(watch)).unwrap();
        let out = BufReader::new(process.child().stdout.take().unwrap());
        Self { process, out }
    }

    fn ask(&mut self, line: &str) -> String {
        let input = self.process.child().stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        let mut said = String::new();
        self.out.read_line(&mut said).unwrap();
        assert!(said.ends_with('\n'), "the program ended at {line:?}");
        said.trim_end_matches('\n').to_owned()
    }

    fn must(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line}");
    }

    /// Opens a file for reading and writing, under a name, and writes this to it.
    pub fn write(&mut self, (name, path): (&str, &str), text: &str) {
        self.must(&format!("open {name} rw {path}"));
        self.must(&format!("write {name} {text}"));
    }

    /// Opens a file for reading, under a name.
    pub fn look(&mut self, (name, path): (&str, &str)) {
        self.must(&format!("open {name} r {path}"));
    }

    /// The file's content: one line.
    pub fn content(&mut self, name: &str) -> String {
        self.ask(&format!("read {name}"))
    }

    /// fsync(2): the number of the error, if there is one.
    pub fn sync(&mut self, name: &str) -> Option<i32> {
        let said = self.ask(&format!("sync {name}"));
        (said != "ok").then(|| said.parse().unwrap())
    }
}
