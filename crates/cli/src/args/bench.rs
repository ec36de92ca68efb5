//! The command line of `ariel bench`.

use super::{Cooperation, Transport};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel bench                                      a server and mounts of it, beside $TMPDIR
  ariel bench --local /var/tmp --rounds 7 --json figures.json
  ariel bench --only stat --only open              these measures only
  ariel bench --only extract --only git-clone --only build   with tar, git and make
  ariel bench --project ~/lua --build 'make -j2'   with a build of a C project
  ariel bench --cost-of-security --project ~/lua   what TLS and looking at rights cost
  ariel bench --cost-of-cooperation fleet          what it costs mounts to lend to each other
  ariel bench --cost-of-snapshots 100              what it costs when there are so many snapshots
  ariel bench --mount /mnt/a                       a mount that is there, of any file system
Each measure is taken on the mount and in the local directory in turn; the table has the medians,
what is wished for at least, and what is aimed at. Takes some minutes, and about 4 GiB of disk.
Exit code: 0 measured; 1 with --strict, something is below its least; 2 not measured.")]
pub(crate) struct BenchArgs {
    /// Local directory to compare with; the store of the bench's own server lies there too
    /// [default: $TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) local: Option<PathBuf>,
    /// Measure this mount instead of starting a server and mounts; measures that need a mount made
    /// anew are left out
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: Option<PathBuf>,
    /// The same tree, mounted with `--opens silent`; it also looks at what is done on the first
    #[arg(long, value_name = "DIR", requires = "mount")]
    pub(crate) silent: Option<PathBuf>,
    /// How the kernel's requests come to the bench's own mounts: see `ariel mount --help`
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) transport: Transport,
    /// The bench's own server and mounts talk without TLS, to tell what TLS costs
    #[arg(long, conflicts_with = "mount")]
    pub(crate) insecure_loopback: bool,
    /// Compare a cell as it is with one without TLS, in which nobody's rights are looked at, in
    /// turn; only `cold-read`, `write`, `create`, and with --project `andrew`, unless others are
    /// named
    #[arg(long, conflicts_with_all = ["mount", "insecure_loopback"])]
    pub(crate) cost_of_security: bool,
    /// Compare a cell whose mounts lend blocks to each other under this policy with one whose
    /// mounts do not, in turn
    #[arg(long, value_name = "POLICY", value_enum,
          conflicts_with_all = ["mount", "insecure_loopback", "cost_of_security"])]
    pub(crate) cost_of_cooperation: Option<Cooperation>,
    /// Compare a cell whose tree has so many snapshots, with a change between each two, with one
    /// whose tree has none, in turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000),
          conflicts_with_all = ["mount", "insecure_loopback", "cost_of_security",
                                "cost_of_cooperation"])]
    pub(crate) cost_of_snapshots: Option<u32>,
    /// How often each measure is taken on each side
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Only this measure, by its name in the table; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Small files, and names; as many are extracted, and half as many cloned
    #[arg(long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u32).range(40..=1_000_000))]
    pub(crate) files: u32,
    /// Size of the large file, MiB
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub(crate) large_mib: u32,
    /// C sources to be copied and built; `build` makes some itself if there are none
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// How they are built, in the copy
    #[arg(
        long,
        value_name = "CMD",
        default_value = "make -j2",
        requires = "project"
    )]
    pub(crate) build: String,
    /// Write all raw figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Fail if a figure is below what it should be at least
    #[arg(long)]
    pub(crate) strict: bool,
}
