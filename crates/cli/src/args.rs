//! The command line.

mod acl;
mod bench;
mod cell;
mod cooperate;
mod group;
mod internal;
mod lend;
mod lifetime;
mod login;
mod look;
mod memory;
mod reproduce;
mod segment;
mod serve;
mod sim;
mod torture;
mod trace;
mod tree;
mod up;
mod volume;
mod words;

pub(crate) use acl::{
    AclArgs, AclClearArgs, AclCommand, AclCopyArgs, AclGetArgs, AclSetArgs, rights,
};
pub(crate) use bench::BenchArgs;
pub(crate) use cell::{
    AdminArgs, CellCommand, CellInitArgs, CellServersArgs, JoinArgs, JoinTokenArgs, MachineCommand,
    RightsArgs, TrustArgs,
};
pub(crate) use cooperate::{CooperateArgs, Cooperation};
pub(crate) use group::{
    GroupArgs, GroupCommand, GroupHoldArgs, GroupMembersArgs, GroupWayArgs, GroupWithoutArgs,
    WithinArgs,
};
pub(crate) use internal::{GuardArgs, PagesArgs, RemountArgs, TortureWorkerArgs};
pub(crate) use lifetime::Cache;
pub(crate) use login::{
    AttenuateArgs, LoginArgs, LogoutArgs, TokenCommand, UserAddArgs, UserArgs, UserCommand,
    UserListArgs, WhoamiArgs,
};
pub(crate) use look::{
    ConfigArgs, ConflictsArgs, FsckArgs, ProfileArgs, StatusArgs, TokensArgs, WatchArgs,
};
pub(crate) use reproduce::{Experiment, ReproduceArgs};
pub(crate) use segment::{FarArgs, PagerArgs, RunArgs, SegmentArgs, SegmentCommand};
pub(crate) use serve::ServeArgs;
pub(crate) use sim::{SimArgs, SimSize};
pub(crate) use torture::{TortureArgs, Victim};
pub(crate) use trace::{
    Form, GenerateArgs, InfoArgs, InputArgs, RecordArgs, ReplayArgs, TraceArgs, TraceCommand, Unit,
    Work,
};
pub(crate) use tree::{
    CatArgs, GetArgs, LsArgs, MkdirArgs, MvArgs, PutArgs, Remote, RmArgs, Source, StatArgs,
    TreeArgs, remote, source,
};
pub(crate) use up::{DownArgs, UpArgs};
pub(crate) use volume::{
    AtArgs, BalanceArgs, BranchArgs, CreateArgs, LimitArgs, MountPointArgs, MoveArgs, OneArgs,
    ReceiveArgs, ReleaseArgs, ReplicateArgs, ScheduleArgs, SendArgs, SetArgs, ShowArgs,
    UnmountArgs, VolumeArgs, VolumeCommand, VolumeListArgs,
};
pub(crate) use words::words;

use crate::failure::{Failure, NOT_RUN};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand, ValueEnum};
use fuse::Without;
use fuse::mount::Flags;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  ariel up                                   a server and a mount of it, here and now
  ariel serve --data /srv/a --listen 127.0.0.1:7000
  ariel mount 127.0.0.1:7000 /mnt/a          any number of mounts of one server
  ariel status /mnt/a                        how a mount is
  ariel umount /mnt/a
  ariel down                                 end what `up` has started

