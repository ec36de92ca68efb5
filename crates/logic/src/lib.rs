//! Every decision of Ariel, as pure state machines: who may cache what, what is asked back, in
//! which order changes are applied, which block is replaced, when dirty blocks leave.
//!
//! Guarantees: no clock, no randomness, no IO, no bytes of files (only numbers of slots and of
//! bulks); the same inputs give the same outputs. A machine has three functions: `new`,
//! `handle(now, input, ..., outputs)` and `deadline()`. It never blocks and never fails: a peer's
//! mistake is an output, a refusal is an answer. The room around it (crates `server` and `client`,
//! or the simulator) carries the outputs out in their order.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod aside;
pub mod check;
pub mod client;
mod footprint;
mod locks;
pub mod memory;
pub mod pages;
pub mod peers;
pub mod placement;
pub mod ranges;
mod room;
pub mod server;

/// Numbers a call from its beginning to its answer; chosen by the room, never reused.
pub type Ticket = u64;
