//! Repairs a partition that nobody has open.
//!
//! Guarantees: afterwards the check finds nothing, or an error says why not; readable bytes are
//! still there; unreadable ones are listed, and reading them is an error, never other bytes; files
//! that are replaced or not needed any more stay under another name. A plan says the same
//! beforehand and changes nothing (it makes an index in a file of its own if it has to, and removes
//! it).

use crate::check::Limits;
use crate::disk::{Directory, Files};
use crate::embedded::Redb;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::fsck::check_store;
use crate::key::{self, Parts};
use crate::log::segment_name;
use crate::memory::MemoryDisk;
use crate::open::{Purpose, lost, open, open_engine};
use crate::options::Options;
use crate::reading::read_extent;
use crate::rebuild::{self, ASIDE, FRESH, Until};
use crate::report::{Damage, Report};
use crate::store::Store;
use crate::txn::{Context, Txn};
use crate::value::{Extent, PIECE_BYTES};
use crate::versions::Version;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use wire::{Caller, Chosen, Fid};

/// The work of a repair, done or planned.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// The steps, in order, for people.
    pub steps: Vec<String>,
    /// Changes that the log had and that could not be applied, for people.
    pub lost_changes: Vec<String>,
    /// The findings before.
    pub before: Report,
    /// The findings now; of a plan: the same as before.
    pub after: Report,
}

/// Repairs the partition in a directory, or says only what that would do.
pub fn repair(dir: &Path, options: &Options, dry_run: bool) -> Result<Repaired, StoreError> {
    let files: Arc<dyn Files> = Arc::new(Directory::open(dir)?);
    Repair::new(dir, files, (None, options, dry_run)).run()
}

/// The same on a disk in memory, with the index engine that directories have.
pub fn repair_memory_with_engine(
    disk: &MemoryDisk,
    options: &Options,
    dry_run: bool,
) -> Result<Repaired, StoreError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let with = (Some(disk.clone()), options, dry_run);
    Repair::new(Path::new("memory"), files, with).run()
}

struct Repair<'a> {
    dir: &'a Path,
    files: Arc<dyn Files>,
    memory: Option<MemoryDisk>,
    options: &'a Options,
    dry_run: bool,
    done: Repaired,
    /// The index was made again.
    fresh: bool,
}

