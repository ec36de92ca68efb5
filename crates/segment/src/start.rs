//! Starts a pager for this program: the program `ariel`, as a process of its own, so that what
//! happens to this program does not happen to the pages of others.

use crate::error::{Error, Result};
use crate::program::Connection;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A pager that was started for this program. It ends by itself when no program uses it any more.
pub struct Started {
    /// A connection to it.
    pub connection: Connection,
    /// Its socket, for other processes.
    pub path: PathBuf,
}

impl Started {
    /// Starts a pager of so many bytes of memory. `at`: `ADDR:DIR`, a directory of a server's
    /// tree; or the path of a local directory.
    ///
    /// # Errors
    /// The program `ariel` is not there, or cannot use the place.
    pub fn new(at: &OsStr, memory: u64) -> Result<Self> {
        let program = std::env::var_os("ARIEL").unwrap_or_else(|| "ariel".into());
        let is_local = at
            .as_bytes()
            .first()
            .is_none_or(|byte| *byte == b'/' || *byte == b'.');
        let mut command = Command::new(program);
        command
            .arg("__pager")
            .arg("--memory")
            .arg(memory.to_string())
            .arg(if is_local { "--local" } else { "--at" })
            .arg(at)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A terminal's signals are for this program: the pager ends when it is used no more.
            .process_group(0);
        let failed = |error: std::io::Error| Error::Start(error.to_string());
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        let output = child.stdout.take().expect("its output is a pipe");
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(failed)?;
        let path = PathBuf::from(line.trim_end());
        if line.is_empty() {
            let mut why = String::new();
            let mut errors = child.stderr.take().expect("its errors are a pipe");
            errors.read_to_string(&mut why).map_err(failed)?;
            child.wait().map_err(failed)?;
            return Err(Error::Start(why.trim().to_owned()));
        }
        let connection = Connection::new(&path)?;
        // From here on the connection alone keeps it: its input is closed. It is waited for, so
        // that no zombie stays while this program goes on.
        drop(child.stdin.take());
        let builder = std::thread::Builder::new().name("pager's end".to_owned());
        builder.spawn(move || child.wait()).map_err(failed)?;
        Ok(Self { connection, path })
    }
}
