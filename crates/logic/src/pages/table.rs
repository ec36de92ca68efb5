//! Page tables: one entry for each page that was ever used, in chunks, so that a large segment of
//! which little is used costs little.

use super::{Figures, FileId, PageNo, Run, SegmentId};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The content is not zeros: it is this segment's own, in a frame or a file.
pub(super) const TOUCHED: u16 = 1;
/// There is a frame, with the content.
pub(super) const RESIDENT: u16 = 1 << 1;
/// The program may write without a fault. Implies `DIRTY`.
pub(super) const WRITABLE: u16 = 1 << 2;
/// Used since the front hand of the clock passed.
pub(super) const REFERENCED: u16 = 1 << 3;
/// The frame holds own content that no file holds.
pub(super) const DIRTY: u16 = 1 << 4;
/// The file `store` holds the content. Never together with `DIRTY`.
pub(super) const STORED: u16 = 1 << 5;
/// Own content that relatives may share: a write gives it to them first.
pub(super) const COW: u16 = 1 << 6;
/// A frame is being filled from a file.
pub(super) const COMING: u16 = 1 << 7;
/// The frame is being written to the file.
pub(super) const LEAVING: u16 = 1 << 8;
/// In a queue of the clock.
pub(super) const QUEUED: u16 = 1 << 9;
/// In a frame, and no program has asked for it yet.
pub(super) const AHEAD: u16 = 1 << 10;
/// Of a slave: only a write makes the page its own.
pub(super) const ON_WRITE: u16 = 1 << 11;
/// Of a slave: it gets its own copy, and never becomes a master.
pub(super) const ALONE: u16 = 1 << 12;
/// Copied on reference, and not seen written yet.
pub(super) const FRESH: u16 = 1 << 13;
/// May be mapped: used only to choose between mapping and unprotecting.
pub(super) const MAPPED: u16 = 1 << 14;
/// Not mapped only because its program unmapped all for a fork: it may be mapped with others that
/// are used.
pub(super) const ASIDE: u16 = 1 << 15;

pub(super) const BUSY: u16 = COMING | LEAVING;

/// One page of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) flags: u16,
    /// The segment whose content this is; 0: the content is this segment's own.
    pub(super) master: SegmentId,
    /// With `STORED` (or `COMING`): the file that holds the content.
    pub(super) store: FileId,
}

impl Entry {
    pub(super) fn is(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    pub(super) fn clear(&mut self, flag: u16) {
        self.flags &= !flag;
    }

    pub(super) fn is_slave(self) -> bool {
        self.master != 0
    }
}

const CHUNK: usize = 512;

/// Some entries in a row.
enum Chunk {
    /// All are the same: nothing was used yet, or all is a relative's.
    Same(Entry),
    Each(Box<[Entry; CHUNK]>),
}

impl Default for Chunk {
    fn default() -> Self {
        Self::Same(Entry::default())
    }
}

impl Chunk {
    fn is_untouched(&self) -> bool {
        matches!(self, Self::Same(entry) if *entry == Entry::default())
    }

    fn get(&self, at: usize) -> Entry {
        match self {
            Self::Same(entry) => *entry,
            Self::Each(entries) => entries[at],
        }
    }

    fn set(&mut self, at: usize, entry: Entry) {
        match self {
            Self::Same(same) if *same == entry => {}
            Self::Same(same) => {
                let mut entries = Box::new([*same; CHUNK]);
                entries[at] = entry;
                *self = Self::Each(entries);
            }
            Self::Each(entries) => entries[at] = entry,
        }
    }
}

/// A place in a queue, and when the page came there.
pub(super) type Queued = (PageNo, u64);

/// One segment.
pub(super) struct Segment {
    chunks: Vec<Chunk>,
    pub(super) pages: u32,
    /// Most frames.
    pub(super) limit: u32,
    /// Where dirty pages go.
    pub(super) file: FileId,
    /// Related segments have the same number.
    pub(super) family: SegmentId,
    /// Frames in use, those that are being filled included.
    pub(super) frames: u32,
    /// Before the front hand of the clock; between the hands; and behind the back hand: stored for
    /// their frames, which come first.
    pub(super) active: VecDeque<Queued>,
    pub(super) inactive: VecDeque<Queued>,
    pub(super) clean: VecDeque<Queued>,
    pub(super) streams: super::jobs::Streams,
    /// Its program unmaps all of it for a fork: the pages that were mapped since it began.
    pub(super) mapped_since: Option<Vec<Run>>,
}

impl Segment {
    pub(super) fn new(pages: u32, limit: u32, file: FileId, family: SegmentId) -> Self {
        let mut chunks = Vec::new();
        chunks.resize_with((pages as usize).div_ceil(CHUNK), Chunk::default);
        Self {
            chunks,
            pages,
            limit,
            file,
            family,
            frames: 0,
            active: VecDeque::new(),
            inactive: VecDeque::new(),
            clean: VecDeque::new(),
            streams: super::jobs::Streams::default(),
            mapped_since: None,
        }
    }