Exit codes: 0 done; 1 failed, or damage was found; 2 wrong command line, or a check could not run.
The environment variable ARIEL_LOG (error, warn, info, debug, trace) says how much is logged.
Each option can also stand in /etc/ariel/*.toml, or in the environment: see `ariel config --help`.";

/// Ariel: one file tree for many machines, cached in each as if it were local, exact everywhere.
#[derive(Debug, Parser)]
#[command(name = "ariel", version, about, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a server and mount it, on this machine, as daemons
    Up(UpArgs),
    /// Unmount and stop what `up` has started
    Down(DownArgs),
    /// Make a cell: the machines that belong together
    #[command(subcommand)]
    Cell(CellCommand),
    /// Print a line with which another machine joins the cell
    JoinToken(JoinTokenArgs),
    /// Make this machine one of a cell
    Join(JoinArgs),
    /// See, bound and remove the machines of a cell
    #[command(subcommand)]
    Machine(MachineCommand),
    /// See, make and remove the users of a cell
    #[command(subcommand)]
    User(UserCommand),
    /// Prove who you are, on a machine that is not trusted with its users
    Login(LoginArgs),
    /// End this user's login on this machine
    Logout(LogoutArgs),
    /// Tell who this user is in the cell
    Whoami(WhoamiArgs),
    /// Show and narrow the token of a login
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make, see and change groups of users, for access lists
    #[command(subcommand)]
    Group(GroupCommand),
    /// Say who may use a directory and the files in it, as in Andrew
    Acl(AclArgs),
    /// Serve a store to the machines of its cell
    Serve(ServeArgs),
    /// Mount a server's tree
    Mount(MountArgs),
    /// Write everything back and unmount
    Umount(UmountArgs),
    /// Tell how a mount or a server is
    Status(StatusArgs),
    /// List what is kept beside what others did, since its machine was away meanwhile
    Conflicts(ConflictsArgs),
    /// Tell where the time goes in a mount or a server
    Profile(ProfileArgs),
    /// List the tokens that a mount or a server holds
    Tokens(TokensArgs),
    /// Say, or change, how the clients of a server lend cached blocks to each other
    Cooperate(CooperateArgs),
    /// Print what changes below a path of a mount, whichever machine does it
    Watch(WatchArgs),
    /// List directories of a server's tree, without a mount
    Ls(LsArgs),
    /// Write files of a server's tree to standard output
    Cat(CatArgs),
    /// Copy local files and directories into a server's tree
    Put(PutArgs),
    /// Copy files and directories of a server's tree to this machine
    Get(GetArgs),
    /// Remove files and directories of a server's tree
    Rm(RmArgs),
    /// Move files and directories within a server's tree
    Mv(MvArgs),
    /// Make directories in a server's tree
    Mkdir(MkdirArgs),
    /// Tell what a file of a server's tree is
    Stat(StatArgs),
    /// Make, clone, freeze and delete volumes of a server
    Volume(VolumeArgs),
    /// Run a program that uses more memory than it is given; the rest goes to a cell
    Run(RunArgs),
    /// Look at memory that is paged to a cell
    Segment(SegmentArgs),
    /// Tell which options are set, and by which file or variable
    Config(ConfigArgs),
    /// Check a store: a directory that no server has open, or that of a server, while it serves
    Fsck(FsckArgs),
    /// Run simulated worlds: random programs, faults and crashes from one seed
    Sim(SimArgs),
    /// Judge mounts of any file system: do programs see what they would see on one machine?
    Torture(TortureArgs),
    /// Measure a mount beside a local directory
    Bench(BenchArgs),
    /// Make, describe and replay traces of accesses to files
    Trace(TraceArgs),
    /// Repeat an experiment of the papers, beside their figures
    Reproduce(ReproduceArgs),
    /// One process of `torture`
    #[command(name = "__torture-worker", hide = true)]
    TortureWorker(TortureWorkerArgs),
    /// Serve the faults of programs; started by the library of segments
    #[command(name = "__pager", hide = true)]
    Pager(PagerArgs),
    /// See to a mount whose daemon is dead; started by `mount`
    #[command(name = "__guard", hide = true)]
    Guard(GuardArgs),
    /// Change the flags of a mount; what `mount -o remount` calls
    #[command(name = "__remount", hide = true)]
    Remount(RemountArgs),
    /// A program sees a mount of its own in the place of another one
    #[command(name = "__within", hide = true)]
    Within(WithinArgs),
    /// Write the manual pages into a directory; what `make install` calls
    #[command(name = "__pages", hide = true)]
    Pages(PagesArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel mount 127.0.0.1:7000 /mnt/a
  ariel mount 127.0.0.1:7000:/projects/a /mnt/a        a directory of the tree
  ariel mount 127.0.0.1:7000 /mnt/b -f --opens silent
  ariel mount 127.0.0.1:7000 /mnt/c --cache ttl=1s     may show what is a second old
  ariel mount 127.0.0.1:7000 /mnt/d -o ro,noexec,cache-mib=64
Returns when the mount works. With -f it prints `mounted ADDR at DIR` then, stays in the foreground
and ends when it is unmounted, or unmounts on SIGTERM and SIGINT.
A mount whose process dies answers `Transport endpoint is not connected` until it is mounted again:
by itself, or, with -f, by what has started it. It is never replaced by what lies below it.
Called as mount.ariel or mount.fuse.ariel it is what mount(8) and /etc/fstab need.")]
pub(crate) struct MountArgs {
    /// Address of the server: host and port, several of them with commas between; behind a colon
    /// the directory of the tree that is mounted, if it is not all
    #[arg(value_name = "ADDR[:PATH]", value_parser = source)]
    pub(crate) source: Source,
    /// Where to mount: an empty directory, or a mount of Ariel whose process is dead
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The usual options of mount(8), with commas between them (ro, nosuid, noexec, noatime ...),
    /// and those of this command without their dashes (cache-mib=64)
    #[arg(short = 'o', long = "options", value_name = "LIST", value_parser = flags)]
    pub(crate) flags: Option<Flags>,
    /// The volume, or VOLUME@SNAPSHOT, whose root is mounted [default: root]
    #[arg(long, value_name = "VOLUME", value_parser = volume::existing)]
    pub(crate) volume: Option<wire::Name>,
    /// Do not show the volume's snapshots in `.snapshots` at its root
    #[arg(long)]
    pub(crate) hide_snapshots: bool,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Stay in the foreground and log to standard error
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Say nothing when it is mounted
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// How the kernel's requests come: `uring`, over io_uring, where the kernel allows it (Linux
    /// 6.14, and Y in /sys/module/fuse/parameters/enable_uring); `dev`, from /dev/fuse
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) transport: Transport,
    /// Do as if the kernel did not have these features: words of docs/kernels.md with commas
    /// between them, or `all`. To find out whether one is at fault, and to test
    #[arg(long, value_name = "FEATURES")]
    pub(crate) without: Option<Without>,
    /// Threads that read /dev/fuse
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Does the kernel announce each open? `silent`: opens of cached files cost nothing, but
    /// writes are seen by other machines later
    #[arg(long, value_enum, default_value_t = Opens::Announced)]
    pub(crate) opens: Opens,
    /// Set-user-id and set-group-id bits and device nodes count, as on a local disk (root only).
    /// Without it they are kept and shown, and nothing else
    #[arg(long)]
    pub(crate) trusted: bool,
    /// For how long the kernel keeps names, attributes and pages: `exact`, until just before they
    /// become wrong; or `ttl=1s` (any time in s or ms), as other network file systems do: then
    /// programs may read what is that old. Only to compare with, and to test judges
    #[arg(long, value_name = "HOW", default_value = "exact", value_parser = lifetime::cache)]
    pub(crate) cache: Cache,
    /// A call that waits while the server says nothing for so long fails with EIO; its change is
    /// made once or not at all [default: it waits until the server is back]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<u64>,
    /// A signal that a program handles ends its read, its fsync, and its write that was not sent
    /// to the server yet, with EINTR. Without this only signals that end the program do
    #[arg(long)]
    pub(crate) intr: bool,
    #[command(flatten)]
    pub(crate) memory: memory::CacheArgs,
    #[command(flatten)]
    pub(crate) lend: lend::LendArgs,
    /// Age at which changed blocks are written back
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) write_delay: u64,
    /// Age at which what was made, moved or removed in directories that nobody else uses is told to
    /// the server; 0: the server is asked about each change first
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) name_delay: u64,
    /// Where the background process logs [default: beside its control socket, see the output]
    #[arg(long, value_name = "FILE", overrides_with = "log")]
    pub(crate) log: Option<PathBuf>,
    /// Show what is counted at http://ADDR/metrics, in Prometheus' text format: docs/service.md.
    /// Anybody who reaches ADDR can read it; it names no file and no user
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// This is the background process
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    #[command(flatten)]
    pub(crate) again: AgainArgs,
}

/// The arguments that a guard or a daemon adds when it mounts again.
#[derive(Debug, clap::Args)]
pub(crate) struct AgainArgs {
    /// Take the place of this mount, which is dead
    #[arg(long = "again", hide = true, value_name = "ID")]
    pub(crate) replaces: Option<u64>,
    /// How often in a row its daemon has died soon
    #[arg(long, hide = true, value_name = "N", default_value_t = 0)]
    pub(crate) deaths: u32,
    /// Where DIR is, seen from the root
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) at: Option<PathBuf>,
    /// For one program and what it starts: the mount is not begun again, and shows no metrics
    #[arg(long, hide = true)]
    pub(crate) apart: bool,
}

/// How do the kernel's requests come?
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// As is best here.
    Auto,
    /// Over io_uring.
    Uring,
    /// From /dev/fuse.
    Dev,
}

impl Transport {
    /// As it is written on a command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Uring => "uring",
            Transport::Dev => "dev",
        }
    }
}

/// Does the kernel announce opens and closes?
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Opens {
    /// Each: exact sharing.
    Announced,
    /// None.
    Silent,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel umount /mnt/a            everything is written back first
  ariel umount --force /mnt/a    within seconds, also if the server is away and programs wait")]
pub(crate) struct UmountArgs {
    /// End the mount within seconds whatever the server does: programs that use it get errors, and
    /// what cannot be written back is given up. Says what that is
    #[arg(long)]
    pub(crate) force: bool,
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

fn seconds(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok((seconds * 1e9) as u64),
        _ => Err("not a number of seconds from 0 to 86400".to_owned()),
    }
}

/// Words of mount(8); [`words`] has taken out others.
fn flags(list: &str) -> Result<Flags, String> {
    let mut flags = Flags::default();
    for word in list.split(',').filter(|word| !word.is_empty()) {
        if !flags.apply(word) {
            return Err(format!(
                "{word} is none of the options of mount(8) that are known"
            ));
        }
    }
    Ok(flags)
}

/// The error of a command line, on one line.
pub(crate) fn failure(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::new(NOT_RUN, "no command: see `ariel --help`");
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let said: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let said = said.join(" ");
    Failure::new(
        NOT_RUN,
        format_args!("{said}: see `ariel --help` or `ariel COMMAND --help`"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_told_on_one_line_with_the_cure() {
        for (words, told) in [
            (&["ariel", "serve"][..], "--data"),
            (&["ariel", "nonsense"], "nonsense"),
            (&["ariel"], "no command"),
            (&["ariel", "mount", "no address", "x"], "127.0.0.1:7000"),
            (
                &["ariel", "mount", "127.0.0.1:1", "x", "--opens", "loud"],
                "silent",
            ),
            (
                &["ariel", "mount", "127.0.0.1:1", "x", "--write-delay", "x"],
                "write-delay",
            ),
            (
                &["ariel", "mount", "127.0.0.1:1", "x", "--cache", "ttl=1"],
                "ttl=1s",
            ),
        ] {
            let failure = failure(&Args::try_parse_from(words).unwrap_err());
            let line = failure.to_string();
            assert_eq!(failure.code, NOT_RUN);
            assert!(line.contains(told) && line.contains("--help"), "{line}");
            assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds("0.5"), Ok(500_000_000));
        assert_eq!(seconds("30"), Ok(30_000_000_000));
        assert!(seconds("NaN").is_err() && seconds("-1").is_err() && seconds("1e9").is_err());
    }
}
