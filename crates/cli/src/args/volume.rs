//! The command lines about volumes.

mod moving;

pub(crate) use moving::{BalanceArgs, MoveArgs};

use super::{TrustArgs, cell};
use clap::Subcommand;
use net::Addresses;
use std::path::PathBuf;
use wire::{Name, is_volume_name};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume snapshot 127.0.0.1:7000 root monday
  ariel mount --volume root@monday 127.0.0.1:7000 /mnt/monday
  ariel get --volume root@monday 127.0.0.1:7000:/home/a/notes.txt .
  ariel volume clone 127.0.0.1:7000 root@monday experiment
  ariel volume delete 127.0.0.1:7000 root@monday
  ariel volume schedule 127.0.0.1:7000 root --every hour --keep 24 --every day --keep 30
  ariel volume create 127.0.0.1:7000 home --quota 10G --objects 1000000
  ariel volume mount 127.0.0.1:7000 home /home
A server begins with one volume, `root`. A snapshot is named VOLUME@SNAPSHOT and never changes; a
clone is a volume of its own that shares all it has until either is changed. Both are made in one
step, whatever a volume has, and cost no room until something changes. `send` and `receive` take a
snapshot to another server or into a file. `mount` makes a volume appear in the tree. All but
`list`, `show` and mount points of one's own are for root.
docs/operations.md tells more.")]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    pub(crate) command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List volumes and snapshots, with those whose deletion can be undone
    List(VolumeListArgs),
    /// Tell what is known of a volume or a snapshot
    Show(ShowArgs),
    /// Make an empty volume
    Create(CreateArgs),
    /// Freeze what a volume is now, with everything that any machine was told is written
    Snapshot(BranchArgs),
    /// Make a volume that has all that another one, or a snapshot, has now
    Clone(BranchArgs),
    /// Give a volume or a snapshot another name
    Rename(BranchArgs),
    /// Delete a volume with its snapshots, or one snapshot. For a week it can be undone
    Delete(OneArgs),
    /// Undo a deletion
    Undelete(OneArgs),
    /// End the week in which a deletion can be undone: the room is given back
    Purge(OneArgs),
    /// Have the server make snapshots by itself, and keep so many of them
    Schedule(ScheduleArgs),
    /// Say how much a volume may have: bytes, and objects
    Set(SetArgs),
    /// Move a volume that has a store of its own to another server, while programs use it
    Move(MoveArgs),
    /// Have read-only replicas of a volume on servers of the cell
    Replicate(ReplicateArgs),
    /// Measure what the servers have to do, and move volumes from busy or full ones to others
    Balance(BalanceArgs),
    /// Make a volume appear at a path of the tree, for all machines at once
    Mount(MountPointArgs),
    /// Remove a mount point, and nothing of the volume behind it
    Unmount(UnmountArgs),
    /// Write a snapshot, or what changed since another one, to a pipe or a file
    Send(SendArgs),
    /// Make a volume, or its next snapshot, of what `send` has written
    Receive(ReceiveArgs),
    /// Bring what a volume is now to all of its read-only replicas, and show it to readers
    Release(ReleaseArgs),
}

/// A server, and the credentials for it.
#[derive(Debug, clap::Args)]
pub(crate) struct AtArgs {
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Address of the server
    #[arg(value_name = "ADDR", value_parser = cell::addresses)]
    pub(crate) server: Addresses,
}

