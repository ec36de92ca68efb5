//! The resources that a process of this machine uses, as the kernel reports them.

use std::fs;
use std::io;

/// Processor time of the threads that a process has, ns.
pub(crate) fn processor_ns(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end while it is looked for.
        let told = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += first_number(&told).unwrap_or(0);
    }
    Ok(sum)
}

/// Memory of a process, bytes: all of it, and that of its largest mapping.
pub(crate) fn memory_bytes(pid: u32) -> io::Result<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    Ok(read_maps(&maps))
}

fn read_maps(maps: &str) -> (u64, u64) {
    let value = |line: &str, name: &str| {
        let kib = first_number(line.strip_prefix(name)?)?;
        Some(kib * 1024)
    };
    let (mut all, mut size) = (0, 0);
    let mut largest = (0, 0);
    for line in maps.lines() {
        if let Some(bytes) = value(line, "Size:") {
            size = bytes;
        } else if let Some(bytes) = value(line, "Rss:") {
            all += bytes;
            largest = largest.max((size, bytes));
        }
    }
    (all, largest.1)
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_largest_mapping_is_told_apart() {
        let maps = "7f00-7f10 rw-p 00000000 00:00 0\nSize:    8 kB\nRss:    8 kB\n\
                    7f20-7f90 rw-p 00000000 00:00 0\nSize:    4096 kB\nRss:    12 kB\n\
                    7fa0-7fb0 r-xp 00000000 00:00 0\nSize:    64 kB\nRss:    60 kB\n";
        assert_eq!(read_maps(maps), (80 * 1024, 12 * 1024));
    }

    #[test]
    fn this_process_uses_something() {
        let pid = std::process::id();
        assert!(processor_ns(pid).unwrap() > 0);
        let (all, largest) = memory_bytes(pid).unwrap();
        assert!(all > largest && all > 1 << 20);
    }
}
