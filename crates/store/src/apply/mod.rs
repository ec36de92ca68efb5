//! The meaning of each operation: a function of the operation, its caller, its time and the index,
//! to an outcome and changes. Nothing here does input or output but to read the index.
//!
//! The rules are those of a local file system of Linux, in the order in which its kernel checks
//! them. Replay of the log after a crash runs the same functions.

mod attrs;
mod bytes;
mod entries;
mod links;
mod list;
mod mounts;
mod ranges;
mod receive;
mod rename;
mod restore;
mod share;
mod undo;
mod volumes;
mod xattrs;

pub(crate) use bytes::{extents_of, move_extents};

use crate::txn::Txn;
use wire::{Bounded, Op, Outcome, Refusal};

type Applied = Result<Outcome, Refusal>;

/// Applies an operation.
pub(crate) fn apply(txn: &mut Txn<'_>, op: &Op) -> Applied {
    if !op.within_bounds() {
        return Err(out_of_bounds(op));
    }
    match op {
        Op::Lookup { dir, name } => entries::lookup(txn, *dir, name),
        // The server alone knows which client holds it.
        Op::GetAttr { fid } | Op::Claim { fid } => txn.object(*fid).map(|o| Outcome::Attr(o.attr)),
        Op::SetAttr { fid, set } => attrs::set(txn, *fid, set),
        Op::ReadLink { fid } => attrs::read_link(txn, *fid),
        Op::Make { .. } => entries::make(txn, op),
        Op::MakeNameless { dir, mode, .. } => entries::make_nameless(txn, *dir, *mode),
        Op::Link { fid, dir, name } => entries::link(txn, *fid, *dir, name),
        Op::Unlink { dir, name } => entries::unlink(txn, *dir, name),
        Op::Rmdir { dir, name } => entries::rmdir(txn, *dir, name),
        Op::Unmount { dir, name } => mounts::unmount(txn, *dir, name),
        Op::Rename { .. } => rename::rename(txn, op),
        Op::Open { fid, access } => attrs::open(txn, *fid, *access),
        Op::Write {
            fid, offset, mode, ..
        } => bytes::write(txn, *fid, *offset, *mode),
        Op::Copy { .. } => share::copy(txn, op),
        Op::Allocate { .. } => ranges::allocate(txn, op),
        Op::Find { fid, offset, hole } => ranges::find(txn, *fid, *offset, *hole),
        Op::ReadDir { dir, after, max } => list::read_dir(txn, *dir, *after, *max),
        Op::GetXattr { fid, name } => xattrs::get(txn, *fid, name),
        Op::SetXattr { .. } => xattrs::set(txn, op),
        Op::ListXattr { fid } => xattrs::list_names(txn, *fid),
        Op::RemoveXattr { fid, name } => xattrs::remove(txn, *fid, name),
        Op::Reserve { count } => entries::reserve(txn, *count),
        Op::Reap { fid } => bytes::reap(txn, *fid),
        Op::Volume(op) => volumes::apply(txn, op),
        Op::Volumes => Ok(volumes::list(txn)),
        Op::Restore { .. } => restore::restore(txn, op),
        // The server asks for it as a `ReadDir`.
        Op::Prefetch { .. } => Err(Refusal::Invalid),
        // Not functions of the index: the store does them.
        Op::Read { .. }
        | Op::Sync { .. }
        | Op::StatFs
        | Op::StatVolume { .. }
        | Op::Dump { .. } => Err(Refusal::Invalid),
        // Not even of the store: the server alone knows the locks, and the room of clients.
        Op::Lock { .. }
        | Op::Unlock { .. }
        | Op::TestLock { .. }
        | Op::StopWaiting { .. }
        | Op::GiveLocks { .. }
        | Op::Room { .. } => Err(Refusal::Invalid),
    }
}

fn out_of_bounds(op: &Op) -> Refusal {
    match op {
        Op::Write { .. }
        | Op::Read { .. }
        | Op::SetAttr { .. }
        | Op::Allocate { .. }
        | Op::Copy { .. } => Refusal::TooLarge,
        Op::Make { .. } => Refusal::NameTooLong,
        Op::SetXattr { .. } | Op::GetXattr { .. } | Op::RemoveXattr { .. } => Refusal::OutOfRange,
        _ => Refusal::Invalid,
    }
}
