//! The session with the server: greeting, requests, lease, restarts and the end.

pub(super) mod clock;
pub(super) mod lease;
pub(super) mod leave;
pub(super) mod liveness;
pub(super) mod reassert;
pub(super) mod requests;
pub(super) mod unstable;
