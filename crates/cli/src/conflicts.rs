//! `ariel conflicts`: lists what machines had done while they were away, and others too: it is
//! kept beside that, under names that say whose it is and from when.
//!
//! Guarantees: the search stays in one file system, and follows no link; it reports directories
//! that it cannot read, and lists the rest all the same.

use crate::args::ConflictsArgs;
use crate::failure::{FAILED, Failure};
use crate::paths;
use crate::show;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const MARK: &str = ".conflict-";

/// The parts of such a name.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// The name that others have taken, or the file that they have changed.
    of: String,
    host: String,
    time: String,
}

/// A conflict that was found.
struct Found {
    path: PathBuf,
    said: Said,
    bytes: u64,
}

pub(crate) fn conflicts(args: &ConflictsArgs) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| {
        Failure::of(
            "conflicts",
            format_args!("{}: {error}", args.path.display()),
        )
    };
    let top = std::fs::symlink_metadata(&args.path).map_err(failed)?;
    let points = paths::mounts_of(rustix::fs::minor(top.dev()));
    let points = points.map_err(|error| Failure::of("conflicts", format_args!("{error:#}")))?;
    if points.is_empty() {
        let text = format!("{}: {}", args.path.display(), paths::ON_NO_MOUNT);
        return Err(Failure::of("conflicts", text));
    }
    let (mut found, mut unread) = (Vec::new(), 0_u64);
    let mut folders = vec![args.path.clone()];
    while let Some(folder) = folders.pop() {
        match look(&folder, top.dev(), &mut found) {
            Ok(below) => folders.extend(below),
            Err(error) => {
                unread += 1;
                let folder = shown(&folder.to_string_lossy());
                let text = format!("ariel: conflicts: {folder}: {error}");
                // Where standard error is gone, there is nobody to tell.
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    let text = match args.json {
        true => format!(
            "{:#}",
            Value::from(found.iter().map(value).collect::<Vec<_>>())
        ),
        false => found.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    if !text.is_empty() {
        show::print(&text);
    }
    Ok(match unread {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(FAILED),
    })
}

/// Looks through one directory; returns those in it.
fn look(folder: &Path, device: u64, found: &mut Vec<Found>) -> std::io::Result<Vec<PathBuf>> {
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let said = said(&entry.file_name());
        let folder = entry.file_type()?.is_dir();
        if said.is_none() && !folder {
            continue;
        }
        let Ok(metadata) = entry.metadata() else {
            continue; // it has gone
        };
        let path = entry.path();
        if folder && metadata.dev() == device {
            below.push(path.clone());
        }
        if let Some(said) = said {
            let bytes = metadata.len();
            found.push(Found { path, said, bytes });
        }
    }
    Ok(below)
}

/// The parts of a name, if it is one of these.
fn said(name: &OsStr) -> Option<Said> {
    let name = String::from_utf8_lossy(name.as_bytes());
    let (of, rest) = name.rsplit_once(MARK)?;
    let stamp = rest
        .rfind('Z')
        .and_then(|end| rest.get(end.checked_sub(19)?..=end))?;
    let digits = "0000-00-00T00:00:00Z";
    let fits = |(byte, form): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    };
    let host = rest.split_once(stamp)?.0.strip_suffix('-')?;
    stamp.bytes().zip(digits.bytes()).all(fits).then(|| Said {
        of: of.to_owned(),
        host: host.to_owned(),
        time: stamp.to_owned(),
    })
}

/// A text for a terminal: anybody may have made the names in it.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

fn line(found: &Found) -> String {
    let Said { host, time, .. } = &found.said;
    let (path, host) = (shown(&found.path.to_string_lossy()), shown(host));
    format!("{path}: {} bytes, of {host}, {time}", found.bytes)
}

fn value(found: &Found) -> Value {
    json!({
        "path": found.path.to_string_lossy(),
        "of": found.said.of,
        "host": found.said.host,
        "time": found.said.time,
        "bytes": found.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_speak_to_the_terminal() {
        let path = "/a/\u{1b}[2Jb\n.conflict-w";
        assert_eq!(shown(path), "/a/\\u{1b}[2Jb\\n.conflict-w");
    }

    #[test]
    fn names_of_conflicts_are_told_from_others() {
        let is = said(OsStr::new("a.txt.conflict-my-Zen-2026-11-25T04:30:00Z-2"));
        assert_eq!(is.expect("it is one").host, "my-Zen");
        let is = said(OsStr::new("a.txt.conflict-west-2026-11-25T04:30:00Z-2")).expect("it is one");
        assert_eq!((&*is.of, &*is.host), ("a.txt", "west"));
        assert_eq!(is.time, "2026-11-25T04:30:00Z");
        for other in [
            "a.conflict-",
            "conflict",
            "a.conflict-x-2026-11-25",
            "a.conflict-Z",
        ] {
            assert_eq!(said(OsStr::new(other)), None, "{other}");
        }
    }
}
