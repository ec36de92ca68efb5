//! Recovery: rolling the log forward from the last checkpoint.
//!
//! The end of the log after a crash may be torn, and only the end: it is cut off. Whether something
//! that does not read is a torn end or damage is told by the records behind it: each says up to
//! which record everything was on stable storage when it was made. If one says so of the record
//! that does not read, that was damaged later; without any such record nobody was ever told that
//! it is stable. Every record that was read and is not known to be stable is written again.

use crate::cut::Cut;
use crate::disk::Files;
use crate::error::StoreError;
use crate::log::{End, Place, Segment, segment_name};
use crate::options::Mutant;
use crate::record::{self, Entry, FORMAT, SEGMENT_HEADER_BYTES, SegmentHead, SegmentId, Stamp};
use crate::segments;
use crate::state::Core;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Most bytes that are written again at once.
const PART_BYTES: usize = 1 << 20;

/// Rolling the log forward.
pub(crate) struct Roll<'a> {
    files: &'a dyn Files,
    core: &'a mut Core,
    segments: &'a [u32],
    at: End,
    /// The last record that is not of an opening.
    left: u64,
    /// Up to this record all were on stable storage when one of those read was made.
    stable: u64,
    /// Behind it: the records of which none says so, with where they begin, oldest first.
    unsure: VecDeque<(u64, Place)>,
    /// The engine is given what was applied when it is so many bytes.
    settle_bytes: usize,
    /// Records from this one on are not applied.
    until: u64,
}

/// The result of rolling forward.
pub(crate) struct Rolled {
    pub(crate) end: End,
    /// The last record of the runs before: those of openings say nothing to anybody.
    pub(crate) left: u64,
    /// Length of the segment that the log ends in, if it is longer than the log.
    torn: Option<u64>,
    /// Segments behind it.
    beyond: Vec<u32>,
    /// Where that part of the log begins of which nothing says that it is on stable storage.
    unsure: Place,
}

/// The numbers that records may have: the first is 1, and nobody writes half of all there are.
const SEQUENCES: RangeInclusive<u64> = 1..=u64::MAX / 2;

fn lost(segment: u32, at: usize) -> StoreError {
    let name = segment_name(segment);
    StoreError::Damaged(format!(
        "the log does not read in {name} at byte {at}, where it was on stable storage: changes \
         from there on cannot be recovered"
    ))
}

impl<'a> Roll<'a> {
    pub(crate) fn new(files: &'a dyn Files, core: &'a mut Core, segments: &'a [u32]) -> Self {
        let counters = &core.index.counters;
        Self {
            at: End {
                id: SegmentId {
                    number: counters.segment,
                    identity: 0,
                },
                offset: counters.offset,
                sequence: counters.sequence,
            },
            left: counters.sequence.saturating_sub(1),
            files,
            core,
            segments,
            stable: 0,
            unsure: VecDeque::new(),
            settle_bytes: usize::MAX,
            until: u64::MAX,
        }
    }

    /// For an engine that nobody uses before it is done: the applied changes do not gather in
    /// memory.
    pub(crate) fn settling(mut self, bytes: usize) -> Self {
        self.settle_bytes = bytes;
        self
    }

    /// Applies the records before this one, all of which are on stable storage.
    pub(crate) fn run_until(mut self, until: u64) -> Result<End, StoreError> {
        self.until = until;
        self.roll_segments()?;
        match self.at.sequence < until {
            true => Err(lost(self.at.id.number, self.at.offset as usize)),
            false => Ok(self.at),
        }
    }

    /// For a repair: applies the records that read, up to the first one that does not. Later
    /// records are lost, and stay where they are: the log goes on in a segment of its own.
    pub(crate) fn run_readable(mut self, identity: u64) -> Result<(Rolled, Cut), StoreError> {
        self.counts()?;
        match self.roll_segments() {
            Ok(_) | Err(StoreError::Damaged(_) | StoreError::NotAPartition(_)) => {}
            Err(other) => return Err(other),
        }
        if self.at.id.identity == 0 {
            self.at.id.identity = identity;
        }
        let mut cut = Cut::default();
        for segment in self.segments.iter().filter(|s| **s >= self.at.id.number) {
            cut.segments.push(*segment);
            let Ok(bytes) = segments::load(self.files, *segment) else {
                continue;
            };
            let mut at = match *segment == self.at.id.number {
                true => self.at.offset as usize,
                false => SEGMENT_HEADER_BYTES,
            };
            while let Some(record) = record::find(self.core_id(*segment), &bytes, at) {
                at = record.next;
                if record.stamp.sequence >= self.at.sequence {
                    cut.note(&record, self.core);
                }
            }
        }
        let newest = self.segments.last().copied().unwrap_or(0);
        let mut end = self.at;
        end.id.number = newest.max(end.id.number) + 1;
        end.offset = SEGMENT_HEADER_BYTES as u64;
        let rolled = Rolled {
            end,
            left: self.left,
            torn: None,
            beyond: Vec::new(),
            unsure: Place {
                segment: end.id.number,
                offset: end.offset,
            },
        };
        Ok((rolled, cut))
    }

