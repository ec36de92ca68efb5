//! The command lines of memory that is paged to a cell.

use super::cell::TrustArgs;
use super::tree::{Remote, remote};
use std::ffi::OsString;
use std::path::PathBuf;

/// Where pages go that have no frame.
#[derive(Debug, clap::Args)]
#[group(required = false, multiple = false)]
pub(crate) struct FarArgs {
    /// A directory of a server's tree, in which files without names are made
    /// [default: $ARIEL_AT]
    #[arg(long, value_name = "ADDR:DIR", value_parser = remote)]
    pub(crate) at: Option<Remote>,
    /// A local directory instead, as a swap file of this program's own
    #[arg(long, value_name = "DIR")]
    pub(crate) local: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel run --memory 256M --at 127.0.0.1:7000:/ -- sort big.txt
  ariel run --memory 1G --far 64G --at 127.0.0.1:7000:/scratch -- python3 job.py
Requests for 128 KiB of memory or more, by malloc(3) and by mmap(2) of private memory, are served
from one region for each process, of which all processes together have --memory in this machine;
small requests, stacks and programs' files are as ever. Statically linked and set-user-id programs
run without. The exit code is the program's; if the pager (this process) dies, the program ends with
70. docs/memory.md says what a program may rely on.")]
pub(crate) struct RunArgs {
    /// Memory of this machine for the regions of all processes together: bytes, or with K, M, G, T
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: u64,
    /// Size of the region of each process; more is refused, as where memory is used up
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G")]
    pub(crate) far: u64,
    #[command(flatten)]
    pub(crate) place: FarArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PagerArgs {
    /// Memory of this machine for all segments together
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: u64,
    #[command(flatten)]
    pub(crate) place: FarArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel segment list
  ariel segment stat 4711 --json")]
pub(crate) struct SegmentArgs {
    #[command(subcommand)]
    pub(crate) what: SegmentCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SegmentCommand {
    /// List the segments of this user's programs: one line for each
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell what a pager has done so far: faults, pages from and to files, copies by forks
    Stat {
        /// Process number of the pager (`ariel run`), as `list` shows it
        pager: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Reads a size: a number of bytes, or with K, M, G or T behind it.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong =
        || "not a size: give a number of bytes, or one with K, M, G or T, as 256M".to_owned();
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if bytes < LEAST {
        return Err("too small: 1M is the least".to_owned());
    }
    Ok(bytes)
}

const LEAST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
        assert_eq!(size("1048576"), Ok(1 << 20));
        for wrong in ["", "M", "-1M", "1.5G", "4096", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
