//! Things of a volume in the index: which version of each is seen, and where a change goes.
//!
//! Callers name a thing by its key as if the volume had no versions. Under births above the first,
//! a value is followed by a byte: 1, or 0 for *absent here*, which hides older versions, those of
//! volumes below included. A change goes under the volume's birth and replaces only what is there:
//! so what a snapshot sees stays where it is. A thing that no older version is seen of is removed
//! without a trace.

use crate::error::StoreError;
use crate::index::{Found, Index};
use crate::key::{self, Key};
use crate::options::Mutant;
use crate::volumes::{FIRST_BIRTH, Lineage};
use std::collections::{BTreeMap, BTreeSet};

/// One version of a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Present(Vec<u8>),
    Absent,
}

impl Version {
    /// From a value as it lies under its key; `None`: it is not one.
    pub(crate) fn of(key: &[u8], mut value: Vec<u8>) -> Option<Self> {
        if key::birth(key) == FIRST_BIRTH {
            return Some(Self::Present(value));
        }
        match value.pop()? {
            1 => Some(Self::Present(value)),
            0 if value.is_empty() => Some(Self::Absent),
            _ => None,
        }
    }

    /// The value to lie under this key.
    pub(crate) fn sealed(key: &[u8], value: Option<Vec<u8>>) -> Vec<u8> {
        let mut bytes = value.clone().unwrap_or_default();
        if key::birth(key) != FIRST_BIRTH {
            bytes.push(u8::from(value.is_some()));
        }
        bytes
    }
}

/// How the things of a volume are seen.
enum Sight<'a> {
    /// Under their plain keys: there are no versions.
    Plain,
    Versions(&'a Lineage),
    /// There is no such volume.
    Nothing,
}

/// Keys that lie there, and whether there may be more.
type Part = (Vec<Found>, bool);

