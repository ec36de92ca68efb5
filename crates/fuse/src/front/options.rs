//! The options of a mount.

use client::Server;
use client::front::CacheSize;
use client::front::{LendLimits, Lends};
use std::path::PathBuf;
use std::sync::Arc;

use super::elsewhere::Servers;
use super::keeping::Keeping;
use crate::feature::Without;
use crate::init::Transport;
use crate::mount::{Flags, MountId};

/// The server, the mount point and the ways of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The mount point: an empty directory.
    pub dir: PathBuf,
    /// The server.
    pub server: Server,
    /// How requests come.
    pub transport: Transport,
    /// Features that the kernel has and that are not to be used.
    pub without: Without,
    /// Threads that read requests from the device; one is enough.
    pub threads: usize,
    /// Opens and closes are not announced: faster, and less exact for writers.
    pub silent_opens: bool,
    /// The rights of programs; set-id bits and device nodes count only if root asks for it.
    pub flags: Flags,
    /// Mount only where this dead mount still is, and take its place.
    pub replaces: Option<MountId>,
    /// For how long the kernel keeps what it is given.
    pub keeping: Keeping,
    /// A signal that a program handles ends its reads, syncs, and writes that were not sent.
    pub interruptible: bool,
    /// For so long a call waits while the server says nothing, ns; `None`: for ever.
    pub timeout_ns: Option<u64>,
    /// Memory for blocks.
    pub cache: CacheSize,
    /// Age at which changed blocks are written back, ns.
    pub write_delay_ns: u64,
    /// Age at which changes in directories of its own are told to the server, ns; 0: it is asked
    /// about each.
    pub name_delay_ns: u64,
    /// The volume, or the snapshot, whose root is mounted; `None`: the first volume.
    pub volume: Option<String>,
    /// The directory in it that is mounted; `None`: its root.
    pub part: Option<PathBuf>,
    /// Finds the servers of volumes that this one has not; `None`: nobody looks for them.
    pub servers: Option<Arc<dyn Servers>>,
    /// The root shows no name for the snapshots of its volume.
    pub hides_snapshots: bool,
    /// When it lends cached blocks to other mounts, if the server says that mounts do so.
    pub lends: Lends,
    /// How much it lends, and keeps for other mounts.
    pub lend_limits: LendLimits,
    /// A name for people: host and mount point.
    pub name: String,
}
