//! Moving bytes that versions of a file share: all of them come to refer to the one copy.
//!
//! A record of the log says whose bytes it carries, by vnode number; clones have the same numbers
//! as what they were cloned from, so the versions that may refer to it are those under this number
//! in any volume.

use crate::error::StoreError;
use crate::key::{self, Key};
use crate::log::{Place, Use};
use crate::options::Mutant;
use crate::reading::read_extent;
use crate::record::{self, Entry, HEADER_BYTES, Happening, record_bytes};
use crate::state::Core;
use crate::store::Store;
use crate::value::{Extent, PIECE_BYTES};
use crate::versions::Version;
use std::ops::Range;
use wire::{Fid, limits};

/// Bytes of a segment, as one piece that versions of a file have extents in.
#[derive(Debug)]
struct Shared {
    position: u32,
    bytes: Vec<u8>,
    checks: Vec<u32>,
}

impl Core {
    /// All versions of extents of a file's part that lie in this part of a segment, by position.
    fn versions_in(
        &self,
        (fid, (from, to)): (Fid, (u64, u64)),
        segment: u32,
        within: &Range<u64>,
    ) -> Result<Vec<(Key, Extent)>, StoreError> {
        let mut all = Vec::new();
        // An extent is found by its end.
        let last = to.saturating_add(u64::from(limits::BULK_BYTES));
        for volume in self.index.volumes.with_keys() {
            let of = Fid { volume, ..fid };
            let detail = from.saturating_add(1).to_be_bytes();
            let (mut first, end) = key::range_from(of, key::EXTENT, &detail);
            'volume: loop {
                let (part, more) = self.index.raw_part(&first, &end, 256)?;
                let Some((at, _)) = part.last() else {
                    break;
                };
                first = key::after(at);
                for (key, value) in part {
                    let value = value.ok_or_else(|| self.index.damaged(&key))?;
                    let ends = key::parts(&key).and_then(|parts| parts.number());
                    if ends.is_none_or(|ends| ends > last) {
                        break 'volume;
                    }
                    let extent = match Version::of(&key, value) {
                        Some(Version::Present(value)) => Extent::decode(&value),
                        Some(Version::Absent) => continue,
                        None => None,
                    };
                    let extent = extent.ok_or_else(|| self.index.damaged(&key))?;
                    let begin = u64::from(extent.position);
                    let span = begin..begin + u64::from(extent.stored);
                    let inside = within.start <= span.start && span.end <= within.end;
                    if extent.segment == segment && inside {
                        all.push((key, extent));
                    }
                }
                if !more {
                    break;
                }
            }
        }
        all.sort_by_key(|(_, extent)| (extent.position, extent.stored));
        Ok(all)
    }

    /// All that versions of a file's part have in this part of a segment lies in another place from
    /// now on.
    pub(crate) fn relocate(
        &mut self,
        file: (Fid, (u64, u64)),
        segment: u32,
        (within, to): (Range<u64>, Place),
    ) -> Result<(), StoreError> {
        let to_offset = to.offset as u32;
        let versions = self.versions_in(file, segment, &within)?;
        for (nth, (key, extent)) in versions.into_iter().enumerate() {
            let moved = Extent {
                segment: to.segment,
                position: to_offset + (extent.position - within.start as u32),
                ..extent.clone()
            };
            self.index.count_live(segment, -i64::from(extent.stored));
            self.index.count_live(to.segment, i64::from(moved.stored));
            let value = Version::sealed(&key, Some(moved.encode()));
            if nth > 0 && self.index.mutant == Some(Mutant::MovesOneVersion) {
                continue;
            }
            self.index.raw_put(key, Some(value));
        }
        Ok(())
    }
}

impl Store {
    /// Moves what versions of a file's part have in this part of a segment to the end of the log.
    /// Returns how many bytes were moved.
    pub(crate) fn relocate(
        &mut self,
        file: (Fid, (u64, u64)),
        segment: u32,
        within: Range<u64>,
    ) -> Result<u64, StoreError> {
        let versions = self.core.versions_in(file, segment, &within)?;
        let mut moved = 0;
        let mut rest = versions.as_slice();
        while !rest.is_empty() {
            let (shared, count) = self.gather(rest)?;
            rest = &rest[count..];
            moved += self.relocate_shared(file, segment, &shared)?;
        }
        Ok(moved)
    }

    /// The bytes of the first of these extents and of those that overlap it; and how many extents
    /// these are.
    fn gather(&self, versions: &[(Key, Extent)]) -> Result<(Shared, usize), StoreError> {
        let mut shared = Shared {
            position: versions.first().map_or(0, |(_, first)| first.position),
            bytes: Vec::new(),
            checks: Vec::new(),
        };
        let mut count = 0;
        for (_, extent) in versions {
            let known = shared.bytes.len() as u32;
            if count > 0 && extent.position >= shared.position + known {
                break;
            }
            count += 1;
            let ends = extent.position + extent.stored;
            if ends <= shared.position + known {
                continue;
            }
            // Extents are narrowed by whole pieces, so the known part ends with one.
            let skip = shared.position + known - extent.position;
            let pieces = skip as usize / PIECE_BYTES;
            let rest = Extent {
                position: extent.position + skip,
                stored: extent.stored - skip,
                skip: 0,
                len: extent.stored - skip,
                checks: extent.checks.get(pieces..).unwrap_or_default().to_vec(),
                ..*extent
            };
            let mut bytes = vec![0; rest.len as usize];
            read_extent(&self.log, &rest, 0, &mut bytes)?;
            shared.bytes.extend_from_slice(&bytes);
            shared.checks.extend_from_slice(&rest.checks);
        }
        Ok((shared, count))
    }

    fn relocate_shared(
        &mut self,
        (fid, (from, to)): (Fid, (u64, u64)),
        segment: u32,
        shared: &Shared,
    ) -> Result<u64, StoreError> {
        let happening: Happening<'_> = Entry::Relocate {
            fid,
            from,
            to,
            segment,
            position: shared.position,
            checks: &shared.checks,
        };
        let meta = record::encode(&happening);
        let len = shared.bytes.len();
        let bytes = record_bytes(len, meta.len()) as u64;
        self.log.make_room(bytes, Use::Clean)?;
        let end = self.log.end();
        let place = Place {
            offset: end.offset + HEADER_BYTES as u64,
            ..end
        };
        let begin = u64::from(shared.position);
        let within = begin..begin + len as u64;
        self.core
            .relocate((fid, (from, to)), segment, (within, place))?;
        self.log.append(&shared.bytes, &meta);
        self.cleaner.count(len as u64, bytes);
        Ok(len as u64)
    }
}
