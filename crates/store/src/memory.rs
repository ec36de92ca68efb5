//! A disk in memory that can crash and fail on demand: for the simulator and for tests.
//!
//! It keeps what it promises and no more: what was not synced may be lost, in the order it was
//! written, the last write perhaps torn. All clones of a [`MemoryDisk`] are the same disk.

use crate::disk::{Disk, Files};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What survives a crash of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only what was synced.
    Synced,
    /// Everything that was handed to the operating system: the process died, the machine did not.
    Written,
    /// What was synced, and of each file this many per cent of the bytes written since, so that
    /// a write may be torn.
    Torn(u8),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with an input/output error and does nothing; later calls work.
    Fail,
    /// The call does half of its work and fails; later calls work.
    Half,
    /// The call does half of its work and fails; so does every later call until the crash.
    Die,
}

/// A disk in memory. Clones are handles of the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    files: BTreeMap<String, MemoryFile>,
    /// The committed index, where the store runs without an index engine of its own.
    index: BTreeMap<Vec<u8>, Vec<u8>>,
    capacity_bytes: u64,
    calls: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    dead: bool,
}

#[derive(Clone, Debug, Default)]
struct MemoryFile {
    bytes: Vec<u8>,
    /// What undoes the writes since the last sync, oldest first.
    undo: Vec<Undo>,
}

#[derive(Clone, Debug)]
struct Undo {
    len: usize,
    offset: usize,
    old: Vec<u8>,
    /// Bytes that the call wrote.
    wrote: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            files: BTreeMap::new(),
            index: BTreeMap::new(),
            capacity_bytes: 1 << 40,
            calls: 0,
            syncs: 0,
            fault: None,
            dead: false,
        }
    }
}

fn broken() -> io::Error {
    io::Error::other("the disk was told to fail")
}

impl State {
    /// Counts a changing call. `Ok(true)`: it goes well; `Ok(false)`: it does half and fails.
    fn step(&mut self) -> io::Result<bool> {
        if self.dead {
            return Err(broken());
        }
        self.calls += 1;
        match self.fault {
            Some((call, fault)) if call == self.calls => {
                self.dead = fault == Fault::Die;
                if fault == Fault::Fail {
                    Err(broken())
                } else {
                    Ok(false)
                }
            }
            _ => Ok(true),
        }
    }

    fn whole_step(&mut self) -> io::Result<()> {
        if self.step()? { Ok(()) } else { Err(broken()) }
    }

    fn used(&self) -> u64 {
        self.files.values().map(|f| f.bytes.len() as u64).sum()
    }

