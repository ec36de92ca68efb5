//! Removing versions that nobody sees any more, after a snapshot or a volume was purged.
//!
//! It goes through the keys of a volume in order, a portion at a time: with each change a few, and
//! more while nothing is changed. Each portion is a record of the log, so that what lies in the
//! index follows from the log alone. After a crash it begins again, and finds less to do.

use crate::error::StoreError;
use crate::key::{self, Key};
use crate::log::Use;
use crate::options::Mutant;
use crate::record::{self, Entry, Happening, record_bytes};
use crate::state::Core;
use crate::store::Store;
use crate::value::Extent;
use crate::versions::Version;
use crate::volumes::State;
use std::collections::BTreeSet;

/// Keys that are looked at with each change.
pub(crate) const KEYS_BESIDE: u32 = 64;
/// Keys that are looked at in one portion while nothing is changed.
pub(crate) const KEYS_ALONE: u32 = 4096;

/// Where it stands.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    volume: u32,
    /// The part behind the volume of the first key that has not been looked at.
    from: Vec<u8>,
    /// The births at which keys of the volume were seen by some volume when it began.
    readers: BTreeSet<u32>,
    /// Something could not be read, or written: it goes on when the partition is opened again.
    stopped: bool,
}

/// The result of a portion.
struct Portion {
    removed: Vec<Key>,
    live: Vec<(u32, i64)>,
    /// Where the next one begins; `None`: all of the volume has been looked at.
    next: Option<Vec<u8>>,
}

/// A version of a thing, by its birth.
struct Born {
    key: Key,
    version: Version,
    needed: bool,
}

impl Core {
    fn plan_sweep(
        &self,
        (volume, readers): (u32, &BTreeSet<u32>),
        from: &[u8],
        keys: u32,
    ) -> Result<Portion, StoreError> {
        let bottom = self
            .index
            .volumes
            .get(volume)
            .is_none_or(|of| of.origin.is_none());
        let end = key::bound_in(volume.saturating_add(1), &[]);
        let mut keys = keys.max(2) as usize;
        loop {
            let (found, more) = self
                .index
                .raw_part(&key::bound_in(volume, from), &end, keys)?;
            let last = found.last().map(|(key, _)| key::thing(key).to_vec());
            let next = last.filter(|_| more);
            let mut portion = Portion {
                removed: Vec::new(),
                live: Vec::new(),
                next,
            };
            // The last thing may have more versions: it is looked at with the next portion.
            let whole = |key: &[u8]| Some(key::thing(key)) != portion.next.as_deref();
            let count = found.iter().take_while(|(key, _)| whole(key)).count();
            if count == 0 && more {
                keys *= 2;
                continue;
            }
            let mut versions: Vec<Born> = Vec::new();
            for (key, value) in found.into_iter().take(count) {
                let value = value.ok_or_else(|| self.index.damaged(&key))?;
                let version = Version::of(&key, value).ok_or_else(|| self.index.damaged(&key))?;
                let same = versions.last();
                if same.is_some_and(|of| key::thing(&of.key) != key::thing(&key)) {
                    portion.take(std::mem::take(&mut versions), (bottom, readers));
                }
                versions.push(Born {
                    key,
                    version,
                    needed: false,
                });
            }
            portion.take(versions, (bottom, readers));
            return Ok(portion);
        }
    }

    /// Removes what nobody sees among so many keys of a volume. Returns where to go on.
    pub(crate) fn sweep(
        &mut self,
        volume: u32,
        from: &[u8],
        keys: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut readers = self.index.volumes.readers(volume);
        if self.index.mutant == Some(Mutant::SweepsSeen) {
            readers = readers.pop_last().into_iter().collect();
        }
        let portion = self.plan_sweep((volume, &readers), from, keys)?;
        for key in portion.removed {
            self.index.raw_put(key, None);
        }
        for (segment, more) in portion.live {
            self.index.count_live(segment, more);
        }
        if portion.next.is_none() {
            let swept = self.index.volumes.get(volume).cloned().map(|mut of| {
                of.sweep = false;
                of
            });
            let gone = readers.is_empty();
            let left = swept.filter(|of| of.state != State::Purged || !gone);
            self.index.volumes.put(volume, left);
        }
        Ok(portion.next)
    }
}

