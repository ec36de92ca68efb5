//! The command lines of a cell: its machines and how they join it.

use cell::{DatabaseUrl, JoinLine};
use clap::Subcommand;
use clap::builder::{PathBufValueParser, TypedValueParser};
use net::Addresses;
use std::path::{PathBuf, absolute};

/// How this machine shows itself to a server.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TrustArgs {
    /// Directory of this machine's credential [default: that of a server of this user on this
    /// machine, then ~/.config/ariel, then /etc/ariel]
    // Daemons leave the directory in which they are started.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(absolute))]
    pub(crate) credentials: Option<PathBuf>,
    /// Without TLS and without any proof of who is who; both sides must want it, and it works on
    /// loopback alone. For experiments on one machine whose users all trust each other
    #[arg(long, conflicts_with = "credentials")]
    pub(crate) insecure_loopback: bool,
}

/// How an administrator shows itself.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// The server's data directory, where its administrator's credential is [default: as of `up`,
    /// then ~/.config/ariel/administrator, then /etc/ariel/administrator]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Directory of an administrator's credential
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub(crate) credentials: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CellCommand {
    /// Make a cell: its authority, an administrator, and this machine's certificate
    Init(CellInitArgs),
    /// List the servers of a cell whose servers have one database together
    Servers(CellServersArgs),
    /// Have a server forgotten that will never come back, so that nothing waits for it
    RemoveServer(RemoveServerArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
STATE: `runs`, it answers; `not running`, it ended and said so; `no answer`, it does neither: look
for its process and its log, or, if its machine is lost, have it forgotten (`ariel cell
remove-server NAME`).
KNOWS: by how many of the changes of the cell's machines, users and groups the server judges: `all`,
or how many it is behind; a command that takes something waits until every server knows of it.")]
pub(crate) struct CellServersArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveServerArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Its name, as `ariel cell servers` shows it
    #[arg(value_name = "NAME", value_parser = cell::machine_name)]
    pub(crate) name: String,
}

/// How a server shows itself to the database that it shares with others.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// Certificates of the authorities that etcd's are from, as PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) database_ca: Option<PathBuf>,
    /// This server's certificate as a client of etcd, as PEM
    #[arg(long, value_name = "FILE", requires = "database_key")]
    pub(crate) database_cert: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "database_cert")]
    pub(crate) database_key: Option<PathBuf>,
}

impl DatabaseArgs {
    /// The database at this place, for a server of this name.
    pub(crate) fn location(
        &self,
        url: &DatabaseUrl,
        server: &str,
    ) -> std::io::Result<cell::Location> {
        // Servers are started elsewhere later.
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        let certificate = absolute(&self.database_cert)?;
        Ok(cell::Location {
            url: url.clone(),
            ca: absolute(&self.database_ca)?,
            client: certificate.zip(absolute(&self.database_key)?),
            server: server.to_owned(),
            number: 0,
        })
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  ariel cell init --data /srv/ariel
  ariel serve --data /srv/ariel --listen 0.0.0.0:7070
Everything is in DIR/cell: keep a copy of it where nobody else can read it.
A cell with several servers keeps its machines, users and groups in etcd:
  ariel cell init --data /srv/ariel --database etcds://db1,db2,db3 --database-ca ca.pem
and each further server comes with `ariel serve --join`.")]
pub(crate) struct CellInitArgs {
    /// Directory of the server's store; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// How the cell calls this machine [default: its host name]
    #[arg(long, value_name = "NAME", value_parser = cell::machine_name)]
    pub(crate) name: Option<String>,
    /// Keep machines, users and groups in etcd, so that several servers have them: etcds://HOST
    /// with all members after commas [default: in DIR/cell, for one server]
    #[arg(long, value_name = "URL")]
    pub(crate) database: Option<DatabaseUrl>,
    #[command(flatten)]
    pub(crate) database_trust: DatabaseArgs,
}

/// The rights of a machine.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RightsArgs {
    /// Its users prove who they are, with `ariel login`; others read what everybody may
    /// [default: it is trusted to say who its users are]
    #[arg(long, conflicts_with = "root")]
    pub(crate) untrusted: bool,
    /// Its root is root of the tree [default: nobody, as 65534]
    #[arg(long)]
    pub(crate) root: bool,
    /// It may read, and change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// It speaks for these users alone: 1000-1999,2500 [default: for all]
    #[arg(long, value_name = "LIST", value_parser = uids)]
    pub(crate) uids: Option<Uids>,
    /// It comes to this part of the tree alone: home, home:/ann or /projects; for several parts,
    /// say it several times [default: to all]
    #[arg(long, value_name = "PART", value_parser = cell::part_name)]
    pub(crate) only: Vec<String>,
}

/// Ranges of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uids(pub(crate) Vec<(u32, u32)>);

fn uids(text: &str) -> Result<Uids, String> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let range = (first.parse().ok()?, last.parse().ok()?);
        (range.0 <= range.1).then_some(range)
    };
    let all: Option<Vec<_>> = text.split(',').map(range).collect();
    all.map(Uids)
        .ok_or_else(|| "not a list of user numbers, such as 1000-1999,2500".to_owned())
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel join-token --data /srv/ariel
  ariel join-token --uses 100 --expires 7d --uids 1000-1999
  ariel join-token --only home --only /projects
