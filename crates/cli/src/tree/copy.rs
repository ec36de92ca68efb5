//! Copies of files between this machine and a tree: their bytes, and many files at one time.
//!
//! Guarantees: holes stay holes; a failure names the side that it came from.

use super::progress::Progress;
use super::reason;
use files::Error;
use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

const PART_BYTES: usize = 1 << 20;
const SECTOR_BYTES: u64 = 512;
/// A file of more than this is copied by several threads...
const LARGE_BYTES: u64 = 8 << 20;
/// ...each of which takes the next so many bytes of it.
const STRIPE_BYTES: u64 = 4 << 20;
const STRIPES: u64 = 4;

/// The source of a copy's bytes.
pub(super) trait Input: Sync {
    /// How many bytes there are, and how many are occupied.
    fn extent(&self) -> Result<(u64, u64), String>;
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, String>;
    /// The next byte from an offset on that is in a hole, or in none; `None`: there is none.
    fn find(&self, offset: u64, hole: bool) -> Result<Option<u64>, String>;
}

/// Where bytes go.
pub(super) trait Output: Sync {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), String>;
    fn set_len(&self, len: u64) -> Result<(), String>;
}

/// Which side failed, and why.
pub(super) enum Failed {
    Input(String),
    Output(String),
}

fn local<T>(result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| reason(&error))
}

fn remote<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| error.reason())
}

impl Input for File {
    fn extent(&self) -> Result<(u64, u64), String> {
        let found = local(self.metadata())?;
        Ok((found.len(), found.blocks() * SECTOR_BYTES))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, String> {
        local(FileExt::read_at(self, buffer, offset))
    }

    fn find(&self, offset: u64, hole: bool) -> Result<Option<u64>, String> {
        let from = if hole {
            SeekFrom::Hole(offset)
        } else {
            SeekFrom::Data(offset)
        };
        match seek(self, from) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(reason(&error.into())),
        }
    }
}

impl Input for files::File {
    fn extent(&self) -> Result<(u64, u64), String> {
        let found = remote(self.metadata())?;
        Ok((found.len(), found.blocks() * SECTOR_BYTES))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, String> {
        remote(files::File::read_at(self, buffer, offset))
    }

    fn find(&self, offset: u64, hole: bool) -> Result<Option<u64>, String> {
        remote(files::File::find(self, offset, hole))
    }
}

impl Output for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), String> {
        local(FileExt::write_all_at(self, bytes, offset))
    }

    fn set_len(&self, len: u64) -> Result<(), String> {
        local(File::set_len(self, len))
    }
}

impl Output for files::File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), String> {
        remote(files::File::write_all_at(self, bytes, offset))
    }

    fn set_len(&self, len: u64) -> Result<(), String> {
        remote(files::File::set_len(self, len))
    }
}

/// Copies all bytes of a file to an empty one.
pub(super) fn copy_bytes(
    input: &impl Input,
    output: &impl Output,
    progress: &Progress,
) -> Result<(), Failed> {
    let (len, occupied) = input.extent().map_err(Failed::Input)?;
    if occupied < len {
        return copy_sparse(input, output, len, progress);
    }
    if len <= LARGE_BYTES {
        // It may be longer than it says, as files of /proc are.
        return copy_range(input, output, (0, u64::MAX), progress).map(drop);
    }
    let stripes = |first: u64| {
        let mut start = first * STRIPE_BYTES;
        while start < len {
            let range = (start, (start + STRIPE_BYTES).min(len));
            copy_range(input, output, range, progress)?;
            start += STRIPES * STRIPE_BYTES;
        }
        Ok(())
    };
    let stripes = &stripes;
    thread::scope(|scope| {
        let copies: Vec<_> = (0..STRIPES)
            .map(|first| scope.spawn(move || stripes(first)))
            .collect();
        let mut ended = copies.into_iter().map(|copy| copy.join());
        ended.try_for_each(|ended| ended.unwrap_or_else(|_| Err(crashed())))
    })
}

fn crashed() -> Failed {
    Failed::Input("a thread of the copy crashed: the log above says why".to_owned())
}

fn copy_sparse(
    input: &impl Input,
    output: &impl Output,
    len: u64,
    progress: &Progress,
) -> Result<(), Failed> {
    let mut at = 0;
    while at < len
        && let Some(start) = input.find(at, false).map_err(Failed::Input)?
    {
        let end = input
            .find(start, true)
            .map_err(Failed::Input)?
            .unwrap_or(len);
        progress.moved(start.saturating_sub(at));
        copy_range(input, output, (start, end), progress)?;
        at = end;
    }
    progress.moved(len.saturating_sub(at));
    output.set_len(len).map_err(Failed::Output)
}

/// Copies a range, or what there is of it before the end.
fn copy_range(
    input: &impl Input,
    output: &impl Output,
    (mut at, end): (u64, u64),
    progress: &Progress,
) -> Result<(), Failed> {
    let most = usize::try_from(end - at)
        .unwrap_or(usize::MAX)
        .min(PART_BYTES);
    let mut buffer = vec![0; most];
    while at < end {
        let most = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(PART_BYTES);
        let count = input
            .read_at(&mut buffer[..most], at)
            .map_err(Failed::Input)?;
        if count == 0 {
            break;
        }
        output
            .write_all_at(&buffer[..count], at)
            .map_err(Failed::Output)?;
        progress.moved(count as u64);
        at += count as u64;
    }
    Ok(())
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that copy files. A job that is given while all are busy waits, and so does its giver.
pub(super) struct Pool {
    jobs: SyncSender<Job>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(super) fn new(threads: u32) -> Self {
        let (jobs, taken) = mpsc::sync_channel::<Job>(threads as usize);
        let taken = Arc::new(Mutex::new(taken));
        let work = || {
            let taken = Arc::clone(&taken);
            thread::spawn(move || work(&taken))
        };
        let threads = (0..threads).map(|_| work()).collect();
        Self { jobs, threads }
    }

    pub(super) fn give(&self, job: impl FnOnce() + Send + 'static) {
        // The threads end when this is dropped, not before.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Waits until all jobs are done; false: one of the threads crashed.
    pub(super) fn end(self) -> bool {
        let Self { jobs, threads } = self;
        drop(jobs);
        threads.into_iter().all(|thread| thread.join().is_ok())
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file() -> File {
        tempfile::tempfile().unwrap()
    }

    #[test]
    fn holes_stay_holes_and_large_files_are_whole() {
        let progress = Progress::new(true);
        let input = file();
        FileExt::write_all_at(&input, b"begin", 0).unwrap();
        FileExt::write_all_at(&input, b"end", 64 << 20).unwrap();
        let output = file();
        assert!(copy_bytes(&input, &output, &progress).is_ok());
        let found = output.metadata().unwrap();
        assert_eq!(found.len(), (64 << 20) + 3);
        assert!(found.blocks() * SECTOR_BYTES < 1 << 20);
        let bytes: Vec<u8> = (0..LARGE_BYTES + 12_345)
            .map(|at| (at % 251) as u8)
            .collect();
        let input = file();
        FileExt::write_all_at(&input, &bytes, 0).unwrap();
        let output = file();
        assert!(copy_bytes(&input, &output, &progress).is_ok());
        let mut copied = vec![0; bytes.len()];
        FileExt::read_exact_at(&output, &mut copied, 0).unwrap();
        assert!(copied == bytes && output.metadata().unwrap().len() == bytes.len() as u64);
    }
}
