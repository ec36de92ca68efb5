//! Messages to bytes and back. Decoding never panics, reads no more than it is given, and refuses a
//! message that breaks a bound of [`crate::limits`]; bytes behind the message are refused as well.

use crate::delegated::{Chosen, Delegated};
use crate::lend::{Capability, Elsewhere, Handed, Last, Leaving, Lenders, ToLender, ToReader};
use crate::limits;
use crate::lock::{Lock, LockOwner};
use crate::message::{ToClient, ToServer};
use crate::op::{Make, Op};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::stream::{Dump, Provenance, StreamChunk, StreamPiece};
use crate::volume::{SCHEDULE_RULES, ScheduleRule, VOLUMES_MAX, VolumeInfo, VolumeOp};
use crate::watch::{Change, Deed};
use alloc::vec::Vec;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The newest version of the protocol that this crate speaks. Each version says what the one before
/// it says in the same bytes, and [`crate::Op::since`] tells what is new.
pub const VERSION: u32 = 25;

/// The oldest version that this crate speaks: so a cell is brought to a new version machine by
/// machine.
pub const VERSION_OLDEST: u32 = 20;

/// From this version on a client knows the releases of a replica in its listings.
pub const VERSION_OF_REPLICAS: u32 = 21;

/// From this version on clients keep blocks for each other.
pub const VERSION_OF_KEEPING: u32 = 22;

/// From this version on clients hear that a copy has become a last copy.
pub const VERSION_OF_LAST: u32 = 23;

/// From this version on clients pass bytes on to their kernels and keep no copy of them
/// ([`crate::Lenders::Passing`]), until the server says that their file is read again.
pub const VERSION_OF_PASSING: u32 = 24;

/// From this version on a welcome may renew nothing ([`crate::Welcome::lease_ns`]).
pub const VERSION_OF_STALLED: u32 = 25;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Not an encoding of a message.
    Malformed,
    /// A message, and bytes after it.
    Trailing,
    /// A message that breaks a bound.
    Bounds,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a message",
            Self::Trailing => "bytes follow the message",
            Self::Bounds => "a length or count breaks its bound",
        })
    }
}

impl core::error::Error for DecodeError {}

/// A message that can be checked against the bounds.
pub trait Bounded {
    /// Are all lengths and counts within their bounds?
    fn within_bounds(&self) -> bool;
}

/// Most messages are no longer than this, bytes.
const USUAL_BYTES: usize = 256;

/// Encodes a message.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    encode_about(message, USUAL_BYTES)
}

/// Encodes plain data that takes about so many bytes: one allocation instead of one each time that
/// it comes to twice as many.
pub fn encode_about<T: Serialize + ?Sized>(data: &T, about_bytes: usize) -> Vec<u8> {
    let bytes = Vec::with_capacity(about_bytes);
    postcard::to_extend(data, bytes).expect("plain data always encodes into memory")
}

/// Decodes a message and checks its bounds.
pub fn decode<M: DeserializeOwned + Bounded>(bytes: &[u8]) -> Result<M, DecodeError> {
    if bytes.len() > limits::BODY_BYTES {
        return Err(DecodeError::Bounds);
    }
    let (message, rest) =
        postcard::take_from_bytes::<M>(bytes).map_err(|_| DecodeError::Malformed)?;
    if !rest.is_empty() {
        return Err(DecodeError::Trailing);
    }
    if message.within_bounds() {
        Ok(message)
    } else {
        Err(DecodeError::Bounds)
    }
}

fn span(offset: u64, len: u32, most: u32) -> bool {
    let end = offset.checked_add(u64::from(len));
    len <= most && end.is_some_and(|end| end <= limits::FILE_BYTES)
}

