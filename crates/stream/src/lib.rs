//! The stream of a volume's snapshot, as it lies in a file or goes through a pipe.
//!
//! Guarantees: what [`Reader::next`] returns is what [`Writer::part`] was given, in the same order,
//! with nothing left out or added; and the end is told only of a stream that came whole. Each part
//! carries a hash of itself and of all parts before it. Reading never panics, whatever the bytes,
//! and allocates no more than a part may have. `docs/format.md` has the layout.
#![forbid(unsafe_code)]

mod error;
mod frame;
mod read;
mod token;
mod write;

pub use error::StreamError;
pub use frame::{Chain, End, Part, Resume, VERSION};
pub use read::{Next, Reader};
pub use token::{Mark, Token, TokenError};
pub use write::{Compression, Writer};
