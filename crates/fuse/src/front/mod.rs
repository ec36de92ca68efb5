//! The front proper: the kernel's requests become calls of the client, the client's invalidations
//! become notifications of the kernel.
//!
//! Guarantees: no thread that serves requests ever waits: each request becomes a call whose
//! callback answers it, so one thread is enough. Every reference that an answer gives to the
//! kernel is counted in the client, and taken back if the kernel did not take the answer. Nothing
//! is decided here about what may be cached: lifetimes and the ways of opening are the client's,
//! unless the mount was asked to be inexact (`keeping`); what is added is what this kernel needs to
//! be told so that they come true. Error numbers are chosen in `errno` and nowhere else.
//!
//! Two directions, one file each and its helpers: `handler` (with `names`, `files`, `ranges`,
//! `listing`, `snapshots`, `elsewhere`) and `notices`. `recording` tells a listener of them,
//! `nodes` says what node ids mean, `convert` holds the pure translations, `serving` and `mounted`
//! put it all together.

mod callers;
mod convert;
mod elsewhere;
mod errno;
mod files;
mod handler;
mod keeping;
mod listing;
mod locks;
mod mounted;
mod names;
mod nodes;
mod notices;
mod options;
mod ranges;
mod recording;
mod serving;
mod snapshots;
mod sought;
mod unmount;

pub use elsewhere::{OtherVolume, Place, Servers};
pub use keeping::Keeping;
pub use mounted::{Mount, MountError};
pub use options::MountOptions;
pub use recording::{Accessed, Listener, Recorded};
