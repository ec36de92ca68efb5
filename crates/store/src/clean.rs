//! The cleaner: copies what is in use of segments that are mostly dead to the end of the log, so
//! that they can be removed.
//!
//! A copy is an ordinary record, so a crash loses nothing: the old bytes stay until a checkpoint
//! knows the new place. Work is done in small portions, with each change as much as the change
//! itself writes: a segment that is worth cleaning gives back at least as much as its cleaning
//! takes, so the cleaner keeps up, and nobody waits long for it. When the disk is nearly full, less
//! dead segments are worth it too.
//!
//! It comes to an end by itself: the room that a copy takes beside the bytes is counted, so copies
//! are not copied again for nothing.

use crate::apply::extents_of;
use crate::error::StoreError;
use crate::key;
use crate::log::{Place, SPARE_BYTES, Use, segment_name};
use crate::reading::read_extent;
use crate::record::{
    self, Entry, HEADER_BYTES, Happened, Happening, SEGMENT_HEADER_BYTES, record_bytes,
};
use crate::segments::Bytes;
use crate::store::Store;
use crate::txn::Context;
use crate::value::{self, Borrower, Extent};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Caller, Chosen, Fid, Kind, Op, Refusal, WriteMode};

/// Where the cleaner stands: first it goes through the records of a segment, then through those who
/// have bytes of it by copies.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// At this record.
    Records(Place),
    /// At the part from this offset on of the borrower of this number, or of the next one.
    Borrowers {
        segment: u32,
        vnode: u64,
        offset: u64,
    },
}

/// How much of a borrower is looked at in one portion.
const PORTION_BYTES: u64 = 1 << 20;

impl Stage {
    fn borrowers(segment: u32) -> Self {
        Self::Borrowers {
            segment,
            vnode: 0,
            offset: 0,
        }
    }

    fn segment(self) -> u32 {
        match self {
            Self::Records(at) => at.segment,
            Self::Borrowers { segment, .. } => segment,
        }
    }
}

/// The state of the cleaner.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// Where it goes on.
    at: Option<Stage>,
    /// There may be a segment worth cleaning.
    looking: bool,
    /// Segments that it could not clean: something in them is damaged.
    given_up: BTreeSet<u32>,
    /// The work of the cleaning at hand.
    round: Round,
    /// The room that copies into these segments took of the log, thousandths of the bytes that were
    /// copied: where these are in very small pieces, copying them once more would take as much
    /// again.
    dear: BTreeMap<u32, u64>,
    /// Bytes of segments, where they were asked for: the segments are not written to any more.
    lens: BTreeMap<u32, u64>,
    pub(crate) moved_bytes: u64,
}

/// The cleaning of one segment.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Where the log ended when it began.
    first: u32,
    moved: u64,
    /// Bytes of the records that were written.
    written: u64,
}

/// The outcome of a step of cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes were moved.
    Moved(u64),
    /// A segment is done.
    Finished,
    /// No segment is worth it, or none can be cleaned for now.
    Nothing,
}

/// Copies of which the record is larger than its bytes by this, in thousandths, are dear.
const DEAR: u64 = 1_125;

impl Cleaner {
    /// A checkpoint has succeeded: which segments are in use may have changed.
    pub(crate) fn look_again(&mut self) {
        self.looking = true;
    }

    /// Is there anything that may be worth it?
    pub(crate) fn is_busy(&self) -> bool {
        self.looking || self.at.is_some()
    }

    /// So many bytes were copied, in a record of so many.
    pub(crate) fn count(&mut self, moved: u64, written: u64) {
        self.round.moved += moved;
        self.round.written += written;
    }

    /// A segment is done: the room that its copies took will be asked when it is their turn.
    fn finish(&mut self, segment: u32, last: u32) {
        let Round {
            first,
            moved,
            written,
        } = self.round;
        let cost = written * 1_000 / moved.max(1);
        if moved > 0 && cost > DEAR {
            for target in first..=last {
                let dear = self.dear.entry(target).or_default();
                *dear = cost.max(*dear);
            }
        }
        self.at = None;
        // All that could be moved was. The rest cannot be.
        self.given_up.insert(segment);
    }

    /// A segment was removed.
    pub(crate) fn forget(&mut self, segment: u32) {
        self.given_up.remove(&segment);
        self.dear.remove(&segment);
        self.lens.remove(&segment);
        if self.at.is_some_and(|at| at.segment() == segment) {
            self.at = None;
        }
    }
}

/// The span of a file that a record carries bytes of.
fn span(happened: &Happened, data: u64) -> (u64, u64) {
    match happened {
        Happened::Apply {
            op: Op::Write { offset, mode, .. },
            ..
        } if *mode != WriteMode::Append => (*offset, *offset + data),
        Happened::Relocate { from, to, .. } => (*from, *to),
        Happened::Move { offset, .. }
        | Happened::Apply {
            op: Op::Copy { offset, .. },
            ..
        } => (*offset, *offset + data),
        // Where it was appended is not in the record.
        _ => (0, u64::MAX),
    }
}

