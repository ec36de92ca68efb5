//! Links over TLS: everything that links promise, once more, and what only TLS promises.

#[path = "net.rs"]
mod net;
mod tls;
