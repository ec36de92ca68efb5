//! The fuzz target `wire`, run on its kept corpus and on bounded mutations of it.

use crate::{body, corpus};

#[test]
fn the_kept_corpus_and_its_mutations_break_no_rule() {
    corpus::run_all("wire", 60_000, body::run);
}