impl Store {
    /// Cleans about this many bytes, if a segment is worth it.
    pub(crate) fn clean(&mut self, mut budget: u64) {
        while budget > 0 && self.cleaner.is_busy() {
            // Looking at a record costs something too.
            match self.clean_step() {
                Step::Moved(bytes) => budget = budget.saturating_sub(bytes.max(64)),
                Step::Finished => {}
                Step::Nothing => return,
            }
        }
    }

    /// Cleans one record of the segment at hand, or of the next one that is worth it.
    pub(crate) fn clean_step(&mut self) -> Step {
        let at = match self.cleaner.at {
            Some(at) => at,
            None => {
                let Some(place) = self.next_to_clean() else {
                    self.cleaner.looking = false;
                    return Step::Nothing;
                };
                self.cleaner.round = Round {
                    first: self.log.end().segment,
                    ..Round::default()
                };
                Stage::Records(place)
            }
        };
        match self.clean_at(at) {
            Ok(Some((next, moved))) => {
                self.cleaner.at = Some(next);
                self.cleaner.moved_bytes += moved;
                Step::Moved(moved)
            }
            Ok(None) => {
                let last = self.log.end().segment;
                self.cleaner.finish(at.segment(), last);
                Step::Finished
            }
            Err(StoreError::Damaged(text)) => {
                let name = segment_name(at.segment());
                tracing::warn!("the segment {name} cannot be cleaned: {text}");
                self.cleaner.at = None;
                self.cleaner.given_up.insert(at.segment());
                Step::Finished
            }
            Err(error) => {
                tracing::warn!("cleaning stopped until the next checkpoint: {error}");
                self.cleaner.at = None;
                self.cleaner.looking = false;
                Step::Nothing
            }
        }
    }

    /// The segment whose cleaning takes the least, if it is worth it and there is room for it.
    fn next_to_clean(&mut self) -> Option<Place> {
        let (free, changes) = (self.log.space().ok()?.1, self.log.kept(Use::Change));
        let room = free.saturating_sub(self.log.kept(Use::Clean));
        // Of so much at most, in eighths of the segment.
        let eighths = if free < 2 * changes { 7 } else { 4 };
        // No segment is larger, so others need not be measured.
        let most = (self.options.segment_bytes + SPARE_BYTES) / 8 * eighths;
        let live = self.core.index.live();
        let cleaner = &self.cleaner;
        let mut costs: Vec<(u64, u32)> = self
            .checkpoints
            .sealed(&self.log)
            .filter(|segment| !cleaner.given_up.contains(segment))
            .filter_map(|segment| Some((*live.get(&segment)?, segment)))
            .filter(|(live, _)| *live > 0)
            .map(|(live, segment)| {
                let dear = cleaner.dear.get(&segment).copied().unwrap_or(1_000);
                (live.saturating_mul(dear) / 1_000, segment)
            })
            .filter(|(cost, _)| *cost <= room.min(most))
            .collect();
        costs.sort_unstable();
        let worth = |&(cost, segment): &(u64, u32)| {
            let len = self.len_of(segment).unwrap_or(0);
            cost <= len / 8 * eighths
        };
        let (_, segment) = costs.into_iter().find(worth)?;
        Some(Place {
            segment,
            offset: SEGMENT_HEADER_BYTES as u64,
        })
    }

    /// Bytes of a segment that is not written to any more.
    pub(crate) fn len_of(&mut self, segment: u32) -> Result<u64, StoreError> {
        if let Some(len) = self.cleaner.lens.get(&segment) {
            return Ok(*len);
        }
        let len = self.log.len_of(segment)?;
        self.cleaner.lens.insert(segment, len);
        Ok(len)
    }

    /// Bytes of the log on the disk. A segment that cannot be measured counts as none.
    pub fn log_bytes(&mut self) -> u64 {
        self.note_segments();
        let sealed: Vec<u32> = self.checkpoints.sealed(&self.log).collect();
        let bytes = |segment| self.len_of(segment).unwrap_or(0);
        let sealed: u64 = sealed.into_iter().map(bytes).sum();
        sealed + self.log.end().offset
    }

    /// Does a portion. Returns what follows, and how many bytes were moved; `None`: all is done.
    fn clean_at(&mut self, at: Stage) -> Result<Option<(Stage, u64)>, StoreError> {
        match at {
            Stage::Records(place) => {
                let segment = place.segment;
                let next = match self.clean_record(place)? {
                    Some((next, moved)) => (Stage::Records(next), moved),
                    None => (Stage::borrowers(segment), 0),
                };
                Ok(Some(next))
            }
            Stage::Borrowers {
                segment,
                vnode,
                offset,
            } => self.clean_borrower(segment, (vnode, offset)),
        }
    }

