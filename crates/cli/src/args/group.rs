//! The command lines of groups.

use super::cell::AdminArgs;
use clap::Subcommand;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Make a group: `ann:friends` of your own, `staff` as an administrator
    Create(GroupArgs),
    /// Remove a group: lists that name it give nobody anything by that
    Delete(GroupArgs),
    /// Put users or other groups into a group
    Add(GroupMembersArgs),
    /// Take users or other groups out of a group
    Remove(GroupMembersArgs),
    /// Tell who owns a group and who is in it
    Show(GroupShowArgs),
    /// List the groups of the cell
    List(GroupListArgs),
    /// Give a group another name
    Rename(GroupToArgs),
    /// Give a group to another user; it goes by his name then
    Chown(GroupToArgs),
    /// Give up your own membership on a mount, until you take it back
    Disable(GroupHoldArgs),
    /// Take back a membership that you have given up on a mount
    Enable(GroupHoldArgs),
    /// Run a program, and whatever it starts, without your membership of some groups
    Without(GroupWithoutArgs),
}

/// How the asker reaches the cell: through a mount, as the user who he is, or as its administrator.
#[derive(Debug, clap::Args)]
pub(crate) struct GroupWayArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// A mount of the cell [default: any mount on this machine]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "credentials"])]
    pub(crate) mount: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel group create ann:friends
  ariel group create staff --data /srv/ariel     as an administrator
Each user makes groups of his own, and root of a machine that is believed about it makes any. In
lists of `ariel acl` a group stands under its name.")]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    pub(crate) way: GroupWayArgs,
    /// The group
    #[arg(value_name = "GROUP", value_parser = cell::group_name)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel group disable ann:friends                what the group may do is not yours any more
  ariel group enable ann:friends                 it is again
It holds for all your programs on the mount; for one program see `ariel group without`.")]
pub(crate) struct GroupHoldArgs {
    #[command(flatten)]
    pub(crate) way: GroupWayArgs,
    /// The group
    #[arg(value_name = "GROUP", value_parser = cell::group_name)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel group add ann:friends bob carl
  ariel group add staff ann:friends              all friends, now and later
Members that cannot be changed are named at the end; the others are. When the command has returned,
what it changed is in force on every mount. `ariel user list` shows the cell's users.")]
pub(crate) struct GroupMembersArgs {
    #[command(flatten)]
    pub(crate) way: GroupWayArgs,
    /// The group
    #[arg(value_name = "GROUP", value_parser = cell::group_name)]
    pub(crate) name: String,
    /// Users, by name or number, and groups
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GroupShowArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GroupListArgs {
    #[command(flatten)]
    pub(crate) way: GroupWayArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GroupToArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// The new name, or the new owner
    #[arg(value_name = "TO")]
    pub(crate) to: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel group without ann:friends -- make
  ariel group without staff admins -- bash       a shell that can spoil less
The program and all that it starts see, in the place of the mount, one of their own, on which you
are not in these groups, nor in others that you are in by these alone. `ariel group enable` in it
takes a membership back there. The mount goes when the last of them has ended. It guards against
errors, not against a program that wants your rights back: give that one a narrower token
(`ariel token`). Other users' files are shown to it as nobody's, as in any user namespace.")]
pub(crate) struct GroupWithoutArgs {
    /// A mount of the cell [default: any mount on this machine]
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: Option<PathBuf>,
    /// The groups
    #[arg(value_name = "GROUP", required = true, value_parser = cell::group_name)]
    pub(crate) groups: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WithinArgs {
    /// The mount that the program does not see
    #[arg(value_name = "DIR")]
    pub(crate) of: PathBuf,
    /// The one that it sees in its place
    #[arg(value_name = "DIR")]
    pub(crate) at: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
