//! Segments: regions of memory whose pages are in frames of this machine or in files of a cell, so
//! that a program may use more memory than it is given, and fork it without copying it.
//!
//! A [`Pager`] serves the faults of programs, usually in a process of its own (`ariel run`). A
//! program has a [`Connection`] to it, and [`Segment`]s. `docs/memory.md` says what programs may
//! rely on.
//!
//! Guarantees: a segment reads as memory does; it is never zeros where something was written. If
//! the pager dies, its programs end with [`EXIT_CODE`], and do not wait.

mod error;
mod guardian;
mod memory;
mod pager;
mod program;
mod start;
mod store;
mod talk;
mod uffd;

pub use error::{Error, Result};
pub use guardian::EXIT_CODE;
pub use pager::{Pager, PagerOptions};
pub use program::{Connection, Detached, Fork, Joined, Segment, SegmentFigures};
pub use start::Started;
pub use store::{Backing, CellStore, Give, LocalStore, Store};
pub use uffd::PAGE;