    /// Moves what a file has of a segment by copies: a part of it, so that nobody waits for long.
    fn clean_borrower(
        &mut self,
        segment: u32,
        (vnode, offset): (u64, u64),
    ) -> Result<Option<(Stage, u64)>, StoreError> {
        let (from, to) = key::shared_from(segment, vnode);
        let noted = self.core.index.scan(&from, &to, 1)?;
        let Some((_, value)) = noted.first() else {
            return Ok(None);
        };
        let bad = || StoreError::Damaged("the note of a file with bytes of it".to_owned());
        let borrower: Borrower = value::decode(value).ok_or_else(bad)?;
        let same = borrower.fid.vnode == vnode;
        let begin = borrower.from.max(if same { offset } else { 0 });
        let end = borrower.to.min(begin.saturating_add(PORTION_BYTES));
        let mut moved = 0;
        if self.core.index.volumes.is_plain() {
            for (begin, extent) in self.extents_in_use(borrower.fid, (begin, end))? {
                if extent.segment == segment {
                    moved += self.move_extent(borrower.fid, begin, &extent)?;
                }
            }
        } else {
            moved = self.relocate((borrower.fid, (begin, end)), segment, 0..u64::MAX)?;
        }
        let (vnode, offset) = match end < borrower.to {
            true => (borrower.fid.vnode, end),
            false => (borrower.fid.vnode + 1, 0),
        };
        let next = Stage::Borrowers {
            segment,
            vnode,
            offset,
        };
        Ok(Some((next, moved)))
    }

    /// Moves what is in use of one record. Returns the place of the next one, and how many bytes
    /// were moved; `None` at the segment's end.
    fn clean_record(&mut self, at: Place) -> Result<Option<(Place, u64)>, StoreError> {
        let mut header = [0; HEADER_BYTES];
        match self.log.read(at, &mut header) {
            Err(StoreError::Damaged(_)) => return Ok(None),
            other => other?,
        }
        let bad = || StoreError::Damaged(format!("its record at {} is damaged", at.offset));
        let (data_len, meta_len) = record::lengths(&header).ok_or_else(bad)?;
        let next = Place {
            offset: at.offset + record_bytes(data_len, meta_len) as u64,
            ..at
        };
        if data_len == 0 {
            return Ok(Some((next, 0)));
        }
        let data_at = at.offset + HEADER_BYTES as u64;
        let mut meta = vec![0; meta_len];
        let meta_at = Place {
            offset: data_at + data_len as u64,
            ..at
        };
        self.log.read(meta_at, &mut meta)?;
        let (_, happened) =
            record::happened(self.log.id(at.segment), &header, &meta).ok_or_else(bad)?;
        let Some(fid) = happened.fid() else {
            return Ok(Some((next, 0)));
        };
        let within = data_at..data_at + data_len as u64;
        if !self.core.index.volumes.is_plain() {
            let part = span(&happened, data_len as u64);
            let moved = self.relocate((fid, part), at.segment, within)?;
            return Ok(Some((next, moved)));
        }
        let mut moved = 0;
        for (begin, extent) in self.extents_in_use(fid, span(&happened, data_len as u64))? {
            if extent.segment == at.segment && within.contains(&u64::from(extent.position)) {
                moved += self.move_extent(fid, begin, &extent)?;
            }
        }
        Ok(Some((next, moved)))
    }

    fn extents_in_use(
        &self,
        fid: Fid,
        (from, to): (u64, u64),
    ) -> Result<Vec<(u64, Extent)>, StoreError> {
        let object = self.core.index.object(fid)?;
        match object {
            Some(object) if object.uniq == fid.uniq && object.attr.kind == Kind::File => {
                let extents = extents_of(&self.core.index, fid, from, to);
                extents.map_err(|refusal| self.uncleaned(fid, refusal))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Why a file's bytes cannot be moved: only damage is a reason to give the segment up.
    fn uncleaned(&self, fid: Fid, refusal: Refusal) -> StoreError {
        let file = self.core.describe(fid);
        match refusal {
            Refusal::Disk => StoreError::unreadable(format!("move bytes of {file}")),
            other => StoreError::Damaged(format!("{file}: {other:?}")),
        }
    }

    /// Moves bytes of a file, which must read, to the end of the log.
    pub(crate) fn move_extent(
        &mut self,
        fid: Fid,
        begin: u64,
        extent: &Extent,
    ) -> Result<u64, StoreError> {
        let mut data = vec![0; extent.len as usize];
        read_extent(&self.log, extent, 0, &mut data)?;
        let checks = value::checks(&data);
        let happening: Happening<'_> = Entry::Move {
            fid,
            offset: begin,
            checks: &checks,
        };
        let meta = record::encode(&happening);
        let bytes = record_bytes(data.len(), meta.len()) as u64;
        self.log.make_room(bytes, Use::Clean)?;
        let end = self.log.end();
        let context = Context {
            caller: &Caller::default(),
            now: 0,
            data: &data,
            checks: &checks,
            place: Place {
                offset: end.offset + HEADER_BYTES as u64,
                ..end
            },
            inline_bytes: 0,
            chosen: Chosen::default(),
        };
        let planned = self.core.plan_move(context, fid, begin);
        let changes = planned.map_err(|refusal| self.uncleaned(fid, refusal))?;
        self.log.append(&data, &meta);
        self.core.index.commit(changes);
        self.cleaner.count(data.len() as u64, bytes);
        Ok(data.len() as u64)
    }
}
