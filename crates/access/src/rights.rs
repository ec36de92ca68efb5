//! The seven rights, and their letters.

use alloc::string::String;
use core::ops::{BitAnd, BitOr, Not};

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rights(u8);

impl Rights {
    /// None.
    pub const NONE: Self = Self(0);
    /// Look up names, list them, see attributes and the list.
    pub const LOOKUP: Self = Self(1);
    /// Make names.
    pub const INSERT: Self = Self(2);
    /// Take names away.
    pub const DELETE: Self = Self(4);
    /// Change the list.
    pub const ADMINISTER: Self = Self(8);
    /// Read files, and execute those that may be executed.
    pub const READ: Self = Self(16);
    /// Write files.
    pub const WRITE: Self = Self(32);
    /// Lock files.
    pub const LOCK: Self = Self(64);
    /// All of them.
    pub const ALL: Self = Self(127);

    /// The letters, in Andrew's order.
    const LETTERS: [(char, Self); 7] = [
        ('r', Self::READ),
        ('l', Self::LOOKUP),
        ('i', Self::INSERT),
        ('d', Self::DELETE),
        ('w', Self::WRITE),
        ('k', Self::LOCK),
        ('a', Self::ADMINISTER),
    ];

    /// From a byte; `None`: not one of a set.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte <= Self::ALL.0 {
            true => Some(Self(byte)),
            false => None,
        }
    }

    /// The set as a byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// Is all of the other set in this one?
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Have they anything in common?
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// From letters, or from one of Andrew's short words; `None`: neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "read" => return Some(Self::READ | Self::LOOKUP),
            "write" => return Some(Self(Self::ALL.0 & !Self::ADMINISTER.0)),
            "all" => return Some(Self::ALL),
            "none" => return Some(Self::NONE),
            "" => return None,
            _ => {}
        }
        text.chars().try_fold(Self::NONE, |rights, letter| {
            let found = Self::LETTERS.iter().find(|(of, _)| *of == letter);
            found.map(|(_, right)| rights | *right)
        })
    }

    /// Its letters, in Andrew's order.
    #[must_use]
    pub fn letters(self) -> String {
        let own = Self::LETTERS.iter().filter(|(_, right)| self.has(*right));
        own.map(|(letter, _)| *letter).collect()
    }

    /// The bits of a file's mode that it may have: 4 reads, 2 writes, 1 executes.
    #[must_use]
    pub const fn of_file(self) -> u16 {
        let read = if self.has(Self::READ) { 5 } else { 0 };
        let write = if self.has(Self::WRITE) { 2 } else { 0 };
        read | write
    }

    /// The bits of a directory's mode that it stands for. A kernel has one bit for making names
    /// and taking them away, so the server looks at these two once more.
    #[must_use]
    pub const fn of_directory(self) -> u16 {
        let lookup = if self.has(Self::LOOKUP) { 5 } else { 0 };
        let change = Self(Self::INSERT.0 | Self::DELETE.0);
        let change = if self.meets(change) { 2 } else { 0 };
        lookup | change
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Rights {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn letters_and_words_are_andrews() {
        for (text, letters) in [
            ("read", "rl"),
            ("write", "rlidwk"),
            ("all", "rlidwka"),
            ("none", ""),
            ("lr", "rl"),
            ("akwdilr", "rlidwka"),
        ] {
            assert_eq!(Rights::parse(text).unwrap().letters(), letters, "{text}");
        }
        for wrong in ["", "x", "reads", "rl ", "R"] {
            assert_eq!(Rights::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_byte_is_a_set_or_none() {
        for byte in 0..=u8::MAX {
            let set = Rights::from_byte(byte);
            assert_eq!(set.is_some(), byte < 128);
            let Some(set) = set else { continue };
            assert_eq!(set.byte(), byte);
            assert_eq!(!!set, set);
            if set != Rights::NONE {
                assert_eq!(Rights::parse(&set.letters()), Some(set));
            }
        }
    }
}
