//! The rights of programs on a mount, as `mount(8)` words them: read-only, no set-id bits, and the
//! like.

use rustix::mount::{MountAttrFlags as Attr, MountFlags};

/// A word, what it sets and what it takes away.
type Word = (&'static str, Attr, Attr);

const NONE: Attr = Attr::empty();
/// `MS_NOSYMFOLLOW` (Linux 5.10).
const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);

/// Every word that is known. Those that set nothing and take nothing away are the defaults of
/// Linux.
const WORDS: [Word; 15] = [
    ("ro", Attr::MOUNT_ATTR_RDONLY, NONE),
    ("rw", NONE, Attr::MOUNT_ATTR_RDONLY),
    ("nosuid", Attr::MOUNT_ATTR_NOSUID, NONE),
    ("suid", NONE, Attr::MOUNT_ATTR_NOSUID),
    ("nodev", Attr::MOUNT_ATTR_NODEV, NONE),
    ("dev", NONE, Attr::MOUNT_ATTR_NODEV),
    ("noexec", Attr::MOUNT_ATTR_NOEXEC, NONE),
    ("exec", NONE, Attr::MOUNT_ATTR_NOEXEC),
    (
        "noatime",
        Attr::MOUNT_ATTR_NOATIME,
        Attr::MOUNT_ATTR_STRICTATIME,
    ),
    (
        "strictatime",
        Attr::MOUNT_ATTR_STRICTATIME,
        Attr::MOUNT_ATTR_NOATIME,
    ),
    ("relatime", NONE, Attr::MOUNT_ATTR__ATIME),
    ("nodiratime", Attr::MOUNT_ATTR_NODIRATIME, NONE),
    ("diratime", NONE, Attr::MOUNT_ATTR_NODIRATIME),
    ("nosymfollow", Attr::MOUNT_ATTR_NOSYMFOLLOW, NONE),
    ("symfollow", NONE, Attr::MOUNT_ATTR_NOSYMFOLLOW),
];

/// Flags of a mount. By default set-id bits and device nodes do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    set: Attr,
    /// The flags that were named.
    named: Attr,
}

/// The flags that do not count unless somebody says so.
const UNTRUSTED: Attr = Attr::MOUNT_ATTR_NOSUID.union(Attr::MOUNT_ATTR_NODEV);

impl Default for Flags {
    fn default() -> Self {
        Flags {
            set: UNTRUSTED,
            named: NONE,
        }
    }
}

impl Flags {
    /// Does what a word of `mount(8)` says; false: it is none of these.
    pub fn apply(&mut self, word: &str) -> bool {
        let Some((_, set, clear)) = WORDS.iter().find(|(name, ..)| *name == word) else {
            return false;
        };
        self.set = self.set.difference(*clear).union(*set);
        self.named |= set.union(*clear);
        true
    }

    /// Set-id bits and device nodes count, unless a word says that they do not.
    #[must_use]
    pub fn trusting(self) -> Flags {
        let set = self.set.difference(UNTRUSTED.difference(self.named));
        Flags { set, ..self }
    }

    /// Nothing can be changed through the mount.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        self.set.contains(Attr::MOUNT_ATTR_RDONLY)
    }

    pub(super) fn attributes(self) -> Attr {
        self.set
    }

    /// The flags of a mount in a line of the kernel's table; other words are left out.
    pub(super) fn of_table(options: &str) -> Flags {
        let mut flags = Flags::default().trusting();
        for word in options.split(',') {
            flags.apply(word);
        }
        flags
    }

    /// The same for mount(2).
    pub(super) fn for_remount(self) -> MountFlags {
        let all = [
            (Attr::MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
            (Attr::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
            (Attr::MOUNT_ATTR_NODEV, MountFlags::NODEV),
            (Attr::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
            (Attr::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
            (Attr::MOUNT_ATTR_STRICTATIME, MountFlags::STRICTATIME),
            (Attr::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
            (Attr::MOUNT_ATTR_NOSYMFOLLOW, NOSYMFOLLOW),
        ];
        let set = all.into_iter().filter(|(attr, _)| self.set.contains(*attr));
        let flags = set.fold(MountFlags::empty(), |flags, (_, flag)| flags | flag);
        match self.set.intersects(Attr::MOUNT_ATTR__ATIME) {
            true => flags,
            false => flags | MountFlags::RELATIME,
        }
    }

    /// The words that say the same to another program.
    pub(super) fn words(self) -> impl Iterator<Item = &'static str> {
        let is_said = move |(_, set, clear): &&Word| match set.is_empty() {
            true => UNTRUSTED.contains(*clear) && !clear.is_empty() && !self.set.intersects(*clear),
            false => self.set.contains(*set),
        };
        WORDS.iter().filter(is_said).map(|(name, ..)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> Vec<&'static str> {
        let mut flags = Flags::default();
        for word in words {
            assert!(flags.apply(word), "{word}");
        }
        flags.words().collect()
    }

    #[test]
    fn the_last_word_counts() {
        assert_eq!(said(&[]), ["nosuid", "nodev"]);
        assert_eq!(said(&["ro", "noexec"]), ["ro", "nosuid", "nodev", "noexec"]);
        assert_eq!(said(&["ro", "rw", "suid"]), ["suid", "nodev"]);
        assert_eq!(
            said(&["noatime", "strictatime", "dev"]),
            ["nosuid", "dev", "strictatime"]
        );
        assert_eq!(said(&["strictatime", "relatime"]), ["nosuid", "nodev"]);
        assert!(!Flags::default().apply("nonsense"));
        let trusting = Flags::default().trusting();
        assert_eq!(trusting.words().collect::<Vec<_>>(), ["suid", "dev"]);
        let mut flags = Flags::default();
        assert!(flags.apply("nosuid"));
        let words: Vec<_> = flags.trusting().words().collect();
        assert_eq!(words, ["nosuid", "dev"]);
    }
}
