//! A run on two local directories: the measures taken and left out, and that nothing stays.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use ariel_bench::{Mounted, Options, Outside, Report, Told, Usage, names, run};
use std::cell::Cell;
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
    let busy = Cell::new(0);
    let uses = |_: &Path| {
        busy.set(busy.get() + 50_000_000);
        Ok(Usage {
            server_ns: busy.get(),
            client_ns: busy.get(),
            client_bytes: 3 << 20,
        })
    };
    let said = Cell::new(0);
    let told = |_: &Path| {
        said.set(said.get() + 1);
        Ok(Told {
            messages: said.get(),
            untold: u64::from(options.files),
        })
    };
    let outside = Outside {
        clock,
        fresh: mounts.then_some(&mut fresh),
        uses: mounts.then_some(&uses),
        told: mounts.then_some(&told),
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
    // All but `sort`, which writes 200 MB, and `idle`, which waits.
    let long = ["sort", "idle", "resident"];
    let only: Vec<&str> = names()
        .into_iter()
        .filter(|name| !long.contains(name))
        .collect();
    let mut options = options(dir.path(), &only);
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("below")).unwrap();
    std::fs::write(project.join("below/source"), b"source").unwrap();
    options.project = Some((project, "cp below/source built".to_owned()));
    let (report, anew) = measured(&options, true);
    let report = report.unwrap();
    assert!(anew > 3, "the cold measures mount anew");
    for figure in &report.figures {
        assert_eq!(figure.mount.len(), 3, "{figure:?}");
        assert!(figure.mount.iter().all(|value| *value > 0.0), "{figure:?}");
        let alone = [
            "getattr",
            "getattr-99",
            "first-touch",
            "cold-read",
            "andrew-server",
            "messages",
            "temporary-told",
            "apply",
            "apply-server",
        ];
        let alone = alone.contains(&figure.name);
        assert_eq!(figure.local.len(), if alone { 0 } else { 3 }, "{figure:?}");
        assert_eq!(figure.ratio().is_some(), !alone, "{figure:?}");
    }
    let missing: Vec<&str> = report
        .not_taken
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(missing, ["open-silent", "list-other"]);
    assert_eq!(report.figures.len() + missing.len(), only.len());
    assert!(is_empty(&options.local) && is_empty(&options.mounted.announced));
}

#[test]
fn another_mount_must_list_what_the_local_disk_extracts() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), &["list-other"]);
    options.mounted.silent = Some(options.mounted.announced.clone());
    let report = measured(&options, true).0.unwrap();
    assert_eq!(report.figures[0].mount.len(), 3, "{report:?}");
    // One that shows a file and nothing of what was extracted.
    let other = dir.path().join("other");
    let shown = other.join(format!("bench-{}/extracted", std::process::id()));
    std::fs::create_dir_all(&shown).unwrap();
    std::fs::write(shown.join("file"), b"x").unwrap();
    options.mounted.silent = Some(other);
    let report = measured(&options, true).0.unwrap();
    let (name, why) = &report.not_taken[0];
    assert_eq!(name, "list-other");
    assert!(why.contains("is not that of the local disk"), "{why}");
    assert!(is_empty(&options.local) && is_empty(&options.mounted.announced));
}

#[test]
fn without_a_project_one_is_made_and_built() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &["build"]);
    let report = measured(&options, true).0.unwrap();
    assert!(report.not_taken.is_empty(), "{report:?}");
    assert_eq!(report.figures[0].local.len(), 3, "{report:?}");
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
fn both_sides_are_equally_deep() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), &["stat", "idle"]);
    options.mounted.announced = dir.path().join("mount/somewhere/below");
    std::fs::create_dir_all(&options.mounted.announced).unwrap();
    let depths = Cell::new((0, 0));
    let outside = Outside {
        clock,
        fresh: None,
        uses: None,
        told: None,
        progress: &mut |progress| {
            if progress.taken.0 == 1 {
                let deepest = |dir: &Path| {
                    let found = walk(dir, 0);
                    assert!(found > 0);
                    found
                };
                depths.set((
                    deepest(&options.local),
                    deepest(&options.mounted.announced) + 2,
                ));
            }
            true
        },
    };
    let report = run(&options, outside).unwrap();
    assert_eq!(depths.get().0, depths.get().1);
    assert_eq!(report.not_taken[0].0, "idle");
    assert!(is_empty(&options.local) && is_empty(&options.mounted.announced));
}

/// How many names the longest path below has.
fn walk(dir: &Path, above: u32) -> u32 {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let depths = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => walk(&entry.path(), above + 1),
        false => above + 1,
    });
    depths.max().unwrap_or(above)
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
        uses: None,
        told: None,
        progress: &mut |_| false,
    };
    let error = run(&options, outside).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    assert!(is_empty(&options.local) && is_empty(&options.mounted.announced));
}
