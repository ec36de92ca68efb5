//! A run on two local directories: what is measured, what is not, and that nothing stays.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use ariel_bench::{Mounted, Options, Outside, Report, names, run};
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

fn clock() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn options(dir: &Path, only: &[&str]) -> Options {
    let [local, mount] = ["local", "mount"].map(|name| dir.join(name));
    for side in [&local, &mount] {
        std::fs::create_dir_all(side).unwrap();
    }
    Options {
        local,
        mounted: Mounted {
            announced: mount,
            silent: None,
        },
        rounds: 3,
        only: only.iter().map(|name| (*name).to_owned()).collect(),
        files: 40,
        large_bytes: 8 << 20,
        project: None,
    }
}

/// Runs it; `mounts`: as if the mount could be made anew. How often that was done comes with it.
fn measured(options: &Options, mounts: bool) -> (io::Result<Report>, u32) {
    let mut anew = 0;
    let mut fresh = |_: &Path| {
        anew += 1;
        Ok(())
    };
    let outside = Outside {
        clock,
        fresh: mounts.then_some(&mut fresh),
        progress: &mut |_| true,
    };
    let report = run(options, outside);
    (report, anew)
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn each_round_gives_a_figure_on_both_sides_and_nothing_stays() {
    let dir = tempfile::tempdir().unwrap();
    // All but `sort`, which writes 200 MB.
    let only: Vec<&str> = names().into_iter().filter(|name| *name != "sort").collect();
    let options = options(dir.path(), &only);
    let (report, anew) = measured(&options, true);
    let report = report.unwrap();
    assert!(anew > 3, "the cold measures mount anew");
    for figure in &report.figures {
        assert_eq!(figure.mount.len(), 3, "{figure:?}");
        assert!(figure.mount.iter().all(|value| *value > 0.0), "{figure:?}");
        let alone = ["getattr", "getattr-99", "first-touch", "cold-read"].contains(&figure.name);
        assert_eq!(figure.local.len(), if alone { 0 } else { 3 }, "{figure:?}");
        assert_eq!(figure.ratio().is_some(), !alone, "{figure:?}");
    }
    let missing: Vec<&str> = report
        .not_taken
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(missing, ["open-silent", "andrew"]);
    assert_eq!(report.figures.len() + missing.len(), only.len());
    assert!(is_empty(&options.local) && is_empty(&options.mounted.announced));
}

#[test]
fn what_needs_a_new_mount_is_told_where_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &["first-touch", "stat"]);
    let report = measured(&options, false).0.unwrap();
    assert_eq!(report.figures.len(), 1);
    assert_eq!(report.not_taken[0].0, "first-touch");
    assert!(report.not_taken[0].1.contains("made anew"), "{report:?}");
}

#[test]
fn a_name_that_is_not_known_is_told_with_those_that_are() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &["speed"]);
    let error = measured(&options, false).0.unwrap_err().to_string();
    assert!(
        error.contains("speed") && error.contains("first-touch"),
        "{error}"
    );
    assert!(is_empty(&options.local), "nothing was made");
}

#[test]
fn who_tells_it_to_end_gets_no_report_and_nothing_stays() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &["stat"]);
    let outside = Outside {
        clock,
        fresh: None,
        progress: &mut |_| false,
    };
    let error = run(&options, outside).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    assert!(is_empty(&options.local) && is_empty(&options.mounted.announced));
}
