//! Changes that are put back: the caller that holds a lock which an earlier request needs begins
//! again.
//!
//! Two machines may change names of one directory at the same moment. Each change waits until the
//! other machine has dropped a name, and that kernel cannot while it holds the directory's lock for
//! its own change. So the later one is refused, with nothing done: its caller lets go of the lock,
//! and begins again. Of all requests the earliest is never put back, so one is always done.

use crate::server::mutant::Mutant;
use crate::server::table::{File, Waiting};
use crate::server::{Server, Step};
use wire::{Refusal, RequestId, SessionId};

/// Most requests of a client that are not here yet and to be put back: as many threads of it may
/// change names at once.
const EARLY_MAX: usize = 64;

impl Server {
    /// A client cannot answer a recall while this request of its own is not answered. A request
    /// that is done is left as it is; one that is not here yet, as this has overtaken it, is put
    /// back when it comes: its client waits for that in vain otherwise.
    pub(crate) fn on_put_back(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        request: RequestId,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        if !state.running.contains(&request) {
            if request >= state.acked && !state.answers.contains_key(&request) {
                state.put_back.insert(request);
            }
            if state.put_back.len() > EARLY_MAX {
                state.put_back.pop_first();
            }
            return;
        }
        let own = |other: &Waiting| (other.session, other.request.id) == (session, request);
        let Some((&seq, waiting)) = self.waiting.iter().find(|(_, other)| own(other)) else {
            return;
        };
        if !waiting.request.op.may_be_put_back() || !self.is_waited_for(waiting) {
            return;
        }
        let waiting = self.take_waiting(seq);
        if self.options.mutant == Some(Mutant::DoesWhatIsPutBack) {
            let by = crate::server::By {
                caller: &waiting.request.caller,
                origin: None,
                delegated: None,
                again: false,
                promised: None,
            };
            step.disk.apply(step.now, &waiting.request.op, by, 0);
        }
        self.refuse(step, &waiting, Refusal::Again);
        self.recheck_all(step, &waiting);
    }

    /// Does an earlier request wait for this one's machine, where this one is about something?
    fn is_waited_for(&self, waiting: &Waiting) -> bool {
        waiting.fids.iter().any(|fid| {
            let file = self.files.get(fid);
            let seqs = file.into_iter().flat_map(File::waiting);
            let earlier = seqs.take_while(|seq| *seq < waiting.seq);
            let mut earlier = earlier.filter_map(|seq| self.waiting.get(&seq));
            earlier.any(|other| other.asked.contains_key(&(waiting.session, *fid)))
        })
    }
}
