//! A disk in memory that can crash and fail on demand: for the simulator and for tests.
//!
//! It keeps what it promises and no more. Bytes of files and names of files are cached: they are
//! read at once, and the end of the machine leaves what was synced, and of the rest as much or as
//! little as [`Keep`] says. The end of the process leaves everything cached, and no more stable
//! than it was. All clones of a [`MemoryDisk`] are the same disk.

mod carry;
mod fault;
mod file;
mod random;
mod tamper;

use crate::disk::{Disk, Files};
use fault::{Course, Faults, broken};
pub use fault::{Failure, Fault, Verb};
use file::MemoryFile;
use parking_lot::Mutex;
use random::Random;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The changes that survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only what was synced.
    Synced,
    /// Everything that was handed to the operating system: the process died, the machine did not.
    Written,
    /// All that was synced, and of each file this many per cent of the bytes written since, so that
    /// a write may be torn.
    Torn(u8),
    /// All that was synced, and of the later changes those that this seed draws: each write may be
    /// there, in part, or not at all, in no order.
    Any(u64),
}

/// A disk in memory. Clones are handles of the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

/// Tells files apart, whatever their names.
type FileId = u64;

/// The content of a directory.
type Names = BTreeMap<String, FileId>;

/// A name, and the file that it names from now on.
type Change = (String, Option<FileId>);

#[derive(Debug)]
struct State {
    files: BTreeMap<FileId, MemoryFile>,
    last_id: FileId,
    names: Names,
    /// The changes of the names since they were synced, oldest first; each whole or not at all.
    pending: Vec<Vec<Change>>,
    stable_names: Names,
    /// The committed index, where the store runs without an index engine of its own.
    index: BTreeMap<Vec<u8>, Vec<u8>>,
    /// It was carried here from another disk, and nobody has synced it since.
    index_is_carried: bool,
    capacity_bytes: u64,
    faults: Faults,
}

