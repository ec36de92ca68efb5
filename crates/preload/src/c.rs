//! The C interface, as `include/segment.h` declares it.
//!
//! Guarantees: no panic leaves a function, since none of them panics but for a bug; a failure has
//! a text, which the thread that met it can ask for.

use segment::{Connection, Fork, PAGE, Result, Segment, Started};
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A pager, for C.
pub struct Pager {
    connection: Connection,
    socket: CString,
}

/// Figures of a segment; all but the first in pages.
#[repr(C)]
pub struct Figures {
    bytes: u64,
    frames: u64,
    limit: u64,
    dirty: u64,
    stored: u64,
    shared: u64,
}

fn told<T>(result: Result<T>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error.to_string(),
    };
    // A text with a zero byte in it would end there.
    let text = CString::new(error.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    None
}

fn boxed<T>(result: Result<T>) -> *mut T {
    told(result).map_or(null_mut(), |value| Box::into_raw(Box::new(value)))
}

fn done(result: Result<()>) -> c_int {
    told(result).map_or(-1, |()| 0)
}

/// # Safety
/// `text` is a C string.
unsafe fn path<'a>(text: *const c_char) -> &'a Path {
    // SAFETY: the caller promises it.
    Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(text) }.to_bytes(),
    ))
}

fn kind(kind: c_int) -> Fork {
    match kind {
        0 => Fork::Copy,
        1 => Fork::OnWrite,
        2 => Fork::OnReference,
        _ => Fork::CowCor,
    }
}

fn socket(path: &Path) -> CString {
    // A path that a socket has has no zero byte.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// See `segment.h`.
///
/// # Safety
/// `at` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_pager_start(at: *const c_char, memory: u64) -> *mut Pager {
    // SAFETY: the caller promises it.
    let at = unsafe { path(at) };
    boxed(Started::new(at.as_os_str(), memory).map(|started| Pager {
        socket: socket(&started.path),
        connection: started.connection,
    }))
}

/// See `segment.h`.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_pager_connect(at: *const c_char) -> *mut Pager {
    // SAFETY: the caller promises it.
    let at = unsafe { path(at) };
    boxed(Connection::new(at).map(|connection| Pager {
        connection,
        socket: socket(at),
    }))
}

/// See `segment.h`.
///
/// # Safety
/// `pager` came from here and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_pager_socket(pager: *const Pager) -> *const c_char {
    // SAFETY: the caller promises it.
    unsafe { (*pager).socket.as_ptr() }
}

/// See `segment.h`.
///
/// # Safety
/// `pager` is null, or came from here and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_pager_close(pager: *mut Pager) {
    if !pager.is_null() {
        // SAFETY: the caller promises it.
        drop(unsafe { Box::from_raw(pager) });
    }
}

/// See `segment.h`.
///
/// # Safety
/// `pager` came from here and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_make(
    pager: *const Pager,
    bytes: u64,
    limit: u64,
) -> *mut Segment {
    // SAFETY: the caller promises it.
    boxed(unsafe { &*pager }.connection.make(bytes, limit))
}

/// See `segment.h`.
///
/// # Safety
/// `parent` came from here and is not deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_fork(
    parent: *const Segment,
    how: c_int,
    limit: u64,
) -> *mut Segment {
    // SAFETY: the caller promises it.
    boxed(unsafe { &*parent }.fork(kind(how), limit))
}

/// See `segment.h`.
///
/// # Safety
/// `pager` came from here and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_fork_number(
    pager: *const Pager,
    parent: u32,
    how: c_int,
    limit: u64,
) -> *mut Segment {
    // SAFETY: the caller promises it.
    boxed(unsafe { &*pager }.connection.fork(parent, kind(how), limit))
}

/// See `segment.h`.
///
/// # Safety
/// `segment` is null, or came from here and is not deleted, and nothing uses its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_delete(segment: *mut Segment) {
    if !segment.is_null() {
        // SAFETY: the caller promises it.
        drop(unsafe { Box::from_raw(segment) });
    }
}

/// See `segment.h`.
///
/// # Safety
/// `segment` came from here and is not deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_address(segment: *const Segment) -> *mut c_void {
    // SAFETY: the caller promises it.
    unsafe { &*segment }.as_ptr().cast()
}

/// See `segment.h`.
///
/// # Safety
/// `segment` came from here and is not deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_bytes(segment: *const Segment) -> usize {
    // SAFETY: the caller promises it.
    unsafe { &*segment }.len()
}

/// See `segment.h`.
///
/// # Safety
/// `segment` came from here and is not deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_number(segment: *const Segment) -> u32 {
    // SAFETY: the caller promises it.
    unsafe { &*segment }.id()
}

/// See `segment.h`.
///
/// # Safety
/// `segment` came from here and is not deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_discard(
    segment: *const Segment,
    offset: usize,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller promises it.
    let segment = unsafe { &*segment };
    // Part of a page stays as it is.
    let first = offset.div_ceil(PAGE);
    let count = (offset.saturating_add(bytes) / PAGE).saturating_sub(first);
    let connection = segment.connection();
    done(connection.discard(segment.id(), first as u64, count as u64))
}

/// See `segment.h`.
///
/// # Safety
/// `segment` came from here and is not deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_limit(segment: *const Segment, limit: u64) -> c_int {
    // SAFETY: the caller promises it.
    done(unsafe { &*segment }.set_limit(limit))
}

/// See `segment.h`.
///
/// # Safety
/// `segment` came from here and is not deleted; `figures` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ariel_segment_figures(
    segment: *const Segment,
    figures: *mut Figures,
) -> c_int {
    // SAFETY: the caller promises it.
    let found = told(unsafe { &*segment }.figures());
    let Some(found) = found else { return -1 };
    let told = Figures {
        bytes: found.pages * PAGE as u64,
        frames: found.frames,
        limit: found.limit.unwrap_or(0),
        dirty: found.dirty,
        stored: found.stored,
        shared: found.shared,
    };
    // SAFETY: the caller promises it.
    unsafe { figures.write(told) };
    0
}

/// See `segment.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ariel_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
