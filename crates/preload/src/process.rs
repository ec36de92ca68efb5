//! This process's connection to its pager: made when the program starts, and made anew in the child
//! of a fork, whose segment is a fork of its parent's.

use crate::arena;
use parking_lot::Mutex;
use segment::{Connection, Fork, Joined, Segment};
use std::path::PathBuf;

/// Memory from this size on is the arena's: the size from which on the C library, too, takes memory
/// from the kernel for each request.
const LEAST_BYTES: usize = 128 << 10;

struct Process {
    path: PathBuf,
    segment: Segment,
}

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Some(path) = std::env::var_os("ARIEL_PAGER").map(PathBuf::from) else {
        return;
    };
    let bytes = std::env::var("ARIEL_FAR").ok();
    let bytes = bytes.and_then(|text| text.parse().ok()).unwrap_or(4 << 30);
    let made = Connection::new(&path).and_then(|connection| connection.make(bytes, 0));
    match made {
        Ok(segment) => {
            let (start, len) = (segment.as_ptr() as usize, segment.len());
            *PROCESS.lock() = Some(Process { path, segment });
            arena::begin(start, len, LEAST_BYTES);
        }
        Err(error) => {
            // It was asked to run within its memory; without a pager it would not.
            eprintln!("ariel: run: {error}");
            // SAFETY: the call ends the process and nothing else.
            unsafe { libc::_exit(segment::EXIT_CODE) }
        }
    }
}

/// Makes pages of the arena zeros.
pub(crate) fn discard(page: u64, count: u64) {
    let process = PROCESS.lock();
    let Some(process) = process.as_ref() else {
        return;
    };
    let segment = &process.segment;
    if let Err(error) = segment.connection().discard(segment.id(), page, count) {
        // The memory would not be zeros when it is given out again.
        eprintln!("ariel: run: {error}");
        // SAFETY: the call ends the process and nothing else.
        unsafe { libc::_exit(segment::EXIT_CODE) }
    }
}

/// fork(2): the child's arena is a copy-on-write, copy-on-reference child of this one.
pub(crate) fn fork(real: unsafe extern "C" fn() -> libc::pid_t) -> libc::pid_t {
    // Held over the fork: in the child no other thread would ever release them.
    let runs = arena::RUNS.lock();
    let mut process = PROCESS.lock();
    let Some(parent) = process.as_ref() else {
        drop((process, runs));
        // SAFETY: the C library's own function.
        return unsafe { real() };
    };
    let id = parent.segment.id();
    let prepared = Joined::new(&parent.path).and_then(|joined| {
        let child = joined.fork(id, Fork::CowCor, 0)?;
        Ok((joined, child))
    });
    let Ok((joined, child)) = prepared else {
        // SAFETY: the location is this thread's.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return -1;
    };
    // SAFETY: the C library's own function.
    let pid = unsafe { real() };
    if pid != 0 {
        return pid;
    }
    let parent = process.take();
    let parent = parent.expect("the parent has just looked at it");
    let start = parent.segment.as_ptr() as usize;
    parent.segment.abandon();
    let begun = joined.begin().and_then(|connection| {
        // SAFETY: the range was kept from this child: nothing is there, and nothing uses it before
        // this returns.
        unsafe { connection.replace(child, start) }
    });
    match begun {
        Ok(segment) => {
            *process = Some(Process {
                path: parent.path,
                segment,
            });
        }
        Err(error) => {
            eprintln!("ariel: run: {error}");
            // SAFETY: the call ends the process and nothing else.
            unsafe { libc::_exit(segment::EXIT_CODE) }
        }
    }
    pid
}
