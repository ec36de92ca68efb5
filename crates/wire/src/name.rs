//! Names in a directory: 1 to 255 bytes, any bytes but `/` and zero, not `.` or `..`. A [`Name`]
//! that exists has been checked.

use crate::limits::NAME_BYTES;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A name in a directory. Ordered and compared as bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Vec<u8>);

/// Why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No bytes, or `.` or `..`, or a `/` or a zero byte among them.
    Invalid,
    /// More than 255 bytes.
    TooLong,
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
        Ok(Self(bytes.to_vec()))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, NameError> {
        Self::new(&bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", alloc::string::String::from_utf8_lossy(&self.0))
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}
