//! Speeds of a mount beside those of a local directory, measured in turn.
//!
//! Guarantees: in each round every measure is taken on both sides, one right after the other and in
//! an order that changes from round to round, so that what else the machine does hits both; what
//! is told is the median of the rounds' ratios, and all raw figures are kept. A measure that could
//! not be taken is named, with the reason. The clock is an argument.
#![forbid(unsafe_code)]

mod apply;
mod archive;
mod bulk;
mod cold;
mod generated;
mod idle;
mod measure;
mod names;
mod place;
mod programs;
mod report;
mod run;
mod sources;
mod tree;
mod warm;

pub use place::{Clock, Fresh, Tells, Told, Usage, Uses};
pub use report::{Figure, Report};
pub use run::{Mounted, Options, Outside, Progress, names, run};