The line is a secret: any machine that has it can join. `ariel join` takes it from standard
input.")]
pub(crate) struct JoinTokenArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// So many machines may join with it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) uses: u32,
    /// For so long: 30m, 1h, 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time_s)]
    pub(crate) expires: u64,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    /// A machine that joins with it administers the cell, and mounts nothing
    #[arg(long, conflicts_with_all = ["untrusted", "root", "read_only", "uids", "only"])]
    pub(crate) administrator: bool,
    /// Where machines reach the server [default: where it listens]
    #[arg(long, value_name = "ADDR", value_parser = addresses)]
    pub(crate) server: Option<Addresses>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel join                     and paste the line that `ariel join-token` printed
  ariel join --name build-7 < line
On a command line other users of this machine could read the line while it counts.")]
pub(crate) struct JoinArgs {
    /// The line [default: from standard input]
    #[arg(value_name = "LINE", value_parser = join_line)]
    pub(crate) line: Option<JoinLine>,
    /// How the cell calls this machine [default: its host name]
    #[arg(long, value_name = "NAME", value_parser = cell::machine_name)]
    pub(crate) name: Option<String>,
    /// Where the credential is kept [default: /etc/ariel for root, else ~/.config/ariel]
    #[arg(long, value_name = "DIR")]
    pub(crate) credentials: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// List the machines of the cell
    List(MachineListArgs),
    /// Tell all of one machine
    Show(MachineArgs),
    /// Take everything from a machine: its sessions end at once, and it comes in no more
    Revoke(MachineArgs),
    /// Say what a machine may do; other rights are as for a new machine
    Grant(GrantArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct MachineListArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MachineArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Its name
    #[arg(value_name = "NAME", value_parser = cell::machine_name)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel machine grant build-7 --root
  ariel machine grant kiosk --read-only --uids 1000-1999
  ariel machine grant ci-3 --only /projects/a --only tools")]
pub(crate) struct GrantArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
}

fn join_line(text: &str) -> Result<JoinLine, String> {
    // The text itself is a secret.
    text.parse()
        .map_err(|error: cell::NoLine| error.to_string())
}

/// Addresses of a server.
pub(super) fn addresses(text: &str) -> Result<Addresses, String> {
    text.parse()
        .map_err(|error: net::NoAddress| error.to_string())
}

pub(super) fn time_s(text: &str) -> Result<u64, String> {
    let unit = |unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    };
    let split = text.char_indices().last();
    let seconds = split.and_then(|(at, last)| {
        let number: u64 = text[..at].parse().ok()?;
        number.checked_mul(unit(last)?)
    });
    let seconds = seconds.filter(|seconds| (1..=365 * 86_400).contains(seconds));
    seconds.ok_or_else(|| "not a time such as 30m, 1h or 7d, from 1s to 365d".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_and_users_are_read() {
        assert_eq!(time_s("90s"), Ok(90));
        assert_eq!(time_s("2h"), Ok(7200));
        assert_eq!(time_s("7d"), Ok(7 * 86_400));
        for wrong in [
            "",
            "h",
            "1",
            "-1h",
            "0s",
            "366d",
            "1w",
            "1ä",
            "99999999999999999999d",
        ] {
            assert!(time_s(wrong).is_err(), "{wrong}");
        }
        assert_eq!(uids("1000-1999,5").unwrap().0, [(1000, 1999), (5, 5)]);
        for wrong in ["", "a", "5-1", "1,", "1-2-3"] {
            assert!(uids(wrong).is_err(), "{wrong}");
        }
    }
}
