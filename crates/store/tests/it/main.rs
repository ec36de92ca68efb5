//! The promises of a store, tried: one binary, a module for each kind of promise.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod answers;
mod crash;
mod damage;
mod directory;
mod faults;
mod full;
mod generated;
mod governed;
mod links;
mod lists;
mod lost;
mod model;
mod mounts;
mod nth;
mod positions;
mod quotas;
mod repaired;
mod replicas;
mod rules;
mod rules_more;
mod shared;
mod speed;
mod stream;
mod stream_more;
mod three_kinds;
mod volumes;
mod world;