impl Bounded for Op {
    fn within_bounds(&self) -> bool {
        match self {
            Self::Make {
                make: Make::Symlink(target),
                ..
            } => target.len() <= limits::TARGET_BYTES,
            Self::Read { offset, len, .. } | Self::Write { offset, len, .. } => {
                span(*offset, *len, limits::BULK_BYTES)
            }
            Self::Allocate { offset, len, .. } => offset
                .checked_add(*len)
                .is_some_and(|end| end <= limits::FILE_BYTES),
            Self::Copy {
                at, offset, len, ..
            } => span(*at, *len, limits::COPY_BYTES) && span(*offset, *len, limits::COPY_BYTES),
            Self::SetAttr { set, .. } => set.size.is_none_or(|size| size <= limits::FILE_BYTES),
            Self::ReadDir { max, .. } | Self::Prefetch { max, .. } => {
                *max as usize <= limits::DIR_ENTRIES
            }
            Self::SetXattr { name, value, .. } => {
                name.len() <= limits::NAME_BYTES && value.len() <= limits::XATTR_VALUE_BYTES
            }
            Self::GetXattr { name, .. } | Self::RemoveXattr { name, .. } => {
                name.len() <= limits::NAME_BYTES
            }
            Self::Lock { lock, .. } | Self::TestLock { lock, .. } => lock.within_bounds(),
            Self::Unlock {
                owner, first, last, ..
            } => bytes(*owner, *first, *last),
            Self::GiveLocks { held, .. } => {
                let all = held.as_deref().unwrap_or_default();
                all.len() <= limits::DELEGATED_LOCKS && all.iter().all(Bounded::within_bounds)
            }
            Self::Volume(VolumeOp::Schedule { rules, .. }) => schedule(rules),
            Self::Dump { after, .. } => after
                .as_ref()
                .is_none_or(|after| after.0.len() <= limits::STREAM_AFTER_BYTES),
            Self::Restore { after, chunk, .. } => {
                after.0.len() <= limits::STREAM_AFTER_BYTES && chunk.within_bounds()
            }
            Self::Reserve { count } => (1..=limits::NUMBERS).contains(count),
            _ => true,
        }
    }
}

/// Rules of a schedule: each with another period.
fn schedule(rules: &[ScheduleRule]) -> bool {
    let sound = |rule: &ScheduleRule| rule.every_s > 0 && rule.keep > 0;
    let alone = |at: usize| rules[..at].iter().all(|r| r.every_s != rules[at].every_s);
    rules.len() <= SCHEDULE_RULES && rules.iter().all(sound) && (0..rules.len()).all(alone)
}

/// Is this said of an operation of which it may be said?
fn delegated(request: &Request) -> bool {
    let makes = matches!(request.op, Op::Make { .. });
    let names = makes || matches!(request.op, Op::Rename { .. } | Op::Link { .. });
    let fits = |of: Delegated| {
        let Chosen { vnode, position } = of.chosen;
        let placed = position == 0 || (names && position < limits::POSITIONS);
        request.op.may_be_delegated() && (vnode != 0) == makes && placed
    };
    request.delegated.is_none_or(fits)
}

/// Locks of whole files have one range only.
fn bytes(owner: LockOwner, first: u64, last: u64) -> bool {
    first <= last && (!owner.is_whole() || (first, last) == (0, u64::MAX))
}

/// Is it asked for again only if it is a change, and for its own sake?
fn again(request: &Request) -> bool {
    let plain = request.delegated.is_none() && request.after == 0;
    request.again.is_none() || (plain && request.op.changes())
}

impl Bounded for Lock {
    fn within_bounds(&self) -> bool {
        bytes(self.owner, self.first, self.last)
    }
}

impl Bounded for Request {
    fn within_bounds(&self) -> bool {
        let groups = self.caller.groups.as_ref().map_or(0, Vec::len);
        self.id > self.after
            && groups <= limits::GROUPS
            && self.op.within_bounds()
            && delegated(self)
            && again(self)
            && (self.lenders == Lenders::None || matches!(self.op, Op::Read { .. }))
    }
}

