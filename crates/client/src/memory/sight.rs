//! How the machine is, and the control groups that this process is in: numbers from /proc.
//!
//! Guarantees: a number that is not there counts as none; without those of the machine nothing is
//! said.

use super::group::{Group, Groups};
use logic::memory::{Sample, Space};
use std::fs::read_to_string;

const PAGE: u64 = 4096;

/// Looks.
#[derive(Default)]
pub(super) struct Sight {
    groups: Groups,
    /// Numbers that change slowly, and cost more to be read; when they were.
    slow: Slow,
    slow_ns: u64,
}

/// Numbers of which the differences in a while count.
#[derive(Clone, Copy, Default)]
struct Slow {
    stalled: [u64; 2],
    missed: u64,
}

/// They are read again after so long.
const SLOW_NS: u64 = 100_000_000;

impl Sight {
    /// The groups, the own one first.
    pub(super) fn groups(&mut self) -> &[Group] {
        self.groups.now()
    }

    /// The memory as it can be seen now.
    pub(super) fn look(&mut self, now_ns: u64) -> Option<Sample> {
        let machine = machine(&read_to_string("/proc/meminfo").ok()?)?;
        let spaces = self.groups.now().iter().filter_map(|group| {
            let space = group.space(machine.total)?;
            Some((space, group))
        });
        let tightest = spaces.min_by_key(|(space, _)| space.available);
        if now_ns >= self.slow_ns + SLOW_NS {
            (self.slow, self.slow_ns) = (slow(tightest.map(|(_, group)| group)), now_ns);
        }
        let Slow { stalled, missed } = self.slow;
        Some(Sample {
            machine,
            group: tightest.map(|(space, _)| space),
            stalled,
            missed,
            ..Sample::default()
        })
    }
}

fn slow(group: Option<&Group>) -> Slow {
    let pressure = read_to_string("/proc/pressure/memory").unwrap_or_default();
    let mut stalled = stalled(&pressure);
    let Some(group) = group else {
        let vmstat = read_to_string("/proc/vmstat").unwrap_or_default();
        let missed = missed(&vmstat);
        return Slow { stalled, missed };
    };
    let [_, full] = self::stalled(&group.pressure());
    stalled[1] = stalled[1].max(full);
    let missed = group.missed();
    Slow { stalled, missed }
}

/// The number behind a word at the beginning of a line.
pub(super) fn number(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(word)?;
        rest.starts_with([' ', ':', '\t']).then_some(rest)
    })?;
    let digits = line.trim_start_matches([' ', ':', '\t']);
    digits.split(' ').next()?.trim().parse().ok()
}

fn machine(meminfo: &str) -> Option<Space> {
    let of = |word: &str| number(meminfo, word).map(|kib| kib << 10);
    let available = of("MemAvailable")?;
    let used_again = of("Active(file)").unwrap_or(0);
    let free = of("MemFree").unwrap_or(0);
    Some(Space {
        total: of("MemTotal")?,
        available,
        idle: available
            .saturating_sub(used_again)
            .max(free.min(available)),
        free,
    })
}

/// Bytes that were in memory and had to be fetched again.
pub(super) fn missed(stat: &str) -> u64 {
    let words = [
        "workingset_refault_anon",
        "workingset_refault_file",
        "pswpin",
    ];
    let pages = words.iter().filter_map(|word| number(stat, word));
    pages.sum::<u64>() * PAGE
}

/// How long any and all tasks stood still for want of memory, ns.
pub(super) fn stalled(pressure: &str) -> [u64; 2] {
    ["some", "full"].map(|word| {
        let line = pressure.lines().find(|line| line.starts_with(word));
        let total = line.and_then(|line| line.split("total=").nth(1));
        let micros: Option<u64> = total.and_then(|micros| micros.trim().parse().ok());
        micros.unwrap_or(0) * 1000
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_writes_them() {
        let meminfo = "MemTotal:       1000 kB\nMemFree:         300 kB\n\
                       MemAvailable:    700 kB\nActive:          1 kB\nActive(file):    250 kB\n";
        let space = Space {
            total: 1000 << 10,
            available: 700 << 10,
            idle: 450 << 10,
            free: 300 << 10,
        };
        assert_eq!(machine(meminfo), Some(space));
        assert_eq!(machine("MemTotal: 5 kB\n"), None);
        let vmstat = "pswpin 2\nworkingset_refault_anon 3\nworkingset_refault_file 5\n";
        assert_eq!(missed(vmstat), 10 * PAGE);
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(stalled(pressure), [17_000, 5_000]);
        assert_eq!(stalled(""), [0, 0]);
    }

    #[test]
    fn this_machine_can_be_seen() {
        let seen = Sight::default()
            .look(net::clock::now_ns())
            .expect("/proc is there");
        let Space {
            total,
            available,
            idle,
            free,
        } = seen.machine;
        assert!(total >= available && available >= idle && total > free);
        assert!(total > 64 << 20, "{total}");
    }
}
