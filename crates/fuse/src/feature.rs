//! Features of the kernel's interface that a mount uses where the kernel has them, and can do
//! without. Each can be masked off, so that mounts of older kernels can be tried on this one.
//! docs/kernels.md says what happens without each; no exactness depends on any of them.

use std::fmt;
use std::str::FromStr;

use crate::abi::init;

/// A feature of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The kernel asks for the time of an object's birth.
    Birth,
    /// All names can be expired at once, without a lock.
    Epoch,
    /// It has the pages of a short file that it opens, given without being asked for.
    Give,
    /// Programs are woken on the processor on which they were answered.
    Handover,
    /// The kernel says with a write whether set-id bits are to go.
    Killpriv,
    /// Files opened past the page cache can be mapped shared.
    Mmap,
    /// A close need not be announced before it.
    NoFlush,
    /// Inodes that nobody uses can be forgotten when we ask for it.
    Prune,
    /// A listing brings attributes.
    Readdirplus,
    /// Setting an access list says whether the set-group-id bit is to go.
    Setxattr,
    /// Targets of symbolic links are cached.
    Symlinks,
    /// Requests come over io_uring.
    Uring,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 12] = [
        Feature::Birth,
        Feature::Epoch,
        Feature::Give,
        Feature::Handover,
        Feature::Killpriv,
        Feature::Mmap,
        Feature::NoFlush,
        Feature::Prune,
        Feature::Readdirplus,
        Feature::Setxattr,
        Feature::Symlinks,
        Feature::Uring,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Feature::Birth => "birth",
            Feature::Epoch => "epoch",
            Feature::Give => "give",
            Feature::Handover => "handover",
            Feature::Killpriv => "killpriv",
            Feature::Mmap => "mmap",
            Feature::NoFlush => "noflush",
            Feature::Prune => "prune",
            Feature::Readdirplus => "readdirplus",
            Feature::Setxattr => "setxattr",
            Feature::Symlinks => "symlinks",
            Feature::Uring => "uring",
        }
    }

    /// The flags to agree on when the kernel is to do so; 0: none.
    #[must_use]
    pub const fn flags(self) -> u64 {
        match self {
            Feature::Birth
            | Feature::Epoch
            | Feature::Give
            | Feature::Handover
            | Feature::NoFlush
            | Feature::Prune => 0,
            Feature::Killpriv => init::HANDLE_KILLPRIV_V2,
            Feature::Mmap => init::DIRECT_IO_ALLOW_MMAP,
            Feature::Readdirplus => init::DO_READDIRPLUS,
            Feature::Setxattr => init::SETXATTR_EXT,
            Feature::Symlinks => init::CACHE_SYMLINKS,
            Feature::Uring => init::OVER_IO_URING,
        }
    }
}

/// Features that are not to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u16);

impl Without {
    /// The same, and this one.
    #[must_use]
    pub const fn and(self, feature: Feature) -> Without {
        Without(self.0 | 1 << feature as u16)
    }

    /// Is this one not to be used?
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u16 != 0
    }

    /// The flags not to agree on.
    #[must_use]
    pub fn flags(self) -> u64 {
        let masked = Feature::ALL
            .into_iter()
            .filter(|feature| self.has(*feature));
        masked.fold(0, |flags, feature| flags | feature.flags())
    }
}

impl FromStr for Without {
    type Err = String;

    /// Words with commas between them, or `all`.
    fn from_str(text: &str) -> Result<Without, String> {
        let all = Feature::ALL.into_iter();
        if text == "all" {
            return Ok(all.fold(Without::default(), Without::and));
        }
        text.split(',')
            .try_fold(Without::default(), |without, word| {
                let known = Feature::ALL
                    .into_iter()
                    .find(|feature| feature.word() == word);
                let known = known.ok_or_else(|| {
                    let words: Vec<&str> = Feature::ALL.map(Feature::word).to_vec();
                    format!(
                        "{word:?} is no feature: give some of {}, or all",
                        words.join(",")
                    )
                })?;
                Ok(without.and(known))
            })
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = Feature::ALL
            .into_iter()
            .filter(|feature| self.has(*feature));
        let words: Vec<&str> = masked.map(Feature::word).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for feature in Feature::ALL {
            let one: Without = feature.word().parse().unwrap();
            assert!(one.has(feature), "{feature:?}");
            assert_eq!(one.to_string(), feature.word());
            assert_eq!(one.flags(), feature.flags());
        }
        let two: Without = "prune,epoch".parse().unwrap();
        assert_eq!(two.to_string(), "epoch,prune");
        let all: Without = "all".parse().unwrap();
        assert!(Feature::ALL.into_iter().all(|feature| all.has(feature)));
        assert!(!Without::default().has(Feature::Epoch));
    }

    #[test]
    fn a_word_that_is_not_known_is_told_with_those_that_are() {
        for wrong in ["", "epochs", "epoch,", "epoch prune"] {
            let error = wrong.parse::<Without>().unwrap_err();
            assert!(error.contains("readdirplus"), "{error}");
        }
    }
}
