//! The command line of `ariel torture`.

use super::{Cache, Cooperation, Transport, lifetime, seconds};
use clap::ValueEnum;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel torture --mount /mnt/a --mount /mnt/b         mounts of any file system
  ariel torture --cell 3 --seconds 60                 a server and three mounts, here and now
  ariel torture --cell 3 --kill server,client         and both are killed again and again
  ariel torture --cell 2 --cache ttl=1s               what others do: finds stale reads
  ariel torture --local /tmp                          one directory twice: tests the judge
  ariel torture --mount /mnt/a --mount /mnt/b --seconds 600 \\
      --kill-server 'systemctl kill -s KILL my-server; systemctl start my-server' --every 20
Works in a new directory of the tree and removes it. With kills every change is synced before it
counts; operations that fail in a crash may have happened or not.
Exit code: 0 no violation, 1 violation, 2 it could not be run.")]
pub(crate) struct TortureArgs {
    /// A mount; give at least two that show one tree
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["local", "cell"],
        conflicts_with_all = ["local", "cell"]
    )]
    pub(crate) mount: Vec<PathBuf>,
    /// Use this local directory as if it were two mounts
    #[arg(long, value_name = "DIR", conflicts_with = "cell")]
    pub(crate) local: Option<PathBuf>,
    /// Start an Ariel server and so many mounts for it, in a directory of their own below $TMPDIR;
    /// at the end they are gone, and the server's store has been checked
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) cell: Option<u32>,
    /// With --cell: as of `ariel mount`
    #[arg(long, value_name = "HOW", default_value = "exact", value_parser = lifetime::cache,
          requires = "cell")]
    pub(crate) cache: Cache,
    /// With --cell: as of `ariel mount`
    #[arg(long, value_enum, default_value_t = Transport::Auto, requires = "cell")]
    pub(crate) transport: Transport,
    /// With --cell: as of `ariel serve`
    #[arg(long, value_enum, default_value_t, requires = "cell")]
    pub(crate) cooperate: Cooperation,
    /// With --cell: kill -9 these again and again, and start them again
    #[arg(
        long,
        value_name = "WHOM",
        value_enum,
        value_delimiter = ',',
        requires = "cell"
    )]
    pub(crate) kill: Vec<Victim>,
    /// How long [default: 10]
    #[arg(long, value_name = "N", value_parser = seconds, conflicts_with = "operations")]
    pub(crate) seconds: Option<u64>,
    /// End after about so many operations
    #[arg(long, value_name = "N")]
    pub(crate) operations: Option<u64>,
    /// Decides what is tried; when, the machine decides
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Processes at each mount
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) processes: u32,
    /// Files of each kind: fewer are more contended
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) files: u32,
    /// A record that is read while it is written must not be torn
    #[arg(long)]
    pub(crate) atomic: bool,
    /// Command that kills the mount $TORTURE_MOUNT and mounts it again
    #[arg(long, value_name = "CMD", conflicts_with = "cell")]
    pub(crate) kill_client: Option<String>,
    /// Command that kills the server and starts it again
    #[arg(long, value_name = "CMD", conflicts_with = "cell")]
    pub(crate) kill_server: Option<String>,
    /// About so long between two kills
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) every: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Victim {
    /// The server.
    Server,
    /// A mount's daemon.
    Client,
}
