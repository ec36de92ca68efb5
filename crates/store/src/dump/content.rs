//! The runs that a part of a file is made of, and where two versions of it differ: without reading
//! it, since bytes in the same place of the log are the same.

use crate::apply::extents_of;
use crate::index::Index;
use crate::key;
use crate::txn::trouble;
use crate::value::Object;
use wire::{Fid, Refusal};

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A segment, and the place in it of the byte at which a run begins.
    Log(u32, u64),
    /// The index.
    Inline,
}

/// The kind of a changed part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Hole,
    /// Bytes in the index.
    Inline,
    /// Bytes in the log.
    Log,
}

/// The runs of bytes in a part of a file, ascending; between them there is nothing.
#[derive(Debug, Default)]
pub(super) struct Content {
    runs: Vec<(u64, u64, Source)>,
    /// The bytes in the index.
    inline: Vec<u8>,
}

impl Content {
    pub(super) fn of(
        index: &Index,
        (fid, object): (Fid, &Object),
        (from, to): (u64, u64),
    ) -> Result<Self, Refusal> {
        let mut content = Self::default();
        if u64::from(object.inline) > from {
            let bytes = index.get(&key::inline(fid)).map_err(trouble)?;
            content.inline = bytes.ok_or(Refusal::Damaged)?;
        }
        let inline = (content.inline.len() as u64).min(to);
        let mut at = from;
        let extents = match object.extents {
            0 => Vec::new(),
            _ => extents_of(index, fid, from, to)?,
        };
        for (begin, extent) in extents {
            let (first, last) = (begin.max(from), (begin + u64::from(extent.len)).min(to));
            content.push((at, first.min(inline)), Source::Inline);
            let place = u64::from(extent.position) + u64::from(extent.skip) + (first - begin);
            content.push((first, last), Source::Log(extent.segment, place));
            at = last;
        }
        content.push((at, inline), Source::Inline);
        Ok(content)
    }

    fn push(&mut self, (from, to): (u64, u64), source: Source) {
        if from < to {
            self.runs.push((from, to, source));
        }
    }

    /// The source of the byte at a place.
    fn at(&self, at: u64) -> Option<Source> {
        let next = self.runs.partition_point(|(_, to, _)| *to <= at);
        let (from, _, source) = *self.runs.get(next).filter(|(from, ..)| *from <= at)?;
        Some(match source {
            Source::Log(segment, place) => Source::Log(segment, place + (at - from)),
            Source::Inline => Source::Inline,
        })
    }

    fn ends(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|(from, to, _)| [*from, *to])
    }

    fn inline(&self, from: u64, to: u64) -> &[u8] {
        self.inline
            .get(from as usize..to as usize)
            .unwrap_or_default()
    }
}

/// Where a part of a file is other than it was: runs, ascending. `inline`:
/// only bytes that lie, or lay, in the index. Bytes sent before are left out.
pub(super) fn compared(
    new: &Content,
    old: &Content,
    (from, to): (u64, u64),
    (inline, sent): (bool, &[(u64, u64)]),
) -> Vec<(u64, u64, Run)> {
    let within = |at: &u64| from < *at && *at < to;
    let told = sent.iter().flat_map(|(from, to)| [*from, *to]);
    let mut ends: Vec<u64> = new
        .ends()
        .chain(old.ends())
        .chain(told)
        .filter(within)
        .collect();
    ends.extend([from, to]);
    ends.sort_unstable();
    ends.dedup();
    let mut runs: Vec<(u64, u64, Run)> = Vec::new();
    for pair in ends.windows(2) {
        let [a, b] = *pair else {
            continue;
        };
        let (now, before) = (new.at(a), old.at(a));
        let same = match (now, before) {
            (Some(Source::Inline), Some(Source::Inline)) => new.inline(a, b) == old.inline(a, b),
            (now, before) => now == before,
        };
        let meant = match (now, before) {
            (Some(Source::Inline), _) | (None, Some(Source::Inline)) => true,
            _ => !inline,
        };
        let known = sent.iter().any(|(from, to)| *from <= a && b <= *to);
        if same || !meant || known {
            continue;
        }
        let run = match now {
            None => Run::Hole,
            Some(Source::Inline) => Run::Inline,
            Some(Source::Log(..)) => Run::Log,
        };
        match runs.last_mut() {
            Some((_, end, kind)) if *end == a && *kind == run => *end = b,
            _ => runs.push((a, b, run)),
        }
    }
    runs
}
