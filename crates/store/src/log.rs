//! The log: segments that are only appended to, written from one buffer, read at any place. A
//! record with many file bytes is written past the buffer if that is empty.
//!
//! The buffer always belongs to the last segment and begins where that segment's file ends, so a
//! write that failed is simply repeated at the same place. Room is reserved before a record is
//! made: a full disk is found while nothing has been changed. More is reserved than is asked for:
//! on a full disk names can be removed, and sessions begin and end. And the disk is full for
//! ordinary changes while there still is room for the cleaner and the index, see [`Log::kept`].

use crate::disk::{Disk, Files};
use crate::embedded::INDEX;
use crate::error::StoreError;
use crate::options::{Mutant, Options};
use crate::record::{self, SEGMENT_HEADER_BYTES, SegmentId, Stamp};
use crate::segments::{Bytes, Segments};
use crate::sync::Syncer;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// The buffer is written out at this size, even if nobody waits for it.
const BUFFER_BYTES: usize = 4 << 20;
/// File bytes that are at least so many are not copied into the buffer.
const PAST_BUFFER_BYTES: usize = 64 << 10;
/// Room is reserved in steps of this.
const RESERVE_BYTES: u64 = 1 << 20;
/// So much room stays reserved behind the end of the log for what must work on a full disk too.
pub(crate) const SPARE_BYTES: u64 = 1 << 20;
/// A segment is no more than one of so many parts of the disk, or the room kept for cleaning would
/// be much of it...
const SEGMENTS_OF_A_DISK: u64 = 32;
/// ...and no less than this for that reason.
const SMALL_SEGMENT_BYTES: u64 = 4 << 20;

/// The end of the name of a segment that is kept aside.
const ASIDE: &str = ".damaged";

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
}

/// Where a log ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) id: SegmentId,
    pub(crate) offset: u64,
    /// Number of the next record.
    pub(crate) sequence: u64,
}

/// The purpose of a record, and so the room that it may take on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Anything that may be refused.
    Change,
    /// It makes room when it is done: it may take most of what is kept.
    Clean,
    /// It makes room, sooner or later, or what does so waits behind it: it may take half of what is
    /// spared.
    Removal,
    /// It cannot be refused: it may take all of it.
    Note,
}

/// A segment's number and its file.
pub(crate) type Segment = (u32, Arc<dyn Disk>);

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    syncer: Syncer,
    segment_bytes: u64,
    /// The last segment.
    id: SegmentId,
    disk: Arc<dyn Disk>,
    /// Where the file of the last segment ends and the buffer begins.
    written: u64,
    buffer: Vec<u8>,
    /// Up to here room is reserved.
    reserved: u64,
    /// Number of the next record.
    sequence: u64,
    /// A write failed, and nothing is appended before it was repeated.
    repeat: bool,
    /// Bytes appended since the store was opened.
    appended: u64,
    /// Room that an image of the index may take.
    image_bytes: u64,
    /// A planted fault.
    pub(crate) mutant: Option<Mutant>,
    segments: Segments,
    /// Segments that are kept under another name when they are removed.
    aside: BTreeSet<u32>,
}

/// The name of a segment's file.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("log-{segment:08}")
}

/// The number of a segment, from its file's name.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("log-")?;
    let number = digits.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

