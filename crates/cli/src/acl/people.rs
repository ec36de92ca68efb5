//! Users and groups as people name them in lists.

use crate::group;
use crate::known::{Known, Names, table};
use access::Who;
use anyhow::Context;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The users and groups that the cell and this machine know.
pub(super) struct People {
    users: Known,
    groups: Names,
    of_cell: Names,
    /// Where the cell is asked.
    mount: Option<PathBuf>,
}

/// Before the name or the number of a group of machines.
const GROUP: &str = "group:";
const ANYONE: &str = "anyone";

impl People {
    /// Those that may stand in lists of the mount in which this path is.
    pub(super) fn of(path: &Path) -> Self {
        let mount = mount_of(path);
        let groups = mount.as_deref().map_or_else(Vec::new, group::of_mount);
        let here = || Known::here();
        Self {
            users: mount
                .as_deref()
                .map_or_else(here, |it| Known::through(Some(it))),
            groups: table("/etc/group"),
            of_cell: groups.into_iter().map(|it| (it.name, it.gid)).collect(),
            mount,
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
        let uid = self.users.number(word);
        uid.map(Who::User).with_context(|| {
            let mount = self.mount.as_deref().unwrap_or(Path::new("DIR")).display();
            format!(
                "neither the cell nor this machine has a user or group {word}: \
                 `ariel user list --mount {mount}` and `ariel group list --mount {mount}` show \
                 the cell's; a user may be named by his number, a group of machines is \
                 `group:NAME`{}",
                self.users.why_not()
            )
        })
    }

    /// The word for whom an entry names.
    pub(super) fn name_of(&self, who: Who) -> String {
        match who {
            Who::Anyone => ANYONE.to_owned(),
            Who::User(uid) => self.users.name(uid),
            Who::Group(gid) if access::is_group(gid) => word(&self.of_cell, gid),
            Who::Group(gid) => format!("{GROUP}{}", word(&self.groups, gid)),
        }
    }
}

fn number(table: &Names, word: &str) -> Option<u32> {
    table.get(word).copied().or_else(|| word.parse().ok())
}

fn word(table: &Names, id: u32) -> String {
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
