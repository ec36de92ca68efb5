//! Access lists of directories as in Andrew: their form, what they allow, and what a kernel is told
//! in their place.
//!
//! Guarantees: every function here is pure, so that the server, a replay of its log and a test
//! decide alike; decoding never panics, whatever the bytes. The mode and POSIX list that a kernel
//! is shown ([`shown`]) never allow a caller more than the list does ([`List::rights`]): kernels
//! answer from their caches by them, and nobody asks the server then.
//!
//! A list belongs to a directory and governs it, and everything in it that is not a directory. See
//! Howard and others, "Scale and Performance in a Distributed File System", and Satyanarayanan,
//! "Integrating Security in a Large Distributed System", section 3.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod list;
mod members;
mod rights;
mod shown;

pub use list::{ENTRIES_MAX, Entry, List, Who};
pub use members::{GROUPS, Here, Members, Mount, is_group};
pub use rights::Rights;
pub use shown::{PEOPLE_MAX, Shown, shown};
