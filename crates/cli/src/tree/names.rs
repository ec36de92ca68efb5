//! Names of users and groups, sizes, modes and times, as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::HashMap;
use wire::Kind;

/// The names of users and groups of this machine.
pub(super) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// The names in this machine's files; a number without a name stays a number.
    pub(super) fn read() -> Self {
        Self {
            users: table("/etc/passwd"),
            groups: table("/etc/group"),
        }
    }

    pub(super) fn user(&self, uid: u32) -> String {
        self.users
            .get(&uid)
            .map_or_else(|| uid.to_string(), String::clone)
    }

    pub(super) fn group(&self, gid: u32) -> String {
        self.groups
            .get(&gid)
            .map_or_else(|| gid.to_string(), String::clone)
    }
}

fn table(path: &str) -> HashMap<u32, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut table = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(number)) = (fields.next(), fields.nth(1))
            && let Ok(number) = number.parse()
        {
            table.entry(number).or_insert_with(|| name.to_owned());
        }
    }
    table
}

/// `-rw-r--r--`, as ls(1) writes it.
pub(super) fn mode_text(kind: Kind, mode: u32) -> String {
    let letter = match kind {
        Kind::File => '-',
        Kind::Directory | Kind::Mount => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Character => 'c',
        Kind::Block => 'b',
    };
    let mut text = String::from(letter);
    for (shift, special, set, alone) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => set,
            (false, true) => alone,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The kind in words, as stat(1) writes it.
pub(super) fn kind_text(kind: Kind, is_empty: bool) -> &'static str {
    match kind {
        Kind::File if is_empty => "regular empty file",
        Kind::File => "regular file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Character => "character special file",
        Kind::Block => "block special file",
        Kind::Mount => "mount point",
    }
}

/// A size as `1.5K`; below 1024 as it is.
pub(super) fn size_text(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, ' ');
    for next in ['K', 'M', 'G', 'T', 'P'] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    match unit {
        ' ' => bytes.to_string(),
        // ls(1) rounds up.
        unit if size < 9.95 => format!("{:.1}{unit}", (size * 10.0).ceil() / 10.0),
        unit => format!("{:.0}{unit}", size.ceil()),
    }
}

/// A time in this machine's time zone, by a format of strftime(3).
pub(super) fn time_text((seconds, nanoseconds): (i64, u32), format: &str) -> String {
    let time = Timestamp::new(seconds, nanoseconds.cast_signed());
    match time {
        Ok(time) => (time.to_zoned_datetime(TimeZone::system()).strftime(format)).to_string(),
        Err(_) => format!("{seconds}.{nanoseconds:09}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_those_of_ls() {
        assert_eq!(mode_text(Kind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(Kind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_text(Kind::File, 0o2640), "-rw-r-S---");
    }

    #[test]
    fn sizes_read_as_those_of_ls() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1500, "1.5K"),
            (10 << 20, "10M"),
            ((1 << 30) + 1, "1.1G"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
