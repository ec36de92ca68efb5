//! For how long the kernel keeps what it is given, on the command line.

use std::fmt;
use std::time::Duration;

/// For how long does the kernel keep what it is given?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// As long as it is true.
    Exact,
    /// For this time.
    Ttl(Duration),
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cache::Exact => f.write_str("exact"),
            Cache::Ttl(time) => write!(f, "ttl={time:?}"),
        }
    }
}

/// `exact`, or `ttl=` and a time.
pub(super) fn cache(text: &str) -> Result<Cache, String> {
    let time = match text.strip_prefix("ttl=") {
        Some(time) => duration(time),
        None if text == "exact" => return Ok(Cache::Exact),
        None => None,
    };
    let wrong =
        "neither `exact` nor a lifetime from 1 ms to a day, such as `ttl=1s` or `ttl=200ms`";
    time.map(Cache::Ttl).ok_or_else(|| wrong.to_owned())
}

/// A time with its unit, from 1 ms to a day.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit_s;
    let fits = (1e-3..=86_400.0).contains(&seconds);
    fits.then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_lifetime_has_a_unit() {
        for (text, told) in [
            ("exact", "exact"),
            ("ttl=1s", "ttl=1s"),
            ("ttl=0.5s", "ttl=500ms"),
            ("ttl=200ms", "ttl=200ms"),
        ] {
            assert_eq!(cache(text).unwrap().to_string(), told);
        }
        for wrong in [
            "", "ttl=", "ttl=1", "ttl=-1s", "ttl=NaNs", "ttl=0s", "ttl=2d", "1s",
        ] {
            assert!(cache(wrong).is_err(), "{wrong}");
        }
    }
}
