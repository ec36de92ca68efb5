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
use std::sync::LazyLock;

/// The root of the workspace. Rules ask for it at each line: the kernel is asked once.
pub fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.canonicalize().unwrap()
    });
    &ROOT
}

/// Directories that hold no sources of ours.
const SKIPPED: [&str; 5] = ["target", ".git", ".cell", ".demo", "vendor"];

/// All files below a directory whose names end so, sorted.
pub fn files(dir: &Path, ends: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_symlink() || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
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
