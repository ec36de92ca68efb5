//! Questions of the server to clients, which the network may swallow, or their answers; and which
//! answers of the server keep their order.

use std::collections::{BTreeMap, BTreeSet};
use wire::{Epoch, Fid, Outcome, RequestId, Time, ToClient, ToServer};

/// A question of the server to a client, by the names that the answer repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    Recall(Fid, Epoch),
    Confirm(RequestId),
}

impl Question {
    pub(crate) fn asked(message: &ToClient) -> Option<Self> {
        match message {
            ToClient::Recall(recall) => Some(Self::Recall(recall.fid, recall.epoch)),
            ToClient::Confirm { request } => Some(Self::Confirm(*request)),
            _ => None,
        }
    }

    pub(crate) fn answered(message: &ToServer) -> Option<Self> {
        match message {
            ToServer::Returned(returned) => Some(Self::Recall(returned.fid, returned.epoch)),
            ToServer::Confirmed { request } => Some(Self::Confirm(*request)),
            _ => None,
        }
    }
}

/// Does this message answer a change? And does it show what changes before it may have made, as the
/// answer to a look does, and to a copy, which shows its source?
pub(crate) fn answers(message: &ToClient) -> (bool, bool) {
    let ToClient::Reply { reply, .. } = message else {
        return (false, false);
    };
    let changes = reply.logged.is_some();
    (
        changes,
        !changes || matches!(reply.outcome, Outcome::Copied { .. }),
    )
}

/// Questions to one client whose answers have not arrived.
#[derive(Default)]
pub(crate) struct OpenQuestions {
    asked: BTreeSet<Question>,
    /// How often the network has swallowed each of them, or what was done to answer it, and when it
    /// last did.
    swallowed: BTreeMap<Question, (u32, Time)>,
}

impl OpenQuestions {
    pub(crate) fn ask(&mut self, question: Option<Question>) {
        self.asked.extend(question);
    }

    pub(crate) fn answer(&mut self, question: Option<Question>) {
        if let Some(question) = question {
            self.asked.remove(&question);
            self.swallowed.remove(&question);
        }
    }

    /// The connection ends, and with it all that was done to answer any of them.
    pub(crate) fn swallow(&mut self, now: Time) {
        for question in &self.asked {
            let swallowed = self.swallowed.entry(*question).or_default();
            *swallowed = (swallowed.0 + 1, now);
        }
    }

    /// Has one of them been swallowed so often, and not only before this time?
    pub(crate) fn is_any_swallowed(&self, times: u32, since: Time) -> bool {
        let mut swallowed = self.swallowed.values();
        swallowed.any(|(often, last)| *often >= times && *last >= since)
    }
}