#[derive(Debug, clap::Args)]
pub(crate) struct VolumeListArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// Of all servers of the cell that run
    #[arg(long)]
    pub(crate) all: bool,
    /// A line of JSON for each
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume, or VOLUME@SNAPSHOT
    #[arg(value_name = "NAME", value_parser = existing)]
    pub(crate) name: Name,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) one: OneArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// Its name: letters, digits, dots, dashes and underscores
    #[arg(value_name = "NAME", value_parser = new)]
    pub(crate) name: Name,
    /// The mode of its root, octal
    #[arg(short = 'm', long, value_name = "MODE", default_value = "755",
          value_parser = super::tree::mode)]
    pub(crate) mode: u32,
    /// It has a store of its own on its server: it can move to another one while it is in use, and
    /// waits for no other volume. A server makes 127 of these
    #[arg(long)]
    pub(crate) own_store: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume replicate server-1:7070 data --on server-2,server-3
  ariel volume release server-1:7070 data
  ariel mount server-1:7070 /mnt/data --volume data.readonly
  ariel volume mount server-1:7070 data.readonly /pub
  ariel volume replicate server-1:7070 data --not-on server-3
A replica is empty until `ariel volume release` brings it what the volume is then, and does the same
again whenever it is asked for; nothing else changes it. All replicas of a volume have one name,
NAME.readonly, and a mount of it reads at one of the servers: at the one that it names, if that has
a replica, else at the one that answers first, and at another one when that is lost. The server of
the volume itself may have a replica, too.
`ariel volume show NAME` lists the replicas with their releases. With the last replica the name
NAME.readonly goes.
It is for root of a machine whose root is root, and for administrators.")]
pub(crate) struct ReplicateArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume
    #[arg(value_name = "NAME", value_parser = new)]
    pub(crate) name: Name,
    /// Have replicas on these servers, as `ariel cell servers` calls them
    #[arg(
        long,
        value_name = "SERVERS",
        value_delimiter = ',',
        required_unless_present = "not_on"
    )]
    pub(crate) on: Vec<String>,
    /// Take the replicas of these servers away
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub(crate) not_on: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Most bytes of its files, with K, M, G or T behind the number: 10G; none: no limit
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    pub(crate) quota: Option<u64>,
    /// Most files, directories and links; none: no limit
    #[arg(long, value_name = "N", value_parser = objects)]
    pub(crate) objects: Option<u64>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume set 127.0.0.1:7000 home --quota 10G --objects 1000000
  ariel volume set 127.0.0.1:7000 home --quota none
A limit that is not given stays as it is. A limit counts the bytes and objects of the volume's
tree as it is now; those that only snapshots keep do not count. A clone has limits of its own, at
first none. A limit below the present use takes nothing away: nothing grows until enough was
removed. Programs get `Disk quota exceeded` from write(2), and from calls that make a name. `df` of
a mount of the volume shows its quota, and `ariel volume show` its use.")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume
    #[arg(value_name = "NAME", value_parser = new)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume mount 127.0.0.1:7000 home /home
  ariel volume mount 127.0.0.1:7000 trial /home/alice/trial
  ariel volume mount --volume home 127.0.0.1:7000 alice /alice
The name must be free: a mount point is made there, and all machines see it at once. Programs find
the root of the volume in its place; statfs(2) there tells of the volume, and rename(2) and link(2)
across it are refused (EXDEV). It leads there also when the volume gets another name. A snapshot of
the volume around it has an empty directory in its place. `ariel volume unmount` removes it, and
nothing else does.
It is for root, and for who owns both the directory and the volume's root.")]
pub(crate) struct MountPointArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume, or VOLUME@SNAPSHOT, that is to appear
    #[arg(value_name = "NAME", value_parser = existing)]
    pub(crate) name: Name,
    /// The path where it is to appear
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// The volume whose tree the path is in [default: root]
    #[arg(long, value_name = "VOLUME", value_parser = new)]
    pub(crate) volume: Option<Name>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume unmount 127.0.0.1:7000 /home
  ariel volume unmount --volume home 127.0.0.1:7000 /alice
The volume stays as it is, and programs that have files of it open go on. A mount point whose volume
was deleted is removed in the same way.
It is for root, for the owner of the directory, and for who has made the mount point.")]
pub(crate) struct UnmountArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The path of the mount point
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// The volume whose tree the path is in [default: root]
    #[arg(long, value_name = "VOLUME", value_parser = new)]
    pub(crate) volume: Option<Name>,
}

