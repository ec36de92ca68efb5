//! The groups of a program that asks: the kernel does not send them with its requests, and few
//! answers depend on them.

/// All groups of a thread, by its number; `None`: they cannot be known, as of a thread in another
/// namespace of processes.
pub(crate) fn of(thread: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_whitespace()
        .map(|group| group.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_that_is_not_there_has_unknown_groups() {
        assert_eq!(super::of(0), None);
        assert!(super::of(std::process::id()).is_some());
    }
}