    fn core_id(&self, number: u32) -> SegmentId {
        SegmentId {
            number,
            ..self.at.id
        }
    }

    pub(crate) fn run(mut self) -> Result<Rolled, StoreError> {
        let last = self.roll_segments()?;
        self.end_here(&last)
    }

    /// Can the next record have the number that the index says?
    fn counts(&self) -> Result<(), StoreError> {
        match SEQUENCES.contains(&self.at.sequence) {
            true => Ok(()),
            false => Err(StoreError::Damaged(format!(
                "the index says that the next record is number {}",
                self.at.sequence
            ))),
        }
    }

    /// Applies the records of all segments; returns the bytes of the last one.
    fn roll_segments(&mut self) -> Result<Vec<u8>, StoreError> {
        self.counts()?;
        let number = self.at.id.number;
        let mut bytes = segments::load(self.files, number)?;
        match record::parse_segment_header(number, &bytes) {
            SegmentHead::First(id, _) => self.at.id = id,
            SegmentHead::Format(found) => {
                return Err(StoreError::Format {
                    found,
                    known: FORMAT,
                });
            }
            SegmentHead::Bad if self.at.sequence == 1 && !record::was_finished(&bytes) => {
                return Err(StoreError::NotAPartition(PathBuf::new()));
            }
            SegmentHead::Bad => return Err(lost(number, 0)),
        }
        if (bytes.len() as u64) < self.at.offset {
            return Err(lost(number, bytes.len()));
        }
        while self.roll_segment(&bytes)? {
            let next = SegmentId {
                number: self.at.id.number + 1,
                ..self.at.id
            };
            if !self.segments.contains(&next.number) {
                break;
            }
            let following = segments::load(self.files, next.number)?;
            let head = record::parse_segment_header(next.number, &following);
            if head != SegmentHead::First(next, self.at.sequence) {
                break;
            }
            bytes = following;
            self.at.id = next;
            self.at.offset = SEGMENT_HEADER_BYTES as u64;
        }
        Ok(bytes)
    }

    /// Applies the records of a segment. Did all of it read?
    fn roll_segment(&mut self, bytes: &[u8]) -> Result<bool, StoreError> {
        let segment = self.at.id;
        while (self.at.offset as usize) < bytes.len() && self.at.sequence < self.until {
            let at = self.at.offset as usize;
            let record = record::parse(segment, bytes, at);
            let Some(record) = record.filter(|r| r.stamp.sequence == self.at.sequence) else {
                return Ok(false);
            };
            let mutant = self.core.index.mutant;
            let last = record.next == bytes.len() && self.segments.last() == Some(&segment.number);
            if mutant == Some(Mutant::StopsEarly) && last {
                return Ok(false);
            }
            let sound = record.data_is_sound() || mutant == Some(Mutant::TrustsTornBytes);
            if !sound {
                if !self.was_stable(bytes, record.next)? {
                    return Ok(false);
                }
                // Only these bytes are lost: reading them will say so.
                let file = record.happened.fid().map(|fid| self.core.describe(fid));
                tracing::error!(
                    "bytes of {} are damaged in {} behind byte {at}",
                    file.unwrap_or_default(),
                    segment_name(segment.number),
                );
            }
            self.core.replay(&record, sound)?;
            if mutant == Some(Mutant::ReplaysTwice) && record.happened.fid().is_some() {
                self.core.replay(&record, sound)?;
            }
            let opens = matches!(record.happened, Entry::Boot { .. } | Entry::Numbers { .. });
            if !opens {
                self.left = self.at.sequence;
            }
            self.note(record.stamp);
            self.at.offset = record.next as u64;
            self.at.sequence += 1;
            if self.core.index.active_bytes() >= self.settle_bytes {
                self.core.settle(&self.at)?;
            }
        }
        Ok(self.at.sequence < self.until)
    }

