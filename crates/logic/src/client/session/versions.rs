//! Servers of an older version of the protocol: no request leaves that they could not read.

use crate::Ticket;
use crate::client::api::Done;
use crate::client::{Client, Step};
use wire::{Lenders, Op, Outcome, Refusal, RequestId, VERSION_OF_PASSING};

/// Which lenders a request names to a server of this version: an older program may have taken the
/// server's place since the request was made.
pub(crate) fn lenders_in(version: u32, lenders: Lenders) -> Lenders {
    match lenders {
        Lenders::Passing if version < VERSION_OF_PASSING => Lenders::None,
        other => other,
    }
}

impl Client {
    /// Is the operation refused to its caller, as the server's program does not know it?
    pub(crate) fn refuses_call_as_too_new(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        op: &Op,
    ) -> bool {
        let too_new = op.since() > self.session.version;
        if too_new {
            self.finish(step, ticket, Done::Refused(Refusal::OlderServer));
        }
        too_new
    }

    /// The same of a request that was sent before an older program took the server's place.
    pub(crate) fn refuses_as_too_new(&mut self, step: &mut Step<'_>, id: RequestId) -> bool {
        let sent = self.asked.requests.get(&id);
        let too_new = sent.is_some_and(|sent| sent.request.op.since() > self.session.version);
        if too_new {
            let refused = Outcome::Refused(Refusal::OlderServer);
            self.on_reply(step, id, refused.into(), 0);
        }
        too_new
    }
}
