//! The words of the protocol, written and read: one binary, which compiles their encodings once.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

extern crate ariel_wire as wire;

#[path = "../../../../fuzz/bodies/wire.rs"]
mod body;
#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;

mod decode;
mod fuzzed;
mod round_trip;
mod support;
