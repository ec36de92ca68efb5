//! The contents of a snapshot, or the changes between two of one volume, in parts.
//!
//! It goes through the things of the snapshot in the order of their keys, or through those that
//! were born between the two: so it costs what changed, however large the volume is. Nothing is
//! kept between parts: where the next one begins is said with each, and each looks at so much and
//! no more. Of files only those bytes are sent that lie in another place than before.

use crate::error::StoreError;
use crate::key;
use crate::log::Log;
use crate::reading;
use crate::state::Core;
use crate::txn::trouble;
use crate::value::{self, Extent, Object, Placed};
use content::{Content, Run, compared};
use serde::{Deserialize, Serialize};
use wire::limits::STREAM_PIECES;
use wire::{Blob, Child, Fid, Kind, Refusal, StreamChunk, StreamPiece};

mod ask;
mod content;

/// Things that are asked of the index at a time.
const AT_ONCE: usize = 512;
/// For so many bytes of files a part may look at one thing.
const BYTES_PER_STEP: usize = 256;
/// Bytes that a piece takes besides names and values, about.
const PIECE_BYTES: usize = 48;
/// Things of objects begin with this one.
const FIRST_THING: [u8; 8] = 1u64.to_be_bytes();

/// Where a part begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cursor {
    thing: Vec<u8>,
    /// Of the bytes of a file: those before it have been sent.
    offset: u64,
    /// All of the object is sent, whatever was born when.
    whole: bool,
}

/// Since which snapshot.
#[derive(Clone, Copy, Debug)]
struct Between {
    old: u32,
    /// The volume of both, and the births of what one has and the other has not.
    of: u32,
    births: (u32, u32),
}

/// The object whose things are being looked at.
#[derive(Debug)]
struct Current {
    vnode: u64,
    before: Option<Object>,
    now: Option<Object>,
    /// Parts of the file that have been sent for an extent before.
    sent: Vec<(u64, u64)>,
}

/// A thing, and what it is now, if that is known already.
type Thing = (Vec<u8>, Option<Vec<u8>>);

struct Dumper<'a> {
    core: &'a Core,
    log: &'a Log,
    new: u32,
    /// `None`: all of the snapshot is sent.
    between: Option<Between>,
    plan: bool,
    /// Bytes of files that a part may have.
    most: usize,
    whole: bool,
    current: Option<Current>,
    chunk: StreamChunk,
    /// Bytes of files, and of pieces, in it.
    bytes: usize,
    weight: usize,
    steps: usize,
}