impl<'a> Repair<'a> {
    fn new(
        dir: &'a Path,
        files: Arc<dyn Files>,
        (memory, options, dry_run): (Option<MemoryDisk>, &'a Options, bool),
    ) -> Self {
        Self {
            dir,
            files,
            memory,
            options,
            dry_run,
            done: Repaired::default(),
            fresh: false,
        }
    }

    fn run(mut self) -> Result<Repaired, StoreError> {
        let result = self.repair();
        if self.dry_run {
            rebuild::clear(&*self.files)?;
        }
        result?;
        Ok(self.done)
    }

    fn step(&mut self, step: String) {
        self.done.steps.push(step);
    }

    fn repair(&mut self) -> Result<(), StoreError> {
        rebuild::clear(&*self.files)?;
        let engine = open_engine(self.dir, &self.files, self.options);
        let engine = match engine.and_then(|engine| engine.sound().map(|()| engine)) {
            Ok(engine) => engine,
            Err(StoreError::IndexBroken { what, .. }) => self.make_index(&what)?,
            Err(StoreError::Damaged(what)) => self.make_index(&format!("is damaged ({what})"))?,
            Err(other) => return Err(other),
        };
        let (store, purpose) = self.open(engine, true)?;
        let mut report = check_store(&store, (Limits::default(), &mut |_| true));
        drop(store);
        self.done.before = report.clone();
        if !self.fresh && report.damages.iter().any(is_of_index) {
            let engine = self.make_index("does not fit together")?;
            let (store, _) = self.open(engine, true)?;
            report = check_store(&store, (Limits::default(), &mut |_| true));
        }
        self.tell(&report);
        let nothing = is_in_order(&report) && !self.fresh && purpose == Purpose::Look;
        if self.dry_run || nothing {
            self.done.after = report;
            return Ok(());
        }
        let engine = Redb::new(self.files.clone(), self.options.index_cache_bytes)?;
        let (mut store, _) = self.open(engine, false)?;
        store.mend_all(&report)?;
        store.close()?;
        let engine = Redb::new(self.files.clone(), self.options.index_cache_bytes)?;
        let (store, _) = self.open(engine, true)?;
        self.done.after = check_store(&store, (Limits::default(), &mut |_| true));
        Ok(())
    }

    /// Makes the index again, as far as the log reads.
    fn make_index(&mut self, what: &str) -> Result<Redb, StoreError> {
        let strict = match self.dry_run {
            true => Until::Look,
            false => Until::End,
        };
        match rebuild::make(&self.files, self.options, strict) {
            Err(StoreError::Damaged(_)) => {
                rebuild::make(&self.files, self.options, Until::Readable)
            }
            other => other,
        }
        .map_err(|error| lost(self.dir, what, error))?;
        self.step(format!(
            "the index {what}: it is made again from the log, and what is there stays as `{ASIDE}`"
        ));
        self.fresh = true;
        let cache_bytes = self.options.index_cache_bytes;
        if self.dry_run {
            return Redb::named(self.files.clone(), FRESH, cache_bytes);
        }
        rebuild::replace(&*self.files)?;
        Redb::new(self.files.clone(), cache_bytes)
    }

    /// Opens the partition; if that cannot be since the log does not read, with what does.
    fn open(&mut self, engine: Redb, look: bool) -> Result<(Store, Purpose), StoreError> {
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let (strict, lenient) = match look {
            true => (Purpose::Look, Purpose::Plan),
            false => (Purpose::Use, Purpose::Mend),
        };
        let open = |purpose| {
            let with = (self.memory.clone(), self.options, purpose);
            open(self.files.clone(), engine.clone(), with)
        };
        match open(strict) {
            Err(StoreError::Damaged(what)) => {
                let store = open(lenient)?;
                if self.done.lost_changes.is_empty() {
                    self.tell_cut(&what, &store);
                }
                Ok((store, lenient))
            }
            other => Ok((other?, strict)),
        }
    }

    fn tell_cut(&mut self, what: &str, store: &Store) {
        let step = format!("{what}: what follows is left out");
        if self.done.steps.contains(&step) {
            return;
        }
        self.step(step);
        self.done.lost_changes.clone_from(&store.cut.changes);
        if store.cut.more > 0 {
            let more = format!("and {} more changes", store.cut.more);
            self.done.lost_changes.push(more);
        }
    }

    fn tell(&mut self, report: &Report) {
        for damage in &report.damages {
            if let Damage::Bytes { file, from, to, .. } = damage {
                let step = format!(
                    "{file}: what cannot be read of its bytes {from} to {to} is noted as lost: \
                     reading it is an error until it is written again"
                );
                self.step(step);
            }
        }
        for segment in &report.broken {
            let name = segment_name(*segment);
            self.step(format!(
                "{name}: what is good of it is moved, and it is kept as `{name}.damaged`"
            ));
        }
        if !is_in_order(report) || self.fresh || !self.done.steps.is_empty() {
            self.step("a new image of the index is written".to_owned());
        }
    }
}

/// Is there nothing to be done?
fn is_in_order(report: &Report) -> bool {
    report.is_clean() && report.warnings.is_empty()
}

/// Is it damage of the index, which is made again from the log?
fn is_of_index(damage: &Damage) -> bool {
    matches!(
        damage,
        Damage::Object { .. }
            | Damage::Entry { .. }
            | Damage::Count { .. }
            | Damage::Engine { .. }
            | Damage::Index { .. }
    )
}

/// A checkpoint is made after so many extents that were changed.
const CHANGES: usize = 4096;

impl Store {
    /// Notes what cannot be read as lost, and moves what is good out of broken segments.
    fn mend_all(&mut self, report: &Report) -> Result<(), StoreError> {
        let mut broken = report.broken.clone();
        broken.extend(&self.cut.segments);
        for segment in &broken {
            self.log.keep_aside(*segment);
        }
        if broken.contains(&self.log.end().segment) {
            self.log.next_segment()?;
        }
        if !self.core.index.volumes.is_plain() {
            self.mend_versions(&broken)?;
        }
        let (mut from, to) = key::volume(self.core.index.counters.volume);
        let mut changed = 0;
        while self.core.index.volumes.is_plain() {
            let part = self.core.index.scan(&from, &to, 256)?;
            let Some((last, _)) = part.last() else {
                break;
            };
            from = key::after(last);
            for (key, value) in part {
                let parts = key::parts(&key).filter(|parts| parts.kind == key::EXTENT);
                if let Some((parts, extent)) = parts.zip(Extent::decode(&value)) {
                    changed += usize::from(self.mend_extent(parts, &extent, &broken)?);
                }
            }
            if changed >= CHANGES {
                changed = 0;
                self.checkpoint()?;
            }
        }
        self.checkpoint()?;
        self.renew_image()?;
        self.checkpoint()
    }