impl Bounded for ToServer {
    fn within_bounds(&self) -> bool {
        match self {
            Self::Lends { addr, .. } => addr.len() <= limits::ADDRESS_BYTES,
            Self::Leaving { blocks, .. } => {
                let all: u64 = blocks.iter().map(|row| u64::from(row.count)).sum();
                let few = blocks.len() <= limits::LEAVING && all <= limits::LEAVING_BLOCKS;
                few && blocks.iter().all(Bounded::within_bounds)
            }
            // Half, so that numbers reckoned from it are within the bound, too.
            Self::Watch { next, .. } | Self::Took { next, .. } => *next <= limits::CHANGES / 2,
            Self::Hello {
                session,
                name,
                volume,
                ..
            } => {
                *session != 0
                    && name.len() <= limits::TARGET_BYTES
                    && volume.len() <= limits::NAME_BYTES
            }
            Self::Request(request) => request.within_bounds(),
            // A write has bytes of its own beside the message.
            Self::Requests(requests) => {
                let delegated = |request: &Request| request.delegated.is_some();
                requests.len() <= limits::REQUESTS
                    && requests.iter().all(|r| delegated(r) && r.within_bounds())
            }
            Self::Reassert { part, locks, .. } => {
                part.0 < part.1
                    && part.1 <= limits::PARTS
                    && locks.iter().all(|held| held.lock.within_bounds())
            }
            _ => true,
        }
    }
}

impl Bounded for Outcome {
    fn within_bounds(&self) -> bool {
        match self {
            Self::Dir { entries, .. } => {
                entries.len() <= limits::DIR_ENTRIES
                    && entries
                        .iter()
                        .all(|entry| entry.ahead <= limits::AHEAD_BYTES)
            }
            Self::Read { len, .. } => *len <= limits::BULK_BYTES,
            Self::Elsewhere(elsewhere) => elsewhere.within_bounds(),
            Self::Copied { len, .. } => *len <= limits::COPY_BYTES,
            Self::Target(target) => target.len() <= limits::TARGET_BYTES,
            Self::Value(value) => value.len() <= limits::XATTR_VALUE_BYTES,
            Self::Volumes(volumes) => {
                volumes.len() <= VOLUMES_MAX && volumes.iter().all(Bounded::within_bounds)
            }
            Self::Volume(info) => info.within_bounds(),
            Self::Dump(dump) => dump.within_bounds(),
            _ => true,
        }
    }
}

impl Bounded for VolumeInfo {
    fn within_bounds(&self) -> bool {
        schedule(&self.schedule) && self.provenance.within_bounds()
    }
}

impl Bounded for Provenance {
    fn within_bounds(&self) -> bool {
        let after = self.receiving.as_ref().map(|receiving| &receiving.after);
        after.is_none_or(|after| after.0.len() <= limits::STREAM_AFTER_BYTES)
    }
}

impl Bounded for Dump {
    fn within_bounds(&self) -> bool {
        let next = self.next.as_ref().map_or(0, |next| next.0.len());
        next <= limits::STREAM_AFTER_BYTES && self.chunk.within_bounds()
    }
}

impl Bounded for StreamChunk {
    fn within_bounds(&self) -> bool {
        self.bytes.0.len() <= limits::STREAM_BYTES
            && self.pieces.len() <= limits::STREAM_PIECES
            && self.pieces.iter().all(Bounded::within_bounds)
    }
}

