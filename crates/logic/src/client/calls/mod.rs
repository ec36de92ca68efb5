//! Calls of the front: how one starts, waits, is abandoned and is answered.

pub(super) mod abandoned;
pub(super) mod replies;
pub(super) mod reply_order;
pub(super) mod root_squash;
pub(super) mod start;
pub(super) mod unattended;

use super::api::Call;
use super::notices::Waits;
use crate::Ticket;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Attr, Caller, Fid, Time};

/// A call that is not answered.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) caller: Caller,
    pub(crate) thread: u32,
    pub(crate) call: Call,
    /// The dirty blocks of the file that it draws on have been sent to the server.
    pub(crate) brought: bool,
    /// Of a rename: something has come to have the new name since it was asked for.
    pub(crate) replaces: bool,
    /// Of a write: how many pages the kernel had been given when it was last told to drop those
    /// that are written, and how often it was.
    pub(crate) cleared: Option<(u64, u32)>,
    /// Its attributes are set, and were these then; how things are now is still asked for.
    pub(crate) set: Option<Box<Attr>>,
    /// Of a look-up that has come to a mount point: the root that it goes on to.
    pub(crate) crosses: Option<Fid>,
    /// Its caller may have begun it again already: it would not do so once more.
    pub(crate) repeated: bool,
    /// The waiter for its answer.
    pub(crate) waits: Waits,
    /// When it came.
    pub(crate) since: Time,
    /// The kernel has told of a signal for its caller.
    pub(crate) signalled: bool,
    /// It is answered, and its caller gone: its request is still under way.
    pub(crate) abandoned: bool,
    /// The objects that it has changed, if the caller did not wait for the answer.
    pub(crate) changed: Vec<Fid>,
}

/// The calls that are not answered, and those whose callers have gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers {
    pub(crate) calls: BTreeMap<Ticket, Running>,
    /// Calls that are answered since their callers wait no longer, and still under way.
    pub(crate) abandoned: BTreeMap<Ticket, Running>,
    pub(crate) unattended: unattended::UnattendedChanges,
    /// When callers that wait are looked at.
    pub(crate) next_look: Time,
    /// Calls that wait until the caches may be used again.
    pub(crate) parked: Vec<Ticket>,
    /// Calls that wait for a slot.
    pub(crate) starved: Vec<Ticket>,
}
