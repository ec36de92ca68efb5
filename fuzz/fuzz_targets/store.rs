//! Coverage-guided: any bytes go to the body that the crate's own tests run on the kept corpus.
#![no_main]

#[path = "../bodies/store.rs"]
mod body;
#[path = "../bodies/partition.rs"]
mod partition;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