impl Portion {
    /// That a thing was born is told as long as somebody sees what was before, and what came then.
    fn is_told(parts: key::Parts<'_>, readers: &BTreeSet<u32>) -> bool {
        let birth = key::told_born(parts.detail).map(|(birth, _)| birth);
        birth.is_some_and(|birth| {
            readers.range(..birth).next().is_some() && readers.range(birth..).next().is_some()
        })
    }

    /// The versions of one thing, the newest first: which of them does nobody see?
    fn take(&mut self, mut versions: Vec<Born>, (bottom, readers): (bool, &BTreeSet<u32>)) {
        let mut newer = None;
        for of in &mut versions {
            let birth = key::birth(&of.key);
            let mut seers = match newer {
                Some(newer) => readers.range(birth..newer),
                None => readers.range(birth..),
            };
            of.needed = seers.next().is_some();
            newer = Some(birth);
        }
        for of in &mut versions {
            if let Some(parts) = key::parts(&of.key).filter(|parts| parts.kind == key::BORN) {
                of.needed = Self::is_told(parts, readers);
            }
        }
        // Absence under which nothing is hides nothing.
        if bottom {
            for of in versions.iter_mut().rev().skip_while(|of| !of.needed) {
                if of.version != Version::Absent {
                    break;
                }
                of.needed = false;
            }
        }
        for of in versions.into_iter().filter(|of| !of.needed) {
            let kind = key::parts(&of.key).map(|parts| parts.kind);
            if let (Some(key::EXTENT), Version::Present(value)) = (kind, &of.version)
                && let Some(extent) = Extent::decode(value).filter(|extent| !extent.is_lost())
            {
                self.live.push((extent.segment, -i64::from(extent.stored)));
            }
            self.removed.push(of.key);
        }
    }
}

impl Store {
    /// Is there a volume with versions that may have to go?
    pub(crate) fn is_sweeping(&self) -> bool {
        self.next_to_sweep().is_some()
    }

    fn next_to_sweep(&self) -> Option<u32> {
        if self.sweeper.stopped {
            return None;
        }
        let mut all = self.core.index.volumes.iter();
        all.find(|(_, of)| of.sweep).map(|(id, _)| id)
    }

    /// Looks at so many keys, if a volume has versions that may have to go.
    pub(crate) fn sweep(&mut self, keys: u32) {
        let Some(volume) = self.next_to_sweep() else {
            return;
        };
        let readers = self.core.index.volumes.readers(volume);
        if (self.sweeper.volume, &self.sweeper.readers) != (volume, &readers) {
            self.sweeper = Sweeper {
                volume,
                readers,
                ..Sweeper::default()
            };
        }
        let from = std::mem::take(&mut self.sweeper.from);
        match self.sweep_portion(volume, &from, keys) {
            Ok(Some(next)) => self.sweeper.from = next,
            Ok(None) => self.sweeper = Sweeper::default(),
            // A full disk has room again at some time.
            Err(StoreError::NoSpace) => self.sweeper.from = from,
            Err(error) => {
                tracing::error!(
                    "versions that nobody sees any more stay until the server starts again: {error}"
                );
                self.sweeper.stopped = true;
            }
        }
    }

    fn sweep_portion(
        &mut self,
        volume: u32,
        from: &[u8],
        keys: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let happening: Happening<'_> = Entry::Sweep {
            volume,
            from: from.to_vec(),
            keys,
        };
        let meta = record::encode(&happening);
        let bytes = record_bytes(0, meta.len()) as u64;
        self.log.make_room(bytes, Use::Removal)?;
        let next = self.core.sweep(volume, from, keys)?;
        self.log.append(&[], &meta);
        Ok(next)
    }
}
