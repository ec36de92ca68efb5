//! What the fuzz target `store` does, on its kept corpus and on bounded mutations of it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../../../fuzz/bodies/store.rs"]
mod body;
#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;

#[test]
fn the_kept_corpus_and_its_mutations_break_no_rule() {
    corpus::run_all("store", 1_500, body::run);
}
