//! Errors of delayed writes, as Linux tells them (its `errseq_t`): each descriptor that was open
//! when the error happened is told by its next fsync, once. If no descriptor has been told yet, the
//! next one that is opened is told, too. A descriptor that is opened after somebody was told has
//! nothing to do with it.

use crate::Ticket;
use crate::client::mutant::Mutant;
use crate::client::{Call, Client, Done, Step};
use alloc::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Refusal};

/// Files of which no descriptor is open any more, and nobody was told. Beyond so many the smallest
/// identity is forgotten: the log has each loss, too.
const UNTOLD_MAX: usize = 65_536;

/// The last error of a file. Descriptors that it does not name were open when it happened.
#[derive(Clone, Debug)]
struct WriteError {
    refusal: Refusal,
    /// Some descriptor has been told.
    seen: bool,
    /// These need not be told: they have been, or were opened later.
    settled: BTreeSet<u64>,
}

/// The files with an error that some descriptor has yet to be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteErrors {
    of: BTreeMap<Fid, WriteError>,
}

impl WriteErrors {
    /// A delayed write has failed.
    pub(crate) fn add(&mut self, fid: Fid, refusal: Refusal) {
        if self.of.len() >= UNTOLD_MAX && !self.of.contains_key(&fid) {
            self.of.pop_first();
        }
        let error = WriteError {
            refusal,
            seen: false,
            settled: BTreeSet::new(),
        };
        self.of.insert(fid, error);
    }

    /// A descriptor was opened.
    fn opened(&mut self, fid: Fid, handle: u64) {
        if let Some(error) = self.of.get_mut(&fid)
            && error.seen
        {
            error.settled.insert(handle);
        }
    }

    /// A descriptor was closed: perhaps the last one.
    fn closed(&mut self, fid: Fid, handle: u64, last: bool) {
        if let Some(error) = self.of.get_mut(&fid) {
            error.settled.remove(&handle);
            if last && error.seen {
                self.of.remove(&fid);
            }
        }
    }

    /// The error that this descriptor has to be told now; it will not be told again.
    ///
    /// `None`: a caller without a descriptor of its own, as if it had just opened one.
    fn tell(&mut self, fid: Fid, handle: Option<u64>) -> Option<Refusal> {
        let error = self.of.get_mut(&fid)?;
        let owed = match handle {
            Some(handle) => error.settled.insert(handle),
            None => !error.seen,
        };
        error.seen = true;
        owed.then_some(error.refusal)
    }
}

impl Client {
    /// A delayed write of a file has failed: the fsyncs that are under way are told at once.
    pub(crate) fn fail_writes(&mut self, step: &mut Step<'_>, fid: Fid, refusal: Refusal) {
        self.write_errors.add(fid, refusal);
        let syncing = self
            .nodes
            .get_mut(&fid)
            .map(|node| core::mem::take(&mut node.writeback.syncing));
        for (ticket, _) in syncing.unwrap_or_default() {
            self.settle_sync(fid, ticket);
            self.finish(step, ticket, Done::Refused(refusal));
        }
    }

    /// The error that a descriptor's fsync has to be told.
    pub(crate) fn write_error(&mut self, fid: Fid, handle: Option<u64>) -> Option<Refusal> {
        let told = self.write_errors.tell(fid, handle);
        if told.is_some() && self.options.mutant == Some(Mutant::TellsOneDescriptor) {
            self.write_errors.of.remove(&fid);
        }
        told
    }

    /// A file has been opened by a call.
    pub(crate) fn note_opened(&mut self, fid: Fid, ticket: Ticket) {
        if let Some(Call::Open { handle, .. }) = self.callers.calls.get(&ticket).map(|r| &r.call) {
            self.write_errors.opened(fid, *handle);
        }
    }

    /// A descriptor of a file has been closed.
    pub(crate) fn note_closed(&mut self, fid: Fid, handle: u64) {
        let last = self.nodes.get(&fid).is_none_or(|node| !node.hold(0).open);
        self.write_errors.closed(fid, handle, last);
    }

    /// This fsync is told by its own refusal.
    fn settle_sync(&mut self, fid: Fid, ticket: Ticket) {
        if let Some(running) = self.callers.calls.get(&ticket)
            && !running.abandoned
            && let Call::Sync { handle, .. } = running.call
        {
            self.write_errors.tell(fid, handle);
        }
    }
}
