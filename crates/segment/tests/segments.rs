//! Segments over a local directory: contents, forks, limits, several threads, and the pager's
//! death. Needs userfaultfd; says `SKIPPED` where the kernel keeps it from this user.
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_segment::{Connection, Error, Fork, Joined, LocalStore, PAGE, Pager, Segment};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

/// A pager of this process, and a connection to it.
struct Local {
    connection: Connection,
    path: std::path::PathBuf,
    _dir: TempDir,
}

fn local(name: &str, frames: u32) -> Option<Local> {
    let dir = tempfile::tempdir().unwrap();
    let pager = Pager::start(LocalStore::new(dir.path()), frames).unwrap();
    let path = dir.path().join("pager");
    pager.listen(&path).unwrap();
    let connection = Connection::new(&path).unwrap();
    match connection.make(PAGE as u64, 0) {
        Ok(_) => {}
        Err(error @ Error::Faults(_)) => {
            assert!(std::env::var_os("CI").is_none(), "{name}: {error}");
            println!("SKIPPED {name}: {error}");
            return None;
        }
        Err(error) => panic!("{name}: {error}"),
    }
    Some(Local {
        connection,
        path,
        _dir: dir,
    })
}

fn counter(connection: &Connection, name: &str) -> u64 {
    let counters = connection.counters().unwrap();
    counters.iter().find(|(known, _)| *known == name).unwrap().1
}

fn fill(segment: &mut Segment, seed: u64) {
    for (at, page) in segment.bytes_mut().chunks_exact_mut(PAGE).enumerate() {
        let value = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64;
        page[..8].copy_from_slice(&value.to_ne_bytes());
        page[PAGE - 8..].copy_from_slice(&value.to_ne_bytes());
    }
}

#[track_caller]
fn check(segment: &Segment, seed: u64, pages: impl Iterator<Item = usize>) {
    for at in pages {
        let value = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64).to_ne_bytes();
        let page = &segment.bytes()[at * PAGE..(at + 1) * PAGE];
        assert!(page[..8] == value && page[PAGE - 8..] == value, "page {at}");
        assert!(page[8..PAGE - 8].iter().all(|byte| *byte == 0), "page {at}");
    }
}

#[test]
fn more_memory_than_frames_keeps_its_content() {
    let Some(local) = local("more_memory_than_frames_keeps_its_content", 512) else {
        return;
    };
    let mut segment = local.connection.make(2048 * PAGE as u64, 0).unwrap();
    fill(&mut segment, 7);
    check(&segment, 7, 0..2048);
    check(&segment, 7, (0..2048).rev());
    let figures = segment.figures().unwrap();
    assert!(figures.frames <= 512, "{figures:?}");
    let before = counter(&local.connection, "stored");
    check(&segment, 7, 0..2048);
    // Nothing was changed: nothing is written again.
    assert_eq!(counter(&local.connection, "stored"), before);
    assert!(counter(&local.connection, "read ahead") > 1000);
}

#[test]
fn untouched_pages_cost_nothing_and_are_zeros() {
    let Some(local) = local("untouched_pages_cost_nothing_and_are_zeros", 512) else {
        return;
    };
    let segment = local.connection.make(1 << 40, 0).unwrap();
    for at in 0..200_usize {
        assert_eq!(segment.bytes()[at << 31], 0);
    }
    let figures = segment.figures().unwrap();
    assert_eq!((figures.frames, figures.stored, figures.dirty), (200, 0, 0));
}

#[test]
fn a_limit_of_a_segment_holds() {
    let Some(local) = local("a_limit_of_a_segment_holds", 4096) else {
        return;
    };
    let mut segment = local.connection.make(1024 * PAGE as u64, 64).unwrap();
    fill(&mut segment, 3);
    assert!(segment.figures().unwrap().frames <= 64);
    segment.set_limit(512).unwrap();
    check(&segment, 3, 0..1024);
    let frames = segment.figures().unwrap().frames;
    assert!(frames > 64 && frames <= 512, "{frames}");
}

#[test]
fn children_of_all_kinds_see_the_parent_as_it_was() {
    let Some(local) = local("children_of_all_kinds_see_the_parent_as_it_was", 600) else {
        return;
    };
    let mut parent = local.connection.make(512 * PAGE as u64, 0).unwrap();
    fill(&mut parent, 1);
    let kinds = [Fork::Copy, Fork::OnWrite, Fork::OnReference, Fork::CowCor];
    let mut children: Vec<_> = kinds.map(|kind| parent.fork(kind, 0).unwrap()).into();
    fill(&mut parent, 2);
    let mut grandchild = children[3].fork(Fork::CowCor, 0).unwrap();
    for child in &children {
        check(child, 1, 0..512);
    }
    fill(&mut children[1], 4);
    fill(&mut grandchild, 5);
    check(&parent, 2, 0..512);
    drop(parent);
    check(&children[0], 1, 0..512);
    check(&children[2], 1, (0..512).rev());
    drop(children.remove(2));
    check(&children[2], 1, 0..512);
    check(&children[1], 4, 0..512);
    check(&grandchild, 5, 0..512);
}