impl Bounded for StreamPiece {
    fn within_bounds(&self) -> bool {
        const VNODES: u64 = limits::STREAM_VNODES;
        match self {
            Self::Object {
                vnode,
                attr,
                parent,
                ..
            } => {
                let fits = attr.mode < 1 << 12 && attr.size <= limits::FILE_BYTES;
                *vnode < VNODES && *parent < VNODES && fits
            }
            Self::Gone { vnode } => *vnode < VNODES,
            Self::Place {
                dir,
                position,
                child,
            } => {
                let fits = child.as_ref().is_none_or(|child| child.vnode < VNODES);
                *dir < VNODES && (1..1 << 40).contains(position) && fits
            }
            Self::Xattr { vnode, name, value } => {
                let bytes = value.as_ref().map_or(0, |value| value.0.len());
                let fits = name.len() <= limits::NAME_BYTES && bytes <= limits::XATTR_VALUE_BYTES;
                *vnode < VNODES && fits
            }
            Self::Target { vnode, target } => {
                *vnode < VNODES && target.0.len() <= limits::TARGET_BYTES
            }
            Self::Bytes {
                vnode, offset, len, ..
            } => *vnode < VNODES && span(*offset, *len, limits::BULK_BYTES),
            Self::Hole { vnode, from, to } => {
                *vnode < VNODES && from <= to && *to <= limits::FILE_BYTES
            }
        }
    }
}

/// May so many blocks of a file be lent at once, from this one on?
fn lent(first: u64, count: u32) -> bool {
    let most = limits::FILE_BYTES / u64::from(limits::BLOCK_BYTES);
    let end = first.checked_add(u64::from(count));
    count <= limits::LENT_BLOCKS && end.is_some_and(|end| end <= most)
}

impl Bounded for Capability {
    fn within_bounds(&self) -> bool {
        lent(self.first, self.count)
    }
}

impl Bounded for Leaving {
    fn within_bounds(&self) -> bool {
        lent(self.first, self.count)
    }
}

impl Bounded for Handed {
    fn within_bounds(&self) -> bool {
        self.from.within_bounds()
    }
}

impl Bounded for Elsewhere {
    fn within_bounds(&self) -> bool {
        self.len <= limits::BULK_BYTES
            && self.addr.len() <= limits::ADDRESS_BYTES
            && self.digests.len() == self.capability.count as usize
            && self.capability.within_bounds()
    }
}

impl Bounded for ToLender {
    fn within_bounds(&self) -> bool {
        let Self::Borrow { capability, .. } = self;
        capability.within_bounds()
    }
}

impl Bounded for ToReader {
    fn within_bounds(&self) -> bool {
        let Self::Lent { have, .. } = self else {
            return true;
        };
        let fits = |at: &u16| u32::from(*at) < limits::LENT_BLOCKS;
        have.is_sorted_by(|one, other| one < other) && have.last().is_none_or(fits)
    }
}

impl Bounded for Change {
    fn within_bounds(&self) -> bool {
        let fits = |path: &Option<Vec<u8>>| {
            let len = path.as_ref().map_or(0, Vec::len);
            len <= limits::PATH_BYTES
        };
        let other = match &self.deed {
            Deed::Moved { to } => fits(to),
            Deed::Exchanged { with } => fits(with),
            _ => true,
        };
        fits(&self.path) && other
    }
}

impl Bounded for ToClient {
    fn within_bounds(&self) -> bool {
        match self {
            Self::Reply { reply, .. } => reply.outcome.within_bounds(),
            Self::Waited { outcome, .. } => outcome.within_bounds(),
            Self::Welcome(welcome) => welcome.left.len() <= limits::RUNS,
            Self::Watched { first, changes, .. } => {
                *first <= limits::CHANGES && changes.iter().all(Change::within_bounds)
            }
            Self::Take(handed) => handed.within_bounds(),
            Self::Last(rows) => {
                let fits = |row: &Last| row.count <= limits::LENT_BLOCKS;
                rows.len() <= limits::LEAVING && rows.iter().all(fits)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Fid;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let message = ToServer::Opens {
            fid: Fid::root(3),
            hold: Default::default(),
        };
        assert_eq!(decode::<ToServer>(&encode(&message)), Ok(message));
    }

    #[test]
    fn what_follows_a_message_is_refused() {
        let mut bytes = encode(&ToServer::Goodbye);
        bytes.push(0);
        assert_eq!(decode::<ToServer>(&bytes), Err(DecodeError::Trailing));
    }
}
