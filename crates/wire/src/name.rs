//! Names in a directory: 1 to 255 bytes, any bytes but `/` and zero, not `.` or `..`. A [`Name`]
//! that exists has been checked.
//!
//! Short names, which most are, live in the value itself: they are copied at every step of a
//! request, and an allocation for each copy would be a good part of its cost.

use crate::limits::NAME_BYTES;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name in a directory. Ordered and compared as bytes.
#[derive(Clone)]
pub struct Name(Bytes);

/// Longest name that needs no allocation: the value is as large as a `Vec`.
const SHORT: usize = 22;

#[derive(Clone)]
enum Bytes {
    /// How many of these.
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

/// Why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No bytes, or `.` or `..`, or a `/` or a zero byte among them.
    Invalid,
    /// More than 255 bytes.
    TooLong,
}

impl From<NameError> for crate::Refusal {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Invalid => Self::Invalid,
            NameError::TooLong => Self::NameTooLong,
        }
    }
}

impl core::fmt::Display for NameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Invalid => "not a name",
            Self::TooLong => "name longer than 255 bytes",
        })
    }
}

impl Name {
    /// Checks the bytes of a name.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > NAME_BYTES {
            return Err(NameError::TooLong);
        }
        let reserved = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if reserved || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(NameError::Invalid);
        }
        if bytes.len() > SHORT {
            return Ok(Self(Bytes::Long(bytes.into())));
        }
        let mut short = [0; SHORT];
        short[..bytes.len()].copy_from_slice(bytes);
        Ok(Self(Bytes::Short(bytes.len() as u8, short)))
    }

    /// The bytes that it adds to the size of its directory.
    pub fn entry_bytes(&self) -> u64 {
        self.as_bytes().len() as u64 + 24
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(len, short) => &short[..usize::from(*len)],
            Bytes::Long(long) => long,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Bytes::Short(_, one), Bytes::Short(_, other)) => one == other,
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Bytes::Short(_, one), Bytes::Short(_, other)) => numbers(one).cmp(&numbers(other)),
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// Two numbers in the order of the bytes: no byte of a name is zero, and those behind it are.
fn numbers(short: &[u8; SHORT]) -> (u128, u64) {
    let (mut first, mut rest) = ([0; 16], [0; 8]);
    first.copy_from_slice(&short[..16]);
    rest[..SHORT - 16].copy_from_slice(&short[16..]);
    (u128::from_be_bytes(first), u64::from_be_bytes(rest))
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Self {
        name.as_bytes().to_vec()
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Checked)
    }
}

/// Makes a name of bytes that have come.
struct Checked;

impl Visitor<'_> for Checked {
    type Value = Name;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the bytes of a name")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Name, E> {
        Name::new(bytes).map_err(E::custom)
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{}",
            alloc::string::String::from_utf8_lossy(self.as_bytes())
        )
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn short_and_long_names_are_names_alike() {
        assert_eq!(size_of::<Name>(), size_of::<Vec<u8>>());
        let names: Vec<Name> = (1..=2 * SHORT)
            .map(|len| Name::new(&vec![b'x'; len]).expect("letters"))
            .collect();
        for (at, name) in names.iter().enumerate() {
            assert_eq!(name.as_bytes(), vec![b'x'; at + 1]);
            assert_eq!(*name, name.clone());
        }
        assert!(names.is_sorted(), "ordered as bytes");
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        // Names that differ late, and have high bytes.
        let mut names: Vec<Name> = [1, 0x7f, 0x80, 0xff]
            .into_iter()
            .flat_map(|byte| (0..2 * SHORT).map(move |at| (byte, at)))
            .map(|(byte, at)| {
                let mut bytes = vec![b'x'; at];
                bytes.push(byte);
                Name::new(&bytes).expect("no zero, no slash")
            })
            .collect();
        names.sort();
        assert!(names.is_sorted_by_key(Name::as_bytes));
    }
}
