//! The directories by which an object of the scenarios' store is come to, and the loss of a name.

use super::{MemoryDisk, Object};
use wire::{Attr, Fid, Kind, Refusal, Time};

impl MemoryDisk {
    /// Those that have a name of it, or the one that had its last.
    pub(super) fn ways_to(&self, fid: Fid) -> Vec<Fid> {
        let names = |dir: &Object| dir.names.values().any(|(named, _)| *named == fid);
        let dirs = self.objects.iter().filter(|(_, object)| names(object));
        let mut dirs: Vec<Fid> = dirs.map(|(dir, _)| *dir).collect();
        if dirs.is_empty() {
            dirs.extend(self.objects.get(&fid).and_then(|object| object.lost_in));
        }
        dirs
    }

    /// A name in a directory is gone.
    pub(super) fn lose_link(&mut self, now: Time, fid: Fid, dir: Fid) -> Result<Attr, Refusal> {
        self.change(fid)?.lost_in = Some(dir);
        let attr = &mut self.change(fid)?.attr;
        attr.nlink = if attr.kind == Kind::Directory {
            0
        } else {
            attr.nlink - 1
        };
        attr.ctime = attr.ctime.max(now);
        Ok(attr.clone())
    }
}
