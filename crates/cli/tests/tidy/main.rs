//! The rules of STYLE.md and ARCHITECTURE.md that a program can check: uses between crates, sizes,
//! purity, words. Each failure names the file, the line and the rule.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod docs;
mod edges;
mod files;
mod sentences;
mod source;
mod words;

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// Directories that hold no sources of ours.
const SKIPPED: [&str; 5] = ["target", ".git", ".cell", ".demo", "vendor"];

/// All files below a directory whose names end so, sorted.
pub fn files(dir: &Path, ends: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, ends));
        } else if name.ends_with(ends) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Fails with all complaints at once, so that one run shows everything that is to be mended.
#[track_caller]
pub fn no_complaints(rule: &str, complaints: Vec<String>) {
    let count = complaints.len();
    assert!(
        complaints.is_empty(),
        "{rule}: {count}\n  {}",
        complaints.join("\n  ")
    );
}

/// A path as it is written in complaints.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}