    /// The same where volumes have versions. Snapshots never change, so an extent of which anything
    /// cannot be read is lost as a whole, in all versions that have it.
    fn mend_versions(&mut self, broken: &BTreeSet<u32>) -> Result<(), StoreError> {
        let volumes: Vec<u32> = self.core.index.volumes.with_keys().collect();
        for volume in volumes {
            let (mut from, to) = key::volume(volume);
            loop {
                let (part, more) = self.core.index.raw_part(&from, &to, 256)?;
                let Some((last, _)) = part.last() else {
                    break;
                };
                from = key::after(last);
                for (key, value) in part {
                    let extent = key::parts(&key).filter(|parts| parts.kind == key::EXTENT);
                    let version = value.and_then(|value| Version::of(&key, value));
                    if let (Some(parts), Some(Version::Present(value))) = (extent, version)
                        && let Some(extent) = Extent::decode(&value)
                    {
                        let fid = Fid {
                            volume,
                            vnode: parts.vnode,
                            uniq: 1,
                        };
                        self.mend_version((fid, &key), &extent, broken)?;
                    }
                }
                if self.is_due_by_size() {
                    self.checkpoint()?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    fn mend_version(
        &mut self,
        (fid, key): (Fid, &[u8]),
        extent: &Extent,
        broken: &BTreeSet<u32>,
    ) -> Result<(), StoreError> {
        let Some(end) = key::parts(key).and_then(|parts| parts.number()) else {
            return Ok(());
        };
        if extent.is_lost() {
            return Ok(());
        }
        let mut bytes = vec![0; extent.len as usize];
        match read_extent(&self.log, extent, 0, &mut bytes) {
            Ok(()) if broken.contains(&extent.segment) => {
                let begin = u64::from(extent.position);
                let within = begin..begin + u64::from(extent.stored);
                let part = (end - u64::from(extent.len), end);
                self.relocate((fid, part), extent.segment, within)?;
            }
            Ok(()) => {}
            Err(StoreError::Damaged(_)) => {
                let lost = Version::sealed(key, Some(extent.lost().encode()));
                let index = &mut self.core.index;
                index.count_live(extent.segment, -i64::from(extent.stored));
                index.raw_put(key.to_vec(), Some(lost));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Was anything done about it?
    fn mend_extent(
        &mut self,
        parts: Parts<'_>,
        extent: &Extent,
        broken: &BTreeSet<u32>,
    ) -> Result<bool, StoreError> {
        let Some(end) = parts.number().filter(|_| !extent.is_lost()) else {
            return Ok(false);
        };
        let fid = Fid {
            vnode: parts.vnode,
            ..self.root()
        };
        let begin = end - u64::from(extent.len);
        let mut good = vec![(begin, extent.clone())];
        let mut bytes = vec![0; extent.len as usize];
        let damaged = match read_extent(&self.log, extent, 0, &mut bytes) {
            Ok(()) => false,
            Err(StoreError::Damaged(_)) => true,
            Err(other) => return Err(other),
        };
        if damaged {
            good = self.split(fid, begin, extent)?;
        }
        let moves = broken.contains(&extent.segment);
        for (begin, extent) in good.iter().filter(|_| moves) {
            self.move_extent(fid, *begin, extent)?;
        }
        Ok(damaged || moves)
    }

    /// Puts pieces in the place of an extent, of which those that cannot be read are lost. Returns
    /// the others.
    fn split(
        &mut self,
        fid: Fid,
        begin: u64,
        extent: &Extent,
    ) -> Result<Vec<(u64, Extent)>, StoreError> {
        let mut pieces: Vec<(u64, Extent)> = Vec::new();
        let mut good = Vec::new();
        let (mut rest, mut at) = (extent.clone(), begin);
        loop {
            let len = rest.len.min(PIECE_BYTES as u32 - rest.skip);
            let piece = rest.first(len);
            let mut bytes = vec![0; len as usize];
            match read_extent(&self.log, &piece, 0, &mut bytes) {
                Ok(()) => {
                    good.push((at, piece.clone()));
                    pieces.push((at, piece));
                }
                Err(StoreError::Damaged(_)) => pieces.push((at, piece.lost())),
                Err(other) => return Err(other),
            }
            if len == rest.len {
                break;
            }
            rest = rest.without_front(len);
            at += u64::from(len);
        }
        let context = Context {
            caller: &Caller::default(),
            now: 0,
            data: &[],
            checks: &[],
            place: self.log.end(),
            inline_bytes: 0,
            chosen: Chosen::default(),
        };
        let mut txn = Txn::new(&self.core.index, context);
        let mut object = txn.file(fid).map_err(|refusal| {
            StoreError::Damaged(format!("the index entry of object {fid} ({refusal:?})"))
        })?;
        let end = begin + u64::from(extent.len);
        let dropped = txn.drop_extent(fid, &mut object, end, extent);
        dropped.map_err(|_| StoreError::unreadable(format!("mend object {fid}")))?;
        for (at, piece) in &pieces {
            txn.put_extent(fid, &mut object, *at, piece);
        }
        txn.put_object(fid, object);
        let changes = txn.changes;
        self.core.index.commit(changes);
        Ok(good)
    }
}
