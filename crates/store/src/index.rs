//! The index in three layers: changes since the last checkpoint began, changes that a checkpoint is
//! writing, and the engine. The first that knows a key decides.
//!
//! Only the first layer is ever changed, and only by [`Index::commit`], with everything that one
//! operation changes: no operation is seen half applied.

use crate::engine::{Batch, Engine};
use crate::error::StoreError;
use crate::key::{self, Key};
use crate::options::Mutant;
use crate::value::{self, Counters, Object};
use crate::volumes::{Volume, Volumes};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use wire::{Fid, Time};

/// Everything that one operation changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) puts: Batch,
    pub(crate) objects: Vec<(Fid, Option<Object>)>,
    /// Volumes, before anything else.
    pub(crate) volumes: Vec<(u32, Option<Volume>)>,
    /// Of the volume of the objects.
    pub(crate) objects_more: i64,
    pub(crate) bytes_more: i64,
    /// Objects and bytes of all volumes, beyond these.
    pub(crate) all: (i64, i64),
    pub(crate) made: u64,
    /// Bytes more in use of segments.
    pub(crate) live: BTreeMap<u32, i64>,
    /// Cached objects of volumes may be wrong.
    pub(crate) forgets: bool,
    /// Bytes only come to lie elsewhere.
    pub(crate) moves: bool,
}

/// Decoded objects, so that a warm look-up decodes nothing. Two generations: an object that was not
/// asked for during one whole generation is dropped.
#[derive(Debug, Default)]
struct Cache {
    young: HashMap<(u32, u64), Object>,
    old: HashMap<(u32, u64), Object>,
}

const GENERATION: usize = 16 << 10;

impl Cache {
    fn get(&mut self, fid: Fid) -> Option<Object> {
        let id = (fid.volume, fid.vnode);
        if let Some(object) = self.young.get(&id) {
            return Some(object.clone());
        }
        let object = self.old.remove(&id)?;
        self.put(fid, object.clone());
        Some(object)
    }

    fn put(&mut self, fid: Fid, object: Object) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert((fid.volume, fid.vnode), object);
    }

    fn remove(&mut self, fid: Fid) {
        self.young.remove(&(fid.volume, fid.vnode));
        self.old.remove(&(fid.volume, fid.vnode));
    }
}

/// A key, and its value, or `None`: the checksum is wrong.
pub(crate) type Found = (Key, Option<Vec<u8>>);

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    engine: Arc<dyn Engine>,
    active: Batch,
    active_bytes: usize,
    frozen: Option<Arc<Batch>>,
    cache: Mutex<Cache>,
    pub(crate) counters: Counters,
    pub(crate) volumes: Volumes,
    /// The latest time of any change.
    pub(crate) newest: Time,
    /// A planted fault of what works on the index.
    pub(crate) mutant: Option<Mutant>,
    /// Bytes in use of each segment.
    live: BTreeMap<u32, u64>,
    /// Segments of which that changed since it was last put into the index.
    touched: BTreeSet<u32>,
}

/// The cost of an entry beyond its bytes, about.
const ENTRY_BYTES: usize = 64;

fn damaged(key: &[u8]) -> StoreError {
    let text = match key::parts(key) {
        Some(parts) => format!(
            "the index entry of kind {} of object {}.{}",
            parts.kind, parts.volume, parts.vnode
        ),
        None => "a key of the index".to_owned(),
    };
    StoreError::Damaged(text)
}

