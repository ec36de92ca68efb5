//! The command line of a server.

use super::{Cooperation, cell, seconds};
use ::cell::DatabaseUrl;
use net::Addresses;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Machines look once a second whether their certificates are to be renewed.
const CERTIFICATE_LIFE_MIN_S: u64 = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel cell init --data /srv/a            once
  ariel serve --data /srv/a --listen 0.0.0.0:7000 --listen [::]:7000
  ariel serve --data /srv/a --listen 127.0.0.1:0 --daemon --pid-file /run/a.pid
  ariel serve --data /srv/b --listen 0.0.0.0:7000 --join etcds://db1,db2,db3 --database-ca ca.pem
Prints `listening on ADDR` when it is ready. SIGTERM and SIGINT end it in order.")]
pub(crate) struct ServeArgs {
    /// Directory of the store; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Address, or name, and port to listen at; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "ADDR", value_parser = cell::addresses, required = true)]
    pub(crate) listen: Vec<Addresses>,
    /// Make a cell first, as `ariel cell init` does, where there is none and --join names
    /// none
    #[arg(long, conflicts_with = "insecure_loopback")]
    pub(crate) init: bool,
    /// Be one more server of the cell with this database, from the first start on: the URL that
    /// `ariel cell init --database` was given
    #[arg(long, value_name = "URL", conflicts_with = "insecure_loopback")]
    pub(crate) join: Option<DatabaseUrl>,
    /// With --join: how the cell calls this server and its machine [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = ::cell::machine_name, requires = "join")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) database_trust: cell::DatabaseArgs,
    /// Without TLS, and without any proof of who is who: on loopback alone. Every user of this
    /// machine can do everything then
    #[arg(long)]
    pub(crate) insecure_loopback: bool,
    /// Return when it is ready and go on in the background; logs to DIR/server.log
    #[arg(long)]
    pub(crate) daemon: bool,
    /// Write the process number to this file when ready, and remove it at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// After a restart, wait so long for the clients of the last run [default: 20]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) grace: Option<u64>,
    /// So long count the certificates that this server makes, of machines and of itself: 12h, 30d.
    /// Each is renewed by its machine when a third of that is over, and a machine that is off for
    /// longer joins anew
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = certificate_life)]
    pub(crate) certificate_life: u64,
    /// How clients lend blocks of their caches to each other: docs/cooperation.md. `ariel
    /// cooperate` changes it while the server runs
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    pub(crate) cooperate: Cooperation,
    /// Show what is counted at http://ADDR/metrics, in Prometheus' text format: docs/service.md.
    /// Anybody who reaches ADDR can read it; it names no file and no user
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// This is the background process
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

/// The life of certificates.
fn certificate_life(text: &str) -> Result<u64, String> {
    let life_s = super::cell::time_s(text)?;
    match life_s >= CERTIFICATE_LIFE_MIN_S {
        true => Ok(life_s),
        false => Err(format!("{CERTIFICATE_LIFE_MIN_S}s at least")),
    }
}