/// One thread writes counts to pages in turn. A child holds what was there at one moment: in each
/// page the last count that was written to it before.
#[test]
fn a_fork_shows_one_moment_of_what_a_thread_writes() {
    const PAGES: u64 = 64;
    let Some(local) = local("a_fork_shows_one_moment_of_what_a_thread_writes", 4096) else {
        return;
    };
    let parent = local.connection.make(PAGES * PAGE as u64, 0).unwrap();
    let address = parent.as_ptr() as usize;
    let (written, end) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !end.load(Ordering::Relaxed) {
                count += 1;
                let at = address + (count % PAGES) as usize * PAGE;
                // SAFETY: the word is in the segment, which outlives the thread, and aligned.
                unsafe { AtomicU64::from_ptr(at as *mut u64) }.store(count, Ordering::Release);
                written.store(count, Ordering::Release);
            }
        });
        // Also when a check fails.
        let _end = Ends(&end);
        for round in 0..40 {
            // Each fork finds pages that were written since the last one.
            let before = written.load(Ordering::Acquire);
            while written.load(Ordering::Acquire) < before.max(1) + 2 * PAGES {
                std::thread::yield_now();
            }
            let child = match round % 2 {
                0 => parent.fork(Fork::CowCor, 0),
                // As another process does, which cannot unmap the parent's pages.
                _ => local.connection.fork(parent.id(), Fork::CowCor, 0),
            };
            let child = child.unwrap();
            let words = child.bytes().chunks_exact(PAGE).map(|page| {
                let word = page[..8].try_into();
                u64::from_ne_bytes(word.unwrap())
            });
            let words: Vec<u64> = words.collect();
            let last = *words.iter().max().unwrap();
            for (page, word) in words.iter().enumerate() {
                let behind = (last % PAGES + PAGES - page as u64) % PAGES;
                assert_eq!(
                    *word,
                    last - behind,
                    "round {round}, page {page}: {words:?}"
                );
            }
        }
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn discarded_pages_are_zeros() {
    let Some(local) = local("discarded_pages_are_zeros", 128) else {
        return;
    };
    let mut segment = local.connection.make(256 * PAGE as u64, 0).unwrap();
    fill(&mut segment, 1);
    let child = segment.fork(Fork::CowCor, 0).unwrap();
    segment.discard(10, 200).unwrap();
    assert!(
        segment.bytes()[10 * PAGE..210 * PAGE]
            .iter()
            .all(|byte| *byte == 0)
    );
    check(&segment, 1, (0..10).chain(210..256));
    check(&child, 1, 0..256);
    assert!(segment.discard(250, 7).is_err());
}

#[test]
fn threads_share_a_segment() {
    let Some(local) = local("threads_share_a_segment", 256) else {
        return;
    };
    let segment = local.connection.make(1024 * PAGE as u64, 0).unwrap();
    let (threads, rounds) = (8_usize, 4_u64);
    let begin = Barrier::new(threads);
    let address = segment.as_ptr() as usize;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                for round in 1..=rounds {
                    // Each thread has a word of its own in every page.
                    for page in 0..1024 {
                        let page = (page * 7 + thread * 131) % 1024;
                        let word = (address + page * PAGE + thread * 8) as *mut u64;
                        // SAFETY: the word is this thread's alone, within the segment.
                        unsafe {
                            assert_eq!(word.read_volatile(), round - 1);
                            word.write_volatile(round);
                        }
                    }
                }
            });
        }
    });
    for page in 0..1024 {
        for thread in 0..threads {
            let at = page * PAGE + thread * 8;
            let word = &segment.bytes()[at..at + 8];
            assert_eq!(word, rounds.to_ne_bytes());
        }
    }
}

#[test]
fn system_calls_read_and_write_segments() {
    let Some(local) = local("system_calls_read_and_write_segments", 64) else {
        return;
    };
    use std::io::{Read, Seek, Write};
    let mut segment = local.connection.make(256 * PAGE as u64, 0).unwrap();
    fill(&mut segment, 9);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(segment.bytes()).unwrap();
    segment.discard(0, 256).unwrap();
    file.rewind().unwrap();
    file.read_exact(segment.bytes_mut()).unwrap();
    check(&segment, 9, 0..256);
}

#[test]
fn segments_go_with_their_connection() {
    let Some(local) = local("segments_go_with_their_connection", 512) else {
        return;
    };
    let mine = local.connection.make(PAGE as u64, 0).unwrap();
    // A connection that another process would have, and ends.
    let joined = Joined::new(&local.path).unwrap();
    let child = joined.fork(mine.id(), Fork::CowCor, 0).unwrap();
    assert_eq!(local.connection.segments().unwrap().len(), 2);
    drop((joined, child));
    // Nothing tells when the pager has seen the end: this looks again, a limited number of times.
    let gone = (0..1000).any(|_| {
        std::thread::yield_now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        local.connection.segments().unwrap().len() == 1
    });
    assert!(gone);
    assert!(local.connection.fork(99, Fork::Copy, 0).is_err());
    let (other, _) = UnixDatagram::pair().unwrap();
    assert!(Joined::over(OwnedFd::from(other)).is_err());
}
