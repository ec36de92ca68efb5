//! The groups of a program that asks: the kernel does not send them with its requests, and the
//! server compares them with the modes and lists of objects.
//!
//! They are read from `/proc`. That takes longer than many an answer from the cache, so the groups
//! read count for a moment for the same thread with the same user and group. Root needs none. The
//! kernel has judged by the true groups before it asks, so old ones let nobody in whom the new ones
//! keep out; a program that has just got a group may be refused for that moment.

use parking_lot::Mutex;
use std::collections::HashMap;
use wire::limits;

/// How long what was read counts.
const FRESH_NS: u64 = 10_000_000;
/// Most threads that are remembered.
const THREADS: usize = 1024;

/// A thread as it was when its groups were read.
struct Member {
    user: (u32, u32),
    read_ns: u64,
    groups: Vec<u32>,
}

/// The groups of threads that asked lately.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashMap<u32, Member>>);

impl Groups {
    /// All groups of a thread that asks for this user and group; `None`: they cannot be known, as
    /// of a thread in another namespace of processes, and count for nothing.
    pub(crate) fn of(&self, thread: u32, user: (u32, u32), now_ns: u64) -> Option<Vec<u32>> {
        if user.0 == 0 {
            return Some(Vec::new());
        }
        if let Some(member) = self.0.lock().get(&thread)
            && member.user == user
            && now_ns < member.read_ns + FRESH_NS
        {
            return Some(member.groups.clone());
        }
        let groups = read(thread)?;
        let member = Member {
            user,
            read_ns: now_ns,
            groups: groups.clone(),
        };
        let mut all = self.0.lock();
        if all.len() >= THREADS {
            all.retain(|_, member| now_ns < member.read_ns + FRESH_NS);
        }
        if all.len() < THREADS {
            all.insert(thread, member);
        }
        Some(groups)
    }
}

/// The groups in `/proc` now. Those beyond the protocol's bound are cut off.
pub(crate) fn read(thread: u32) -> Option<Vec<u32>> {
    if thread == 0 {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))?;
    let groups = line.split_whitespace().take(limits::GROUPS);
    groups.map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_not_there_has_unknown_groups() {
        assert_eq!(read(0), None);
        assert!(read(std::process::id()).is_some());
    }

    #[test]
    fn what_was_read_counts_for_a_moment_and_for_the_same_user() {
        let (own, groups) = (std::process::id(), Groups::default());
        let real = read(own);
        let user = (7, 7);
        assert_eq!(groups.of(own, user, 0), real);
        groups
            .0
            .lock()
            .entry(own)
            .and_modify(|member| member.groups = vec![4242]);
        assert_eq!(groups.of(own, user, FRESH_NS - 1), Some(vec![4242]));
        // Another user, or later: it is looked up again.
        assert_eq!(groups.of(own, (8, 7), 1), real);
        assert_eq!(groups.of(own, user, 1), real);
        groups
            .0
            .lock()
            .entry(own)
            .and_modify(|member| member.groups = vec![4242]);
        assert_eq!(groups.of(own, user, 1 + FRESH_NS), real);
        assert_eq!(groups.of(own, (0, 0), 1 + FRESH_NS), Some(vec![]));
        assert_eq!(groups.of(0, user, 1), None);
    }

    #[test]
    fn few_threads_are_remembered() {
        let (own, groups) = (std::process::id(), Groups::default());
        let member = |read_ns| Member {
            user: (1, 1),
            read_ns,
            groups: vec![],
        };
        let all = (0..THREADS as u32).map(|at| (own + 1 + at, member(0)));
        groups.0.lock().extend(all);
        assert!(groups.of(own, (1, 1), 1).is_some());
        assert_eq!(groups.0.lock().len(), THREADS);
        assert!(groups.of(own, (1, 1), FRESH_NS).is_some());
        assert_eq!(groups.0.lock().len(), 1);
    }
}
