//! Traces of accesses to files, and the replay of them on a fleet of caches.
#![forbid(unsafe_code)]

mod access;
mod count;
mod generate;
mod look;
mod memory;
mod read;
mod replay;
mod reproduce;
mod snoop;
mod stack;
mod workloads;

pub use access::{Access, Builder, Op, TooMany, Trace};
pub use count::{Counts, Level, Load, Prices};
pub use generate::{Depths, Generator, Model};
pub use look::Look;
pub use memory::memory;
pub use read::{
    Columns, ColumnsError, Format, ReadError, Reader, TimeUnit, WriteError, Writer, merge,
};
pub use replay::{Setup, replay};
pub use reproduce::{Effort, Figure, ITEMS, Item, Plot, Report, Shape, Table, cooperative};
pub use snoop::Snoop;
pub use workloads::{BLOCK_BYTES, Size, Workload, snooped, sprite};
