//! Users and groups as people name them in lists.

use crate::group;
use access::Who;
use anyhow::Context;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The users and groups that this machine knows, and the groups of the cell.
pub(super) struct People {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
    of_cell: BTreeMap<String, u32>,
}

/// Before the name or the number of a group of machines.
const GROUP: &str = "group:";
const ANYONE: &str = "anyone";

impl People {
    /// Those that may stand in lists of the mount in which this path is.
    pub(super) fn of(path: &Path) -> Self {
        let groups = mount_of(path).map_or_else(Vec::new, |mount| group::of_mount(&mount));
        Self {
            users: table("/etc/passwd"),
            groups: table("/etc/group"),
            of_cell: groups.into_iter().map(|it| (it.name, it.gid)).collect(),
        }
    }

    /// The people whom a word names.
    pub(super) fn who(&self, word: &str) -> anyhow::Result<Who> {
        if word == ANYONE {
            return Ok(Who::Anyone);
        }
        if let Some(group) = word.strip_prefix(GROUP) {
            let gid = number(&self.groups, group);
            return gid.map(Who::Group).with_context(|| {
                format!("this machine has no group {group}: name it by its number, `group:100`")
            });
        }
        if let Some(gid) = self.of_cell.get(word) {
            return Ok(Who::Group(*gid));
        }
        let uid = number(&self.users, word);
        uid.map(Who::User).with_context(|| {
            format!(
                "neither this machine nor the cell has a user or group {word}: name a user by his \
                 number, a group of machines as `group:NAME`"
            )
        })
    }

    /// The word for whom an entry names.
    pub(super) fn name_of(&self, who: Who) -> String {
        match who {
            Who::Anyone => ANYONE.to_owned(),
            Who::User(uid) => word(&self.users, uid),
            Who::Group(gid) if access::is_group(gid) => word(&self.of_cell, gid),
            Who::Group(gid) => format!("{GROUP}{}", word(&self.groups, gid)),
        }
    }
}

fn number(table: &BTreeMap<String, u32>, word: &str) -> Option<u32> {
    table.get(word).copied().or_else(|| word.parse().ok())
}

fn word(table: &BTreeMap<String, u32>, id: u32) -> String {
    let found = table.iter().find(|(_, known)| **known == id);
    found.map_or_else(|| id.to_string(), |(name, _)| name.clone())
}

/// The mount in which a path is.
fn mount_of(path: &Path) -> Option<PathBuf> {
    let mut at = std::path::absolute(path).ok()?.canonicalize().ok()?;
    let device = at.metadata().ok()?.dev();
    while let Some(parent) = at.parent() {
        if parent.metadata().ok()?.dev() != device {
            return Some(at);
        }
        at = parent.to_owned();
    }
    None
}

/// Names and numbers of a file like `/etc/passwd`.
pub(crate) fn table(path: &str) -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let one = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some((name.to_owned(), id.parse().ok()?))
    };
    text.lines().filter_map(one).collect()
}
