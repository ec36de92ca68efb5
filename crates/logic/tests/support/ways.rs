//! The directories by which an object of the scenarios' store is come to.

use super::{MemoryDisk, Object};
use wire::Fid;

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
}
