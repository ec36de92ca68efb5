//! Older kernels lack what a mount uses where it is there (docs/kernels.md). A mount that does
//! without is as exact: tests of exactness run once more, in a process of their own, on mounts that
//! do as if the kernel did not have some of it.

use crate::harness::process::text;
use crate::harness::rerun::Rerun;
use crate::harness::status::status;
use crate::harness::{Cell, ariel, local, long, real_system, run};
use fuse::Feature;

/// The tests that run in each case.
const ALWAYS: [&str; 3] = ["exact::", "exact_names::", "append::"];
/// The tests that run too in the long form.
const LONG: [&str; 7] = [
    "basics::",
    "basics_more::",
    "contention::",
    "excl::",
    "locks::locks_",
    "mmap::",
    "posix::",
];

/// Tests that are about the feature itself: without it, programs are refused something.
fn about(without: &str) -> &'static [&'static str] {
    match without {
        // Shared mappings of files that are open for writing fail with ENODEV.
        "mmap" | "all" => &[
            "mmap::what_is_stored_in_a_shared_mapping",
            "basics_more::mapped_files_and_programs",
        ],
        _ => &[],
    }
}

fn assert_exact(without: &str, tests: &[&str], least: u32) {
    let rerun = Rerun {
        variable: "ARIEL_IT_WITHOUT",
        value: without,
        tests,
        but: about(without),
    };
    rerun.assert_passes(least);
}

#[test]
fn mounts_that_use_nothing_of_newer_kernels_are_right() {
    if local() || !real_system("kernels") {
        return;
    }
    assert_exact("all", &ALWAYS, 18);
}

#[test]
fn mounts_without_any_one_feature_are_right() {
    if local() || !real_system("kernels one by one") || !long() {
        return;
    }
    let tests: Vec<&str> = ALWAYS.iter().chain(&LONG).copied().collect();
    let each = Feature::ALL.map(Feature::word);
    for without in each.into_iter().chain(["all"]) {
        assert_exact(without, &tests, 60);
    }
}

#[test]
fn a_mount_says_which_features_it_uses() {
    if !real_system("features") {
        return;
    }
    let Some(cell) = Cell::start("features") else {
        return;
    };
    let features = |args: &[&str]| -> Vec<String> {
        let mount = cell.mount_with(args);
        let said = status(mount.path())["fuse"]["features"].clone();
        serde_json::from_value(said).unwrap()
    };
    let usual = features(&["--transport", "dev", "--without", "uring"]);
    assert!(usual.contains(&"symlinks".to_owned()), "{usual:?}");
    let fewer = features(&["--transport", "dev", "--without", "uring,symlinks"]);
    let expected: Vec<&String> = usual.iter().filter(|word| *word != "symlinks").collect();
    assert_eq!(fewer.iter().collect::<Vec<_>>(), expected);
    assert!(features(&["--transport", "dev", "--without", "all"]).is_empty());

    let point = cell.scratch().dir("mount-contradicted");
    let point = point.to_str().unwrap();
    for (wrong, told) in [
        (["--without", "epochs"], "readdirplus"),
        (["--without", "uring"], "contradict"),
    ] {
        let mut words = vec!["mount", cell.addr(), point, "--transport", "uring"];
        words.extend(wrong);
        let output = run(&mut ariel(&words));
        let said = text(&output);
        assert!(
            output.status.code() == Some(2) && said.contains(told),
            "{said}"
        );
    }
}
