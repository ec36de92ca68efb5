//! The questions of a target and the answers of its source, in a form that can be sent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Bytes that are compared, and carried, together.
pub const PIECE_BYTES: u64 = 64 << 10;
/// Pieces whose sums come in one answer.
pub(crate) const STRETCH_PIECES: u64 = 1024;
/// Bytes whose sums come in one answer: as many as a disk reads within seconds.
pub const STRETCH_BYTES: u64 = STRETCH_PIECES * PIECE_BYTES;
/// Most pieces in one answer.
pub(crate) const PIECES: usize = 32;
/// Most files in one answer.
pub(crate) const FILES: usize = 4096;
/// An answer is not longer than this as JSON.
pub const ANSWER_BYTES: usize = 3 << 20;
/// Files that are of one machine alone, and stay there.
pub const EXCLUDED: [&str; 1] = ["lock"];
/// Most bytes of a file's name.
const NAME_BYTES: usize = 255;

/// Is it the name of a file that is carried: one in the directory itself?
pub(crate) fn is_plain(name: &str) -> bool {
    let is_one = !name.is_empty() && name.len() <= NAME_BYTES && !name.contains(['/', '\0']);
    is_one && name != "." && name != ".." && !EXCLUDED.contains(&name)
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The files there are.
    Files {
        /// Only those behind this name; it may be empty.
        after: String,
    },
    /// The sums of a file's pieces, as many as a stretch has.
    Sums {
        /// The file.
        file: String,
        /// From where on: a multiple of [`STRETCH_BYTES`].
        from: u64,
    },
    /// Pieces of a file.
    Bytes {
        /// The file.
        file: String,
        /// Which ones, counted from 0, in ascending order; at most 32.
        pieces: Vec<u64>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The next files in the order of their names; none: these were all.
    Files(Vec<FileLine>),
    /// The sums of the pieces up to the end of the stretch, or of the file. A file's last piece may
    /// be shorter than others.
    Sums(Vec<Sum>),
    /// The pieces, one behind the other, up to the end of the file.
    Bytes(Bytes),
    /// The file is there no more.
    Gone,
}

/// A file as its directory shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLine {
    /// Its name.
    pub name: String,
    /// Its length.
    pub len: u64,
    /// Something that is another one when the file is, or was changed.
    pub state: Sum,
    /// The sum of all of it, if the source knows that without reading.
    pub sum: Option<Sum>,
}

/// A hash of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sum(pub [u8; 16]);

impl Sum {
    /// The sum of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::ending(blake3::Hasher::new().update(bytes))
    }

    /// The sum of these sums.
    pub(crate) fn over<'a>(sums: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for sum in sums {
            hasher.update(&sum.0);
        }
        Self::ending(&hasher)
    }

    fn ending(hasher: &blake3::Hasher) -> Self {
        let mut sum = [0; 16];
        sum.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(sum)
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let sum: Bytes = Deserialize::deserialize(from)?;
        let sum = sum.0.try_into().map_err(|_| D::Error::custom("no sum"))?;
        Ok(Self(sum))
    }
}

/// Bytes of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text: String = Deserialize::deserialize(from)?;
        let bytes = STANDARD.decode(text);
        Ok(Self(bytes.map_err(|_| D::Error::custom("no base64"))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_answers_are_as_long_as_promised() {
        let name = "\u{1}".repeat(NAME_BYTES);
        let (state, sum) = (Sum::of(b"a"), Some(Sum::of(b"b")));
        let len = u64::MAX;
        let line = FileLine {
            name,
            len,
            state,
            sum,
        };
        let escaped = serde_json::to_vec(&line).unwrap().len();
        let usual = escaped - 5 * NAME_BYTES;
        // A control character takes six bytes: such names come from no store.
        assert!(FILES * usual < ANSWER_BYTES, "{usual}");
        let bytes = Told::Bytes(Bytes(vec![9; PIECES * PIECE_BYTES as usize]));
        let sums = Told::Sums(vec![state; STRETCH_PIECES as usize]);
        for told in [bytes, sums] {
            let text = serde_json::to_vec(&told).unwrap();
            assert!(text.len() < ANSWER_BYTES, "{}", text.len());
            assert_eq!(serde_json::from_slice::<Told>(&text).unwrap(), told);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "../a",
            "a\0",
            "lock",
            &"a".repeat(256),
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
        for name in ["a", "log-00000001", "...", "locks", &"a".repeat(255)] {
            assert!(is_plain(name), "{name:?}");
        }
    }
}
