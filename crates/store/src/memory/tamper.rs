//! Damage to a disk in memory behind the store's back: bytes that flip, files that vanish or
//! come from elsewhere.

use super::{MemoryDisk, MemoryFile};
use crate::value;

impl MemoryDisk {
    /// Changes one byte behind the store's back. Is there such a byte?
    pub fn flip(&self, name: &str, offset: u64) -> bool {
        let mut state = self.state.lock();
        let file = state.named(name);
        file.is_some_and(|file| file.flip(offset as usize))
    }

    /// Puts these bytes into a file at this place behind the store's back. Are there so many?
    pub fn damage(&self, name: &str, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.state.lock();
        let file = state.named(name);
        file.is_some_and(|file| file.overwrite(offset as usize, bytes))
    }

    /// Cuts a file off behind the store's back. Is there one of this name?
    pub fn cut(&self, name: &str, len: u64) -> bool {
        let mut state = self.state.lock();
        let file = state.named(name);
        file.map(|file| {
            file.resize(len as usize);
            file.sync();
        })
        .is_some()
    }

    /// The files whose names are on stable storage, with how many of their bytes are.
    pub fn stable(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let names = state.stable_names.iter();
        let len = |id| state.files.get(id).map_or(0, MemoryFile::stable_len);
        names
            .map(|(name, id)| (name.clone(), len(id) as u64))
            .collect()
    }

    /// Changes a byte that is on stable storage, as [`Self::flip`] does, and gives what it was.
    pub fn rot(&self, name: &str, offset: u64) -> Option<u8> {
        let mut state = self.state.lock();
        state.named(name)?.rot(offset as usize)
    }

    /// Puts back what [`Self::rot`] gave, if the file is still there.
    pub fn mend(&self, name: &str, offset: u64, byte: u8) {
        if let Some(file) = self.state.lock().named(name) {
            file.mend(offset as usize, byte);
        }
    }

    /// Removes a file behind the store's back. Was there one?
    pub fn lose(&self, name: &str) -> bool {
        let state = &mut *self.state.lock();
        state.stable_names.remove(name);
        for changes in &mut state.pending {
            changes.retain(|(of, _)| of != name);
        }
        let lost = state.names.remove(name).is_some();
        state.drop_nameless();
        lost
    }

    /// Changes a value of the committed index behind the store's back: the first whose key has
    /// this byte at `offset`. Was there one?
    pub fn flip_index(&self, offset: usize, byte: u8) -> bool {
        let mut state = self.state.lock();
        let mut all = state.index.iter_mut();
        let found = all.find(|(key, _)| key.get(offset) == Some(&byte));
        found.map(|(_, value)| value[0] ^= 0x40).is_some()
    }

    /// Puts bytes behind the end of a file, behind the store's back. Is there such a file?
    pub fn extend(&self, name: &str, bytes: &[u8]) -> bool {
        let mut state = self.state.lock();
        let file = state.named(name);
        file.map(|file| {
            file.write(file.bytes.len(), bytes);
            file.sync();
        })
        .is_some()
    }

    /// Adds a file with these bytes behind the store's back, if there is none of this name.
    pub fn add(&self, name: &str, bytes: &[u8]) {
        let state = &mut *self.state.lock();
        if !state.names.contains_key(name) {
            state.last_id += 1;
            let mut file = MemoryFile::default();
            file.write(0, bytes);
            file.sync();
            state.files.insert(state.last_id, file);
            state.change(vec![(name.to_owned(), Some(state.last_id))]);
            state.sync_names();
        }
    }

    /// Gives the `nth` value of the committed index (over and over) another content, under a right
    /// checksum, behind the store's back. Was there one?
    pub fn forge_index(&self, nth: usize, value: &[u8]) -> bool {
        let mut state = self.state.lock();
        let nth = nth % state.index.len().max(1);
        let found = state.index.iter_mut().nth(nth);
        found
            .map(|(key, sealed)| *sealed = value::seal(key, value))
            .is_some()
    }
}
