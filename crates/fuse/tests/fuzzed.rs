//! The body of the fuzz target `fuse`, on its kept corpus and on bounded mutations of it.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../../../fuzz/bodies/fuse.rs"]
mod body;
#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;

#[test]
fn the_kept_corpus_and_its_mutations_break_no_rule() {
    corpus::run_all("fuse", 60_000, body::run);
}
