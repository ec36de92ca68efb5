//! Whole runs with threads as workers: clean on one local directory, and a violation where two
//! directories only become equal after a while.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_torture::{Kills, Limit, Link, Options, Outside, Plan, Report};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

fn launch(plan: &Plan) -> std::io::Result<Link> {
    let (their_input, input) = std::io::pipe()?;
    let (output, their_output) = std::io::pipe()?;
    let plan = plan.clone();
    std::thread::spawn(move || {
        let _ = ariel_torture::work(&plan, clock, BufReader::new(their_input), their_output);
    });
    Ok(Link {
        input: Box::new(input),
        output: Box::new(output),
        child: None,
    })
}

fn run(mounts: &[&Path], seed: u64) -> Result<Report, String> {
    let options = Options {
        mounts: mounts.iter().map(|mount| PathBuf::from(*mount)).collect(),
        limit: Limit::Operations(20_000),
        seed,
        processes: 2,
        files: 4,
        atomic: false,
        hang_ns: 60_000_000_000,
    };
    let outside = Outside {
        clock,
        launch: &mut |plan| launch(plan),
        kills: Kills::default(),
        progress: &mut |_| true,
    };
    ariel_torture::run(&options, outside)
}

#[test]
fn one_directory_given_twice_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let report = run(&[dir.path(), dir.path()], 1).unwrap();
    let text = report.text();
    assert!(report.is_clean() && report.undecided == 0, "{text}");
    assert!(report.operations >= 20_000 && report.objects > 20, "{text}");
    assert_eq!(report.json()["linearizable"], true);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Makes one tree like another, as far as files and directories go. Both change meanwhile, so what
/// cannot be copied is copied next time.
fn copy(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else {
        return;
    };
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                let _ = std::fs::create_dir(&target);
                copy(&entry.path(), &target);
            }
            Ok(kind) if kind.is_file() => {
                let _ = std::fs::copy(entry.path(), &target);
            }
            _ => {}
        }
    }
}

#[test]
fn two_directories_that_become_equal_later_are_a_violation() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ended = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                copy(a.path(), b.path());
                // The delay is what is tested.
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let report = run(&[a.path(), b.path()], 2);
        ended.store(true, Ordering::SeqCst);
        report
    });
    let report = report.unwrap();
    let text = report.text();
    assert!(!report.is_clean() && text.contains("VIOLATION"), "{text}");
    assert_eq!(report.json()["linearizable"], false);
}

#[test]
fn two_trees_that_have_nothing_in_common_cannot_be_run() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let error = run(&[a.path(), b.path()], 3).unwrap_err();
    assert!(error.contains("same tree"), "{error}");
}
