//! The tree without a kernel: a blocking library for programs that need no mount, no FUSE and no
//! root.
//!
//! Guarantees: a program's view of a [`Tree`], and its changes through it, are exact against mounts
//! and other trees, as `docs/semantics.md` says it of mounts; the cache is the client's alone, and
//! nothing is kept beside it; [`Tree::close`] returns when the server has everything.
//!
//! Paths begin at the tree's root, with or without a `/`. Symbolic links are followed as system
//! calls follow them; a target that begins with `/` begins at the tree's root. Any number of
//! threads may use a tree: a call blocks its own thread only.
#![forbid(unsafe_code)]

mod access;
mod acl;
mod attrs;
mod bare;
mod claim;
mod error;
mod file;
mod listing;
mod names;
mod object;
mod tree;
mod volumes;
mod walk;
mod watch;
mod xattrs;

pub use attrs::{Metadata, SetAttributes, Statistics};
pub use error::{Error, Result};
pub use file::{File, OpenOptions};
pub use listing::{DirEntry, ReadDir};
pub use names::{Device, RenameMode};
pub use tree::{Options, Tree};
pub use volumes::MountError;
pub use watch::Watch;
