//! The command lines of users: who they are, and how they log in.

use super::cell::{AdminArgs, time_s};
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel login                           asks for a password
  ariel login --ssh                     with an ed25519 key of the ssh agent
  ariel login /mnt --token < job.token  shows a narrowed token, for this mount alone
Only machines that are not trusted with their users need it (`ariel machine grant --untrusted`). A
login counts for this machine and user, and is renewed by the mount's daemon for seven days.")]
pub(crate) struct LoginArgs {
    /// A mount of the cell [default: any mount on this machine]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The name in the cell [default: as on this machine]
    #[arg(long, value_name = "NAME", value_parser = cell::user_name)]
    pub(crate) user: Option<String>,
    /// With an ed25519 key of the ssh agent: its first one
    #[arg(long)]
    pub(crate) ssh: bool,
    /// With the one of this file (KEY.pub)
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(crate) key: Option<PathBuf>,
    /// The token counts for so long, a day at most
    #[arg(long, value_name = "TIME", default_value = "10h", value_parser = time_s)]
    pub(crate) expires: u64,
    /// It is not renewed
    #[arg(long)]
    pub(crate) once: bool,
    /// Show a token that standard input has, for the mount DIR alone, instead of logging in
    #[arg(long, requires = "dir", conflicts_with_all = ["user", "ssh", "key", "once", "expires"])]
    pub(crate) token: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// A mount of the cell [default: any mount on this machine]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WhoamiArgs {
    /// A mount of the cell [default: any mount on this machine]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the token of this user's login: a secret, which counts on this machine
    Show(LogoutArgs),
    /// Narrow the token that standard input has, without asking anybody, and print it
    Attenuate(AttenuateArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  ariel token show | ariel token attenuate --path /jobs/7 --read-only --expires 2h > job.token")]
pub(crate) struct AttenuateArgs {
    /// It counts at and below this path of the tree alone
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// It changes nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// It counts for so long from now: 30m, 1h
    #[arg(long, value_name = "TIME", value_parser = time_s)]
    pub(crate) expires: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user of the cell
    Add(UserAddArgs),
    /// List the users
    List(UserListArgs),
    /// Give a user another password; standard input has it, or you are asked
    Passwd(UserArgs),
    /// Take everything from a user: his logins end at once
    Remove(UserArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel user add ann --uid 1001 --ssh-key ~ann/.ssh/id_ed25519.pub
  ariel user add bob --uid 1002 --gid 100 --groups 7,8 --password < secret")]
pub(crate) struct UserAddArgs {
    #[command(flatten)]
    pub(crate) user: UserArgs,
    /// His number, in the tree and on the machines where he logs in
    #[arg(long, value_name = "N")]
    pub(crate) uid: u32,
    /// His group [default: the same number]
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,
    /// Further groups
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) groups: Vec<u32>,
    /// A file with a public key, of kind ssh-ed25519; may be given several times
    #[arg(long = "ssh-key", value_name = "FILE")]
    pub(crate) keys: Vec<PathBuf>,
    /// He has a password, too: standard input has it, or you are asked
    #[arg(long)]
    pub(crate) password: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UserListArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Names and numbers alone, as each user sees them through this mount
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "credentials"])]
    pub(crate) mount: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UserArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// His name
    #[arg(value_name = "NAME", value_parser = cell::user_name)]
    pub(crate) name: String,
}
