//! Failures of a client to begin. Each says what people can do about it.

use net::{Addresses, DialError};
use std::io;

/// Why a client did not start or is not ready.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No thread can be started.
    #[error("no thread can be started ({0}): raise the limit of processes (ulimit -u)")]
    Thread(#[source] io::Error),
    /// There is no connection.
    #[error(transparent)]
    Unreachable(#[from] DialError),
    /// The server has ended each connection, for this reason.
    #[error("the server at {server} refuses this client: {why}")]
    Refused {
        /// The server.
        server: Addresses,
        /// Its reason.
        why: String,
    },
    /// There is a connection, and no session.
    #[error(
        "the server at {server} did not open a session in time{}: is it an Ariel server of the \
         same version, and does its log say why?",
        .last_end.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
    )]
    NoSession {
        /// The server.
        server: Addresses,
        /// Why the last connection ended.
        last_end: Option<String>,
    },
}
