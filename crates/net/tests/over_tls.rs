//! Links over TLS: everything that links promise, once more, and what only TLS promises.

#![forbid(unsafe_code)]

#[path = "net.rs"]
mod net;
mod tls;
