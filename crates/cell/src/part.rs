//! A part of the tree as people name it: a volume, or what is at a path of it and below.
//!
//! The database keeps a part as `VOLUME:/path`; a whole volume is `VOLUME:/`.

use crate::members::{CellError, refused};
use wire::{FIRST_VOLUME, Name, Part, is_replica_name, is_volume_name};

/// Most parts that one machine is granted.
const PARTS_MAX: usize = 64;

/// Reads a part: `/projects/a` of the first volume, the volume `home`, or `home:/ann`.
///
/// # Errors
/// It is no part.
pub fn part_name(text: &str) -> Result<String, String> {
    let (volume, path) = match text.split_once(':') {
        Some((volume, path)) => (volume, path),
        None if text.starts_with('/') => (first(), text),
        None => (text, "/"),
    };
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let plain = |name: &&str| !matches!(*name, "." | "..") && Name::new(name.as_bytes()).is_ok();
    let volume_fits = is_volume_name(volume.as_bytes()) && !is_replica_name(volume.as_bytes());
    if !volume_fits || !path.starts_with('/') || !names.iter().all(plain) {
        return Err(format!(
            "{text:?} is no part of the tree: name a volume (home), a path of one (home:/ann), or \
             a path of the first volume (/projects/a), without . and .."
        ));
    }
    Ok(format!("{volume}:/{}", names.join("/")))
}

/// The parts of a grant, in the form in which they are kept.
pub(crate) fn checked(parts: &[String]) -> Result<Vec<String>, CellError> {
    if parts.len() > PARTS_MAX {
        return Err(refused(format!(
            "a machine is granted {PARTS_MAX} parts of the tree at most"
        )));
    }
    let checked = parts.iter().map(|part| part_name(part).map_err(refused));
    checked.collect()
}

fn first() -> &'static str {
    // Its name is one of ASCII.
    core::str::from_utf8(FIRST_VOLUME).unwrap_or_default()
}

/// The parts of a machine's record. One that cannot be read, since a later version has written it,
/// is a part of which there is nothing.
pub(crate) fn parts(texts: &[String]) -> Vec<Part> {
    texts.iter().map(|text| part(text)).collect()
}

fn part(text: &str) -> Part {
    let name = |text: &str| Name::new(text.as_bytes()).ok();
    let (volume, path) = text.split_once(':').unwrap_or((text, ""));
    let path = path.split('/').filter(|text| !text.is_empty());
    let whole = name(volume).zip(path.map(name).collect());
    let (volume, path) = whole.unwrap_or_else(|| (nothing(), Vec::new()));
    Part { volume, path }
}

/// No volume has this name.
fn nothing() -> Name {
    Name::new(b"@").unwrap_or_else(|_| unreachable!("it is a name"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_are_read_and_kept_in_one_form() {
        for (text, kept) in [
            ("home", "home:/"),
            ("home:/", "home:/"),
            ("home:/ann//notes/", "home:/ann/notes"),
            ("/projects/a", "root:/projects/a"),
            ("/", "root:/"),
            ("root:/a:b", "root:/a:b"),
        ] {
            assert_eq!(part_name(text).unwrap(), kept, "{text}");
            assert_eq!(part_name(kept).unwrap(), kept);
        }
        for wrong in [
            "",
            ":",
            "home:",
            "home:ann",
            "home:/..",
            "/a/./b",
            "-x",
            "a@b",
            "a b",
            "a.readonly",
        ] {
            assert!(part_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_names_its_volume_and_path() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let read = part("home:/ann/notes");
        assert_eq!(read.volume, name("home"));
        assert_eq!(read.path, [name("ann"), name("notes")]);
        assert!(part("home:/").path.is_empty());
        // Nothing, and not all.
        assert_eq!(part("").volume, nothing());
    }
}