    fn room(&self, more: u64) -> io::Result<()> {
        if self.used().saturating_add(more) > self.capacity_bytes {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn file(&mut self, name: &str) -> io::Result<&mut MemoryFile> {
        self.files
            .get_mut(name)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl MemoryFile {
    fn change(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        let old = self.bytes.get(offset..end.min(self.bytes.len()));
        self.undo.push(Undo {
            len: self.bytes.len(),
            offset,
            old: old.unwrap_or_default().to_vec(),
            wrote: bytes.len(),
        });
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn resize(&mut self, len: usize) {
        let old = self.bytes.get(len..).unwrap_or_default().to_vec();
        self.undo.push(Undo {
            len: self.bytes.len(),
            offset: len,
            old,
            wrote: 0,
        });
        self.bytes.resize(len, 0);
    }

    /// Undoes what was not synced, but for the first `keep` bytes written since.
    fn crash(&mut self, mut keep: usize) {
        let mut first_lost = self.undo.len();
        let mut torn = None;
        for (i, undo) in self.undo.iter().enumerate() {
            if keep < undo.wrote || (keep == 0 && undo.wrote == 0) {
                first_lost = i;
                let end = (undo.offset + keep).min(self.bytes.len());
                torn = (keep > 0).then(|| self.bytes[undo.offset..end].to_vec());
                break;
            }
            keep -= undo.wrote;
        }
        let mut at = 0;
        while let Some(undo) = self.undo.pop() {
            if self.undo.len() < first_lost {
                break;
            }
            self.bytes.resize(undo.len, 0);
            let end = (undo.offset + undo.old.len()).min(undo.len);
            if end > undo.offset {
                self.bytes[undo.offset..end].copy_from_slice(&undo.old[..end - undo.offset]);
            }
            at = undo.offset;
        }
        self.undo.clear();
        if let Some(torn) = torn {
            self.change(at, &torn);
            self.undo.clear();
        }
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The machine or the process dies: what was not kept is lost, and the disk works again.
    /// A store that still holds this disk must be dropped first.
    pub fn crash(&self, keep: Keep) {
        let state = &mut *self.state.lock();
        state.dead = false;
        state.fault = None;
        for file in state.files.values_mut() {
            let wrote: usize = file.undo.iter().map(|undo| undo.wrote).sum();
            match keep {
                Keep::Written => file.undo.clear(),
                Keep::Synced => file.crash(0),
                Keep::Torn(percent) => file.crash(wrote * usize::from(percent.min(100)) / 100),
            }
        }
    }

    /// An independent copy of the disk as it is now.
    pub fn copy(&self) -> Self {
        let state = self.state.lock();
        Self {
            state: Arc::new(Mutex::new(State {
                files: state.files.clone(),
                index: state.index.clone(),
                capacity_bytes: state.capacity_bytes,
                ..State::default()
            })),
        }
    }

    /// The `call`-th changing call from now (1: the next one) goes wrong.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        let state = &mut *self.state.lock();
        state.fault = Some((state.calls + call, fault));
    }

    /// The disk holds no more than this.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// How many changing calls there were.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// How many syncs of files there were.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Names and lengths of the files, bytes.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let all = state.files.iter();
        all.map(|(name, file)| (name.clone(), file.bytes.len() as u64))
            .collect()
    }

    /// The bytes of a file, for tests that look for something in it.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.files.get(name).map(|file| file.bytes.clone())
    }

    /// Changes one byte behind the store's back. Is there such a byte?
    pub fn flip(&self, name: &str, offset: u64) -> bool {
        let mut state = self.state.lock();
        let file = state.files.get_mut(name);
        let byte = file.and_then(|file| file.bytes.get_mut(offset as usize));
        byte.map(|byte| *byte ^= 0x40).is_some()
    }

    /// Removes a file behind the store's back. Was there one?
    pub fn lose(&self, name: &str) -> bool {
        self.state.lock().files.remove(name).is_some()
    }

    /// Changes a value of the committed index behind the store's back: the first whose key has
    /// this byte at `offset`. Was there one?
    pub fn flip_index(&self, offset: usize, byte: u8) -> bool {
        let mut state = self.state.lock();
        let mut all = state.index.iter_mut();
        let found = all.find(|(key, _)| key.get(offset) == Some(&byte));
        found.map(|(_, value)| value[0] ^= 0x40).is_some()
    }

    pub(crate) fn index_get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state.lock().index.get(key).cloned()
    }

    pub(crate) fn index_scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let state = self.state.lock();
        let range = state.index.range::<[u8], _>((
            std::ops::Bound::Included(from),
            std::ops::Bound::Excluded(to),
        ));
        range
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    pub(crate) fn index_commit<'a>(
        &self,
        batch: impl Iterator<Item = (&'a Vec<u8>, Option<Vec<u8>>)>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.whole_step()?;
        for (key, value) in batch {
            match value {
                Some(value) => state.index.insert(key.clone(), value),
                None => state.index.remove(key),
            };
        }
        Ok(())
    }
}

impl Files for MemoryDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn Disk>> {
        let mut state = self.state.lock();
        if create {
            state.whole_step()?;
            state.files.entry(name.to_owned()).or_default();
        }
        state.file(name)?;
        Ok(Arc::new(OpenFile {
            disk: self.clone(),
            name: name.to_owned(),
        }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.whole_step()?;
        state.file(name)?;
        state.files.remove(name);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().files.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.state.lock().whole_step()
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let state = self.state.lock();
        let free = state.capacity_bytes.saturating_sub(state.used());
        Ok((state.capacity_bytes, free))
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: MemoryDisk,
    name: String,
}

impl Disk for OpenFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state.lock();
        Ok(state.file(&self.name)?.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let bytes = &state.file(&self.name)?.bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let from = bytes
            .get(start..end)
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let whole = state.step()?;
        let len = state.file(&self.name)?.bytes.len() as u64;
        let end = offset.saturating_add(bytes.len() as u64);
        state.room(end.saturating_sub(len))?;
        let now = if whole { bytes.len() } else { bytes.len() / 2 };
        state
            .file(&self.name)?
            .change(offset as usize, &bytes[..now]);
        if whole { Ok(()) } else { Err(broken()) }
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.whole_step()?;
        let old = state.file(&self.name)?.bytes.len() as u64;
        state.room(len.saturating_sub(old))?;
        if len != old {
            state.file(&self.name)?.resize(len as usize);
        }
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.whole_step()?;
        let old = state.file(&self.name)?.bytes.len() as u64;
        state.room(offset.saturating_add(len).saturating_sub(old))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.whole_step()?;
        state.syncs += 1;
        state.file(&self.name)?.undo.clear();
        Ok(())
    }
}