impl Index {
    fn sight(&self, volume: u32) -> Sight<'_> {
        if volume == 0 {
            return Sight::Plain;
        }
        match self.volumes.lineage(volume) {
            None => Sight::Nothing,
            Some(lineage) if **lineage == [(volume, FIRST_BIRTH)] => Sight::Plain,
            Some(lineage) => Sight::Versions(lineage),
        }
    }

    /// The value of a thing.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.sight(key::volume_in(key)) {
            Sight::Plain => self.raw_get(key),
            Sight::Nothing => Ok(None),
            Sight::Versions(lineage) => match self.newest(lineage, key::thing(key))? {
                Some(Version::Present(value)) => Ok(Some(value)),
                _ => Ok(None),
            },
        }
    }

    /// The version of a thing that is seen.
    pub(crate) fn newest(
        &self,
        lineage: &Lineage,
        thing: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        for (volume, birth) in lineage {
            let (from, to) = key::versions(*volume, thing, *birth);
            if let Some((key, value)) = self.raw_first(&from, &to)? {
                let version = value.and_then(|value| Version::of(&key, value));
                return version.map(Some).ok_or_else(|| self.damaged(&key));
            }
        }
        Ok(None)
    }

    /// The first things of `from..to` that are seen, in order, at least one if there is any, at
    /// most `limit`; damaged ones among them.
    pub(crate) fn scan_all(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Found>, StoreError> {
        let volume = key::volume_in(from);
        match self.sight(volume) {
            Sight::Plain => self.raw_scan(from, to, limit),
            Sight::Nothing => Ok(Vec::new()),
            Sight::Versions(lineage) => {
                let to = match key::volume_in(to) == volume {
                    true => Some(key::behind_volume(to)),
                    false => None,
                };
                let behind = key::behind_volume(from);
                self.scan_versions((volume, lineage), (behind, to), limit)
            }
        }
    }

    fn scan_versions(
        &self,
        (volume, lineage): (u32, &Lineage),
        (from, to): (&[u8], Option<&[u8]>),
        limit: usize,
    ) -> Result<Vec<Found>, StoreError> {
        let mut from = from.to_vec();
        // Each thing may have some versions.
        let mut chunk = limit.saturating_mul(2).saturating_add(6).min(1024);
        loop {
            let mut seen: BTreeMap<Vec<u8>, Option<Version>> = BTreeMap::new();
            // Things from this one on have not been read in all volumes.
            let mut horizon: Option<Vec<u8>> = None;
            for (of, birth) in lineage.iter().rev() {
                let first = key::bound_in(*of, &from);
                let end = match to {
                    Some(to) => key::bound_in(*of, to),
                    None => key::bound_in(of.saturating_add(1), &[]),
                };
                let (found, more) = self.raw_part(&first, &end, chunk)?;
                if let Some((last, _)) = found.last().filter(|_| more) {
                    let last = key::thing(last).to_vec();
                    horizon = Some(horizon.map_or(last.clone(), |at| at.min(last)));
                }
                take_newest(found, *birth, &mut seen);
            }
            let complete = |thing: &Vec<u8>| horizon.as_ref().is_none_or(|at| thing < at);
            let things = seen.into_iter().filter(|(thing, _)| complete(thing));
            let present = things.filter_map(|(thing, version)| {
                let value = match version {
                    Some(Version::Absent) => return None,
                    Some(Version::Present(value)) => Some(value),
                    None => None,
                };
                Some((key::plain(volume, &thing), value))
            });
            let present: Vec<Found> = present.take(limit).collect();
            let Some(at) = horizon.filter(|_| present.is_empty()) else {
                return Ok(present);
            };
            // All that was read are versions of one thing, or nothing that is seen.
            chunk = if at == from { chunk * 2 } else { chunk };
            from = at;
        }
    }

    /// So many keys of `from..to`, if there are. Are there more?
    pub(crate) fn raw_part(&self, from: &[u8], to: &[u8], keys: usize) -> Result<Part, StoreError> {
        let mut all: Vec<Found> = Vec::new();
        let mut from = from.to_vec();
        while all.len() < keys {
            let part = self.raw_scan(&from, to, keys - all.len())?;
            let Some((last, _)) = part.last() else {
                return Ok((all, false));
            };
            from = key::after(last);
            all.extend(part);
        }
        Ok((all, true))
    }

    /// Puts one value into the index, or takes it out of what is seen.
    pub(crate) fn put(&mut self, key: Key, value: Option<Vec<u8>>) {
        let volume = key::volume_in(&key);
        let place = match self.sight(volume) {
            Sight::Versions(lineage) if self.mutant == Some(Mutant::ClonesShare) => lineage.last(),
            Sight::Versions(lineage) => lineage.first(),
            Sight::Plain | Sight::Nothing => None,
        };
        let Some(&(own, birth)) = place else {
            return self.raw_put(key, value);
        };
        let thing = key::thing(&key);
        let key = key::version(own, thing, birth);
        // Where it was put since the last checkpoint, so was the note of its birth.
        if !self.has_put(&key)
            && let Some(born) = key::born(own, birth, thing)
        {
            self.raw_put(born, Some(Vec::new()));
        }
        let value = match value {
            None if !self.hides(volume, thing) => None,
            value => Some(Version::sealed(&key, value)),
        };
        self.raw_put(key, value);
    }

    /// The first things of a volume, from one on, that were born at these births.
    pub(crate) fn born(
        &self,
        volume: u32,
        (first, last): (u32, u32),
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut born: BTreeSet<Vec<u8>> = BTreeSet::new();
        // Things behind this one have not been read at all births.
        let mut horizon: Option<Vec<u8>> = None;
        let mut birth = first;
        while birth <= last {
            // There may be many births at which nothing was born.
            let (from_here, _) = key::born_from(volume, birth, &[]);
            let (_, end) = key::born_from(volume, last, &[]);
            let Some((key, _)) = self.raw_first(&from_here, &end)? else {
                break;
            };
            let told = key::parts(&key).and_then(|parts| key::told_born(parts.detail));
            birth = told.ok_or_else(|| self.damaged(&key))?.0;
            let (begin, end) = key::born_from(volume, birth, from);
            let (part, more) = self.raw_part(&begin, &end, limit)?;
            for (key, _) in &part {
                let told = key::parts(key).and_then(|parts| key::told_born(parts.detail));
                let (_, thing) = told.ok_or_else(|| self.damaged(key))?;
                born.insert(thing.to_vec());
                if more {
                    let at = thing.to_vec();
                    let is_last = part.last().is_some_and(|(last, _)| last == key);
                    if is_last && horizon.as_ref().is_none_or(|known| at < *known) {
                        horizon = Some(at);
                    }
                }
            }
            birth += 1;
        }
        let within = |thing: &Vec<u8>| horizon.as_ref().is_none_or(|last| thing <= last);
        Ok(born.into_iter().filter(within).take(limit).collect())
    }

    /// Would an older version be seen, if the volume had none of its own birth? A version that
    /// cannot be read might be one.
    fn hides(&self, volume: u32, thing: &[u8]) -> bool {
        let lineage = self.volumes.lineage(volume);
        let lineage = lineage.filter(|_| self.mutant != Some(Mutant::ForgetsAbsence));
        let Some(lineage) = lineage else {
            return false;
        };
        let mut older = lineage.clone();
        if let Some((_, birth)) = older.first_mut() {
            *birth -= 1;
        }
        let newest = self.newest(&older, thing);
        !matches!(newest, Ok(None | Some(Version::Absent)))
    }

    /// Is what is seen under this key the volume's alone, so that a change replaces it?
    pub(crate) fn is_own(&self, key: &[u8]) -> Result<bool, StoreError> {
        let volume = key::volume_in(key);
        match self.sight(volume) {
            _ if self.mutant == Some(Mutant::FreesShared) => Ok(true),
            Sight::Plain | Sight::Nothing => Ok(true),
            Sight::Versions(lineage) => match lineage.first() {
                Some((of, birth)) if *of == volume || self.volumes.is_entered(volume) => {
                    let own = key::version(*of, key::thing(key), *birth);
                    Ok(self.raw_get(&own)?.is_some())
                }
                _ => Ok(false),
            },
        }
    }
}

/// Of each thing among these keys, the newest version up to a birth: it hides what is there.
fn take_newest(found: Vec<Found>, birth: u32, seen: &mut BTreeMap<Vec<u8>, Option<Version>>) {
    let mut last: Vec<u8> = Vec::new();
    for (key, value) in found {
        let thing = key::thing(&key);
        if key::birth(&key) <= birth && thing != last {
            last = thing.to_vec();
            let version = value.and_then(|value| Version::of(&key, value));
            seen.insert(last.clone(), version);
        }
    }
}