/// The numbers of all segments, ascending.
pub(crate) fn segments(files: &dyn Files) -> Result<Vec<u32>, StoreError> {
    let names = files
        .list()
        .map_err(|e| StoreError::io("list the partition", e))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|n| segment_number(n)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn make_segment(
    files: &dyn Files,
    syncer: &Syncer,
    id: SegmentId,
    sequence: u64,
) -> Result<Arc<dyn Disk>, StoreError> {
    let name = segment_name(id.number);
    let make = || {
        let disk = files.open(&name, true)?;
        disk.write_at(0, &record::segment_header(id, sequence))?;
        Ok(disk)
    };
    let disk = make().map_err(|e| StoreError::io(format!("make {name}"), e))?;
    syncer.made();
    syncer.wrote(id.number, &disk, sequence - 1);
    Ok(disk)
}

impl Log {
    /// The empty log of a new partition.
    pub(crate) fn create(files: Arc<dyn Files>, options: &Options) -> Result<Self, StoreError> {
        let syncer = Syncer::new(files.clone(), options.mutant);
        let id = SegmentId {
            number: 1,
            identity: options.identity,
        };
        let disk = make_segment(&*files, &syncer, id, 1)?;
        let end = End {
            id,
            offset: SEGMENT_HEADER_BYTES as u64,
            sequence: 1,
        };
        Ok(Self::at(files, syncer, options, end, disk))
    }

    /// A log that goes on at this place, which nothing may follow, with the record of this number.
    /// `unsure`: the segments that the next sync has to sync.
    pub(crate) fn resume(
        files: Arc<dyn Files>,
        options: &Options,
        end: End,
        unsure: &[Segment],
    ) -> Result<Self, StoreError> {
        let syncer = Syncer::new(files.clone(), options.mutant);
        let disk = files
            .open(&segment_name(end.id.number), false)
            .map_err(|e| StoreError::io("open the log", e))?;
        syncer.made();
        for (segment, disk) in unsure {
            syncer.wrote(*segment, disk, end.sequence - 1);
        }
        syncer.wrote(end.id.number, &disk, end.sequence - 1);
        Ok(Self::at(files, syncer, options, end, disk))
    }

    /// A log that goes on in a segment of its own, which is made.
    pub(crate) fn begin(
        files: Arc<dyn Files>,
        options: &Options,
        end: End,
    ) -> Result<Self, StoreError> {
        let syncer = Syncer::new(files.clone(), options.mutant);
        let disk = make_segment(&*files, &syncer, end.id, end.sequence)?;
        Ok(Self::at(files, syncer, options, end, disk))
    }

    /// The same for a caller that looks only; nothing is made on the disk.
    pub(crate) fn pretend(
        files: Arc<dyn Files>,
        options: &Options,
        end: End,
    ) -> Result<Self, StoreError> {
        let syncer = Syncer::new(files.clone(), options.mutant);
        let disk = files
            .open(INDEX, false)
            .map_err(|e| StoreError::io("open the index", e))?;
        Ok(Self::at(files, syncer, options, end, disk))
    }

    fn at(
        files: Arc<dyn Files>,
        syncer: Syncer,
        options: &Options,
        end: End,
        disk: Arc<dyn Disk>,
    ) -> Self {
        let share = files.space().map_or(u64::MAX, |(total, _)| {
            (total / SEGMENTS_OF_A_DISK).max(SMALL_SEGMENT_BYTES)
        });
        Self {
            syncer,
            // Places within a segment are kept in 32 bits.
            segment_bytes: options.segment_bytes.min(share).clamp(1 << 12, 1 << 31),
            id: end.id,
            disk,
            written: end.offset,
            buffer: Vec::new(),
            reserved: end.offset,
            sequence: end.sequence,
            repeat: false,
            appended: 0,
            image_bytes: 0,
            mutant: options.mutant,
            segments: Segments::new(files),
            aside: BTreeSet::new(),
        }
    }

    pub(crate) fn syncer(&self) -> &Syncer {
        &self.syncer
    }

    /// Where the next record goes, unless it needs a new segment.
    pub(crate) fn end(&self) -> Place {
        Place {
            segment: self.id.number,
            offset: self.written + self.buffer.len() as u64,
        }
    }

    /// A segment of this log.
    pub(crate) fn id(&self, number: u32) -> SegmentId {
        SegmentId { number, ..self.id }
    }

    /// Number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes appended since the store was opened.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Makes sure that a record of this many bytes can be appended at [`Log::end`].
    pub(crate) fn make_room(&mut self, bytes: u64, purpose: Use) -> Result<(), StoreError> {
        if self.syncer.failed() {
            return Err(StoreError::SyncFailed);
        }
        if self.repeat || self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        let spare = self.spare();
        let left = match purpose {
            Use::Change | Use::Clean => spare,
            Use::Removal => spare / 2,
            Use::Note => 0,
        };
        let used = self.end().offset > SEGMENT_HEADER_BYTES as u64;
        if used && self.end().offset + bytes > self.segment_bytes {
            // A record that must be written on a full disk goes on here, where room is reserved:
            // there may be none for another segment.
            let must = matches!(purpose, Use::Removal | Use::Note);
            if must && self.end().offset + bytes + left <= self.reserved {
                return Ok(());
            }
            if self.free_for(purpose)? < SEGMENT_HEADER_BYTES as u64 + bytes + left {
                return Err(StoreError::NoSpace);
            }
            self.next_segment()?;
        }
        let least = self.end().offset + bytes + left;
        // The spare room is reserved behind each record, as long as the disk has room: it may be
        // full by the time that the spare room is needed.
        let whole = self.end().offset + bytes + spare;
        if whole <= self.reserved {
            return Ok(());
        }
        let step = RESERVE_BYTES.min(self.segment_bytes);
        let most = self.segment_bytes + spare;
        let more = whole.next_multiple_of(step).min(most).max(least);
        let (from, free) = (self.written, self.free_for(purpose)?);
        let reserve = |to: u64| match to.saturating_sub(self.reserved) > free {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => self.disk.reserve(from, to - from).map(|()| to),
        };
        self.reserved = match reserve(more) {
            Ok(reserved) => reserved,
            Err(_) if least <= self.reserved => self.reserved,
            // The last bytes of a nearly full disk are used too.
            Err(_) => reserve(least).map_err(|e| StoreError::io("reserve room for the log", e))?,
        };
        Ok(())
    }

    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        self.segments.files()
    }

    /// When this segment is removed, it is kept under another name.
    pub(crate) fn keep_aside(&mut self, segment: u32) {
        self.aside.insert(segment);
    }

    /// From now on so much room is kept for the next image of the index.
    pub(crate) fn keep_for_images(&mut self, bytes: u64) {
        self.image_bytes = bytes;
    }

    /// Room on the disk that only some may take: a segment for the cleaner, which makes room by
    /// taking some first, and a quarter for the index, which does so too when it is brought up to
    /// date, and what an image of it takes before segments may go. Without it a disk could be too
    /// full to be made less full.
    pub(crate) fn kept(&self, purpose: Use) -> u64 {
        let index = self.segment_bytes / 4 + self.image_bytes;
        match purpose {
            Use::Change => self.segment_bytes + index,
            Use::Clean => index,
            Use::Removal | Use::Note => 0,
        }
    }

    /// Room on the disk that this may take.
    pub(crate) fn free_for(&self, purpose: Use) -> Result<u64, StoreError> {
        match self.kept(purpose) {
            0 => Ok(u64::MAX),
            kept => Ok(self.space()?.1.saturating_sub(kept)),
        }
    }

    /// Bytes that changes may still append.
    pub(crate) fn available(&self) -> Result<u64, StoreError> {
        let ahead = self
            .reserved
            .saturating_sub(self.end().offset + self.spare());
        Ok(self.free_for(Use::Change)?.saturating_add(ahead))
    }

    /// At this size a segment ends.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Bytes of a segment.
    pub(crate) fn len_of(&self, segment: u32) -> Result<u64, StoreError> {
        let name = segment_name(segment);
        let disk = self.files().open(&name, false);
        disk.and_then(|disk| disk.len())
            .map_err(|e| StoreError::io(format!("measure {name}"), e))
    }

    /// Bytes that stay reserved.
    fn spare(&self) -> u64 {
        SPARE_BYTES.min(self.segment_bytes / 4)
    }

    /// Ends the last segment, and begins another one.
    pub(crate) fn next_segment(&mut self) -> Result<(), StoreError> {
        if self.mutant == Some(Mutant::LosesTail) {
            self.buffer.clear();
        }
        self.write_out()?;
        let id = SegmentId {
            number: self.id.number + 1,
            ..self.id
        };
        let disk = make_segment(&**self.files(), &self.syncer, id, self.sequence)?;
        let begin = SEGMENT_HEADER_BYTES as u64;
        // Only then is what the old one has reserved given back.
        let spare = self.spare();
        disk.reserve(begin, spare)
            .map_err(|e| StoreError::io("reserve room for the log", e))?;
        self.disk
            .resize(self.written)
            .map_err(|e| StoreError::io("end a segment", e))?;
        self.disk = disk;
        self.id = id;
        self.written = begin;
        self.reserved = begin + spare;
        Ok(())
    }

    /// Appends a record to the buffer. Room has been made for it.
    pub(crate) fn append(&mut self, data: &[u8], meta: &[u8]) {
        let stamp = Stamp {
            sequence: self.sequence,
            stable: self.syncer.stable(),
            segment: self.id,
        };
        if !self.write_past_buffer(stamp, data, meta) {
            record::append(&mut self.buffer, stamp, data, meta);
        }
        self.appended += record::record_bytes(data.len(), meta.len()) as u64;
        self.sequence += 1;
    }

    /// Many bytes go to the operating system from where they are, if nothing has to go before them.
    /// If that fails they go into the buffer, and are written with it.
    fn write_past_buffer(&mut self, stamp: Stamp, data: &[u8], meta: &[u8]) -> bool {
        if data.len() < PAST_BUFFER_BYTES || !self.buffer.is_empty() || self.syncer.failed() {
            return false;
        }
        let (header, end) = record::around(stamp, data.len(), meta);
        let parts = [&header[..], data, &end];
        let written = self.disk.write_parts_at(self.written, &parts).is_ok();
        if written {
            self.written += record::record_bytes(data.len(), meta.len()) as u64;
            self.syncer
                .wrote(self.id.number, &self.disk, stamp.sequence);
        }
        written
    }

    /// Hands the buffer to the operating system; never after a sync that failed, whichever thread
    /// made it.
    pub(crate) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.syncer.failed() {
            return Err(StoreError::SyncFailed);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.disk.write_at(self.written, &self.buffer);
        self.repeat = result.is_err();
        result.map_err(|e| StoreError::io("write the log", e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.buffer.capacity() > 2 * BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        self.syncer
            .wrote(self.id.number, &self.disk, self.sequence - 1);
        Ok(())
    }

    /// Removes a segment of which nothing is in use.
    pub(crate) fn remove(&self, segment: u32) -> Result<(), StoreError> {
        debug_assert!(segment < self.id.number, "the last segment is written to");
        self.segments.forget(segment);
        let name = segment_name(segment);
        let removed = match self.aside.contains(&segment) {
            true => self.files().rename(&name, &format!("{name}{ASIDE}")),
            false => self.files().remove(&name),
        };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io(format!("remove {name}"), e))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the disk in all, and free.
    pub(crate) fn space(&self) -> Result<(u64, u64), StoreError> {
        self.files()
            .space()
            .map_err(|e| StoreError::io("ask for the free space", e))
    }
}

impl Bytes for Log {
    /// Reads bytes of a record, written out or not.
    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), StoreError> {
        if place.segment != self.id.number || place.offset < self.written {
            return self.segments.read(place, into);
        }
        let start = (place.offset - self.written) as usize;
        let bytes = self.buffer.get(start..start + into.len());
        let bytes = bytes.ok_or_else(|| {
            StoreError::Damaged("the index names bytes beyond the end of the log".to_owned())
        })?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn verifies(&self) -> bool {
        self.mutant != Some(Mutant::SkipsChecksums)
    }
}