impl Index {
    pub(crate) fn new(engine: Arc<dyn Engine>, counters: Counters, mutant: Option<Mutant>) -> Self {
        Self {
            engine,
            active: Batch::new(),
            active_bytes: 0,
            frozen: None,
            cache: Mutex::default(),
            counters,
            volumes: Volumes::default(),
            newest: 0,
            mutant,
            live: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Another engine with the same content takes the place of the one that is returned.
    pub(crate) fn exchange_engine(&mut self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        std::mem::replace(&mut self.engine, engine)
    }

    /// The value of a key, as it lies there.
    pub(crate) fn raw_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.active.get(key) {
            return Ok(value.clone());
        }
        if let Some(value) = self.frozen.as_ref().and_then(|frozen| frozen.get(key)) {
            return Ok(value.clone());
        }
        match self.engine.get(key)? {
            None => Ok(None),
            Some(sealed) => match value::unseal(key, sealed) {
                Some(value) => Ok(Some(value)),
                None => Err(self.damaged(key)),
            },
        }
    }

    /// The value of a key is not the one that was written: the engine is no more to be believed.
    pub(crate) fn damaged(&self, key: &[u8]) -> StoreError {
        self.engine.doubt();
        damaged(key)
    }

    /// The decoded value of a key.
    pub(crate) fn get_as<T: for<'a> serde::Deserialize<'a>>(
        &self,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        match self.get(key)? {
            None => Ok(None),
            Some(bytes) => match value::decode(&bytes) {
                Some(value) => Ok(Some(value)),
                None => Err(self.damaged(key)),
            },
        }
    }

    /// An object, whatever its uniquifier.
    pub(crate) fn object(&self, fid: Fid) -> Result<Option<Object>, StoreError> {
        if self.volumes.lineage(fid.volume).is_none() {
            return Ok(None);
        }
        if fid.is_snapshots() {
            return Ok(self.volumes.snapshots_dir(fid.volume));
        }
        if let Some(object) = self.cache.lock().get(fid) {
            return Ok(Some(object));
        }
        let object: Option<Object> = self.get_as(&key::object(fid))?;
        let any = self.mutant == Some(Mutant::ShowsLaterReleases);
        let object = object.filter(|object| any || self.volumes.is_meant(fid, object));
        if let Some(object) = &object {
            self.cache.lock().put(fid, object.clone());
        }
        Ok(object)
    }

    /// The first keys of `from..to` in order, at least one if there is any, at most `limit`.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, StoreError> {
        let found = self.scan_all(from, to, limit)?;
        let sound = found
            .into_iter()
            .map(|(key, value)| match value {
                Some(value) => Ok((key, value)),
                None => Err(self.damaged(&key)),
            })
            .collect::<Result<_, _>>()?;
        Ok(sound)
    }

    /// The same of the keys that lie there, with damaged values among them.
    pub(crate) fn raw_scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Found>, StoreError> {
        let mut start = from.to_vec();
        loop {
            let (found, next) = self.scan_part(&start, to, limit)?;
            match next {
                Some(next) if found.is_empty() => start = next,
                _ => return Ok(found),
            }
        }
    }

    /// The first key of `from..to`. When it is `from` itself, and was changed since the last
    /// checkpoint, the engine is not asked.
    pub(crate) fn raw_first(&self, from: &[u8], to: &[u8]) -> Result<Option<Found>, StoreError> {
        let mut from = Cow::Borrowed(from);
        loop {
            let changed = self.first_changed(&from, to);
            let stored = match changed {
                Some((key, _)) if **key == *from => None,
                _ => self.engine.scan(&from, to, 1)?.pop(),
            };
            let is_first = |key: &Key| changed.is_none_or(|(changed, _)| key < changed);
            if let Some((key, sealed)) = stored.filter(|(key, _)| is_first(key)) {
                let value = value::unseal(&key, sealed);
                return Ok(Some((key, value)));
            }
            match changed {
                None => return Ok(None),
                Some((key, Some(value))) => return Ok(Some((key.clone(), Some(value.clone())))),
                // It was removed.
                Some((key, None)) => from = Cow::Owned(key::after(key)),
            }
        }
    }

    /// The first key of `from..to` that has changed since the last checkpoint, or is about to.
    fn first_changed(&self, from: &[u8], to: &[u8]) -> Option<(&Key, &Option<Vec<u8>>)> {
        let within = (Included(from), Excluded(to));
        let active = self.active.range::<[u8], _>(within).next();
        let frozen = self.frozen.as_deref();
        let frozen = frozen.and_then(|frozen| frozen.range::<[u8], _>(within).next());
        match (active, frozen) {
            (Some(active), Some(frozen)) if frozen.0 < active.0 => Some(frozen),
            (active, frozen) => active.or(frozen),
        }
    }

