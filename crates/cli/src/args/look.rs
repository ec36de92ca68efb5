//! The command lines of what looks at a mount or a server.

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

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel status /mnt/a
  ariel status --json 127.0.0.1:7000")]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A mount point, or the address of a server on this machine
    pub(crate) target: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel tokens /mnt/a
  ariel tokens 127.0.0.1:7000")]
pub(crate) struct TokensArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A mount point, or the address of a server on this machine
    pub(crate) target: String,
}
