//! The files of a directory on their way to another machine, while they are in use there: an
//! iterative pre-copy, as of the memory of virtual machines that move (Clark and others, "Live
//! migration of virtual machines", NSDI 2005).
//!
//! [`Target::round`] brings the copy nearer to its source, which may change meanwhile: a file that
//! is copied in the middle of a change is mended by a later round. With the source at rest
//! [`Target::last_round`] makes the copy exact. The target asks, and the source's [`Answerer`]
//! answers; the way in between is the caller's ([`Source`]).
//!
//! Guarantees: after a last round that returned no error both directories have the same plain files
//! with the same bytes, and all of the copy is on stable storage. A round that is interrupted
//! leaves a directory from which the next one goes on, whichever process begins it. Nothing that a
//! source says makes the target write outside of its directory, or allocate more than one answer,
//! one line for each file, and a few MiB. No answer is longer than [`ANSWER_BYTES`].
//!
//! **Sums.** A file is pieces of 64 KiB, and each 1024 of these are a stretch. A piece's sum is its
//! blake3 hash, cut to 128 bits; a stretch's is that of its pieces' sums, a file's that of its
//! stretches' sums. A round compares the sums of pieces and carries those pieces that differ. Of a
//! file whose sum both sides know already nothing is read: so a last round takes as long as those
//! files take to be read that have changed since the round before, or may be changed in place.
//!
//! **Relied on**, beside the hash:
//!
//! - Files whose names begin with one of [`GROWING`] only grow, or are replaced by a rename. Of
//!   these the source remembers sums, for as long as inode number, length and times are the same.
//!   If one of them were changed in its middle within the same tick of the kernel's clock as it was
//!   read, that would not be noticed. All other files are read in each round, however old they
//!   look.
//! - A source at rest is one whose files nobody writes, through mappings neither. A last round
//!   compares the directory's files and their times before and after, and refuses if they differ.
//! - Nobody else writes in the target's directory. The target remembers the sums of files that it
//!   has read and synced; all other files are read again, and synced.
//! - A file's bytes on the target are those that the kernel reads there after they were written. A
//!   file that could not be synced is removed, so that it is carried again.
#![forbid(unsafe_code)]

mod answer;
mod ask;
mod carry;
mod error;
mod sums;
mod target;

pub use answer::{Answerer, GROWING};
pub use ask::{ANSWER_BYTES, Ask, Bytes, EXCLUDED, FileLine, Sum, Told};
pub use ask::{PIECE_BYTES, STRETCH_BYTES};
pub use error::ShipError;
pub use target::{Round, Source, Target};
