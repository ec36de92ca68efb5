//! The command lines of access lists.

use access::Rights;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel acl set /mnt/a/plan ann write bob read   give rights, others keep theirs
  ariel acl set /mnt/a/plan carl w --negative    take a right, whoever gives it
  ariel acl set -r /mnt/a/plan group:100 read    the same in all directories below
  ariel acl set /mnt/a/plan ann:friends read     a group of the cell (`ariel group`)
  ariel acl get /mnt/a/plan
  ariel acl copy /mnt/a/plan /mnt/a/other
  ariel acl clear -r /mnt/a/plan                 modes and POSIX lists decide again
A list belongs to a directory of a mount and says who may use it, and the files in it, in place of
modes and POSIX lists; of a file's mode the owner's bits count, for everybody. A new directory has
the list of the one in which it is made. WHO is a user of the cell (`ann`: `ariel user list`), or
else of this machine, or a user's number; a group of the cell (`ann:friends`, `staff`) or of
machines (`group:users`, `group:100`), or `anyone`. RIGHTS are letters, or a word: r read and
w write files, k lock them, l look up and list names, i make names, d take them away, a change the
list; `read` is rl, `write` rlidwk, `all` rlidwka, `none` takes the entry away. When a command has
returned, its change is in force on every mount. docs/semantics.md tells more.")]
pub(crate) struct AclArgs {
    #[command(subcommand)]
    pub(crate) command: AclCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    /// Show the list of a directory, or the one that governs a file
    Get(AclGetArgs),
    /// Give rights to users and groups, or take them
    Set(AclSetArgs),
    /// Give directories the list of another one
    Copy(AclCopyArgs),
    /// Take the list from a directory
    Clear(AclClearArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AclGetArgs {
    /// A directory or a file of a mount
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// And all directories below
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AclSetArgs {
    /// A directory of a mount
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Pairs: a user or a group, and rights
    #[arg(value_name = "WHO RIGHTS", required = true, num_args = 2..)]
    pub(crate) entries: Vec<String>,
    /// The entries take rights that others give
    #[arg(long)]
    pub(crate) negative: bool,
    /// Forget all other entries
    #[arg(long)]
    pub(crate) only: bool,
    /// And in all directories below
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AclCopyArgs {
    /// The directory whose list is copied
    #[arg(value_name = "FROM")]
    pub(crate) from: PathBuf,
    /// The directories that get it
    #[arg(value_name = "TO", required = true)]
    pub(crate) to: Vec<PathBuf>,
    /// And all directories below them
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AclClearArgs {
    /// A directory of a mount
    #[arg(value_name = "DIR", required = true)]
    pub(crate) dirs: Vec<PathBuf>,
    /// And all directories below
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

/// Rights as a command line has them.
pub(crate) fn rights(text: &str) -> Result<Rights, String> {
    Rights::parse(text).ok_or_else(|| {
        format!("{text:?} are no rights: letters of rlidwka, or read, write, all, none")
    })
}
