//! How much a mount does for other mounts, on the command line.

use client::front::{LendLimits, Lends};

#[derive(Debug, clap::Args)]
pub(crate) struct LendArgs {
    /// Lend cached blocks to other mounts, if the server says that mounts do so: `idle`, while no
    /// program here waits for memory and no battery is emptied; `never`: nor borrow any
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Lend::Idle)]
    lend: Lend,
    /// Memory for blocks that are kept for other mounts, at most, MiB; 0: none are kept [default:
    /// what the cache has no better use for]
    #[arg(long, value_name = "SIZE", value_parser = clap::value_parser!(u32).range(..=MOST_MIB))]
    lend_mib: Option<u32>,
    /// Lend so many bits in a second at most, Mbit/s [default: as many as others ask for]
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..))]
    lend_mbit: Option<u32>,
}

const MOST_MIB: i64 = 1 << 20;
const BLOCKS_PER_MIB: u32 = (1 << 20) / wire::limits::BLOCK_BYTES;
const BYTES_PER_MBIT: u64 = 1_000_000 / 8;

/// When are cached blocks lent to other mounts?
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Lend {
    /// Never, and none are borrowed.
    Never,
    /// When the machine has nothing better to do.
    Idle,
    /// Always.
    Always,
}

impl LendArgs {
    pub(crate) fn lends(&self) -> Lends {
        match self.lend {
            Lend::Never => Lends::Never,
            Lend::Idle => Lends::Idle,
            Lend::Always => Lends::Always,
        }
    }

    pub(crate) fn limits(&self) -> LendLimits {
        let usual = LendLimits::default();
        let kept = self.lend_mib.map(|mib| mib.saturating_mul(BLOCKS_PER_MIB));
        LendLimits {
            kept_blocks: kept.unwrap_or(usual.kept_blocks),
            lent_bytes_per_s: self.lend_mbit.map(|mbit| u64::from(mbit) * BYTES_PER_MBIT),
        }
    }
}
