//! The command lines that start and end a server and a mount at once.

use super::Transport;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel up
  ariel up --data ./cell --mount ./tree
A second `up` says what is up already and starts what is missing.")]
pub(crate) struct UpArgs {
    /// Directory of the store [default: $XDG_DATA_HOME/ariel or ~/.local/share/ariel]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where to mount; made if it is not there [default: ~/ariel]
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: Option<PathBuf>,
    /// How the kernel's requests come to the mount: see `ariel mount --help`
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) transport: Transport,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ariel down --data ./cell")]
pub(crate) struct DownArgs {
    /// Directory of the store, as given to `up` [default: as of `up`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}
