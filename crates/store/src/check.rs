//! Walks the whole index and proves what `docs/format.md` says of it: entries and objects name each
//! other, counts are right, extents do not overlap and their bytes have the right checksums; and
//! that the index could be made again.
//!
//! Nothing is changed. Damage is reported and passed over. Each key is read once, however many
//! volumes and snapshots see it: [`survey`] finds out for all of them together which ones are
//! damaged, and [`view`] says of these how.
//!
//! Memory is bounded however large the tree is. The keys of an object lie together. Names and what
//! they name are compared by sums of fingerprints, and in a damaged view in several rounds over its
//! keys, each of them for a part of the objects; extents and the records they lie in, in rounds for
//! parts of the log.

mod compare;
mod merge;
mod names;
mod places;
mod subject;
mod survey;
#[cfg(test)]
mod tests;
mod versions;
mod view;
mod views;

use crate::error::StoreError;
use crate::image::Image;
use crate::index::Index;
use crate::key::{self, Parts};
use crate::log::Place;
use crate::report::{Damage, Report};
use crate::segments::{Bytes, Segments};
use crate::state::Core;
use names::Names;
use places::Places;
use std::collections::{BTreeMap, BTreeSet};
use view::Seen;
use views::Views;
use wire::Fid;

/// How much is in memory at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Objects that are compared with their names.
    pub(crate) objects: u64,
    /// Records that extents are compared with.
    pub(crate) records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            objects: 512 << 10,
            records: 1 << 20,
        }
    }
}

/// The log of a partition that is checked.
pub(crate) struct Logged<'a> {
    pub(crate) segments: &'a Segments,
    /// Later records are not looked at.
    pub(crate) end: Place,
    /// The image of the index, if there is one.
    pub(crate) image: Option<&'a Image>,
    /// The index is a file, so there has to be one if the log is not whole.
    pub(crate) needs_image: bool,
}

/// Called with how many bytes were looked at; says whether to go on.
pub(crate) type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

/// More than a report has lines.
const SUSPECTS_MAX: usize = 16 << 10;

/// Ends a check that was told to.
struct Stopped;

/// A check under way.
struct Walk<'a> {
    bytes: &'a dyn Bytes,
    core: &'a Core,
    pace: Pace<'a>,
    /// How often all keys have been read for the places of extents.
    pass: u64,
    places: Places<'a>,
    views: Views,
    /// The ranks of the views to be gone through, and of those that were.
    chosen: BTreeSet<usize>,
    done: BTreeSet<usize>,
    /// For each view, how its names differ from those that its objects say; 0: they do not.
    unmatched: Vec<u128>,
    /// Objects that were found to have other names than they say.
    suspects: BTreeSet<u64>,
    volume: u32,
    /// How often a view has been read, and will be for the names.
    round: u64,
    rounds: u64,
    names: Names,
    /// The object whose keys are being read.
    current: Option<Seen>,
    /// Objects and bytes of the view.
    found: (u64, u64),
    live: BTreeMap<u32, u64>,
    /// Not everything could be read.
    partial: bool,
    report: Report,
}

