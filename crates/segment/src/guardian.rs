//! The guardian: ends a program whose pager is gone.
//!
//! Guarantees: the kernel gives pages of zeros to a program whose faults nobody handles any more,
//! as soon as the last descriptor for them is closed; so the guardian keeps one of each, and ends
//! the process at the end of the pager. Until then what faults waits.
//!
//! The guardian is a thread with a table of descriptors of its own: a program that closes all its
//! descriptors does not close the guardian's.

use crate::error::{Error, Result};
use crate::talk::{self, order};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, mpsc};

/// The exit code of a program that cannot go on without its pager.
pub const EXIT_CODE: i32 = 70;

/// Where segments are mapped, so that nothing else is ever unmapped.
pub(crate) type Ranges = Arc<Mutex<Vec<(usize, usize)>>>;

/// Starts the guardian.
pub(crate) fn guard(orders: OwnedFd, ranges: Ranges) -> Result<()> {
    let (ready, is_ready) = mpsc::sync_channel(1);
    let number = orders.as_raw_fd();
    quiet_thread("guardian", move || {
        keep_only(&orders);
        // The starter waits.
        let _ = ready.send(());
        watch(&orders, &ranges);
    })?;
    is_ready.recv().map_err(|_| Error::Pager(Errno::PIPE))?;
    // The guardian has its own copy by now, and never closes this one.
    // SAFETY: the descriptor is ours, and nobody in this table uses it any more.
    unsafe { libc::close(number) };
    Ok(())
}

/// A thread of this library in a program. Signals are the program's, and its handlers may use
/// memory that has to be paged.
pub(crate) fn quiet_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut old = std::mem::MaybeUninit::uninit();
    // SAFETY: both sets are ours; the first is filled before it is used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let builder = std::thread::Builder::new().name(name.to_owned());
    let spawned = builder.spawn(work);
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    Ok(spawned.map(drop)?)
}

/// This thread gets a table of descriptors of its own, with this one alone: whatever the program
/// closes stays open here, and descriptors that it wants closed are not kept open.
fn keep_only(kept: &OwnedFd) {
    const UNSHARE: u32 = 2;
    let number = kept.as_raw_fd() as u32;
    // SAFETY: the calls change nothing but this thread's table of descriptors.
    unsafe {
        libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, UNSHARE);
        if number > 0 {
            libc::syscall(libc::SYS_close_range, 0, number - 1, UNSHARE);
        }
    }
}

/// Carries out orders, and ends the process when there can be no more.
fn watch(orders: &OwnedFd, ranges: &Mutex<Vec<(usize, usize)>>) {
    let mut kept = BTreeMap::new();
    loop {
        let (words, mut fds) = match talk::receive(orders) {
            Ok(Some(message)) => message,
            // Without a segment there is nothing to lose: the connection was given up.
            Ok(None) | Err(_) if ranges.lock().is_empty() => return,
            Ok(None) => end("the pager of its memory is gone"),
            Err(_) => end("the pager of its memory cannot be heard"),
        };
        match words[0] {
            order::UNMAP => unmap(ranges, words[1] as usize, words[2] as usize),
            order::KEEP => drop(fds.pop().map(|uffd| kept.insert(words[1], uffd))),
            order::RELEASE => drop(kept.remove(&words[1])),
            order::END => end("a page of its memory is lost: see what the pager said"),
            _ => {}
        }
    }
}

fn unmap(ranges: &Mutex<Vec<(usize, usize)>>, address: usize, len: usize) {
    let ranges = ranges.lock();
    let within = |(start, size): &(usize, usize)| {
        address >= *start && address.saturating_add(len) <= start.saturating_add(*size)
    };
    if ranges.iter().any(within) {
        let at = address as *mut std::ffi::c_void;
        // SAFETY: the range is a segment's, as long as the lock is held, and of shared memory:
        // its content stays, and the next use is a fault.
        let _ = unsafe { rustix::mm::madvise(at, len, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Ends the process. Its handlers do not run: they could wait for a page for ever.
fn end(why: &str) -> ! {
    let process = std::process::id();
    let text = format!("ariel: process {process} ends: {why}\n");
    // This thread has no standard error of its own.
    if let Ok(file) = std::fs::File::options()
        .append(true)
        .open(format!("/proc/{process}/fd/2"))
    {
        let _ = std::io::Write::write_all(&mut &file, text.as_bytes());
    }
    // SAFETY: the call ends the process and nothing else.
    unsafe { libc::_exit(EXIT_CODE) }
}