    /// Notes what the record at hand says is on stable storage; itself is not among that.
    fn note(&mut self, stamp: Stamp) {
        let place = Place {
            segment: stamp.segment.number,
            offset: self.at.offset,
        };
        self.unsure.push_back((stamp.sequence, place));
        self.stable = self.stable.max(stamp.stable);
        let stable = self.stable;
        while self.unsure.front().is_some_and(|(of, _)| *of <= stable) {
            self.unsure.pop_front();
        }
    }

    /// Does a record behind this place say that the one at hand was on stable storage?
    fn was_stable(&self, bytes: &[u8], from: usize) -> Result<bool, StoreError> {
        if self.core.index.mutant == Some(Mutant::TakesDamageForEnd) {
            return Ok(false);
        }
        let says = |number: u32, bytes: &[u8], from: usize| {
            let mut at = from;
            let id = SegmentId {
                number,
                ..self.at.id
            };
            while let Some(record) = record::find(id, bytes, at) {
                if record.stamp.stable >= self.at.sequence {
                    return true;
                }
                at = record.next;
            }
            false
        };
        if says(self.at.id.number, bytes, from) {
            return Ok(true);
        }
        for segment in self.segments.iter().filter(|s| **s > self.at.id.number) {
            let bytes = segments::load(self.files, *segment)?;
            if says(*segment, &bytes, SEGMENT_HEADER_BYTES) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The log ends where rolling forward came to, if that is possible.
    fn end_here(self, bytes: &[u8]) -> Result<Rolled, StoreError> {
        let at = self.at.offset as usize;
        if self.was_stable(bytes, at + 1)? {
            return Err(lost(self.at.id.number, at));
        }
        let end = Place {
            segment: self.at.id.number,
            offset: self.at.offset,
        };
        let beyond = self.segments.iter().filter(|s| **s > self.at.id.number);
        Ok(Rolled {
            end: self.at,
            left: self.left,
            torn: (bytes.len() > at).then_some(bytes.len() as u64),
            beyond: beyond.copied().collect(),
            unsure: self.unsure.front().map_or(end, |(_, place)| *place),
        })
    }
}

impl Rolled {
    /// Cuts off what was torn, so that nothing follows the end of the log.
    pub(crate) fn cut(&self, files: &dyn Files) -> Result<(), StoreError> {
        let io = |e| StoreError::io("cut off the torn end of the log", e);
        for segment in self.beyond.iter().rev() {
            tracing::warn!("{} was torn and is removed", segment_name(*segment));
            files.remove(&segment_name(*segment)).map_err(io)?;
        }
        if let Some(len) = self.torn {
            let name = segment_name(self.end.id.number);
            let torn = len - self.end.offset;
            tracing::warn!("the last {torn} bytes of {name} were torn and are cut off");
            let disk = files.open(&name, false).map_err(io)?;
            disk.resize(self.end.offset).map_err(io)?;
            // The cut bytes must not come back behind the next records.
            disk.sync().map_err(io)?;
        }
        if !self.beyond.is_empty() {
            files.sync().map_err(io)?;
        }
        Ok(())
    }

    /// Writes again what nothing says is on stable storage, so that the next sync puts it there:
    /// the process that wrote it may have died before its sync, or with a sync that failed, after
    /// which the operating system reads what is not on the disk, and does not write it by itself.
    /// Returns the segments concerned.
    pub(crate) fn write_again(&self, files: &dyn Files) -> Result<Vec<Segment>, StoreError> {
        let last = self.end.id.number;
        let mut written = Vec::new();
        for segment in self.unsure.segment..=last {
            let name = segment_name(segment);
            let io = |e| StoreError::io(format!("write {name} again"), e);
            let mut bytes = segments::load(files, segment)?;
            if segment == last {
                bytes.truncate(self.end.offset as usize);
            }
            let from = match self.unsure.offset as usize {
                // Its header is no older than its first record.
                from if segment == self.unsure.segment && from > SEGMENT_HEADER_BYTES => from,
                _ => 0,
            };
            let disk = files.open(&name, false).map_err(io)?;
            for (i, part) in bytes[from..].chunks(PART_BYTES).enumerate() {
                let at = from + i * PART_BYTES;
                disk.write_at(at as u64, part).map_err(io)?;
            }
            written.push((segment, disk));
        }
        Ok(written)
    }
}
