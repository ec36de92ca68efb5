//! A first walk through a tree asks the server for many objects at a time; looks here and there ask
//! it for no more than they need, and answers to questions that kernels repeat are known here.
//! Messages are counted at the server's door.

use crate::harness::status::{Counts, cost_of};
use crate::harness::{Cell, Mount, process::shell_ok};
use std::fs;
use std::path::{Path, PathBuf};

const DIRS: usize = 10;
const FILES: usize = 100;

fn content(dir: usize, file: usize) -> String {
    format!("file {dir} {file}\n").repeat(1 + file * 3)
}

fn file(root: &Path, dir: usize, file: usize) -> PathBuf {
    root.join(format!("dir-{dir}/file-{file}"))
}

/// A tree that nobody has mounted any more.
fn cell(name: &str) -> Option<Cell> {
    let cell = Cell::start(name)?;
    let writer = cell.mount();
    for d in 0..DIRS {
        fs::create_dir(writer.join(&format!("dir-{d}"))).unwrap();
        (0..FILES).for_each(|f| fs::write(file(writer.path(), d, f), content(d, f)).unwrap());
    }
    drop(writer);
    Some(cell)
}

fn all() -> impl Iterator<Item = (usize, usize)> {
    (0..DIRS).flat_map(|d| (0..FILES).map(move |f| (d, f)))
}

fn read(mount: &Mount, (d, f): (usize, usize)) {
    let bytes = fs::read_to_string(file(mount.path(), d, f)).unwrap();
    assert_eq!(bytes, content(d, f), "file {f} of directory {d}");
}

fn server_cost(cell: &Cell, mount: &Mount, work: impl FnOnce()) -> (u64, Counts) {
    let counts = cost_of(mount.path(), cell.addr(), work).server;
    (counts.values().sum(), counts)
}

/// Fewer than so many messages for all files.
const FEW: u64 = (DIRS * FILES / 8) as u64;

#[test]
fn a_first_walk_by_known_names_asks_for_many_at_a_time() {
    let Some(cell) = cell("walk-names") else {
        return;
    };
    let mount = cell.mount();
    let (sum, counts) = server_cost(&cell, &mount, || all().for_each(|at| read(&mount, at)));
    assert!(sum < FEW, "{counts:?}");
    // The other way round, in several directories at a time.
    let mount = cell.mount();
    let backwards = || {
        (0..FILES)
            .rev()
            .flat_map(|f| (0..DIRS).map(move |d| (d, f)))
    };
    let (sum, counts) = server_cost(&cell, &mount, || {
        backwards().for_each(|at| read(&mount, at))
    });
    assert!(sum < 2 * FEW, "{counts:?}");
}

#[test]
fn a_first_walk_by_listings_asks_for_many_at_a_time() {
    let Some(cell) = cell("walk-lists") else {
        return;
    };
    let lines: usize = all().map(|(d, f)| content(d, f).lines().count()).sum();
    for how in ["cat */*", "grep -rh file .", "tar -c . | tar -xO"] {
        let mount = cell.mount();
        let count = || shell_ok(mount.path(), &format!("{how} | wc -l"));
        let (sum, counts) = server_cost(&cell, &mount, || {
            assert_eq!(count().trim(), lines.to_string(), "lines by {how}");
        });
        assert!(sum < FEW, "{how}: {counts:?}");
    }
}

#[test]
fn looks_here_and_there_ask_for_nothing_more() {
    let Some(cell) = cell("walk-none") else {
        return;
    };
    let mount = cell.mount();
    let (_, counts) = server_cost(&cell, &mount, || {
        for d in 0..DIRS {
            fs::metadata(file(mount.path(), d, 7 * d)).unwrap();
            fs::metadata(file(mount.path(), d, 99 - d)).unwrap();
        }
    });
    // Of the root, through whose directories the paths lead one after the other.
    assert_eq!(counts.get("Prefetch"), Some(&1), "{counts:?}");
}

#[test]
fn truncating_asks_for_no_extended_attributes_where_there_are_none() {
    let Some(cell) = cell("walk-bare") else {
        return;
    };
    let mount = cell.mount();
    let (_, counts) = server_cost(&cell, &mount, || {
        (0..FILES).for_each(|f| fs::write(file(mount.path(), 0, f), "shorter").unwrap());
    });
    assert_eq!(counts.get("SetAttr"), Some(&(FILES as u64)), "{counts:?}");
    assert_eq!(counts.get("GetXattr"), None, "{counts:?}");
}
