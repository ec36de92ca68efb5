//! Background processes. The command starts itself again; the second process says one line when it
//! works and lets go of everything of its caller's, and only then the first returns.
//!
//! Guarantees: when the command has succeeded, the daemon works; when it failed, none is there, and
//! the daemon's own words say why.

use crate::failure::{FAILED, Failure};
use crate::service;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Starts this program again with these arguments, and waits for its line.
pub(crate) fn launch(arguments: &[OsString]) -> Result<String, Failure> {
    start(arguments).map(|(line, _)| line)
}

/// The same; the line, and the process, for which a long-lived caller waits one day.
pub(crate) fn start(arguments: &[OsString]) -> Result<(String, Child), Failure> {
    let cannot = |error: std::io::Error| Failure::of("no background process can be started", error);
    let mut child = Command::new(own_program())
        .args(arguments)
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(cannot)?;
    }
    if line.ends_with('\n') {
        return Ok((line.trim_end().to_owned(), child));
    }
    // It ended without a line: it failed.
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).map_err(cannot)?;
    }
    let status = child.wait().map_err(cannot)?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0);
    let said = said.trim().trim_start_matches("ariel: ");
    let said = if said.is_empty() {
        format!("the background process ended without a word ({status})")
    } else {
        said.to_owned()
    };
    Err(Failure::new(code.unwrap_or(FAILED), said))
}

/// This very program, also when another version has taken its path.
pub(crate) fn own_program() -> PathBuf {
    let path = std::env::current_exe().ok();
    let still_there = path.filter(|path| path.exists());
    still_there.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Becomes a background process: no terminal's signals reach it.
pub(crate) fn detach() -> Result<(), Failure> {
    // Fails only for the leader of a process group, which a started process is not.
    rustix::process::setsid().map_err(|error| Failure::of("no session can be made", error))?;
    Ok(())
}

/// Prints the line for the process that waits for it.
pub(crate) fn ready(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    let said = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    service::ready(line);
    said.map_err(|error| Failure::of("standard output", error))
}

/// Lets go of the caller's output and directory, so that nothing waits for this process.
pub(crate) fn let_go() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::of("/dev/null", error);
    let null = File::options()
        .write(true)
        .open("/dev/null")
        .map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|error| failed(error.into()))?;
    std::env::set_current_dir("/").map_err(failed)
}
