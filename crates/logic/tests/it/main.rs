//! The machines, tried without a network: one binary, a module for each kind of test. The server's
//! machine is compiled for the disk that it works on, and so once for all of them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

extern crate ariel_logic as logic;

mod backlog;
mod grace;
mod lies;
mod machines;
mod older;
mod parts;
mod placement;
mod refused;
mod scenarios;
mod slow_writers;
mod support;
mod swarm;
