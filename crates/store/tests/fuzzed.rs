//! The bodies of the fuzz targets `store` and `forged`, run on their kept corpora and on bounded
//! mutations of them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../../../fuzz/bodies/store.rs"]
mod body;
#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/bodies/forged.rs"]
mod forged;
#[path = "../../../fuzz/bodies/partition.rs"]
mod partition;

#[test]
fn the_kept_corpus_and_its_mutations_break_no_rule() {
    corpus::run_all("store", 1_500, body::run);
}

#[test]
fn forged_pieces_break_no_rule() {
    corpus::run_all("forged", 1_500, forged::run);
}

#[test]
fn a_planted_fault_breaks_a_rule_on_the_kept_corpus() {
    let planted = ariel_store::Options {
        mutant: Some(ariel_store::Mutant::SkipsChecksums),
        ..partition::options()
    };
    let all = || corpus::run_all("store", 0, |bytes| body::run_on(bytes, &planted));
    assert!(std::panic::catch_unwind(all).is_err());
}
