//! The fuzz target `wire`, run on its kept corpus and on bounded mutations of it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

extern crate ariel_wire as wire;

#[path = "../../../fuzz/bodies/wire.rs"]
mod body;
#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;

#[test]
fn the_kept_corpus_and_its_mutations_break_no_rule() {
    corpus::run_all("wire", 60_000, body::run);
}
