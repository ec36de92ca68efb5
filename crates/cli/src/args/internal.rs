//! The command lines that this program writes for itself, and mount(8) for it.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct TortureWorkerArgs {
    /// The plan, as JSON
    pub(crate) plan: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// Where the mount is, for people to see; all else comes by standard input
    #[arg(value_name = "DIR")]
    _dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemountArgs {
    /// Where the mount is
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Words of mount(8)
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PagesArgs {
    /// Where the pages go
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
