//! Front for the kernel: everything about FUSE is in this crate and nowhere else.
//!
//! The transport half speaks the kernel's interface and knows nothing of Ariel: `mount` makes a
//! mount and hands out the device, `Session` negotiates, reads requests and hands each with a
//! `Reply` to a `Handler`, `Notifier` takes back what the kernel caches, `guard` ends the
//! connection when the process that serves it was killed.

pub mod abi;
pub mod counters;
mod device;
pub mod directory;
mod feature;
pub mod front;
mod groups;
pub mod guard;
mod idle_policy;
pub mod init;
mod memory;
pub mod mount;
pub mod notify;
mod readers;
pub mod reply;
pub mod request;
pub mod session;
pub mod uring;

pub use counters::Counters;
pub use directory::DirectoryBuffer;
pub use feature::{Feature, Without};
pub use init::{InitError, Negotiated, Options, Transport};
pub use mount::{MountError, MountOptions, Mounted};
pub use notify::{Job, Kind, Notifier, NotifyCounters, Outcome};
pub use reply::{Delivery, FOREVER, Reply};
pub use request::{Header, Operation, ParseError, Request};
pub use rustix::io::Errno;
pub use session::{Handler, Session, SessionError};
