//! The errors of a stream, with advice.

use std::io;

/// Why a stream cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It begins with something else.
    #[error("this is not a stream of a volume: give what `ariel volume send` has written")]
    NotAStream,
    /// A later program wrote it.
    #[error(
        "the stream has version {found}, and this program reads up to version {known}: receive it \
         with a newer ariel"
    )]
    Newer {
        /// The version that it says.
        found: u32,
        /// The latest one that is known here.
        known: u32,
    },
    /// It ends too early.
    #[error("the stream ends in the middle, behind part {parts}")]
    Truncated {
        /// So many parts came whole.
        parts: u64,
    },
    /// Something in it is not what was written.
    #[error("the stream is damaged in part {part}: {what}")]
    Damaged {
        /// Which part, from 1 on; 0: the head.
        part: u64,
        /// How that shows.
        what: &'static str,
    },
    /// It cannot be read, or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}
