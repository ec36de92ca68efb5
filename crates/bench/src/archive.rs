//! An archive of a tree that is extracted, seen elsewhere, and removed.
//!
//! The archive lies on the local disk for both sides, and has been read there; so only what is
//! extracted is measured.

use crate::generated;
use crate::place::At;
use crate::programs::{output, run};
use crate::tree::stable;
use crate::warm::read_through;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The archive, of so many files as are measured with.
fn archive(at: &mut At<'_>) -> io::Result<PathBuf> {
    let files = at.sizes.files;
    let path = at.made_locally("archive.tar", |path| {
        let packed = path.with_extension("packed");
        generated::tree(&packed, files)?;
        let mut tar = Command::new("tar");
        run(tar.arg("cf").arg(path).arg("-C").arg(&packed).arg("."))?;
        fs::remove_dir_all(packed)
    })?;
    read_through(&path)?;
    Ok(path)
}

fn extracted(archive: &Path, dir: &Path) -> io::Result<()> {
    run(Command::new("tar")
        .arg("xf")
        .arg(archive)
        .arg("-C")
        .arg(dir))
}

fn removed(dir: &Path) -> io::Result<()> {
    run(Command::new("rm").arg("-rf").arg(dir))
}

/// A new directory to extract to, on a side that has nothing else to do.
fn room(at: &mut At<'_>) -> io::Result<PathBuf> {
    (at.fresh)()?;
    let dir = at.dir.join("extracted");
    if dir.exists() {
        // Of a measure that failed.
        removed(&dir)?;
    }
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// The time to extract it, and to remove it when its names are on the disk.
pub(crate) fn extract_and_remove(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let archive = archive(at)?;
    let dir = room(at)?;
    let extract = at.seconds(|| extracted(&archive, &dir))?;
    stable(&dir)?;
    let remove = at.seconds(|| removed(&dir))?;
    stable(at.dir)?;
    Ok(vec![extract, remove])
}

/// The client's messages to the server until that has all names on its disk, for each 100 files.
pub(crate) fn messages(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let archive = archive(at)?;
    let dir = room(at)?;
    let before = at.told()?;
    extracted(&archive, &dir)?;
    stable(&dir)?;
    let after = at.told()?;
    removed(&dir)?;
    let messages = after.messages.saturating_sub(before.messages) as f64;
    Ok(vec![messages / f64::from(at.sizes.files) * 100.0])
}

/// The time of a recursive listing on another mount, right after the last file was extracted. It
/// must be the listing of what the local disk extracts.
pub(crate) fn list_elsewhere(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let archive = archive(at)?;
    let expected = at.made_locally("archive.ls", |path| {
        let dir = path.with_extension("extracted");
        fs::create_dir(&dir)?;
        extracted(&archive, &dir)?;
        fs::write(path, listing(&dir)?)?;
        fs::remove_dir_all(dir)
    })?;
    let expected = fs::read_to_string(expected)?;
    let cure = "it needs a second mount of the same tree: --silent DIR";
    let other = at.other.clone();
    let other = other.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, cure))?;
    let dir = room(at)?;
    extracted(&archive, &dir)?;
    let mut shown = String::new();
    let seconds = at.seconds(|| {
        shown = listing(&other.join("extracted"))?;
        Ok(())
    })?;
    removed(&dir)?;
    match difference(&expected, &shown) {
        None => Ok(vec![seconds]),
        Some(what) => Err(io::Error::other(what)),
    }
}

fn listing(dir: &Path) -> io::Result<String> {
    let mut ls = Command::new("ls");
    ls.args(["-lR", "--time-style=+%s"]).current_dir(dir);
    output(ls.env("LC_ALL", "C"))
}

/// The part of a listing that two file systems must have in common: not the blocks that they use,
/// nor the sizes and numbers of links of directories.
fn common(listing: &str) -> impl Iterator<Item = String> + '_ {
    let lines = listing.lines().filter(|line| !line.starts_with("total "));
    lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [mode, _, owner, group, _, time, name] if mode.starts_with('d') => {
                format!("{mode} {owner} {group} {time} {name}")
            }
            _ => line.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    })
}

/// Where a listing first differs from the one that is expected.
fn difference(expected: &str, shown: &str) -> Option<String> {
    let (mut expected, mut shown) = (common(expected), common(shown));
    let mut line = 1;
    loop {
        match (expected.next(), shown.next()) {
            (None, None) => return None,
            (wanted, found) if wanted == found => line += 1,
            (wanted, found) => {
                let told = |line: Option<String>| line.unwrap_or_else(|| "its end".to_owned());
                return Some(format!(
                    "the listing of what was extracted is not that of the local disk: line \
                     {line} is {:?} instead of {:?}",
                    told(found),
                    told(wanted)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = ".:\ntotal 8\ndrwxr-xr-x 3 root root 4096 1400000000 part-0\n\n\
                         ./part-0:\ntotal 12\n-rw-r--r-- 1 root root   420 1400000001 file-0\n\
                         lrwxrwxrwx 1 root root     6 1400000002 file-1 -> file-0\n";

    #[test]
    fn blocks_and_what_directories_weigh_may_differ() {
        let other = LOCAL.replace("total 8", "total 0");
        let other = other.replace("3 root root 4096", "2 root root 0");
        assert_ne!(LOCAL, other);
        assert_eq!(difference(LOCAL, &other), None);
    }

    #[test]
    fn names_sizes_modes_owners_times_and_ends_may_not() {
        let changes = [
            ("file-0\n", "file-9\n"),
            ("  420", "  421"),
            ("-rw-r--r--", "-rw-------"),
            ("drwxr-xr-x", "drwx------"),
            ("1 root", "2 root"),
            ("root root   420", "root adm   420"),
            ("1400000001", "1400000003"),
            ("1400000000 part", "1400000009 part"),
            ("-> file-0", "-> file-1"),
            (
                "lrwxrwxrwx 1 root root     6 1400000002 file-1 -> file-0\n",
                "",
            ),
        ];
        for (old, new) in changes {
            let other = LOCAL.replace(old, new);
            assert_ne!(LOCAL, other, "{old}");
            for (expected, shown) in [(LOCAL, &*other), (&*other, LOCAL)] {
                let told = difference(expected, shown).unwrap_or_default();
                assert!(told.contains("instead of"), "{old}: {told}");
            }
        }
    }
}
