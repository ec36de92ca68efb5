//! The rules of moving: one name to another, and two exchanged.

use super::{Reference, Result};
use crate::disk::Volume;
use wire::{Fid, Kind, Name, Outcome, Refusal, Time};

type Place<'a> = (Fid, &'a Name);

impl Reference {
    /// Is this directory that one, or below it?
    fn is_within(&self, dir: Fid, above: Fid) -> bool {
        let mut at = Some(dir);
        while let Some(here) = at {
            if here == above {
                return true;
            }
            at = self.place(here).ok().flatten().map(|(dir, _)| dir);
        }
        false
    }

    /// The objects of two names, if one may be moved to the other: no directory comes to be in
    /// itself.
    fn both(&mut self, a: Place<'_>, b: Place<'_>, exchange: bool) -> Result<(Fid, Option<Fid>)> {
        let fid = self.dir(a.0)?.entries.get(a.1).ok_or(Refusal::NotFound)?.0;
        let target = self.dir(b.0)?;
        if target.attr.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        let other = target.entries.get(b.1).map(|entry| entry.0);
        if exchange && other.is_none() {
            return Err(Refusal::NotFound);
        }
        if a.0 != b.0 && self.is_within(b.0, fid) {
            return Err(Refusal::Invalid);
        }
        if a.0 != b.0 && other.is_some_and(|other| self.is_within(a.0, other)) {
            return Err(if exchange {
                Refusal::Invalid
            } else {
                Refusal::NotEmpty
            });
        }
        Ok((fid, other))
    }

    fn renamed(&mut self, fid: Fid, victim: Option<Fid>, [a, b]: [Fid; 2]) -> Result<Outcome> {
        let victim = match victim {
            Some(victim) => Some((victim, self.get(victim)?.attr.clone())),
            None => None,
        };
        Ok(Outcome::Renamed {
            fid,
            attr: self.get(fid)?.attr.clone(),
            victim,
            from: self.get(a)?.attr.clone(),
            to: self.get(b)?.attr.clone(),
        })
    }

    pub(super) fn rename(&mut self, now: Time, a: Place<'_>, b: Place<'_>) -> Result<Outcome> {
        let (fid, victim) = self.both(a, b, false)?;
        if victim == Some(fid) {
            return self.renamed(fid, None, [a.0, b.0]);
        }
        let is_dir = self.is_dir(fid)?;
        if let Some(victim) = victim {
            self.may_go(victim, is_dir)?;
            self.unname(now, victim, b.0)?;
        }
        let source = self.dir(a.0)?;
        source.entries.remove(a.1);
        source.changed(now);
        self.enter(now, b, fid)?;
        if is_dir && a.0 != b.0 {
            self.dir(a.0)?.attr.nlink -= 1;
            self.dir(b.0)?.attr.nlink += 1;
        }
        self.get(fid)?.touched(now);
        self.renamed(fid, victim, [a.0, b.0])
    }

    pub(super) fn exchange(&mut self, now: Time, a: Place<'_>, b: Place<'_>) -> Result<Outcome> {
        let (one, other) = self.both(a, b, true)?;
        let other = other.ok_or(Refusal::NotFound)?;
        if one == other {
            return self.renamed(one, None, [a.0, b.0]);
        }
        for (place, fid) in [(a, other), (b, one)] {
            let dir = self.dir(place.0)?;
            if let Some(entry) = dir.entries.get_mut(place.1) {
                entry.0 = fid;
            }
            dir.changed(now);
        }
        for (fid, from, to) in [(one, a.0, b.0), (other, b.0, a.0)] {
            if self.is_dir(fid)? {
                self.dir(from)?.attr.nlink -= 1;
                self.dir(to)?.attr.nlink += 1;
            }
            self.get(fid)?.touched(now);
        }
        self.renamed(one, Some(other), [a.0, b.0])
    }

    fn is_dir(&mut self, fid: Fid) -> Result<bool> {
        Ok(self.get(fid)?.attr.kind == Kind::Directory)
    }
}