/// A number that means none.
const NONE: &str = "none";

fn quota(text: &str) -> Result<u64, String> {
    match text {
        NONE => Ok(0),
        text => super::segment::size(text),
    }
}

fn objects(text: &str) -> Result<u64, String> {
    match text.parse() {
        _ if text == NONE => Ok(0),
        Ok(number) if number > 0 => Ok(number),
        _ => Err("not a number of objects: one above 0, or `none`".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct BranchArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume, or VOLUME@SNAPSHOT
    #[arg(value_name = "SOURCE", value_parser = existing)]
    pub(crate) source: Name,
    /// The new name; of a renamed snapshot VOLUME@NAME
    #[arg(value_name = "NAME", value_parser = existing)]
    pub(crate) name: Name,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume schedule 127.0.0.1:7000 root --every hour --keep 24 --every day --keep 30
  ariel volume schedule 127.0.0.1:7000 root --none
  ariel volume rename 127.0.0.1:7000 root@day-20261125-000000 root@before-the-move   kept for good
The server makes a snapshot when a period begins, in UTC, a week on Monday, and calls it after the
period and the time: hour-20261125-100000. Of one that it missed since it was down it makes another
when it serves again. Those beyond the number are deleted, and purged at once. Snapshots with
other names are never touched. A new schedule replaces the old one; snapshots of periods that are in
it no more stay.")]
pub(crate) struct ScheduleArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume
    #[arg(value_name = "NAME", value_parser = new)]
    pub(crate) name: Name,
    /// The period: minute, hour, day, week, or so many of s, m, h or d (15m)
    #[arg(long, value_name = "PERIOD", value_parser = period, required_unless_present = "none")]
    pub(crate) every: Vec<u32>,
    /// How many snapshots of the period are kept: one for each --every
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) keep: Vec<u16>,
    /// Make none any more; those that there are stay
    #[arg(long, conflicts_with_all = ["every", "keep"])]
    pub(crate) none: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume send 127.0.0.1:7000 root@monday > monday.ariel
  ariel volume send 127.0.0.1:7000 root@tuesday --since monday > tuesday.ariel
  ariel volume send 127.0.0.1:7000 root@tuesday --since monday |
    ssh backup ariel volume receive 127.0.0.1:7000 copy
  ariel volume send 127.0.0.1:7000 root@tuesday --since monday --dry-run
  ariel volume send 127.0.0.1:7000 root@tuesday --resume TOKEN | ...
All of the snapshot is written: names, bytes and holes, links, owners, modes, times, access lists
and extended attributes; each part with a hash of itself and of all before it. With --since the
stream has, and costs, the changes alone, however large the volume is. It is for root.")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// Snapshot to send
    #[arg(value_name = "VOLUME@SNAPSHOT", value_parser = snapshot)]
    pub(crate) name: Name,
    /// Send only what changed since this snapshot of the volume, which the receiver has
    #[arg(long, value_name = "SNAPSHOT", value_parser = existing)]
    pub(crate) since: Option<Name>,
    /// Go on where the receiver was interrupted, with the word that it said then
    #[arg(long, value_name = "TOKEN")]
    pub(crate) resume: Option<stream::Token>,
    /// How hard parts are compressed with zstd, from 1 to 19, or `none`
    #[arg(long, value_name = "LEVEL", default_value = "3", value_parser = compression)]
    pub(crate) compress: stream::Compression,
    /// Write nothing, and tell how much it would be
    #[arg(short = 'n', long, conflicts_with = "resume")]
    pub(crate) dry_run: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume receive 127.0.0.1:7000 copy < monday.ariel
  ariel volume receive 127.0.0.1:7000 copy < tuesday.ariel
  ariel volume receive 127.0.0.1:7000 copy --rollback < tuesday.ariel
  ariel volume receive 127.0.0.1:7000 copy --discard
Nobody sees any of it before all has come: then the volume is there, or is what the new snapshot
has, in one step, and has a snapshot of the same name. After an interruption what came is kept, and
the command says how to go on; the same stream from the beginning will do as well.
It is for root.")]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume: a new one, or of changes the copy that they are for
    #[arg(value_name = "VOLUME", value_parser = new)]
    pub(crate) name: Name,
    /// Undo what was changed in the volume since the snapshot that the changes are for
    #[arg(long)]
    pub(crate) rollback: bool,
    /// Give up what has been received of a snapshot that is not complete
    #[arg(long, conflicts_with = "rollback")]
    pub(crate) discard: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel volume replicate server-1:7070 data --on server-2,server-3
  ariel volume release server-1:7070 data
  ariel mount --volume data.readonly server-1:7070 /mnt/data
A release is a snapshot of the volume, data@release-7. The changes since the release before go to
all servers that have a replica, at the same time; when they have them on their disks, the release
is made, and they show it. Readers see one release at a time, and never an older one afterwards; a
file that was open before stays as it was, and caches of unchanged files stay. The volume is in use
all the while.
A server that is not reached is named, and the others get the release without it; the next one
brings it up. Until then it shows no older release to anybody who comes anew. The command then ends
with 1. When the command is ended before the release is made, nothing has happened, and the next one
begins with what the volume is then; afterwards the servers show the release without it. Of two
commands at the same time one waits.
It is for root of a machine whose root is root, and for administrators.")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The volume
    #[arg(value_name = "NAME", value_parser = new)]
    pub(crate) name: Name,
    /// How many releases each replica keeps: a file that is open since an older one is stale
    #[arg(long, value_name = "N", default_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) keep: u32,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// A name of a snapshot.
fn snapshot(text: &str) -> Result<Name, String> {
    match text.contains('@') {
        true => existing(text),
        false => Err(
            "not a snapshot: make one with `ariel volume snapshot`, and send VOLUME@SNAPSHOT"
                .to_owned(),
        ),
    }
}

fn compression(text: &str) -> Result<stream::Compression, String> {
    let level = || text.parse().ok().filter(|level| (1..=19).contains(level));
    match (text, level()) {
        ("none", _) => Ok(stream::Compression::None),
        (_, Some(level)) => Ok(stream::Compression::Level(level)),
        _ => Err("not a level: 1 (fast) to 19 (small), or none".to_owned()),
    }
}

/// Seconds of a period.
fn period(text: &str) -> Result<u32, String> {
    let of = |count: &str, seconds: u32| count.parse::<u32>().ok()?.checked_mul(seconds);
    let seconds = match text {
        "minute" => Some(60),
        "hour" => Some(3600),
        "day" => Some(24 * 3600),
        "week" => Some(7 * 24 * 3600),
        _ => match text.split_at_checked(text.len().saturating_sub(1)) {
            Some((count, "s")) => of(count, 1),
            Some((count, "m")) => of(count, 60),
            Some((count, "h")) => of(count, 3600),
            Some((count, "d")) => of(count, 24 * 3600),
            _ => None,
        },
    };
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| {
        "not a period: minute, hour, day, week, or a number with s, m, h or d, as 15m".to_owned()
    })
}

/// A name of a volume or of a snapshot.
pub(crate) fn existing(text: &str) -> Result<Name, String> {
    let mut parts = text.splitn(2, '@');
    match parts.all(|part| is_volume_name(part.as_bytes())) {
        true => Name::new(text.as_bytes()).map_err(|error| error.to_string()),
        false => Err(
            "not the name of a volume: letters, digits, dots, dashes and underscores, and no dot \
             or dash first; a snapshot is VOLUME@SNAPSHOT"
                .to_owned(),
        ),
    }
}

fn new(text: &str) -> Result<Name, String> {
    match text.contains('@') {
        true => Err("a volume's name has no `@`: that is for its snapshots".to_owned()),
        false => existing(text),
    }
}
