//! Names made, moved and removed.

use crate::place::At;
use crate::tree::stable;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Threads that make files in directories of their own.
const THREADS: u32 = 4;
/// Temporary files of which the server should be told nothing.
const TEMPORARY: u32 = 10_000;

/// A new file with a kibibyte in it.
fn create(path: &Path) -> io::Result<()> {
    File::create_new(path)?.write_all(&[7; 1024])
}

/// A rate of something done to each of so many names.
fn each(at: &At<'_>, count: u32, act: impl Fn(u32) -> io::Result<()>) -> io::Result<f64> {
    let seconds = at.seconds(|| (0..count).try_for_each(act))?;
    Ok(f64::from(count) / seconds)
}

pub(crate) fn one_thread(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    (at.fresh)()?;
    let (dir, count) = (at.dir.join("names"), at.sizes.files);
    fs::create_dir(&dir)?;
    let old = |n: u32| dir.join(format!("file-{n}"));
    let new = |n: u32| dir.join(format!("moved-{n}"));
    let sub = |n: u32| dir.join(format!("directory-{n}"));
    let rates = vec![
        each(at, count, |n| create(&old(n)))?,
        each(at, count, |n| fs::rename(old(n), new(n)))?,
        each(at, count, |n| fs::remove_file(new(n)))?,
        each(at, count, |n| fs::create_dir(sub(n)))?,
        each(at, count, |n| fs::remove_dir(sub(n)))?,
    ];
    fs::remove_dir(dir)?;
    Ok(rates)
}

/// A file that is there for a moment only.
fn pass(path: &Path) -> io::Result<()> {
    create(path)?;
    fs::remove_file(path)
}

/// The client's messages to the server while that many temporary files come and go in a directory
/// that is there.
pub(crate) fn temporary_told(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    (at.fresh)()?;
    let dir = at.dir.join("passing");
    fs::create_dir(&dir)?;
    let path = dir.join("file");
    let mut said = 0.0;
    for wanted in [false, true] {
        let before = at.told()?.messages;
        (0..TEMPORARY).try_for_each(|_| pass(&path))?;
        if wanted {
            said = at.told()?.messages.saturating_sub(before) as f64;
        }
        stable(&dir)?;
    }
    fs::remove_dir(dir)?;
    Ok(vec![said])
}

pub(crate) fn threads_and_temporary(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    (at.fresh)()?;
    let (dir, count) = (at.dir.join("crowd"), at.sizes.files);
    let of = |thread: u32| dir.join(format!("thread-{thread}"));
    for thread in 0..THREADS {
        fs::create_dir_all(of(thread))?;
    }
    let seconds = at.seconds(|| {
        std::thread::scope(|scope| {
            let make = |thread: u32| {
                let dir = of(thread);
                move || {
                    (0..count / THREADS).try_for_each(|n| create(&dir.join(format!("file-{n}"))))
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(make(n))).collect();
            threads.into_iter().try_for_each(|thread| {
                let died = |_| io::Error::other("a thread of the measure died");
                thread.join().map_err(died)?
            })
        })
    })?;
    fs::remove_dir_all(&dir)?;
    let own = at.dir.join("temporary");
    fs::create_dir(&own)?;
    let path = own.join("file");
    let temporary = each(at, count, |_| pass(&path))?;
    fs::remove_dir(&own)?;
    Ok(vec![f64::from(count) / seconds, temporary])
}
