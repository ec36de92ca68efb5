//! The command line of `ariel trace`.

use clap::{Subcommand, ValueEnum};
use logic::peers::Policy;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Make a trace of some kind of work, from stated parameters and a seed
    Generate(GenerateArgs),
    /// Record what programs do on mounts of this machine
    Record(RecordArgs),
    /// Tell what traces are like: sizes, sharing, order, hit rates of caches
    Info(InfoArgs),
    /// Replay traces on a fleet, under each algorithm of cooperative caching
    Replay(ReplayArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ariel trace generate sprite --out sprite.trace")]
pub(crate) struct GenerateArgs {
    /// Which work
    #[arg(value_enum)]
    pub(crate) work: Work,
    /// The file to write, in the format of docs/traces.md
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel trace record /mnt/a --out a.trace                     until Ctrl-C
  ariel trace record /mnt/a /mnt/b --seconds 600 --out ab.trace
  ariel trace record /mnt/a --client 1 --key build-farm --out one.trace    on one machine,
  ariel trace record /mnt/a --client 2 --key build-farm --out two.trace    and on another one
  ariel trace replay one.trace two.trace
Names and content are not recorded; each file has a number that the key hides. While a mount is
recorded, its kernel drops the pages of each file that is opened, so that its reads are seen.")]
pub(crate) struct RecordArgs {
    /// Mount points; each is one client of the trace
    #[arg(value_name = "MOUNT", required = true)]
    pub(crate) mounts: Vec<PathBuf>,
    /// The file to write, in the format of docs/traces.md
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// End after so many seconds [default: at Ctrl-C, or with the last mount]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
    /// The client's number in the trace; further mounts have the next ones
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) client: u16,
    /// Recordings with one key give a file one number, on whichever machine [default: a random key]
    #[arg(long, value_name = "WORD")]
    pub(crate) key: Option<String>,
}

/// Kinds of work.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Work {
    /// 42 clients, as the Sprite traces 5 and 6 of the paper
    Sprite,
    /// 237 clients, as the snooped trace of the paper, with nothing hidden
    Snooped,
    /// The Sprite trace, and a machine that reads everything now and then
    Scan,
    /// Compilers on 24 machines
    Build,
    /// Containers that start on 64 machines
    Start,
    /// 16 machines that train on a set larger than their memory
    Train,
}

/// The traces that are read.
#[derive(Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Traces; several are merged by time. Compressed ones (zstd, gzip) are read as they are
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The format [default: as the first bytes or the name tell]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Form>,
    /// For csv: which column says what, by name or number: time=1,client=5,op=6,file=2,size=4.
    /// Fields: time, client, op, file, block or offset, size
    #[arg(long, value_name = "LIST", required_if_eq("format", "csv"))]
    pub(crate) columns: Option<trace::Columns>,
    /// For csv: what stands between columns
    #[arg(long, value_name = "CHAR", default_value = ",")]
    pub(crate) delimiter: char,
    /// For csv: the unit of times
    #[arg(long, value_enum, default_value_t = Unit::S)]
    pub(crate) time_unit: Unit,
    /// The size of a block, where the format does not say it
    #[arg(long, value_name = "BYTES", default_value_t = trace::BLOCK_BYTES,
          value_parser = clap::value_parser!(u32).range(512..=1 << 24))]
    pub(crate) block_bytes: u32,
    /// Where the format names no client each FILE is one client, and they share files of the same
    /// name; with this they share none
    #[arg(long)]
    pub(crate) apart: bool,
}

/// Formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Ariel's own
    Own,
    /// libCacheSim's
    OracleGeneral,
    /// CloudPhysics'
    Vscsi,
    /// Text with columns
    Csv,
}

/// Units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel trace replay sprite.trace
  ariel trace replay sprite.trace --policy n-chance --policy fleet --client-mib 32
  ariel trace replay cluster52.csv.zst --format csv --columns time=1,file=2,size=4,client=5,op=6")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Only this algorithm (off, direct, greedy, central, n-chance, hash, weighted, fleet); may be
    /// repeated
    #[arg(long = "policy", value_name = "NAME", value_parser = policy)]
    pub(crate) policies: Vec<Policy>,
    /// Memory of each client, MiB
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) client_mib: u32,
    /// Memory of the server, MiB
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) server_mib: u32,
    /// Percent of the accesses that warm the caches and are not counted
    #[arg(long, value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(0..=99))]
    pub(crate) warm: u32,
    /// Print JSON, with the times of replays
    #[arg(long)]
    pub(crate) json: bool,
}

fn policy(word: &str) -> Result<Policy, String> {
    let found = Policy::ALL.into_iter().find(|policy| policy.word() == word);
    let words = Policy::ALL.map(Policy::word).join(", ");
    found.ok_or_else(|| format!("the algorithms are {words}"))
}
