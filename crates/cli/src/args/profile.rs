//! The command line of `ariel profile`.

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
