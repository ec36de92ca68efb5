//! How much memory a mount's cache may have, on the command line.

use client::front::CacheSize;
use std::fmt;

#[derive(Debug, clap::Args)]
pub(crate) struct CacheArgs {
    /// Memory for cached blocks, MiB. `auto`: what nobody else wants, given back when somebody
    /// does; `64-4096`: the same within these bounds; `256`: always so much, and about as much
    /// again for what is known of objects
    #[arg(long, value_name = "SIZE", default_value_t = CacheMib::AUTO, value_parser = cache_mib)]
    pub(crate) cache_mib: CacheMib,
    /// For so long after programs had to fetch again what they had in memory, a cache whose size
    /// varies takes nothing that the kernel keeps for them
    #[arg(long, value_name = "SECONDS", default_value = "1200",
          value_parser = super::seconds)]
    pub(crate) cache_penalty: u64,
}

impl CacheArgs {
    pub(crate) fn size(&self) -> CacheSize {
        match self.cache_mib {
            CacheMib::Fixed(mib) => CacheSize::Fixed { mib },
            CacheMib::Varies(least_mib, most_mib) => CacheSize::Varies {
                least_mib,
                most_mib,
                penalty_ns: self.cache_penalty,
            },
        }
    }
}

/// A size, or the least and the most; MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheMib {
    /// Always this.
    Fixed(u32),
    /// The least; the most, if it is not as much as there is.
    Varies(u32, Option<u32>),
}

impl CacheMib {
    const AUTO: CacheMib = CacheMib::Varies(LEAST_MIB, None);
}

/// The largest read, a few of them, and what is changed meanwhile.
const LEAST_MIB: u32 = 2;
const MOST_MIB: u32 = 1 << 20;

impl fmt::Display for CacheMib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheMib::Fixed(mib) => write!(f, "{mib}"),
            CacheMib::Varies(_, None) => f.write_str("auto"),
            CacheMib::Varies(least, Some(most)) => write!(f, "{least}-{most}"),
        }
    }
}

fn cache_mib(text: &str) -> Result<CacheMib, String> {
    let number = |text: &str| text.parse::<u32>().ok();
    let found = match text.split_once('-') {
        _ if text == "auto" => Some(CacheMib::AUTO),
        None => number(text)
            .filter(|mib| (1..=MOST_MIB).contains(mib))
            .map(CacheMib::Fixed),
        Some((least, most)) => number(least)
            .zip(number(most))
            .filter(|(least, most)| LEAST_MIB <= *least && least < most && *most <= MOST_MIB)
            .map(|(least, most)| CacheMib::Varies(least, Some(most))),
    };
    found.ok_or_else(|| {
        format!(
            "neither `auto`, nor a number of MiB from 1 to {MOST_MIB}, nor two of them from \
             {LEAST_MIB} on such as `64-4096`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_or_two_or_what_there_is() {
        for (text, size) in [
            ("auto", CacheMib::Varies(2, None)),
            ("1", CacheMib::Fixed(1)),
            ("256", CacheMib::Fixed(256)),
            ("64-4096", CacheMib::Varies(64, Some(4096))),
        ] {
            assert_eq!(cache_mib(text), Ok(size));
            assert_eq!(size.to_string(), text);
        }
        for text in [
            "", "0", "-1", "64-", "64-64", "1-8", "1-2-3", "1048577", "all",
        ] {
            assert!(cache_mib(text).is_err(), "{text}");
        }
    }
}