/// Checks an index, the bytes that it names, and the log if there is one. `None`: it was stopped.
pub(crate) fn check(
    core: &Core,
    bytes: &dyn Bytes,
    log: Option<Logged<'_>>,
    (limits, pace): (Limits, Pace<'_>),
) -> Option<Report> {
    let mut walk = Walk::new(core, bytes, log, (limits, pace));
    walk.run().ok()?;
    Some(walk.report)
}

impl<'a> Walk<'a> {
    fn new(
        core: &'a Core,
        bytes: &'a dyn Bytes,
        log: Option<Logged<'a>>,
        (limits, pace): (Limits, Pace<'a>),
    ) -> Self {
        let volumes = &core.index.volumes;
        let most = volumes.iter().map(|(_, volume)| volume.objects).max();
        Self {
            bytes,
            core,
            pace,
            pass: 0,
            places: Places::new(log, limits.records),
            views: Views::new(volumes),
            chosen: BTreeSet::new(),
            done: BTreeSet::new(),
            unmatched: Vec::new(),
            suspects: BTreeSet::new(),
            volume: core.index.counters.volume,
            round: 0,
            rounds: most.unwrap_or(0) / limits.objects.max(1) + 1,
            names: Names::default(),
            current: None,
            found: (0, 0),
            live: BTreeMap::new(),
            partial: false,
            report: Report::default(),
        }
    }

    fn run(&mut self) -> Result<(), Stopped> {
        self.image()?;
        self.load_places()?;
        self.range(key::partition())?;
        self.survey()?;
        self.chosen_views()?;
        self.survey_suspects()?;
        self.chosen_views()?;
        self.more_places()?;
        if !self.partial {
            self.counts();
        }
        Ok(())
    }

    fn chosen_views(&mut self) -> Result<(), Stopped> {
        let chosen = std::mem::take(&mut self.chosen);
        for rank in &chosen {
            self.view(self.views.id(*rank))?;
        }
        // Else the survey says too much, and a check of a sound store takes too long.
        debug_assert!(
            chosen.is_empty() || !self.report.is_clean(),
            "there is nothing to be found in the views {chosen:?}"
        );
        self.done.extend(chosen);
        Ok(())
    }

    /// Reads all keys once more for each further part of the log.
    fn more_places(&mut self) -> Result<(), Stopped> {
        while !self.places.is_done() {
            self.pass += 1;
            self.load_places()?;
            self.all_versions()?;
        }
        Ok(())
    }

    /// In the first round of a view all is looked at that is not divided into rounds.
    fn is_first(&self) -> bool {
        self.round == 0
    }

    fn went_on(&mut self, bytes: u64) -> Result<(), Stopped> {
        match (self.pace)(bytes) {
            true => Ok(()),
            false => Err(Stopped),
        }
    }

    fn index(&self) -> &Index {
        &self.core.index
    }

    fn fid(&self, vnode: u64) -> Fid {
        Fid {
            volume: self.volume,
            vnode,
            uniq: 1,
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.report.add(damage);
    }

    fn object_damage(&mut self, vnode: u64, what: impl Into<String>) {
        let file = self.core.describe(self.fid(vnode));
        self.damage(Damage::Object {
            file,
            what: what.into(),
        });
    }

    /// An object has other names than it says; of so many that is looked at in all views.
    fn suspect(&mut self, vnode: u64) {
        if self.suspects.len() < SUSPECTS_MAX {
            self.suspects.insert(vnode);
        }
    }

    fn entry_damage(&mut self, parts: Parts<'_>, what: &str) {
        let file = self.core.describe(self.fid(parts.vnode));
        self.damage(Damage::Entry {
            entry: format!("of kind {} of {file}", parts.kind),
            what: what.to_owned(),
        });
    }

    /// Something could not be read: objects that were not seen are not known to be missing.
    fn unread(&mut self, error: &StoreError) {
        let what = error.to_string();
        self.partial = true;
        self.damage(Damage::Engine { what });
    }

    /// The value of a key in the index; `Some(None)`: none, or a damaged one, which is reported
    /// where it is met; `None`: the disk could not say.
    fn known<T>(&mut self, got: Result<Option<T>, StoreError>) -> Option<Option<T>> {
        match got {
            Ok(found) => Some(found),
            Err(StoreError::Damaged(_)) => Some(None),
            Err(error) => {
                self.unread(&error);
                None
            }
        }
    }

    fn counts(&mut self) {
        let counters = self.index().counters.clone();
        let mut counts = vec![
            ("objects".to_owned(), counters.objects, self.report.objects),
            ("bytes".to_owned(), counters.bytes, self.report.bytes),
        ];
        let kept = self.index().live();
        for segment in kept.keys().chain(self.live.keys()).collect::<BTreeSet<_>>() {
            let name = crate::log::segment_name(*segment);
            let of = |live: &BTreeMap<u32, u64>| live.get(segment).copied().unwrap_or(0);
            counts.push((format!("bytes in use of {name}"), of(kept), of(&self.live)));
        }
        for (name, kept, found) in counts {
            if kept != found {
                self.damage(Damage::Count { name, kept, found });
            }
        }
        let top = self.report.top;
        if top >= counters.next_vnode {
            self.object_damage(top, "its number was never given");
        }
    }
}
