//! How the machine is: do its programs wait for memory, and does it run on a battery?

use logic::client::PeerInput;
use std::fs;

/// It is looked at so often, ns.
pub(super) const EVERY_NS: u64 = 1_000_000_000;
/// Pressure stall information of Linux: how long somebody waited for memory, in all.
const PRESSURE: &str = "/proc/pressure/memory";
const SUPPLIES: &str = "/sys/class/power_supply";

/// The numbers that were seen last.
pub(super) struct Load {
    at_ns: u64,
    stalled_us: u64,
}

impl Load {
    pub(super) fn new() -> Load {
        Load {
            at_ns: net::clock::now_ns(),
            stalled_us: stalled_us(),
        }
    }

    /// How it is since it was looked at last.
    pub(super) fn look(&mut self) -> PeerInput {
        let now = Load::new();
        let passed_us = (now.at_ns.saturating_sub(self.at_ns) / 1000).max(1);
        let waited_us = now.stalled_us.saturating_sub(self.stalled_us);
        *self = now;
        PeerInput::Machine {
            stalled_permille: (waited_us.saturating_mul(1000) / passed_us).min(1000) as u32,
            on_battery: is_on_battery(),
        }
    }
}

/// A kernel that does not say it counts as one without pressure.
fn stalled_us() -> u64 {
    fs::read_to_string(PRESSURE).map_or(0, |text| total_us(&text).unwrap_or(0))
}

/// The total of the line about somebody who waits.
fn total_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok()
}

/// Is a battery being emptied?
fn is_on_battery() -> bool {
    let said = |path: std::path::PathBuf, what: &str| {
        fs::read_to_string(path).is_ok_and(|text| text.trim() == what)
    };
    let supplies = fs::read_dir(SUPPLIES).into_iter().flatten().flatten();
    supplies.map(|supply| supply.path()).any(|supply| {
        said(supply.join("type"), "Battery") && said(supply.join("status"), "Discharging")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_somebody_waited_is_read_from_what_the_kernel_says() {
        let text = "some avg10=0.00 avg60=0.10 avg300=0.05 total=18265\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=9132\n";
        assert_eq!(total_us(text), Some(18_265));
        assert_eq!(total_us("full total=7"), None);
        assert_eq!(total_us(""), None);
    }

    #[test]
    fn what_passed_between_two_looks_counts() {
        let mut load = Load {
            at_ns: net::clock::now_ns() - 2_000_000_000,
            stalled_us: stalled_us(),
        };
        let PeerInput::Machine {
            stalled_permille, ..
        } = load.look()
        else {
            panic!("it says how the machine is");
        };
        assert!(stalled_permille <= 1000);
    }
}
