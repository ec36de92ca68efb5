//! A copy of a disk on another machine: what is carried there can be read at once, and is stable
//! when somebody syncs it.

use super::{MemoryDisk, MemoryFile};

/// The index, among the names of files.
const INDEX: &str = "index";

impl MemoryDisk {
    /// Makes this disk equal to another one, but for the files of which `wants` does not want to
    /// know; the index counts as one, called `index`. Nothing that comes is stable yet.
    pub fn carry(&self, from: &Self, wants: &dyn Fn(&str) -> bool) {
        let other = from.copy();
        let other = &*other.state.lock();
        let state = &mut *self.state.lock();
        let is_gone = |name: &&String| !other.names.contains_key(*name);
        let gone: Vec<String> = state.names.keys().filter(is_gone).cloned().collect();
        for name in gone {
            state.change(vec![(name, None)]);
        }
        for (name, id) in other.names.iter().filter(|(name, _)| wants(name)) {
            let Some(file) = other.files.get(id) else {
                continue;
            };
            if !state.names.contains_key(name) {
                state.last_id += 1;
                let id = state.last_id;
                state.files.insert(id, MemoryFile::default());
                state.change(vec![(name.clone(), Some(id))]);
            }
            if let Some(copy) = state.named(name).filter(|copy| copy.bytes != file.bytes) {
                copy.resize(file.bytes.len());
                copy.write(0, &file.bytes);
            }
        }
        if wants(INDEX) && state.index != other.index {
            state.index.clone_from(&other.index);
            state.index_is_carried = true;
        }
    }

    /// Puts all of it on stable storage.
    pub fn sync_all(&self) {
        let state = &mut *self.state.lock();
        state.sync_names();
        for file in state.files.values_mut() {
            file.sync();
        }
        state.index_is_carried = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Files;
    use crate::memory::Keep;

    fn with(name: &str, bytes: &[u8]) -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.open(name, true).unwrap().write_at(0, bytes).unwrap();
        disk.index_commit([(&vec![1], Some(bytes.to_vec()))].into_iter())
            .unwrap();
        disk
    }

    #[test]
    fn a_copy_is_equal_and_outlasts_the_power_only_when_it_is_synced() {
        let (from, to) = (with("a", b"one"), with("b", b"other"));
        to.sync_all();
        to.carry(&from, &|_| true);
        assert_eq!(to.contents("a").unwrap(), b"one");
        assert_eq!(to.contents("b"), None);
        assert_eq!(to.index_get(&[1]).unwrap().unwrap(), b"one");

        let torn = to.copy();
        torn.crash(Keep::Synced);
        assert_eq!(torn.contents("a"), None);
        assert_eq!(torn.index_get(&[1]).unwrap(), None);

        to.sync_all();
        to.crash(Keep::Synced);
        assert_eq!(to.contents("a").unwrap(), b"one");
        assert_eq!(to.index_get(&[1]).unwrap().unwrap(), b"one");
    }

    #[test]
    fn what_is_not_wanted_stays_as_it_was() {
        let (from, to) = (with("a", b"new"), with("a", b"old one"));
        to.carry(&from, &|name| name != "a");
        assert_eq!(to.contents("a").unwrap(), b"old one");
        assert_eq!(to.index_get(&[1]).unwrap().unwrap(), b"new");
    }
}
