//! Programs that work on sources: git, make and a compiler.

use crate::generated;
use crate::place::At;
use crate::programs::{copy_tree, needed, output, read, run, walk};
use crate::tree::stable;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Of a generated project, one source for so many small files.
const FILES_PER_SOURCE: u32 = 100;
/// So often the end of a second is waited for.
const TRIES: u32 = 5;

/// git, by nobody's settings but these: it writes the same objects on every machine.
fn git(dir: &Path, arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(name);
    }
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "bench");
        git.env(format!("GIT_{who}_EMAIL"), "bench@localhost");
        git.env(format!("GIT_{who}_DATE"), "2020-02-02T02:02:02Z");
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["-c", "init.defaultBranch=main", "-c", "gc.auto=0"]);
    git.current_dir(dir).args(arguments);
    git
}

/// The time to clone a repository that lies on the same side and has been read there, of half as
/// many files as are measured with, and of `git status` after: it must find no change. The first
/// one reads again what was written in the second in which the clone ended, since git keeps times
/// in whole seconds; so it asks more where the clone was faster. So does each that follows until
/// one has written an index that is younger than the files by a second: from then on git has the
/// same to do wherever it works, and that is the second figure.
pub(crate) fn clone_and_status(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let files = at.sizes.files / 2;
    let repository = at.made("repository", |path| {
        generated::tree(path, files)?;
        run(&mut git(path, &["init", "-q"]))?;
        run(&mut git(path, &["add", "-A"]))?;
        run(&mut git(path, &["commit", "-q", "-m", "all"]))?;
        run(&mut git(path, &["repack", "-a", "-d", "-q"]))
    })?;
    (at.fresh)()?;
    walk(&repository.join(".git"), &read)?;
    let clone = at.dir.join("clone");
    let cloned = at.seconds(|| run(&mut git(at.dir, &["clone", "-q", "repository", "clone"])))?;
    let first = status(at, &clone)?;
    wait_for_next_second(at.dir)?;
    status(at, &clone)?;
    let again = status(at, &clone)?;
    fs::remove_dir_all(clone)?;
    stable(at.dir)?;
    Ok(vec![cloned, first, again])
}

/// Returns in another second than it was called in, by the clock of what this directory is on: when
/// that second is over, or soon after, where that clock is the slower one.
fn wait_for_next_second(dir: &Path) -> io::Result<()> {
    const NANOS: i64 = 1_000_000_000;
    let probe = dir.join("second");
    let now = || {
        fs::write(&probe, b"now")?;
        fs::metadata(&probe).map(|metadata| (metadata.mtime(), metadata.mtime_nsec()))
    };
    let (since, _) = now()?;
    for _ in 0..TRIES {
        let (second, nanos) = now()?;
        if second != since {
            return fs::remove_file(&probe);
        }
        // A clock sends no event when its second ends: at most `TRIES` times.
        thread::sleep(Duration::from_nanos((NANOS - nanos).unsigned_abs()));
    }
    Err(io::Error::other(format!(
        "the clock of {} stands still",
        dir.display()
    )))
}

/// The time of a `git status` that finds no change.
fn status(at: &At<'_>, dir: &Path) -> io::Result<f64> {
    let mut changes = String::new();
    let seconds = at.seconds(|| {
        changes = output(&mut git(dir, &["status", "--porcelain"]))?;
        Ok(())
    })?;
    match changes.lines().next() {
        None => Ok(seconds),
        Some(change) => Err(io::Error::other(format!(
            "git status finds a change right after the clone: {change}"
        ))),
    }
}

/// The time to build a project whose sources were copied to where its objects go, and read there.
pub(crate) fn build(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let (source, build) = match at.sizes.project.clone() {
        Some((project, build)) => (at.made("source", |dir| copy_tree(&project, dir))?, build),
        None => {
            needed("make")?;
            needed("cc")?;
            let sources = at.sizes.files.div_ceil(FILES_PER_SOURCE);
            let make = |dir: &PathBuf| generated::project(dir, sources);
            (at.made("generated", make)?, "make -j2".to_owned())
        }
    };
    (at.fresh)()?;
    let copy = at.dir.join("built");
    copy_tree(&source, &copy)?;
    stable(&copy)?;
    walk(&copy, &read)?;
    let seconds =
        at.seconds(|| run(Command::new("sh").arg("-c").arg(&build).current_dir(&copy)))?;
    fs::remove_dir_all(copy)?;
    stable(at.dir)?;
    Ok(vec![seconds])
}
