//! The command lines about the servers that have volumes.

use super::{AtArgs, new};
use wire::Name;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume create server-1:7070 data --own-store
  ariel volume move server-1:7070 data server-2
  ariel volume move server-1:7070 data server-2 --cancel
Mounts, open files, locks and changes that were not written back go on: for the clients of the
volume its server restarts elsewhere, which they notice by a pause of less than a second, as a
rule. Its snapshots, and clones of it, move with it. The volume is copied while it is in use, in
rounds, then closed for the last one. The server that takes it does the work: when this command
is ended the move goes on, and the same command shows it again. Until the end of the last round the
volume is where it was, and a move that fails leaves it there.
It is for root of a machine whose root is root, and for administrators.")]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume
    #[arg(value_name = "NAME", value_parser = new)]
    pub(crate) name: Name,
    /// The server that takes it, as `ariel cell servers` calls it
    #[arg(value_name = "SERVER")]
    pub(crate) to: String,
    /// End a move that is under way: the volume stays where it is
    #[arg(long)]
    pub(crate) cancel: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume balance server-1:7070 --plan
  ariel volume balance server-1:7070 --plan --seconds 60
  ariel volume balance server-1:7070
The servers are asked twice how many messages and bytes each of their stores has had; a message, or
64 KiB, is one unit of work. A move is proposed where it brings the work of the servers nearer
to each other by a good part of it, or a server's disk below 85 %; never onto a disk that would be
fuller than that, and never a volume twice. Volumes move that have a store of their own (`ariel
volume create --own-store`). Each line of the plan is a command; without --plan the
moves are made, one after the other. A move that is refused is named with the reason, and so are
those that count on the room or the work that it was to bring; the others are made, and the exit
status is 1. A server that does not answer is left out, and named.
It is for root of a machine whose root is root, and for administrators.")]
pub(crate) struct BalanceArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// Print the moves, and make none
    #[arg(long)]
    pub(crate) plan: bool,
    /// For how long the work is measured, s
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
