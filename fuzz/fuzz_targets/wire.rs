//! Coverage-guided: any bytes go to the body that the crate's own tests run on the kept corpus.
#![no_main]

#[path = "../bodies/wire.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
