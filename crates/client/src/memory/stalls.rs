//! Has the kernel say when tasks stand still for want of memory.
//!
//! Guarantees: a file that cannot be watched is left out; the looks at their times go on. The file
//! that systemd names in the environment (`MEMORY_PRESSURE_WATCH`) is watched as it says.

use super::group::Group;
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Any task for 50 ms in a second; without a privilege, windows are of two seconds.
const TRIGGERS: [&[u8]; 2] = [b"some 50000 1000000\0", b"some 100000 2000000\0"];

/// The files that are watched.
pub(super) struct Stalls(Vec<OwnedFd>);

impl Stalls {
    /// Watches the machine, and these groups.
    pub(super) fn start(groups: &[Group]) -> Stalls {
        let mut fds: Vec<OwnedFd> = asked_for().into_iter().collect();
        fds.extend(watch(Path::new("/proc/pressure/memory"), &TRIGGERS));
        let files = groups.iter().map(Group::pressure_file);
        fds.extend(files.filter_map(|file| watch(&file, &TRIGGERS)));
        Stalls(fds)
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.0.iter()
    }

    /// These tell nothing any more: their groups are gone.
    pub(super) fn forget(&mut self, gone: &[bool]) {
        let mut gone = gone.iter();
        self.0.retain(|_| !gone.next().copied().unwrap_or(false));
    }
}

fn watch(file: &Path, triggers: &[&[u8]]) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    triggers.iter().find_map(|trigger| {
        let fd = open(file, flags, Mode::empty()).ok()?;
        rustix::io::write(&fd, trigger).ok()?;
        Some(fd)
    })
}

/// The file that the manager of services wants to be watched.
fn asked_for() -> Option<OwnedFd> {
    let file = std::env::var_os("MEMORY_PRESSURE_WATCH")?;
    let words = std::env::var("MEMORY_PRESSURE_WRITE").unwrap_or_default();
    if file == OsStr::new("/dev/null") {
        return None;
    }
    let trigger = decoded(&words)?;
    watch(Path::new(&file), &[&trigger])
}

/// Base64, as systemd writes it.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_wants_to_be_written_is_understood() {
        let word = "c29tZSAyMDAwMDAgMjAwMDAwMAA=";
        assert_eq!(
            decoded(word).as_deref(),
            Some(&b"some 200000 2000000\0"[..])
        );
        assert_eq!(decoded(""), Some(Vec::new()));
        assert_eq!(decoded("not base64!"), None);
    }

    #[test]
    fn what_cannot_be_watched_is_left_out() {
        assert!(watch(Path::new("/proc/meminfo"), &TRIGGERS).is_none());
        assert!(watch(Path::new("/no such file"), &TRIGGERS).is_none());
    }
}
