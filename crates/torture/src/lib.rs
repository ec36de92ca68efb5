//! Concurrent random operations through several mounts of any file system, and a judge that knows
//! only what the programs saw.
//!
//! Worker processes (`worker`) carry out operations on few, contended objects and note when each
//! began and ended. Each object has a history of its own (linearizability is local: Herlihy and
//! Wing, theorem 1); `checker` searches an order for it that a single machine could have had. Of a
//! history without such an order, `shrink` leaves what is needed to see it.
//!
//! Guarantees: a reported violation is one under the rules of `model`; undecided objects are
//! counted and told, never passed over. The clock is an argument: stamps of all workers must be of
//! one monotonic clock.
#![forbid(unsafe_code)]

mod checker;
mod configs;
mod crew;
mod files;
mod history;
mod judge;
mod kill;
mod kind;
mod model;
mod names;
mod plan;
mod random;
mod record;
mod report;
mod run;
mod shrink;
mod worker;

pub use crew::Link;
pub use history::{Action, Moved, Object, Operation, Run};
pub use judge::{Judge, Violation};
pub use kill::{Hook, Kills, command};
pub use kind::Kind;
pub use plan::{Clock, Limit, Options, Plan};
pub use report::Report;
pub use run::{Outside, Progress, run};
pub use worker::work;
