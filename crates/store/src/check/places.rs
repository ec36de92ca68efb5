//! The records of the log: whether they read, and where in them the bytes of which file lie; for
//! the part of the log that it is the turn of.

use super::{Logged, Stopped, Walk};
use crate::image;
use crate::key;
use crate::log::{self, Place, segment_name};
use crate::record::{self, SEGMENT_HEADER_BYTES, SegmentHead, SegmentId};
use crate::report::Damage;
use crate::segments;
use crate::value::{Borrower, Extent};
use std::collections::BTreeMap;
use std::ops::Range;

/// No object has this number.
const NOBODY: u64 = 0;

/// Where in a segment file bytes lie, and of which file, in order.
type Spans = Vec<(Range<u64>, u64)>;

/// The log, and the part of it that is in memory.
pub(super) struct Places<'a> {
    log: Option<Logged<'a>>,
    limit: usize,
    spans: BTreeMap<u32, Spans>,
    /// Segments that have not had their turn, in order; `None`: not yet listed.
    left: Option<Vec<u32>>,
    identity: Option<u64>,
}

impl<'a> Places<'a> {
    pub(super) fn new(log: Option<Logged<'a>>, limit: usize) -> Self {
        Self {
            log,
            limit,
            spans: BTreeMap::new(),
            left: None,
            identity: None,
        }
    }

    /// Have all segments had their turn?
    pub(super) fn is_done(&self) -> bool {
        self.left.as_ref().is_none_or(Vec::is_empty)
    }

    /// From here on the log is needed to make the index again.
    fn floor(&self) -> Place {
        let image = self.log.as_ref().and_then(|log| log.image);
        image.map_or(Place::default(), |image| image.place)
    }
}

impl Walk<'_> {
    /// Reads the image of the index, and looks for gaps in the log behind it.
    pub(super) fn image(&mut self) -> Result<(), Stopped> {
        let Some(log) = &self.places.log else {
            return Ok(());
        };
        let (files, last, floor) = (log.segments.files().clone(), log.end, self.places.floor());
        let (image, needed) = (log.image.cloned(), log.needs_image);
        let mut segments = match log::segments(&*files) {
            Ok(segments) => segments,
            Err(error) => {
                self.unread(&error);
                return Ok(());
            }
        };
        segments.retain(|segment| *segment <= last.segment);
        if let Some(image) = &image {
            let mut bytes = 0;
            let read = image::read(&*files, image, |part| {
                bytes += part.values().flatten().map(|v| v.len() as u64).sum::<u64>();
                Ok(())
            });
            self.went_on(bytes)?;
            if let Err(error) = read {
                self.damage(Damage::Image {
                    what: error.to_string(),
                });
            }
        } else if needed && segments.first() != Some(&1) {
            self.report.warnings.push(
                "there is no image of the index, and the log is not whole: if the index were lost \
                 now, it could not be made again. A server writes an image within seconds where \
                 there is room for it, and so does `ariel fsck --repair`"
                    .to_owned(),
            );
        }
        let needs = |segment: u32| needed && segment >= floor.segment.max(1);
        let made = image.is_some() || segments.first() == Some(&1);
        for segment in (1..=last.segment).filter(|segment| needs(*segment)) {
            if made && segments.binary_search(&segment).is_err() {
                self.log_damage(segment, 0, "it is missing");
            }
        }
        segments.reverse();
        self.places.left = Some(segments);
        Ok(())
    }

    fn log_damage(&mut self, segment: u32, at: usize, what: &str) {
        self.report.broken.insert(segment);
        self.damage(Damage::Log {
            segment: segment_name(segment),
            at: at as u64,
            what: what.to_owned(),
        });
    }

    /// Reads as many segments as there is memory for.
    pub(super) fn load_places(&mut self) -> Result<(), Stopped> {
        self.places.spans.clear();
        let mut records = 0;
        while records < self.places.limit {
            let Some(segment) = self.places.left.as_mut().and_then(Vec::pop) else {
                break;
            };
            let Some(log) = &self.places.log else {
                break;
            };
            let (files, end) = (log.segments.files().clone(), log.end);
            let mut bytes = match segments::load(&*files, segment) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.unread(&error);
                    continue;
                }
            };
            if segment == end.segment {
                bytes.truncate(end.offset as usize);
            }
            self.went_on(bytes.len() as u64)?;
            let mut bad = Vec::new();
            let head = record::parse_segment_header(segment, &bytes);
            let identity = match head {
                SegmentHead::First(id, _) => *self.places.identity.get_or_insert(id.identity),
                _ => {
                    bad.push(0);
                    self.places.identity.unwrap_or_default()
                }
            };
            let id = SegmentId {
                number: segment,
                identity,
            };
            let spans = walk_segment(id, &bytes, &mut bad);
            records += spans.len();
            self.places.spans.insert(segment, spans);
            self.bad_places(segment, &bad);
        }
        Ok(())
    }

    /// Where a segment does not read: told if the index could not be made again without it, or the
    /// segment not be cleaned.
    fn bad_places(&mut self, segment: u32, bad: &[usize]) {
        let floor = self.places.floor();
        let live = self
            .index()
            .live()
            .get(&segment)
            .is_some_and(|live| *live > 0);
        for at in bad {
            let needed = (segment, *at as u64) >= (floor.segment, floor.offset);
            if needed || live {
                self.log_damage(segment, *at, "the log does not read");
            }
        }
    }

    /// An extent must lie in a record of its file, or of one that it is known to borrow from.
    pub(super) fn stray(&mut self, vnode: u64, (begin, end): (u64, u64), extent: &Extent) {
        let Some(spans) = self.places.spans.get(&extent.segment) else {
            return;
        };
        let from = u64::from(extent.position);
        let span = from..from + u64::from(extent.stored);
        let at = spans.partition_point(|(place, _)| place.end < span.end);
        let place = spans.get(at);
        let place = place.filter(|(place, _)| place.start <= span.start && span.end <= place.end);
        let known = match place {
            None => false,
            Some((_, of)) if *of == vnode => true,
            Some(_) => {
                let note = self.index().get_as(&key::shared(extent.segment, vnode));
                let borrows = |note: Borrower| note.from <= begin && end <= note.to;
                self.known(note)
                    .is_none_or(|note| note.is_some_and(borrows))
            }
        };
        if !known {
            self.report.broken.insert(extent.segment);
            self.damage(Damage::Stray {
                file: self.core.describe(self.fid(vnode)),
                segment: segment_name(extent.segment),
            });
        }
    }
}

/// Reads all records of a segment: where file bytes lie, and where it does not read.
fn walk_segment(id: SegmentId, bytes: &[u8], bad: &mut Vec<usize>) -> Spans {
    let mut spans = Spans::new();
    let mut at = SEGMENT_HEADER_BYTES;
    while at < bytes.len() {
        let Some(record) = record::parse(id, bytes, at) else {
            bad.push(at);
            match record::find(id, bytes, at + 1) {
                Some(next) => at = next.at,
                None => break,
            }
            continue;
        };
        // Of several files, as those of a part of a stream: all of these borrow.
        let vnode = record.happened.fid().map_or(NOBODY, |fid| fid.vnode);
        if vnode != NOBODY || !record.data.is_empty() {
            let data = (at + record::HEADER_BYTES) as u64;
            spans.push((data..data + record.data.len() as u64, vnode));
        }
        at = record.next;
    }
    spans
}