impl Dumper<'_> {
    /// Is it enough for one part?
    fn is_full(&self) -> bool {
        self.bytes >= self.most
            || self.weight >= self.most / 2
            || self.chunk.pieces.len() + 4 >= STREAM_PIECES
            || self.steps >= self.most.div_ceil(BYTES_PER_STEP)
    }

    fn push(&mut self, piece: StreamPiece, more: usize) {
        self.weight += PIECE_BYTES + more;
        self.chunk.pieces.push(piece);
    }

    /// Goes on until a part is full. Returns where the next one begins.
    fn part(&mut self, cursor: Cursor) -> Result<Option<Cursor>, Refusal> {
        let Cursor {
            mut thing,
            mut offset,
            whole: mut resumed,
        } = cursor;
        'things: loop {
            let things = self.things(&thing).map_err(trouble)?;
            if things.is_empty() {
                let Some(vnode) = self
                    .current
                    .as_ref()
                    .map(|of| of.vnode)
                    .filter(|_| self.whole)
                else {
                    self.leave();
                    return Ok(None);
                };
                // All of one object was sent: what was born after it follows.
                self.leave();
                self.whole = false;
                thing = (vnode + 1).to_be_bytes().to_vec();
                continue;
            }
            for (at, value) in things {
                let vnode = vnode_of(&at).ok_or(Refusal::Damaged)?;
                if self.current.as_ref().is_none_or(|of| of.vnode != vnode) {
                    self.leave();
                    if self.is_full() {
                        return Ok(Some(self.cursor(at, 0)));
                    }
                    let whole = self.enter(vnode)?;
                    if whole && !std::mem::take(&mut resumed) {
                        self.whole = true;
                        thing = vnode.to_be_bytes().to_vec();
                        continue 'things;
                    }
                }
                if self.is_full() {
                    return Ok(Some(self.cursor(at, offset)));
                }
                self.steps += 1;
                let gone = self.current.as_ref().is_none_or(Current::is_nothing);
                if gone {
                    thing = (vnode + 1).to_be_bytes().to_vec();
                    continue 'things;
                }
                if let Some(sent) = self.thing((&at, value), offset)? {
                    return Ok(Some(self.cursor(at, sent)));
                }
                offset = 0;
                thing = key::behind(&at);
            }
        }
    }

    fn cursor(&self, thing: Vec<u8>, offset: u64) -> Cursor {
        Cursor {
            thing,
            offset,
            whole: self.whole,
        }
    }

    /// The next things from this one on.
    fn things(&self, from: &[u8]) -> Result<Vec<Thing>, StoreError> {
        let index = &self.core.index;
        let end = match (self.between, self.whole) {
            (Some(between), false) => {
                let born = index.born(between.of, between.births, from, AT_ONCE)?;
                return Ok(born.into_iter().map(|thing| (thing, None)).collect());
            }
            (_, true) => {
                let vnode = vnode_of(from).unwrap_or(0);
                key::bound_in(self.new, &(vnode + 1).to_be_bytes())
            }
            (None, false) => key::bound_in(self.new.saturating_add(1), &[]),
        };
        let found = index.scan(&key::bound_in(self.new, from), &end, AT_ONCE)?;
        let things = found.into_iter();
        Ok(things
            .map(|(key, value)| (key::thing(&key).to_vec(), Some(value)))
            .collect())
    }

    fn fid(volume: u32, vnode: u64) -> Fid {
        Fid {
            vnode,
            ..Fid::root(volume)
        }
    }

    /// Comes to another object. True: all of it is new to the receiver, and not all of it was born.
    fn enter(&mut self, vnode: u64) -> Result<bool, Refusal> {
        let index = &self.core.index;
        let object = |volume| index.object(Self::fid(volume, vnode)).map_err(trouble);
        let named = |object: &Object| object.attr.nlink > 0;
        let now = object(self.new)?.filter(named);
        let old = match self.between {
            Some(between) => object(between.old)?,
            None => None,
        };
        let nameless = old.as_ref().is_some_and(|old| !named(old));
        let whole = nameless && now.is_some();
        self.current = Some(Current {
            vnode,
            before: old.filter(named),
            now,
            sent: Vec::new(),
        });
        Ok(whole)
    }

    /// Leaves an object behind.
    fn leave(&mut self) {
        if let Some(current) = self.current.take()
            && current.before.is_some()
            && current.now.is_none()
        {
            let vnode = current.vnode;
            self.push(StreamPiece::Gone { vnode }, 0);
        }
    }

    /// The value of a thing in one of the two snapshots.
    fn value(&self, volume: u32, thing: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        self.core
            .index
            .get(&key::plain(volume, thing))
            .map_err(trouble)
    }

    /// Sends a thing. Returns from where on bytes of it have not been sent.
    fn thing(
        &mut self,
        (thing, value): (&[u8], Option<Vec<u8>>),
        offset: u64,
    ) -> Result<Option<u64>, Refusal> {
        let plain = key::plain(self.new, thing);
        let parts = key::parts(&plain).ok_or(Refusal::Damaged)?;
        let (kind, vnode) = (parts.kind, parts.vnode);
        if kind == key::OBJECT {
            self.object(vnode);
            return Ok(None);
        }
        if !matches!(
            kind,
            key::POSITION | key::XATTR | key::TARGET | key::EXTENT | key::INLINE
        ) {
            return Ok(None);
        }
        let now = match value {
            Some(value) => Some(value),
            None => self.value(self.new, thing)?,
        };
        let before = match self.between {
            Some(between) if !self.whole => self.value(between.old, thing)?,
            _ => None,
        };
        match kind {
            key::EXTENT | key::INLINE => {
                let span = span(kind, parts.number(), [&now, &before])?;
                return self.bytes(kind == key::INLINE, span, offset);
            }
            _ if now == before => {}
            key::POSITION => self.place((vnode, parts.number()), now.as_deref())?,
            key::XATTR => {
                let name = parts.detail.to_vec();
                let more = name.len() + now.as_ref().map_or(0, Vec::len);
                let value = now.map(Blob);
                self.push(StreamPiece::Xattr { vnode, name, value }, more);
            }
            _ => {
                if let Some(target) = now {
                    let more = target.len();
                    let target = Blob(target);
                    self.push(StreamPiece::Target { vnode, target }, more);
                }
            }
        }
        Ok(None)
    }

    fn object(&mut self, vnode: u64) {
        let now = self.current.as_ref().and_then(|of| of.now.clone());
        if let Some(now) = now {
            let behind = (now.attr.kind == Kind::Mount)
                .then(|| self.core.index.volumes.name_behind(&now.attr));
            let piece = StreamPiece::Object {
                vnode,
                uniq: now.uniq,
                attr: now.attr,
                parent: now.parent,
                home: now.home,
                next_position: now.next_position,
                inline: now.inline,
            };
            self.push(piece, 64);
            if let Some(target) = behind.map(Blob) {
                self.push(
                    StreamPiece::Target { vnode, target },
                    wire::limits::NAME_BYTES,
                );
            }
        }
    }

    fn place(
        &mut self,
        (dir, position): (u64, Option<u64>),
        now: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let position = position.ok_or(Refusal::Damaged)?;
        let child = match now {
            None => None,
            Some(bytes) => {
                let placed: Placed = value::decode(bytes).ok_or(Refusal::Damaged)?;
                Some(Child {
                    vnode: placed.fid.vnode,
                    uniq: placed.fid.uniq,
                    kind: placed.kind,
                    name: placed.name,
                })
            }
        };
        let more = child
            .as_ref()
            .map_or(0, |child| child.name.as_bytes().len());
        let piece = StreamPiece::Place {
            dir,
            position,
            child,
        };
        self.push(piece, more);
        Ok(())
    }

    /// Sends what is other than before in a part of a file, from an offset on. Returns from where
    /// on it has not been sent.
    fn bytes(
        &mut self,
        inline: bool,
        (from, to): (u64, u64),
        offset: u64,
    ) -> Result<Option<u64>, Refusal> {
        let Some(current) = &self.current else {
            return Ok(None);
        };
        let (vnode, from) = (current.vnode, from.max(offset));
        let Some(now) = current.now.as_ref().filter(|_| from < to) else {
            return Ok(None);
        };
        let index = &self.core.index;
        let new = Content::of(index, (Self::fid(self.new, vnode), now), (from, to))?;
        let old = match (self.between, &current.before) {
            (Some(between), Some(before)) => {
                Content::of(index, (Self::fid(between.old, vnode), before), (from, to))?
            }
            _ => Content::default(),
        };
        let runs = compared(&new, &old, (from, to), (inline, &current.sent));
        for (from, to, kind) in runs {
            if kind == Run::Hole {
                self.push(StreamPiece::Hole { vnode, from, to }, 0);
                self.note_sent(inline, (from, to));
                continue;
            }
            let mut at = from;
            while at < to {
                let room = self.most.saturating_sub(self.bytes) as u64;
                if room == 0 || self.is_full() {
                    return Ok(Some(at));
                }
                let len = room.min(to - at) as u32;
                self.read(vnode, (at, len), kind == Run::Inline)?;
                self.note_sent(inline, (at, at + u64::from(len)));
                at += u64::from(len);
            }
        }
        Ok(None)
    }

    fn note_sent(&mut self, inline: bool, span: (u64, u64)) {
        if let Some(current) = self.current.as_mut().filter(|_| !inline) {
            current.sent.push(span);
        }
    }

    fn read(&mut self, vnode: u64, (offset, len): (u64, u32), inline: bool) -> Result<(), Refusal> {
        if !self.plan {
            let mut bytes = Vec::new();
            let fid = self.core.index.object(Self::fid(self.new, vnode));
            let uniq = fid.map_err(trouble)?.map_or(1, |object| object.uniq);
            let fid = Fid {
                uniq,
                ..Self::fid(self.new, vnode)
            };
            reading::read((self.core, self.log), fid, (offset, len), &mut bytes)?;
            if bytes.len() != len as usize {
                return Err(Refusal::Damaged);
            }
            self.chunk.bytes.0.append(&mut bytes);
        }
        self.bytes += len as usize;
        let piece = StreamPiece::Bytes {
            vnode,
            offset,
            len,
            inline,
        };
        self.push(piece, 0);
        Ok(())
    }
}

impl Current {
    /// Neither side has it.
    fn is_nothing(&self) -> bool {
        self.before.is_none() && self.now.is_none()
    }
}

fn vnode_of(thing: &[u8]) -> Option<u64> {
    thing
        .first_chunk::<8>()
        .map(|bytes| u64::from_be_bytes(*bytes))
}

/// The part of a file that an extent, or what lies in the index, is about now or was before.
fn span(
    kind: u8,
    end: Option<u64>,
    versions: [&Option<Vec<u8>>; 2],
) -> Result<(u64, u64), Refusal> {
    let there = versions.into_iter().flatten();
    if kind == key::INLINE {
        return Ok((0, there.map(|bytes| bytes.len() as u64).max().unwrap_or(0)));
    }
    let end = end.ok_or(Refusal::Damaged)?;
    let mut from = end;
    for bytes in there {
        let extent = Extent::decode(bytes).ok_or(Refusal::Damaged)?;
        from = from.min(end.saturating_sub(u64::from(extent.len)));
    }
    Ok((from, end))
}
