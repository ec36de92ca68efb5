//! The simulator: the machines of `logic` on virtual time, with a model of the network, of each
//! machine's kernel and of the programs, all from one seed; and a judge outside the machines.
//!
//! Guarantees: the same seed gives the same run, byte for byte of its trace; no clock, no thread
//! and no randomness but the seed's. `docs/simulation.md` says what is modelled, what the judge
//! proves and what has not been shown.
#![forbid(unsafe_code)]

mod atlas;
mod clock;
mod coverage;
mod disk;
mod exec;
mod faults;
mod history;
mod host;
mod inject;
mod judge;
mod kernel;
mod lending;
mod liar;
mod limits;
mod locker;
mod memory;
mod moving;
mod mutant;
mod network;
mod numbering;
mod only;
mod plan;
mod power;
mod program;
mod question;
mod regrants;
mod rng;
mod room;
mod run;
mod shrink;
mod snapshots;
mod stages;
mod trace;
mod watcher;
mod weather;
mod world;
mod wrong;

pub use coverage::Rare;
pub use inject::{DiskStrike, Strike};
pub use moving::Mutant as MovingMutant;
pub use mutant::{Caught, Mutant, hunt};
pub use only::{Only, OnlyError};
pub use plan::Size;
pub use run::{Failure, Report, RunOptions, Summary, check, has_moves, run_seed, run_traced};
pub use shrink::{Extent, First, NotFailing, Search, Shrunk, Step, shrink};