    /// Merges the layers as far as all of them have been read; and where to go on.
    fn scan_part(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<(Vec<Found>, Option<Key>), StoreError> {
        let stored = self.engine.scan(from, to, limit)?;
        let mut last = (stored.len() == limit).then(|| stored[limit - 1].0.clone());
        let frozen = self.frozen.as_deref();
        for layer in frozen.into_iter().chain([&self.active]) {
            last = Self::last_of(layer, from, to, limit)
                .into_iter()
                .chain(last)
                .min();
        }
        let mut merged: BTreeMap<Key, Option<Vec<u8>>> = BTreeMap::new();
        let within = |key: &Key| last.as_ref().is_none_or(|last| key <= last);
        for (key, sealed) in stored.into_iter().filter(|(key, _)| within(key)) {
            let value = value::unseal(&key, sealed);
            merged.insert(key, value);
        }
        for layer in frozen.into_iter().chain([&self.active]) {
            let range = layer.range::<[u8], _>((Included(from), Excluded(to)));
            for (key, value) in range.take_while(|(key, _)| within(key)) {
                match value {
                    Some(value) => merged.insert(key.clone(), Some(value.clone())),
                    None => merged.remove(key),
                };
            }
        }
        let found = merged.into_iter().take(limit).collect();
        Ok((found, last.map(|last| key::after(&last))))
    }

    /// Where a layer has been read far enough for `limit` entries; `None`: to its end.
    fn last_of(layer: &Batch, from: &[u8], to: &[u8], limit: usize) -> Option<Key> {
        let range = layer.range::<[u8], _>((Included(from), Excluded(to)));
        let mut present = range.filter(|(_, value)| value.is_some());
        present.nth(limit - 1).map(|(key, _)| key.clone())
    }

    /// Was a value put under this key since the last checkpoint began?
    pub(crate) fn has_put(&self, key: &[u8]) -> bool {
        matches!(self.active.get(key), Some(Some(_)))
    }

    /// Puts one value under a key, or nothing.
    pub(crate) fn raw_put(&mut self, key: Key, value: Option<Vec<u8>>) {
        let more = key.len() + value.as_ref().map_or(0, Vec::len) + ENTRY_BYTES;
        let key_bytes = key.len();
        let old = self.active.insert(key, value);
        let less = old.map_or(0, |old| {
            key_bytes + old.map_or(0, |v| v.len()) + ENTRY_BYTES
        });
        self.active_bytes = (self.active_bytes + more).saturating_sub(less);
    }

    /// Applies everything that one operation changes.
    pub(crate) fn commit(&mut self, changes: Changes) {
        for (id, volume) in changes.volumes {
            self.volumes.put(id, volume);
        }
        if changes.forgets {
            *self.cache.get_mut() = Cache::default();
        }
        let of = changes.objects.first().map(|(fid, _)| fid.volume);
        if let Some(of) = of {
            if !changes.moves {
                self.volumes.note_changed(of);
            }
            self.volumes
                .count(of, changes.objects_more, changes.bytes_more);
        }
        for (fid, object) in changes.objects {
            let value = object.as_ref().map(value::encode);
            match object {
                Some(object) => self.cache.get_mut().put(fid, object),
                None => self.cache.get_mut().remove(fid),
            }
            self.put(key::object(fid), value);
        }
        for (key, value) in changes.puts {
            self.put(key, value);
        }
        let counters = &mut self.counters;
        let (objects, bytes) = changes.all;
        let (objects, bytes) = (objects + changes.objects_more, bytes + changes.bytes_more);
        counters.objects = counters.objects.saturating_add_signed(objects);
        counters.bytes = counters.bytes.saturating_add_signed(bytes);
        counters.next_vnode += changes.made;
        for (segment, more) in changes.live {
            self.count_live(segment, more);
        }
    }

    /// So many bytes more of a segment are in use.
    pub(crate) fn count_live(&mut self, segment: u32, more: i64) {
        let live = self.live.entry(segment).or_default();
        *live = live.saturating_add_signed(more);
        self.touched.insert(segment);
    }

    /// Bytes in use of each segment that has any.
    pub(crate) fn live(&self) -> &BTreeMap<u32, u64> {
        &self.live
    }

    /// Bytes in use of a segment, as the engine has it.
    pub(crate) fn load_live(&mut self, segment: u32, live: u64) {
        self.live.insert(segment, live);
    }

    /// Nobody has bytes of this segment any more. A note that cannot be read stays, and says
    /// nothing of any other segment: numbers are not given twice.
    pub(crate) fn forget_borrowers(&mut self, segment: u32) {
        let (from, to) = key::shared_from(segment, 0);
        let noted = self.scan_all(&from, &to, usize::MAX).unwrap_or_default();
        for (key, _) in noted {
            self.put(key, None);
        }
    }

    /// Puts the numbers that are kept beside the layers into them, for a checkpoint.
    pub(crate) fn put_numbers(&mut self) {
        for segment in std::mem::take(&mut self.touched) {
            let live = self.live.get(&segment).copied().filter(|live| *live > 0);
            if live.is_none() {
                self.live.remove(&segment);
            }
            self.put(key::segment(segment), live.map(|live| value::encode(&live)));
        }
        for id in self.volumes.take_touched() {
            let volume = self.volumes.get(id).map(Volume::encode);
            self.put(key::volume_of(id), volume);
            let next = value::encode(&self.volumes.next());
            self.put(key::volume_of(0), Some(next));
        }
        let counters = value::encode(&self.counters);
        self.put(key::counters(), Some(counters));
        self.put(key::newest(), Some(value::encode(&self.newest)));
    }

    /// Bytes of changes that no checkpoint has taken.
    pub(crate) fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// The changes that a checkpoint which has not succeeded yet has taken.
    pub(crate) fn frozen(&self) -> Option<&Arc<Batch>> {
        self.frozen.as_ref()
    }

    /// Takes the changes for a checkpoint, if none is under way.
    pub(crate) fn freeze(&mut self) -> Option<Arc<Batch>> {
        if self.frozen.is_none() {
            self.active_bytes = 0;
            self.frozen = Some(Arc::new(std::mem::take(&mut self.active)));
        }
        self.frozen.clone()
    }

    /// The engine has what was frozen.
    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memory::MemoryDisk;
    use wire::splitmix64;

    /// Few keys, put and removed at random in all layers: an engine, changes that a checkpoint is
    /// writing, and later ones.
    fn drawn(seed: &mut u64) -> Index {
        let engine = Arc::new(MemoryDisk::new());
        let mut index = Index::new(engine, Counters::default(), None);
        for layer in 0..3_u8 {
            for _ in 0..4 {
                let key = vec![(splitmix64(seed) % 8) as u8];
                let is_put = !splitmix64(seed).is_multiple_of(3);
                index.raw_put(key, is_put.then(|| vec![layer]));
            }
            if layer == 0 {
                let batch = index.freeze().unwrap();
                index.engine().commit(&batch).unwrap();
                index.thaw();
            }
            if layer == 1 {
                index.freeze().unwrap();
            }
        }
        index
    }

    #[test]
    fn the_first_key_is_that_of_a_scan() {
        let mut seed = 1;
        for _ in 0..300 {
            let index = drawn(&mut seed);
            for from in 0..8_u8 {
                for to in from..9 {
                    let all = index.raw_scan(&[from], &[to], 1).unwrap();
                    let first = index.raw_first(&[from], &[to]).unwrap();
                    assert_eq!(first, all.into_iter().next(), "{from}..{to} of {index:?}");
                }
            }
        }
    }
}
