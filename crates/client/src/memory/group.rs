//! Control groups: the limits of memory that this process is under, of version 1 and 2.
//!
//! Guarantees: every group from the own one up to the highest that can be seen counts; one that
//! sets no limit below the machine's memory does not. A process that is moved is found where it is.

use super::sight::{missed, number};
use logic::memory::Space;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Of which version a hierarchy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    version: Version,
    dir: PathBuf,
}

impl Group {
    fn read(&self, name: &str) -> String {
        read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    /// Its memory, if it has less than the machine.
    pub(super) fn space(&self, machine: u64) -> Option<Space> {
        let (limits, usage): (&[&str], _) = match self.version {
            Version::One => (&["memory.limit_in_bytes"], "memory.usage_in_bytes"),
            // Above memory.high programs are slowed down: it is as much a limit as the other.
            Version::Two => (&["memory.max", "memory.high"], "memory.current"),
        };
        let limits = limits.iter().map(|name| self.read(name));
        // "max" is no number.
        let total = limits.filter_map(|text| text.trim().parse().ok()).min()?;
        let usage: u64 = self.read(usage).trim().parse().ok()?;
        let stat = self.read("memory.stat");
        // Of version 1 the numbers with this word count the groups below, too.
        let of = |word: &str| {
            let all = number(&stat, &format!("total_{word}"));
            all.or_else(|| number(&stat, word)).unwrap_or(0)
        };
        let (young, old) = (of("inactive_file"), of("active_file"));
        (total < machine).then(|| space((total, usage), (young, old)))
    }

    /// How long its tasks have stood still.
    pub(super) fn pressure(&self) -> String {
        self.read("memory.pressure")
    }

    /// The file that tells of it.
    pub(super) fn pressure_file(&self) -> PathBuf {
        self.dir.join("memory.pressure")
    }

    /// Bytes that its tasks had to fetch again.
    pub(super) fn missed(&self) -> u64 {
        let stat = self.read("memory.stat");
        let all: Vec<&str> = stat
            .lines()
            .filter_map(|l| l.strip_prefix("total_"))
            .collect();
        match all.is_empty() {
            true => missed(&stat),
            false => missed(&all.join("\n")),
        }
    }
}

/// Files that are kept for a group can be given up, but those used again and again are its
/// programs': half of these at most.
fn space((total, usage): (u64, u64), (young, old): (u64, u64)) -> Space {
    let free = total.saturating_sub(usage);
    let idle = (free + young).min(total);
    Space {
        total,
        available: (idle + old / 2).min(total),
        idle,
        free,
    }
}

/// The groups of this process.
#[derive(Default)]
pub(super) struct Groups {
    /// As the kernel lists them.
    list: String,
    groups: Vec<Group>,
}

impl Groups {
    /// The own one first.
    pub(super) fn now(&mut self) -> &[Group] {
        let list = read_to_string("/proc/self/cgroup").unwrap_or_default();
        if list != self.list {
            let mounts = read_to_string("/proc/self/mountinfo").unwrap_or_default();
            self.groups = groups(&list, &mounts);
            self.list = list;
        }
        &self.groups
    }
}

/// Where the hierarchies with a controller of memory are: of which root, mounted where.
fn hierarchies(mounts: &str) -> Vec<(Version, PathBuf, PathBuf)> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        let version = match (after.next()?, after.nth(1)?) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", options) if options.split(',').any(|word| word == "memory") => Version::One,
            _ => return None,
        };
        Some((version, fields.get(3)?.into(), fields.get(4)?.into()))
    };
    mounts.lines().filter_map(line).collect()
}

fn groups(list: &str, mounts: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for (version, root, mounted) in hierarchies(mounts) {
        let path = list.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (words, path) = (fields.next()?, fields.next()?);
            let ours = match version {
                Version::One => words.split(',').any(|word| word == "memory"),
                Version::Two => words.is_empty(),
            };
            ours.then_some(path)
        });
        let Some(path) = path else { continue };
        // A container may see its own group as the root, and its path from outside.
        let path = Path::new(path);
        let below = path.strip_prefix(&root).or_else(|_| path.strip_prefix("/"));
        let own = mounted.join(below.unwrap_or(Path::new("")));
        let own = if own.is_dir() { own } else { mounted.clone() };
        let up = own.ancestors().take_while(|dir| dir.starts_with(&mounted));
        groups.extend(up.map(|dir| Group {
            version,
            dir: dir.to_owned(),
        }));
    }
    groups
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn groups_are_found_up_to_the_root_and_the_least_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("memory"), dir.path().join("unified"));
        let inner = one.join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(&two).unwrap();
        let mounts = format!(
            "35 31 0:32 / {} rw,relatime - cgroup cgroup rw,memory\n\
             36 31 0:33 / /nowhere rw - cgroup cgroup rw,cpu\n\
             41 31 0:38 /box {} rw - cgroup2 cgroup2 rw\n",
            one.display(),
            two.display()
        );
        let list = "4:memory:/outer/inner\n1:cpu:/\n0::/box\n";
        let found = groups(list, &mounts);
        let dirs: Vec<&Path> = found.iter().map(|group| group.dir.as_path()).collect();
        assert_eq!(dirs, [&inner, &one.join("outer"), &one, &two]);

        let write = |name: &str, text: &str| fs::write(name, text).unwrap();
        let file = |dir: &Path, name: &str| dir.join(name).display().to_string();
        write(&file(&inner, "memory.limit_in_bytes"), "67108864\n");
        write(&file(&inner, "memory.usage_in_bytes"), "41943040\n");
        let stat = "inactive_file 1\nworkingset_refault_file 9\ntotal_inactive_file 4194304\n\
                    total_active_file 2097152\ntotal_workingset_refault_file 5\n";
        write(&file(&inner, "memory.stat"), stat);
        let space = found[0].space(1 << 30).unwrap();
        let mib = [space.total, space.available, space.idle, space.free].map(|b| b >> 20);
        assert_eq!(mib, [64, 29, 28, 24]);
        assert_eq!(found[0].missed(), 5 * 4096);
        assert_eq!(
            found[0].space(64 << 20),
            None,
            "no less than the machine has"
        );

        write(&file(&two, "memory.max"), "max\n");
        write(&file(&two, "memory.current"), "1048576\n");
        write(
            &file(&two, "memory.stat"),
            "inactive_file 0\nactive_file 0\n",
        );
        assert_eq!(found[3].space(1 << 30), None);
        write(&file(&two, "memory.high"), "2097152\n");
        assert_eq!(found[3].space(1 << 30).unwrap().free, 1 << 20);
    }

    #[test]
    fn a_group_that_cannot_be_seen_is_taken_for_the_root_of_what_can() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = format!(
            "1 2 0:3 / {} rw - cgroup2 cgroup2 rw\n",
            dir.path().display()
        );
        let found = groups("0::/../outside\n", &mounts);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].dir, dir.path());
    }
}
