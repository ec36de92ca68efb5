//! All keys of all volumes in the order of the things that they are versions of: the versions of a
//! thing in all volumes come together, those of a volume the newest first.
//!
//! So much of each volume is in memory that all of them together have a bound.

use super::versions::bytes_of;
use super::views::Raw;
use super::{Stopped, Walk};
use crate::index::Found;
use crate::key::{self, Key};
use crate::report::Damage;
use crate::versions::Version;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::vec::IntoIter;

/// Keys in memory, of all volumes together; and of one.
const KEYS: usize = 32 << 10;
const KEYS_OF_ONE: usize = 256;

/// The keys of a volume that are left.
struct Stream {
    volume: u32,
    from: Key,
    to: Key,
    found: Peekable<IntoIter<Found>>,
}

/// The keys that are left, of all volumes.
pub(super) struct Merge {
    streams: Vec<Stream>,
    /// The next thing of each stream.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// Keys that are read at once.
    keys: usize,
}

/// A thing, as a key says it behind the volume, and its versions.
pub(super) struct Thing {
    pub(super) thing: Vec<u8>,
    pub(super) raws: Vec<Raw>,
}

impl Merge {
    pub(super) fn new(walk: &mut Walk<'_>) -> Result<Self, Stopped> {
        let volumes: Vec<u32> = walk.views.with_keys().collect();
        let keys = KEYS / volumes.len().max(1);
        let mut merge = Self {
            streams: Vec::new(),
            heads: BinaryHeap::new(),
            keys: keys.clamp(2, KEYS_OF_ONE),
        };
        for volume in volumes {
            let (from, to) = key::volume(volume);
            let found = Vec::new().into_iter().peekable();
            merge.streams.push(Stream {
                volume,
                from,
                to,
                found,
            });
            merge.push_head(walk, (merge.streams.len() - 1, &[]))?;
        }
        Ok(merge)
    }

    /// The next thing; `None`: that was all.
    pub(super) fn next(&mut self, walk: &mut Walk<'_>) -> Result<Option<Thing>, Stopped> {
        let Some(Reverse((thing, first))) = self.heads.pop() else {
            return Ok(None);
        };
        let mut raws = Vec::new();
        self.take(walk, (&thing, first), &mut raws)?;
        while let Some(Reverse((other, _))) = self.heads.peek()
            && *other == thing
            && let Some(Reverse((_, at))) = self.heads.pop()
        {
            self.take(walk, (&thing, at), &mut raws)?;
        }
        Ok(Some(Thing { thing, raws }))
    }

    /// Takes the versions of a thing from a stream.
    fn take(
        &mut self,
        walk: &mut Walk<'_>,
        (thing, at): (&[u8], usize),
        raws: &mut Vec<Raw>,
    ) -> Result<(), Stopped> {
        loop {
            let stream = &mut self.streams[at];
            let of_thing = |(key, _): &Found| key::thing(key) == thing;
            while let Some((key, value)) = stream.found.next_if(of_thing) {
                raws.push(Raw {
                    volume: stream.volume,
                    birth: key::birth(&key),
                    version: value.and_then(|value| Version::of(&key, value)),
                });
            }
            // A thing may have more versions than were read at once.
            if !self.push_head(walk, (at, thing))? {
                return Ok(());
            }
        }
    }

    /// Notes the next thing of a stream, which is read on where that is needed. Is it still this
    /// one? Then it is not noted.
    fn push_head(
        &mut self,
        walk: &mut Walk<'_>,
        (at, thing): (usize, &[u8]),
    ) -> Result<bool, Stopped> {
        let keys = self.keys;
        let stream = &mut self.streams[at];
        loop {
            if let Some((key, _)) = stream.found.peek() {
                if key::parts(key).is_some() {
                    let next = key::thing(key);
                    if next == thing {
                        return Ok(true);
                    }
                    self.heads.push(Reverse((next.to_vec(), at)));
                    return Ok(false);
                }
                if walk.unmatched.is_empty() {
                    // The first way through all keys.
                    walk.damage(Damage::Entry {
                        entry: format!("{key:02x?}"),
                        what: "it is not a key".to_owned(),
                    });
                }
                stream.found.next();
                continue;
            }
            let part = match walk.index().raw_scan(&stream.from, &stream.to, keys) {
                Ok(part) => part,
                Err(error) => {
                    walk.unread(&error);
                    walk.views.darken(stream.volume);
                    return Ok(false);
                }
            };
            let Some((last, _)) = part.last() else {
                return Ok(false);
            };
            stream.from = key::after(last);
            walk.went_on(bytes_of(&part))?;
            stream.found = part.into_iter().peekable();
        }
    }
}
