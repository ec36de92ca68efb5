//! A client that has lost its server, as told to people.
//!
//! Guarantees: it is read from what the connection and the machine know; nobody waits for it.

use crate::Client;
use std::time::Duration;

impl Client {
    /// For how long there has been no session with the server, and why; `None`: there is one.
    #[must_use]
    pub fn disconnected(&self) -> Option<(Duration, String)> {
        let figures = self.figures();
        if figures.connected {
            return None;
        }
        let silent = || {
            (
                figures.heard_at,
                "the server has not answered the greeting".into(),
            )
        };
        let (since_ns, why) = self.dialer.lost().unwrap_or_else(silent);
        let past_ns = net::clock::now_ns().saturating_sub(since_ns);
        Some((Duration::from_nanos(past_ns), why))
    }
}
