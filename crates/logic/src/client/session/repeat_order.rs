//! The order in which requests are repeated to a server that may have taken files from this client.
//!
//! A client that comes back does not know yet which of its files others have had. A request that is
//! repeated may bring it such a file again; a write-back of bytes from before would then be
//! accepted, over what others have written meanwhile. So an open, a claim or a write of a file with
//! changed bytes is repeated when the server has said what it took, and the write-backs of the file
//! come first: if it was taken, the server refuses them, but for those that it had done before.
//!
//! Guarantee: as long as a write-back from before is not answered, no repeated request brings its
//! file.

use super::asked::{Sent, Why};
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::{Fid, Op, RequestId};

/// The file that the request may bring, or whose bytes it writes.
fn file_of(sent: &Sent) -> Option<Fid> {
    match &sent.request.op {
        Op::Open { fid, .. }
        | Op::Claim { fid }
        | Op::Write { fid, .. }
        | Op::Allocate { fid, .. }
        | Op::Copy { to: fid, .. } => Some(*fid),
        _ => None,
    }
}

fn writes_back(sent: &Sent) -> bool {
    matches!(sent.why, Why::Back { .. })
}

impl Client {
    /// On a new connection: these are repeated, now or later.
    pub(crate) fn repeat_in_order(&mut self, step: &mut Step<'_>, ids: Vec<RequestId>) {
        self.reassertion.held_back.clear();
        self.reassertion.repeated = ids.last().copied().unwrap_or(0);
        for id in ids {
            if self.refuses_as_too_new(step, id) {
                continue;
            }
            if self.is_held_back(id) {
                self.reassertion.held_back.insert(id);
            } else {
                self.send_request(step, id);
            }
        }
    }

    /// The server has said what it took, or has answered something: repeats what need not wait any
    /// more.
    pub(crate) fn repeat_held_back(&mut self, step: &mut Step<'_>) {
        let held_back = &self.reassertion.held_back;
        let ready = held_back.iter().filter(|id| !self.is_held_back(**id));
        let ready: Vec<RequestId> = ready.copied().collect();
        for id in ready {
            self.reassertion.held_back.remove(&id);
            self.send_request(step, id);
        }
    }

    fn is_held_back(&self, id: RequestId) -> bool {
        let Some((sent, fid)) = self
            .asked
            .requests
            .get(&id)
            .and_then(|sent| Some((sent, file_of(sent)?)))
        else {
            return false;
        };
        if !self.reassertion.parts.is_empty() {
            return self.reassertion.bases.contains_key(&fid);
        }
        let mut before = self.asked.requests.range(..=self.reassertion.repeated);
        let first = |sent: &Sent| writes_back(sent) && file_of(sent) == Some(fid);
        !writes_back(sent) && before.any(|(_, sent)| first(sent))
    }
}