impl Default for State {
    fn default() -> Self {
        Self {
            files: BTreeMap::new(),
            last_id: 0,
            names: Names::new(),
            pending: Vec::new(),
            stable_names: Names::new(),
            index: BTreeMap::new(),
            index_is_carried: false,
            capacity_bytes: 1 << 40,
            faults: Faults::default(),
        }
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

fn set(names: &mut Names, (name, id): Change) {
    match id {
        Some(id) => names.insert(name, id),
        None => names.remove(&name),
    };
}

impl State {
    fn used(&self) -> u64 {
        let named = self.names.values().filter_map(|id| self.files.get(id));
        named.map(MemoryFile::room).sum()
    }

    fn room(&self, more: u64) -> io::Result<()> {
        if more > 0 && self.used().saturating_add(more) > self.capacity_bytes {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn file(&mut self, id: FileId) -> io::Result<&mut MemoryFile> {
        self.files.get_mut(&id).ok_or_else(not_found)
    }

    fn named(&mut self, name: &str) -> Option<&mut MemoryFile> {
        let id = self.names.get(name)?;
        self.files.get_mut(id)
    }

    fn change(&mut self, changes: Vec<Change>) {
        for change in &changes {
            set(&mut self.names, change.clone());
        }
        self.pending.push(changes);
    }

    fn sync_names(&mut self) {
        self.pending.clear();
        self.stable_names.clone_from(&self.names);
        self.drop_nameless();
    }

    fn drop_nameless(&mut self) {
        let (names, stable) = (&self.names, &self.stable_names);
        let named = |id: &FileId| names.values().chain(stable.values()).any(|of| of == id);
        self.files.retain(|id, _| named(id));
    }

    fn crash_names(&mut self, keep: Keep, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let of = pending.len();
        for (i, changes) in pending.into_iter().enumerate() {
            let kept = match keep {
                Keep::Synced | Keep::Written => false,
                Keep::Torn(percent) => (i + 1) * 100 <= of * usize::from(percent),
                Keep::Any(_) => random.below(2) == 0,
            };
            if kept {
                for change in changes {
                    set(&mut self.stable_names, change);
                }
            }
        }
        self.names.clone_from(&self.stable_names);
        self.drop_nameless();
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The machine or the process dies: bytes that were not kept are lost, and the disk works
    /// again. A store that still holds this disk must be dropped first.
    pub fn crash(&self, keep: Keep) {
        let state = &mut *self.state.lock();
        state.faults.heal();
        if keep == Keep::Written {
            return;
        }
        let mut random = match keep {
            Keep::Any(seed) => Random(seed),
            _ => Random(0),
        };
        state.crash_names(keep, &mut random);
        if std::mem::take(&mut state.index_is_carried) {
            state.index.clear();
        }
        for file in state.files.values_mut() {
            file.crash(keep, &mut random);
        }
    }

    /// An independent copy of the disk as it is now, without what is to go wrong with it.
    pub fn copy(&self) -> Self {
        let state = self.state.lock();
        Self {
            state: Arc::new(Mutex::new(State {
                files: state.files.clone(),
                last_id: state.last_id,
                names: state.names.clone(),
                pending: state.pending.clone(),
                stable_names: state.stable_names.clone(),
                index: state.index.clone(),
                index_is_carried: state.index_is_carried,
                capacity_bytes: state.capacity_bytes,
                faults: Faults::default(),
            })),
        }
    }

    /// The `call`-th changing call from now (1: the next one) goes wrong.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.fail(Failure {
            verb: None,
            at: call,
            fault,
            lasting: false,
        });
    }

    /// This goes wrong, and nothing else.
    pub fn fail(&self, failure: Failure) {
        self.state.lock().faults.plan(failure);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.state.lock().faults.heal();
    }

    /// The disk holds no more than this.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// From now on there is room for so many bytes more.
    pub fn leave_room(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.capacity_bytes = state.used().saturating_add(bytes);
    }

    /// Nothing goes wrong with this, and nothing of it is counted.
    pub fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state.lock().faults.pause(true);
        let result = work();
        self.state.lock().faults.pause(false);
        result
    }

    /// How many changing calls there were.
    pub fn calls(&self) -> u64 {
        self.state.lock().faults.changing
    }

    /// How many calls of this verb there were.
    pub fn calls_of(&self, verb: Verb) -> u64 {
        self.state.lock().faults.count(verb)
    }

    /// How many calls went wrong because they were told to.
    pub fn hits(&self) -> u64 {
        self.state.lock().faults.hits()
    }

    /// How many syncs of files there were.
    pub fn syncs(&self) -> u64 {
        self.calls_of(Verb::Sync)
    }

    /// Names and lengths of the files, bytes.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let len = |id| {
            state
                .files
                .get(id)
                .map_or(0, |file| file.bytes.len() as u64)
        };
        let all = state.names.iter();
        all.map(|(name, id)| (name.clone(), len(id))).collect()
    }

    /// The bytes of a file, for tests that look for something in it.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        state.named(name).map(|file| file.bytes.clone())
    }

    pub(crate) fn index_get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::Look)?;
        Ok(state.index.get(key).cloned())
    }

    pub(crate) fn index_scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::Look)?;
        let range = state.index.range::<[u8], _>((
            std::ops::Bound::Included(from),
            std::ops::Bound::Excluded(to),
        ));
        let pairs = range.take(limit).map(|(k, v)| (k.clone(), v.clone()));
        Ok(pairs.collect())
    }

    pub(crate) fn index_commit<'a>(
        &self,
        batch: impl Iterator<Item = (&'a Vec<u8>, Option<Vec<u8>>)>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::Commit)?;
        state.index_is_carried = false;
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
        let state = &mut *self.state.lock();
        let verb = if create { Verb::Create } else { Verb::Open };
        state.faults.whole_step(verb)?;
        let id = match state.names.get(name) {
            Some(id) => *id,
            None if !create => return Err(not_found()),
            None => {
                state.last_id += 1;
                let id = state.last_id;
                state.files.insert(id, MemoryFile::default());
                state.change(vec![(name.to_owned(), Some(id))]);
                id
            }
        };
        let disk = self.clone();
        Ok(Arc::new(OpenFile { disk, id }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::Remove)?;
        if !state.names.contains_key(name) {
            return Err(not_found());
        }
        state.change(vec![(name.to_owned(), None)]);
        Ok(())
    }

    fn rename(&self, name: &str, new: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::Rename)?;
        let id = state.names.get(name).copied().ok_or_else(not_found)?;
        state.change(vec![(new.to_owned(), Some(id)), (name.to_owned(), None)]);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::List)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.faults.step(Verb::SyncNames)? {
            Course::Whole => state.sync_names(),
            Course::Half | Course::Dropped => return Err(broken()),
        }
        Ok(())
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let mut state = self.state.lock();
        state.faults.whole_step(Verb::Space)?;
        let free = state.capacity_bytes.saturating_sub(state.used());
        Ok((state.capacity_bytes, free))
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: MemoryDisk,
    id: FileId,
}

impl Disk for OpenFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state.lock();
        state.faults.whole_step(Verb::Length)?;
        Ok(state.file(self.id)?.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let course = state.faults.step(Verb::Read)?;
        let bytes = &state.file(self.id)?.bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let from = bytes
            .get(start..end)
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        if course != Course::Whole {
            let half = into.len() / 2;
            into[..half].copy_from_slice(&from[..half]);
            return Err(broken());
        }
        into.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let course = state.faults.step(Verb::Write)?;
        let has = state.file(self.id)?.room();
        let end = offset.saturating_add(bytes.len() as u64);
        state.room(end.saturating_sub(has))?;
        let now = match course {
            Course::Whole => bytes.len(),
            Course::Half => bytes.len() / 2,
            Course::Dropped => return Err(broken()),
        };
        let file = state.file(self.id)?;
        file.write(offset as usize, &bytes[..now]);
        if course == Course::Whole {
            Ok(())
        } else {
            Err(broken())
        }
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.faults.whole_step(Verb::Resize)?;
        let has = state.file(self.id)?.room();
        state.room(len.saturating_sub(has))?;
        state.file(self.id)?.resize(len as usize);
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.faults.whole_step(Verb::Reserve)?;
        let (has, to) = (state.file(self.id)?.room(), offset.saturating_add(len));
        state.room(to.saturating_sub(has))?;
        state.file(self.id)?.reserve(to);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let course = state.faults.step(Verb::Sync)?;
        let file = state.file(self.id)?;
        match course {
            Course::Whole => {
                file.sync();
                Ok(())
            }
            Course::Half => Err(broken()),
            Course::Dropped => {
                file.drop_pending();
                Err(broken())
            }
        }
    }
}
