//! `ariel watch`: prints what changes below a path of a mount, whichever machine does it.
//!
//! Guarantees: each change is printed once, in the order in which the server made them, a line
//! each, at once; or a line says that some were missed. A name with bytes that would spoil the
//! lines is printed with these escaped.

pub(crate) mod relay;

use crate::args::WatchArgs;
use crate::failure::Failure;
use crate::{control, paths, runtime};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn watch(args: &WatchArgs) -> Result<ExitCode, Failure> {
    let failed = |error: anyhow::Error| {
        Failure::of("watch", format_args!("{}: {error:#}", args.path.display()))
    };
    let stream = ask(&args.path, args.recursive).map_err(failed)?;
    follow(stream, args).map_err(failed)
}

/// Asks the mount that has it. Nothing stays open there: a watcher does not keep it in use.
fn ask(path: &Path, recursive: bool) -> anyhow::Result<UnixStream> {
    let found = std::fs::metadata(path)?;
    let (inode, connection) = (found.ino(), rustix::fs::minor(found.dev()));
    let question = json!({ "ask": "watch", "inode": inode, "recursive": recursive });
    let points = paths::mounts_of(connection)?;
    if points.is_empty() {
        bail!(
            "{} (for other file systems there is inotifywait(1))",
            paths::ON_NO_MOUNT
        );
    }
    for point in &points {
        if let Some(stream) = control::follow(&runtime::of_mount(point), &question)? {
            return Ok(stream);
        }
    }
    bail!(
        "the mount at {} does not answer this user: run this as root, or as the user \
         who mounted it",
        points[0].display()
    )
}

fn follow(stream: UnixStream, args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    while lines.read_line(&mut line)? > 0 {
        let event: Value = serde_json::from_str(&line)
            .context("the answer is not JSON: use the same version of ariel")?;
        line.clear();
        if let Some(refused) = event["error"].as_str() {
            bail!("{refused}");
        }
        let name = event["event"].as_str().unwrap_or_default().to_owned();
        let shown = if args.json {
            writeln!(stdout, "{event}")
        } else if name == "watching" {
            // Not among the changes, but said: changes from now on will be printed.
            writeln!(std::io::stderr(), "watching {}", args.path.display())
        } else {
            writeln!(stdout, "{}", text(&event, &args.path))
        };
        let last = lines.buffer().is_empty() || name == "ended";
        let shown = shown.and_then(|()| if last { stdout.flush() } else { Ok(()) });
        if shown.is_err() {
            // Nobody reads any more.
            return Ok(ExitCode::SUCCESS);
        }
        if name == "ended" {
            return match event["gone"].as_bool() {
                Some(true) => Ok(ExitCode::SUCCESS),
                _ => bail!(
                    "{}",
                    event["reason"].as_str().unwrap_or("the mount has ended")
                ),
            };
        }
    }
    bail!("the mount has ended: mount it again, and look at what has changed since")
}

/// A line for people.
fn text(event: &Value, root: &Path) -> String {
    let name = event["event"].as_str().unwrap_or("?");
    let place = |key: &str| place(event, key, root);
    match name {
        "moved" => format!("{name:<10} {} -> {}", place("path"), place("to")),
        "exchanged" => format!("{name:<10} {} <-> {}", place("path"), place("to")),
        "missed" => format!("{name:<10} some changes are not told: look at the tree again"),
        "ended" => format!(
            "{name:<10} {}",
            event["reason"].as_str().unwrap_or_default()
        ),
        _ => format!("{name:<10} {}", place("path")),
    }
}

/// A path as it is from here.
fn place(event: &Value, key: &str, root: &Path) -> String {
    let Some(path) = event[key].as_str() else {
        return format!("? (inode {}, one of its names)", event["inode"]);
    };
    let here = root.to_string_lossy();
    let whole = match path {
        "" => here.into_owned(),
        path if here.ends_with('/') => format!("{here}{path}"),
        path => format!("{here}/{path}"),
    };
    escape(&whole)
}

/// A name cannot begin a line of its own, or paint the terminal.
fn escape(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for letter in path.chars() {
        match letter.is_control() || letter == '\\' {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line() {
        let root = Path::new("/mnt/a");
        for (event, line) in [
            (
                json!({ "event": "created", "path": "x/y" }),
                "created    /mnt/a/x/y",
            ),
            (
                json!({ "event": "removed", "path": "" }),
                "removed    /mnt/a",
            ),
            (
                json!({ "event": "moved", "path": "a\nb", "to": "c\\d" }),
                "moved      /mnt/a/a\\nb -> /mnt/a/c\\\\d",
            ),
            (
                json!({ "event": "written", "path": null, "inode": 7 }),
                "written    ? (inode 7, one of its names)",
            ),
        ] {
            assert_eq!(text(&event, root), line);
        }
        assert_eq!(place(&json!({ "path": "x" }), "path", Path::new("/")), "/x");
    }
}
