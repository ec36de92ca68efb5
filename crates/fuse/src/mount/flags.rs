//! What a mount lets programs do, as `mount(8)` words it: read-only, no set-id bits, and the like.

use rustix::mount::MountAttrFlags as Attr;

/// A word, what it sets and what it takes away.
type Word = (&'static str, Attr, Attr);

const NONE: Attr = Attr::empty();

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
pub struct Flags(Attr);

impl Default for Flags {
    fn default() -> Self {
        Flags(Attr::MOUNT_ATTR_NOSUID.union(Attr::MOUNT_ATTR_NODEV))
    }
}

impl Flags {
    /// Does what a word of `mount(8)` says; false: it is none of these.
    pub fn apply(&mut self, word: &str) -> bool {
        let Some((_, set, clear)) = WORDS.iter().find(|(name, ..)| *name == word) else {
            return false;
        };
        self.0 = self.0.difference(*clear).union(*set);
        true
    }

    /// Set-id bits and device nodes count.
    #[must_use]
    pub fn trusting(self) -> Flags {
        let untrusted = Flags::default().0;
        Flags(self.0.difference(untrusted))
    }

    /// Nothing can be changed through the mount.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        self.0.contains(Attr::MOUNT_ATTR_RDONLY)
    }

    pub(super) fn attributes(self) -> Attr {
        self.0
    }

    /// The words that say the same to another program.
    pub(super) fn words(self) -> impl Iterator<Item = &'static str> {
        let is_said = move |(_, set, clear): &&Word| match set.is_empty() {
            true => {
                let untrusted = Flags::default().0;
                untrusted.contains(*clear) && !clear.is_empty() && !self.0.intersects(*clear)
            }
            false => self.0.contains(*set),
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
    }
}
