//! The arena: one segment from which a program's large memory is taken.
//!
//! Guarantees: memory that was never given out, or was given back, is zeros and costs nothing.

use crate::process;
use crate::runs::Runs;
use parking_lot::Mutex;
use segment::PAGE;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where the arena is; equal: there is none.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// A smaller request stays with the C library.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Something in the arena was protected.
static PROTECTED: AtomicBool = AtomicBool::new(false);

pub(crate) static RUNS: Mutex<Runs> = Mutex::new(Runs::new());

pub(crate) fn begin(start: usize, bytes: usize, least: usize) {
    RUNS.lock().add(start / PAGE, bytes / PAGE);
    START.store(start, Ordering::Relaxed);
    END.store(start + bytes, Ordering::Relaxed);
    LEAST.store(least, Ordering::Release);
}

pub(crate) fn wants(bytes: usize) -> bool {
    bytes >= LEAST.load(Ordering::Acquire)
}

pub(crate) fn holds(address: usize) -> bool {
    address >= START.load(Ordering::Relaxed) && address < END.load(Ordering::Relaxed)
}

pub(crate) fn start() -> usize {
    START.load(Ordering::Relaxed)
}

pub(crate) fn was_protected() {
    PROTECTED.store(true, Ordering::Relaxed);
}

/// Memory of zeros; null when the arena is full.
pub(crate) fn take(bytes: usize, align: usize) -> *mut c_void {
    let align = align.div_ceil(PAGE).max(1);
    let taken = RUNS.lock().take(bytes.div_ceil(PAGE), align);
    taken.map_or(null_mut(), |page| (page * PAGE) as *mut c_void)
}

/// The bytes from an address to the end of its run.
pub(crate) fn size(address: usize) -> usize {
    let run = RUNS.lock().of(address / PAGE);
    run.map_or(0, |(first, count)| (first + count) * PAGE - address)
}

/// Gives pages back.
pub(crate) fn give(address: usize, bytes: usize) {
    let (page, count) = (address / PAGE, bytes.div_ceil(PAGE));
    if count == 0 {
        return;
    }
    RUNS.lock().leave(page, count);
    if PROTECTED.load(Ordering::Relaxed) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the pages are the arena's, and nobody's at the moment.
        unsafe {
            libc::syscall(libc::SYS_mprotect, page * PAGE, count * PAGE, access);
        }
    }
    discard(page * PAGE, count * PAGE);
    RUNS.lock().give(page, count);
}

/// Makes whole pages zeros.
pub(crate) fn discard(address: usize, bytes: usize) {
    let page = (address - start()) / PAGE;
    process::discard(page as u64, (bytes / PAGE) as u64);
}

/// Changes the size of memory. Null when it is not possible, or not in its place.
pub(crate) fn resize(address: usize, bytes: usize, may_move: bool) -> *mut c_void {
    let (page, count) = (address / PAGE, bytes.div_ceil(PAGE));
    let now = size(address) / PAGE;
    if count <= now {
        give((page + count) * PAGE, (now - count) * PAGE);
        return address as *mut c_void;
    }
    if RUNS.lock().extend(page, count) {
        return address as *mut c_void;
    }
    if !may_move {
        return null_mut();
    }
    let moved = take(bytes, PAGE);
    if !moved.is_null() {
        // SAFETY: both are memory of the arena, the new one is longer, and they are apart.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, moved.cast(), now * PAGE) };
        give(address, now * PAGE);
    }
    moved
}