    /// A second thread that begins, too, forgets nothing of what the first needs.
    pub(super) fn begin_unmapping(&mut self) {
        self.mapped_since.get_or_insert_default();
    }

    pub(super) fn entry(&self, page: PageNo) -> Entry {
        self.chunks[page as usize / CHUNK].get(page as usize % CHUNK)
    }

    pub(super) fn set(&mut self, page: PageNo, entry: Entry) {
        self.chunks[page as usize / CHUNK].set(page as usize % CHUNK, entry);
    }

    /// The pages that were ever used, in order.
    pub(super) fn used(&self) -> impl Iterator<Item = (PageNo, Entry)> + '_ {
        let chunks = self.chunks.iter().enumerate();
        let pages = self.pages;
        chunks
            .filter(|(_, chunk)| !chunk.is_untouched())
            .flat_map(|(at, chunk)| {
                let first = (at * CHUNK) as PageNo;
                (first..).zip((0..CHUNK).map(|at| chunk.get(at)))
            })
            .take_while(move |(page, _)| *page < pages)
    }

    /// Goes through the pages that were ever used, with the same pages of a child, which get what
    /// is returned. A part of the table that is all a relative's is one entry: a fork of many pages
    /// makes no large table.
    pub(super) fn for_child(
        &mut self,
        child: &mut Self,
        mut each: impl FnMut(PageNo, &mut Entry) -> Option<Entry>,
    ) {
        let pairs = self.chunks.iter_mut().zip(&mut child.chunks);
        for (at, (chunk, to)) in pairs.enumerate() {
            if chunk.is_untouched() {
                continue;
            }
            let first = (at * CHUNK) as PageNo;
            let end = CHUNK.min((self.pages - first) as usize);
            for offset in 0..end {
                let mut entry = chunk.get(offset);
                let made = each(first + offset as PageNo, &mut entry);
                chunk.set(offset, entry);
                match (offset, made.unwrap_or_default()) {
                    (0, made) => *to = Chunk::Same(made),
                    (_, made) => to.set(offset, made),
                }
            }
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let count = |wanted: fn(Entry) -> bool| {
            let found = self.used().filter(|(_, entry)| wanted(*entry));
            found.count() as u32
        };
        Figures {
            pages: self.pages,
            frames: self.frames,
            limit: self.limit,
            dirty: count(|entry| entry.is(DIRTY)),
            stored: count(|entry| entry.is(STORED)),
            shared: count(Entry::is_slave),
        }
    }
}

/// All segments.
#[derive(Default)]
pub(super) struct Table {
    segments: BTreeMap<SegmentId, Segment>,
    /// Frames of all.
    pub(super) frames: u32,
    pub(super) now: u64,
}

impl Table {
    pub(super) fn insert(&mut self, id: SegmentId, segment: Segment) {
        assert_ne!(id, 0, "0 names no segment");
        let old = self.segments.insert(id, segment);
        assert!(old.is_none(), "segment {id} is there already");
    }

    pub(super) fn remove(&mut self, id: SegmentId) -> Segment {
        let segment = self.segments.remove(&id).expect("the segment is there");
        self.frames -= segment.frames;
        segment
    }

    pub(super) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(&id)
    }

    pub(super) fn of(&self, id: SegmentId) -> &Segment {
        self.get(id).expect("the segment is there")
    }

    pub(super) fn of_mut(&mut self, id: SegmentId) -> &mut Segment {
        self.segments.get_mut(&id).expect("the segment is there")
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.segments.keys().copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (SegmentId, &Segment)> + '_ {
        self.segments.iter().map(|(id, segment)| (*id, segment))
    }

    pub(super) fn entry(&self, id: SegmentId, page: PageNo) -> Entry {
        self.of(id).entry(page)
    }

    pub(super) fn set(&mut self, id: SegmentId, page: PageNo, entry: Entry) {
        self.of_mut(id).set(page, entry);
    }

    /// The relatives whose page is a slave of this one.
    pub(super) fn slaves(&self, master: SegmentId, page: PageNo) -> Vec<SegmentId> {
        let family = self.of(master).family;
        let slaves = self.all().filter(|(_, segment)| {
            segment.family == family && page < segment.pages && segment.entry(page).master == master
        });
        slaves.map(|(id, _)| id).collect()
    }

    /// A frame is taken for a page: it is counted, and queued for the clock.
    pub(super) fn take_frame(&mut self, id: SegmentId, page: PageNo, entry: &mut Entry) {
        self.frames += 1;
        let now = self.now;
        let segment = self.of_mut(id);
        segment.frames += 1;
        if !entry.is(QUEUED) {
            entry.set(QUEUED);
            segment.active.push_back((page, now));
        }
    }

    /// A frame is given up. The place in the queue goes when the clock comes to it.
    pub(super) fn give_frame(&mut self, id: SegmentId, entry: &mut Entry) {
        entry.clear(RESIDENT | WRITABLE | REFERENCED | AHEAD | MAPPED | ASIDE);
        self.frames -= 1;
        self.of_mut(id).frames -= 1;
    }
}
