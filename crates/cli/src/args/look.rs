//! The command lines of what looks at a mount, a server or a store.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel profile /mnt/a
  ariel profile --json 127.0.0.1:7000
Everything is measured all the time, from the start of the process on: what one command costs is the
difference of two profiles. Quantiles are the ends of ranges, too high by less than a quarter.")]
pub(crate) struct ProfileArgs {
    /// Print JSON, with durations in nanoseconds
    #[arg(long)]
    pub(crate) json: bool,
    /// A mount point, or the address of a server on this machine
    pub(crate) target: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel status /mnt/a
  ariel status --json 127.0.0.1:7000
Of a mount that has lost its server `disconnected` tells for how long, and why. Of a server
`sessions` has a line for each: its name, where it calls from, for how long this run of the server
has known it, and its lease.")]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A mount point, or the address of a server on this machine
    pub(crate) target: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A machine that was away for longer than its lease finds that others have changed what it had
changed, too. Their changes count; its own are kept beside them, in a file
NAME.conflict-HOST-TIME. Look at both, move what is right to NAME and remove the other.

Examples:
  ariel conflicts /mnt/a
  ariel conflicts --json /mnt/a/project")]
pub(crate) struct ConflictsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A directory; all that is below it on the same file system is looked through
    #[arg(default_value = ".")]
    pub(crate) path: std::path::PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel tokens /mnt/a
  ariel tokens 127.0.0.1:7000")]
pub(crate) struct TokensArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A mount point, or the address of a server on this machine
    pub(crate) target: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A line for each change, in the order in which the server made them:

  created     a name came to be (made, linked, or moved here from elsewhere)
  removed     a name is gone (removed, or moved elsewhere)
  moved       a name became another one; what had that name has lost it
  exchanged   two names changed places
  written     bytes of a file changed, or its size
  attributes  mode, owner, times, access list or an extended attribute changed
  missed      some changes are not told: after a restart of the server or a long
              time without a connection, or since this was not read fast enough.
              Look at the tree again.
  ended       what was watched is gone

A write on another machine is reported about a second after it, before its bytes
have left that machine. The command ends at Ctrl-C, with exit code 0 when what
it watches is gone, with 1 when the mount is.

With --json, lines such as
  {\"event\":\"watching\"}
  {\"event\":\"moved\",\"inode\":7,\"path\":\"a/b\",\"to\":\"c\",\"type\":\"file\"}
with paths from PATH on (\"\": PATH itself; null: one of the names of a file that
has lost the one that was known); `path_hex`, `to_hex` for names that are no UTF-8.

Examples:
  ariel watch /mnt/a/src
  ariel watch --recursive --json /mnt/a | while read -r event; do make; done")]
pub(crate) struct WatchArgs {
    /// Also all that is below, at whatever depth; costs no more however large that is
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A directory of a mount, or anything else there
    pub(crate) path: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each option of a command can stand in /etc/ariel/*.toml, below the command's name:
  [serve]
  data = \"/srv/ariel\"
  listen = \"127.0.0.1:7000\"
  [mount]
  cache-mib = 1024
  trusted = true
and in the environment, as ARIEL_MOUNT_CACHE_MIB=1024. The command line counts before the
environment, the environment before the files, and of the files the last one by name.
ARIEL_CONFIG names another directory than /etc/ariel; it must be there. Set to nothing, it says that
no files count. A variable with the name of a command and of no option of it is an error.
Examples:
  ariel config show              of `serve`, `mount` and `up`
  ariel config show mount --json")]
pub(crate) struct ConfigArgs {
    /// `show`: the value of each option, and where it comes from
    #[arg(value_parser = ["show"])]
    pub(crate) verb: String,
    /// The command whose options are shown [default: serve, mount and up]
    pub(crate) command: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel fsck /srv/a                       a store that no server has open
  ariel fsck 127.0.0.1:7000               the store of a server on this machine, beside its work
  ariel fsck --repair --dry-run /srv/a    what a repair would do, and what is lost
  ariel fsck --repair /srv/a
A server checks all of its store by itself, slowly, once a day, and makes a damaged index again: see
`checks` in `ariel status`. A check on demand covers the state of its last checkpoint, seconds ago.
A repair makes the index again from the log where it is damaged, moves what is good out of damaged
parts of the log, and notes bytes that are lost: reading these is an error until they are written
again. Replaced files stay in DIR under another name, until you remove it.
Exit code: 0 clean, or clean by now; 1 damage was found, or is left; 2 it could not be checked.")]
pub(crate) struct FsckArgs {
    /// Directory of the store, or the address of a server on this machine
    #[arg(value_name = "DIR|ADDR")]
    pub(crate) target: String,
    /// Repair what can be repaired; no server may have the store open
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair: only say what would be done
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
