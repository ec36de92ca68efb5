//! The first frame of each end: the versions of the rooms' protocol that it speaks, or that the
//! peer is refused, and why.
//!
//! Guarantees: the form of these two frames is the same in all versions, so that any two can tell
//! each other why they cannot work together; a peer's text for people is shown without control
//! characters, and no more than [`TEXT_BYTES_MAX`] of it. In front of the text may be one
//! control character, which tells programs its meaning: one that does not know it shows the text.

use crate::link::Link;
use crate::reason::CloseReason;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most bytes of a text.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;
/// In front of a text: the peer may find elsewhere what it asked for, and that is no failure.
const MARK_ELSEWHERE: u8 = 1;
/// The text behind it.
pub(crate) const ELSEWHERE: &str =
    "what was asked for is at another server of the cell, or on its way there";

/// The versions that a program speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaks {
    /// The oldest version of the protocol.
    pub oldest: u32,
    /// The newest one.
    pub newest: u32,
    /// The program's own version, for people.
    pub program: String,
}

/// Two programs that have no version of the protocol in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NoCommonVersion {
    ours: Speaks,
    theirs: Speaks,
}

impl fmt::Display for NoCommonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let older = if self.ours.newest < self.theirs.newest {
            ("this side", "the other side")
        } else {
            ("the other side", "this side")
        };
        write!(
            f,
            "this side is Ariel {}, the other side is Ariel {}, and they have no version of the \
             protocol in common: {} is older, so install on it what {} runs",
            self.ours, self.theirs, older.0, older.1
        )
    }
}

impl fmt::Display for Speaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Speaks {
            oldest,
            newest,
            program,
        } = self;
        write!(f, "{program} (protocol ")?;
        match oldest == newest {
            true => write!(f, "{newest})"),
            false => write!(f, "{oldest} to {newest})"),
        }
    }
}

/// The version of the protocol that both ends of a link speak; 0 before their greetings.
#[derive(Debug, Default)]
pub(crate) struct Agreed(AtomicU32);

impl Link {
    /// The newest version of the protocol that both ends speak; 0 before they have greeted.
    pub fn version(&self) -> u32 {
        self.agreed.0.load(Ordering::Acquire)
    }

    pub(crate) fn greeted(&self, version: u32) {
        self.agreed.0.store(version, Ordering::Release);
    }
}

impl Speaks {
    /// The newest version that both speak.
    ///
    /// # Errors
    /// There is none.
    pub fn common(&self, theirs: &Speaks) -> Result<u32, NoCommonVersion> {
        let newest = self.newest.min(theirs.newest);
        if newest >= self.oldest && newest >= theirs.oldest {
            return Ok(newest);
        }
        Err(NoCommonVersion {
            ours: self.clone(),
            theirs: theirs.clone(),
        })
    }

    /// As it travels.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.oldest.to_le_bytes().to_vec();
        bytes.extend(self.newest.to_le_bytes());
        bytes.extend(shorten(&self.program, 64).as_bytes());
        bytes
    }

    /// Reads the bytes; later versions may say more behind the name of their program's version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Speaks> {
        let (oldest, rest) = bytes.split_first_chunk()?;
        let (newest, program) = rest.split_first_chunk()?;
        let (oldest, newest) = (u32::from_le_bytes(*oldest), u32::from_le_bytes(*newest));
        (oldest <= newest).then(|| Speaks {
            oldest,
            newest,
            program: text(program, 64),
        })
    }
}

fn shorten(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A peer's text for people.
pub(crate) fn text(bytes: &[u8], most: usize) -> String {
    let bytes = &bytes[..bytes.len().min(most)];
    let shown = String::from_utf8_lossy(bytes);
    shown.chars().filter(|c| !c.is_control()).collect()
}

/// The bytes of a text to a peer.
pub(crate) fn refusal(text: &str) -> Vec<u8> {
    let text = text.trim_start_matches(char::is_control);
    shorten(text, TEXT_BYTES_MAX).as_bytes().to_vec()
}

/// The bytes that tell a peer to look elsewhere.
pub(crate) fn elsewhere() -> Vec<u8> {
    [&[MARK_ELSEWHERE], ELSEWHERE.as_bytes()].concat()
}

/// The meaning of such bytes.
pub(crate) fn refused(bytes: &[u8]) -> CloseReason {
    match bytes.first() {
        Some(&MARK_ELSEWHERE) => CloseReason::Elsewhere,
        _ => CloseReason::ByPeer(text(bytes, TEXT_BYTES_MAX)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn speaks(oldest: u32, newest: u32) -> Speaks {
        Speaks {
            oldest,
            newest,
            program: format!("0.{newest}"),
        }
    }

    #[test]
    fn the_newest_common_version_is_found_from_both_sides() {
        for (ours, theirs, common) in [
            (speaks(3, 5), speaks(4, 9), Some(5)),
            (speaks(3, 5), speaks(5, 5), Some(5)),
            (speaks(3, 5), speaks(6, 7), None),
            (speaks(8, 8), speaks(6, 7), None),
        ] {
            assert_eq!(ours.common(&theirs).ok(), common);
            assert_eq!(theirs.common(&ours).ok(), common);
        }
    }

    #[test]
    fn both_sides_are_told_which_is_older() {
        let (old, new) = (speaks(3, 3), speaks(4, 5));
        let at_old = old.common(&new).unwrap_err().to_string();
        let at_new = new.common(&old).unwrap_err().to_string();
        assert!(at_old.contains("this side is older"), "{at_old}");
        assert!(at_new.contains("the other side is older"), "{at_new}");
        assert!(at_old.contains("0.3 (protocol 3)") && at_old.contains("0.5 (protocol 4 to 5)"));
    }

    /// A program from before that reason shows its text, as it shows all others.
    #[test]
    fn a_peer_is_told_to_look_elsewhere_in_a_form_that_all_versions_read() {
        let bytes = elsewhere();
        assert!(matches!(refused(&bytes), CloseReason::Elsewhere));
        assert_eq!(text(&bytes, TEXT_BYTES_MAX), ELSEWHERE);
        assert!(bytes.len() <= TEXT_BYTES_MAX);
        for said in [ELSEWHERE, "\u{1}\u{2}no", ""] {
            let bytes = refusal(said);
            let shown: String = said.chars().filter(|c| !c.is_control()).collect();
            assert!(matches!(refused(&bytes), CloseReason::ByPeer(text) if text == shown));
        }
    }

    #[test]
    fn a_greeting_comes_back_as_it_was_and_rubbish_is_none() {
        let said = speaks(3, 700);
        assert_eq!(Speaks::decode(&said.encode()), Some(said.clone()));
        assert_eq!(Speaks::decode(&said.encode()[..7]), None);
        assert_eq!(Speaks::decode(&speaks(9, 8).encode()), None);
        let long = Speaks {
            program: "ä\n".repeat(500),
            ..said
        };
        let read = Speaks::decode(&long.encode()).unwrap();
        assert!(read.program.chars().all(|c| c == 'ä') && read.program.len() <= 64);
    }
}
