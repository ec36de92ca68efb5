//! A shared library for programs in any language: the C interface of segments (`segment.h`), and,
//! when `ariel run` loads it into a program, the program's large memory as a segment.
//!
//! Guarantees: without `ARIEL_PAGER` in the environment every function of the C library that is
//! taken over here does what it did before.

mod arena;
pub mod c;
pub mod hooks;
mod process;
mod runs;
