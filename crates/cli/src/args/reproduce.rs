//! The command line of the papers' experiments.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel reproduce --list
  ariel reproduce fork
  ariel reproduce fork --json --local /dev/shm
  ariel reproduce memory                 writes memory.md, memory.json and the plots
  ariel reproduce cooperative            writes cooperative.md, cooperative.json and the plots
  ariel reproduce cooperative --short    without the snooped trace, in half a minute")]
pub(crate) struct ReproduceArgs {
    /// Which experiment; see --list
    #[arg(value_enum, required_unless_present = "list")]
    pub(crate) experiment: Option<Experiment>,
    /// List the tables that can be measured, and how
    #[arg(long)]
    pub(crate) list: bool,
    /// Directory for the backing store of experiments with memory
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    pub(crate) local: PathBuf,
    /// Print JSON (`cooperative` and `memory` write it always)
    #[arg(long)]
    pub(crate) json: bool,
    /// Where `cooperative` and `memory` write their results; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "docs/reproduction")]
    pub(crate) out: PathBuf,
    /// The seed of what `cooperative` and `memory` draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Leave out what takes minutes
    #[arg(long)]
    pub(crate) short: bool,
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Experiment {
    /// Nelson, tables 7-1, 7-3 and 7-4: what a copy-on-write, copy-on-reference fork saves
    Fork,
    /// Nelson, chapter 6: a file cache of fixed and variable size against virtual memory
    Memory,
    /// Figures 4 to 14 of the paper on cooperative caching, and our own algorithm beside them
    Cooperative,
}
