//! Questions of the server to clients, which the network may swallow, or their answers.

use wire::{Epoch, Fid, RequestId, ToClient, ToServer};

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
