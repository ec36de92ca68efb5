//! A partition on disk: a deterministic function from an operation, its caller, its time and its
//! origin to an outcome. It knows nothing of clients and tokens, and reads no clock.
//!
//! Guarantees. An operation is applied whole or not at all, in memory at once and on the disk in
//! the order of application: a crash leaves the state after some prefix of all operations,
//! at least up to the last one that [`Store::write_out`] (when the process dies) or
//! [`Syncer::sync`] (when the machine dies) had finished with. An operation with an origin is
//! applied once, however often it is repeated and whatever crashes in between. Bytes that are
//! returned are bytes that were written: their checksums are verified each time.
//!
//! One log of segments carries file bytes and operation records; an ordered index, behind it,
//! answers questions. `docs/format.md` has the shapes.
#![forbid(unsafe_code)]

mod acl;
mod answers;
mod apply;
mod beside;
mod check;
mod checkpoint;
mod clean;
mod cut;
mod disk;
mod dump;
mod embedded;
mod engine;
mod error;
mod forge;
mod fsck;
mod governed;
mod heal;
mod image;
mod images;
mod index;
mod key;
mod listing;
mod log;
mod memory;
mod mounts;
mod open;
mod options;
mod pages;
mod permission;
mod promised;
mod provenance;
mod reading;
mod rebuild;
mod received;
mod record;
mod relocate;
mod repair;
mod replica;
mod report;
mod roll;
mod room;
mod segments;
mod sessions;
mod snapshots;
mod state;
mod store;
mod sweep;
mod sync;
mod txn;
mod value;
mod versions;
mod volumes;

pub use beside::Checker;
pub use embedded::catches_panics;
pub use error::StoreError;
pub use forge::{forge_record, forge_segment};
pub use fsck::{fsck, fsck_memory, fsck_memory_with_engine};
pub use memory::{Failure, Fault, Keep, MemoryDisk, Verb};
pub use options::{Mutant, Options};
pub use repair::{Repaired, repair, repair_memory_with_engine};
pub use report::{Damage, Loss, Report};
pub use store::{Apply, Stats, Store};
pub use sync::Syncer;
