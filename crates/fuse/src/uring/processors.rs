//! The machine's processors: how many queues the kernel has, and which lanes can serve them.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Unavailable;

/// The queues of the kernel, and which of them have a processor that is on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Processors {
    /// How many queues there are: numbers from 0.
    pub(super) queues: u16,
    /// Those of processors that are on.
    pub(super) on: Vec<u16>,
}

impl Processors {
    /// As they are now. A lane must be able to run on each processor: it serves it from there.
    pub(super) fn find() -> Result<Processors, Unavailable> {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/{name}");
            fs::read_to_string(path).map_err(Unavailable::Processors)
        };
        let possible = list(&read("possible")?);
        let on: Vec<u16> = list(&read("online")?);
        let mine =
            sched_getaffinity(None).map_err(|errno| Unavailable::Processors(errno.into()))?;
        if on.is_empty() || on.iter().any(|&cpu| !can_run(&mine, cpu)) {
            return Err(Unavailable::Confined);
        }
        Ok(Processors {
            queues: possible.len() as u16,
            on,
        })
    }

    /// The queues that the lane of each processor serves: its own, then, for the first, those of
    /// processors that are off.
    pub(super) fn shares(&self) -> Vec<Vec<u16>> {
        let mut shares: Vec<Vec<u16>> = self.on.iter().map(|&cpu| vec![cpu]).collect();
        let off = (0..self.queues).filter(|cpu| !self.on.contains(cpu));
        if let Some(first) = shares.first_mut() {
            first.extend(off);
        }
        shares
    }
}

pub(crate) fn can_run(mine: &CpuSet, cpu: u16) -> bool {
    usize::from(cpu) < CpuSet::MAX_CPU && mine.is_set(cpu.into())
}

/// Keeps the calling thread on one processor.
pub(crate) fn stay_on(cpu: u16) -> Result<(), Unavailable> {
    let mut only = CpuSet::new();
    only.set(cpu.into());
    sched_setaffinity(None, &only).map_err(|_| Unavailable::Confined)
}

/// The numbers in a list such as `0-3,8`.
fn list(text: &str) -> Vec<u16> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-1\n"), [0, 1]);
        assert_eq!(list("0"), [0]);
        assert_eq!(list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(list("\n"), [0u16; 0]);
    }

    #[test]
    fn every_queue_is_served_by_one_lane() {
        let processors = Processors {
            queues: 6,
            on: vec![1, 2, 4],
        };
        assert_eq!(processors.shares(), [vec![1, 0, 3, 5], vec![2], vec![4]]);
    }
}
