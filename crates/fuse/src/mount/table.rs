//! The kernel's table of mounts, as far as it concerns Ariel. Reading it waits for no daemon.

use super::Flags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Type of an Ariel mount in the table: the kernel's `fuse` with our name behind it.
pub const FSTYPE: &str = "fuse.ariel";

/// The mounts that this process sees.
const TABLE: &str = "/proc/self/mountinfo";

/// One FUSE mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Where.
    pub mount_point: PathBuf,
    /// Minor number of its device, which is the number of its connection.
    pub connection: u32,
    /// The rights of programs on it.
    pub flags: Flags,
    /// File system type, `fuse` or `fuse.NAME`.
    pub fstype: String,
    /// The source of the mount.
    pub source: String,
}

/// All FUSE mounts, in the order they were made.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read(TABLE)?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .filter(|m| m.is_fuse())
        .collect())
}

/// The FUSE mount on top at exactly `mount_point`, which must be absolute and real.
pub fn find(mount_point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(find_in(&std::fs::read(TABLE)?, mount_point))
}

fn find_in(table: &[u8], mount_point: &Path) -> Option<MountEntry> {
    let lines = table.split(|byte| *byte == b'\n');
    let numbered = lines.filter_map(|line| Some((numbers(line)?, parse(line)?)));
    let here: Vec<_> = numbered
        .filter(|(_, entry)| entry.mount_point == mount_point)
        .collect();
    // Of mounts on one another each has the one below as its parent. Their order tells nothing: one
    // can have been put beneath another.
    let is_parent = |id: u64| here.iter().any(|((_, parent), _)| *parent == id);
    let on_top = here.iter().rfind(|((id, _), _)| !is_parent(*id));
    let entry = on_top.map(|(_, entry)| entry.clone());
    entry.filter(MountEntry::is_fuse)
}

/// The number of a line's mount, and that of the mount it is on.
fn numbers(line: &[u8]) -> Option<(u64, u64)> {
    let line = std::str::from_utf8(line.get(..line.len().min(40))?).ok();
    let mut fields = line?.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Waits until no FUSE mount is at exactly `mount_point`; whether that came true in time.
pub fn await_gone(mount_point: &Path, timeout: Duration) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    let mut file = File::open(TABLE)?;
    loop {
        let mut table = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut table)?;
        if find_in(&table, mount_point).is_none() {
            return Ok(true);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        await_change(&file, left)?;
    }
}

/// Waits until this mount is not what is on top at its mount point; whether that came true in time.
pub fn await_taken_away(
    mount_point: &Path,
    id: super::MountId,
    timeout: Duration,
) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    let mut file = File::open(TABLE)?;
    loop {
        // A change is told to a file that has been read since the one before.
        file.rewind()?;
        file.read_to_end(&mut Vec::new())?;
        if !id.is_at(mount_point) {
            return Ok(true);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        await_change(&file, left)?;
    }
}

/// Waits until the table has changed since it was last looked at through this file (proc(5): poll
/// tells it as an error and exceptional data).
fn await_change(table: &File, timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).ok();
    let mut fds = [PollFd::new(table, PollFlags::PRI)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl MountEntry {
    fn is_fuse(&self) -> bool {
        self.fstype == "fuse" || self.fstype.starts_with("fuse.")
    }

    /// Whether it is one of Ariel's.
    #[must_use]
    pub fn is_ariel(&self) -> bool {
        self.fstype == FSTYPE
    }
}

/// A line is `id parent major:minor root mount-point options [tags...] - type source options`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let connection = device.split_once(':')?.1.parse().ok()?;
    let mount_point = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let flags = Flags::of_table(std::str::from_utf8(fields.next()?).ok()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fstype = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    Some(MountEntry {
        mount_point,
        connection,
        flags,
        fstype,
        source,
    })
}

/// Undoes the table's `\040` for bytes that would break its lines.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = b"36 35 0:47 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse.ariel ariel rw";
        let entry = parse(line).unwrap();
        assert_eq!(entry.mount_point, Path::new("/mnt/a b"));
        assert_eq!((entry.connection, entry.source.as_str()), (47, "ariel"));
        assert!(entry.is_ariel() && entry.is_fuse());
    }

    #[test]
    fn of_mounts_on_one_another_the_one_on_top_is_found() {
        let dead = b"43 44 0:40 / /mnt/a rw - fuse.ariel 127.0.0.1:1 rw\n";
        let new = b"44 27 0:41 / /mnt/a rw - fuse.ariel 127.0.0.1:2 rw\n";
        for table in [[&dead[..], new].concat(), [&new[..], dead].concat()] {
            let found = find_in(&table, Path::new("/mnt/a")).unwrap();
            assert_eq!(found.connection, 40);
        }
        assert_eq!(find_in(new, Path::new("/mnt/a")).unwrap().connection, 41);
    }

    #[test]
    fn broken_lines_are_left_out() {
        for line in [
            "",
            "a b c",
            "1 2 0:x / /m rw - fuse a rw",
            "1 2 0:3 / /m rw fuse a",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(b"\\0\\9zz\\377"), b"\\0\\9zz\xff");
    }
}
