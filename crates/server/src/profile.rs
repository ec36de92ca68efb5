//! Where a server's time goes, by kind of request: how long each took from its arrival to its
//! answer, which includes waiting for other clients and for the disk; and how long the server was
//! busy with it, its machine and its store together, while nobody else was served.
//!
//! Guarantees: the memory of requests that are never answered is bounded.

use logic::server::{Conn, Input};
use net::{Meters, Reading};
use std::collections::HashMap;
use wire::{RequestId, ToClient, ToServer};

/// At most so many requests are known to wait for their answers; of more, none is measured.
const WAITING_MAX: usize = 65_536;

/// The measured times of the requests of one kind, or of one step of the machine.
pub type Measured = Vec<(&'static str, Reading)>;

/// The measuring.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Requests that are not answered: kind, arrival, bytes beside them.
    waiting: HashMap<(Conn, RequestId), (&'static str, u64, u64)>,
    answers: Meters,
    steps: Meters,
}

impl Profile {
    /// An input came; returns its name.
    pub(crate) fn came(&mut self, now: u64, input: &Input) -> &'static str {
        match input {
            Input::Message {
                from,
                message,
                bulk_len,
                ..
            } => {
                let requests = match message {
                    ToServer::Request(request) => std::slice::from_ref(request),
                    ToServer::Requests(requests) => requests,
                    _ => &[],
                };
                // They go with their answers, or with their connection.
                let room = WAITING_MAX.saturating_sub(self.waiting.len());
                for request in requests.iter().take(room) {
                    let waits = (request.op.kind(), now, u64::from(*bulk_len));
                    self.waiting.entry((*from, request.id)).or_insert(waits);
                }
                message.kind()
            }
            Input::Gone { conn } => {
                self.waiting.retain(|(of, _), _| of != conn);
                "(connection ended)"
            }
            Input::Came { .. } => "(connection made)",
            Input::Expelled { .. } => "(machine revoked)",
            Input::Regrant { .. } => "(machine has other rights)",
            Input::Tick => "(time)",
            Input::Regroup { .. } => "(groups changed)",
            Input::Cooperate { .. } => "(cooperation changed)",
            Input::Publish(_) => "(release published)",
            Input::Synced { .. } => "(synced)",
        }
    }

    /// The machine and the store have dealt with it.
    pub(crate) fn stepped(&mut self, kind: &'static str, took_ns: u64) {
        self.steps.note(kind, took_ns, 0);
    }

    /// A message leaves, with so many bytes beside it.
    pub(crate) fn sent(&mut self, now: u64, to: Conn, message: &ToClient, bytes: u64) {
        if let ToClient::Reply { id, .. } = message
            && let Some((kind, came, brought)) = self.waiting.remove(&(to, *id))
        {
            let took_ns = now.saturating_sub(came);
            self.answers.note(kind, took_ns, brought + bytes);
        }
    }

    /// From arrival to answer; and the machine's steps.
    pub(crate) fn read(&self) -> (Measured, Measured) {
        (self.answers.read(), self.steps.read())
    }
}
