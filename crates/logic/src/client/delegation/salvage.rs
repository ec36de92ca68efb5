//! Delegated changes that met what others had done, since the token of the directory was taken from
//! this client while it was silent: what it says for that, and what it makes of the answer.

use super::changes::LoggedObjects;
use crate::client::api::Output;
use crate::client::notices::Event;
use crate::client::{Client, Step};
use wire::{Fid, Outcome, Reply, Request, Right};

impl Client {
    /// The objects whose names a change takes away, with their versions.
    pub(super) fn taken_away(&self, outcome: &Outcome) -> [Option<(Fid, u64)>; 2] {
        let known = |fid: Fid| (fid, self.nodes.get(&fid).map_or(0, |node| node.version));
        match outcome {
            Outcome::Removed { fid, .. } => [Some(known(*fid)), None],
            Outcome::Renamed { fid, victim, .. } => {
                let victim = victim.as_ref().map(|(victim, _)| known(*victim));
                [Some(known(*fid)), victim]
            }
            _ => [None; 2],
        }
    }

    /// The server has met what others did, in a directory whose token was taken: it has done a
    /// change under another name, or could not do it.
    pub(super) fn note_salvaged(
        &mut self,
        step: &mut Step<'_>,
        about: &LoggedObjects,
        (request, reply): (&Request, &Reply),
    ) {
        let aside = match &reply.outcome {
            Outcome::Entry(entry) => Some(entry.fid),
            Outcome::Renamed { fid, .. } => Some(*fid),
            _ => None,
        };
        if let Some(fid) = aside.filter(|_| reply.aside.is_some()) {
            let (made, bytes) = (fid, 0);
            self.counts.conflicts += 1;
            step.out
                .push(Output::Event(Event::Conflict { fid, made, bytes }));
        }
        if !matches!(reply.outcome, Outcome::Refused(_)) {
            return;
        }
        step.out
            .push(Output::Event(Event::ChangesLost { count: 1 }));
        let made = request
            .delegated
            .map_or(0, |delegated| delegated.chosen.vnode);
        for &fid in &about.fids {
            if fid.vnode == made {
                self.forget_unmade(step, fid);
                continue;
            }
            // It was taken for something else than it is.
            if self
                .nodes
                .get(&fid)
                .is_some_and(|node| node.token.right > Right::None)
            {
                self.release(step, fid, Right::None);
                self.node(fid).token.right = Right::Exclusive;
                self.lose_stores(step, |of| of == fid);
                self.lose_token(step, fid);
            }
            self.node(fid).unlinked = false;
        }
    }
}
