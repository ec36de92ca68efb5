//! The functions of the C library that are taken over: memory from a certain size on comes from the
//! arena, all other memory from where it came before.

use crate::{arena, process};
use libc::{c_int, off_t, pid_t, size_t};
use segment::PAGE;
use std::ffi::{CStr, c_void};
use std::ptr::{copy_nonoverlapping, null_mut};

unsafe extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: size_t) -> *mut c_void;
    fn __libc_memalign(align: size_t, size: size_t) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

fn out_of_memory() {
    // SAFETY: the location is this thread's.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
}

fn taken(memory: *mut c_void) -> *mut c_void {
    if memory.is_null() {
        out_of_memory();
    }
    memory
}

/// The C library's own function of a name that this library has, too.
fn real(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// As malloc(3).
///
/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    if arena::wants(size) {
        return taken(arena::take(size, PAGE));
    }
    // SAFETY: the caller's promises are the callee's.
    unsafe { __libc_malloc(size) }
}

/// As calloc(3).
///
/// # Safety
/// As calloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) if arena::wants(bytes) => taken(arena::take(bytes, PAGE)),
        // SAFETY: the caller's promises are the callee's.
        _ => unsafe { __libc_calloc(count, size) },
    }
}

/// As free(3).
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    let address = memory as usize;
    if arena::holds(address) {
        arena::give(address, arena::size(address));
    } else {
        // SAFETY: the caller's promises are the callee's.
        unsafe { __libc_free(memory) }
    }
}

/// As realloc(3).
///
/// # Safety
/// As realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: size_t) -> *mut c_void {
    let address = memory as usize;
    let here = arena::holds(address);
    if here && (arena::wants(size) || size == 0) {
        if size == 0 {
            arena::give(address, arena::size(address));
            return null_mut();
        }
        return taken(arena::resize(address, size, true));
    }
    if !here && (memory.is_null() || !arena::wants(size)) {
        if arena::wants(size) {
            return taken(arena::take(size, PAGE));
        }
        // SAFETY: the caller's promises are the callee's.
        return unsafe { __libc_realloc(memory, size) };
    }
    // It moves into the arena, or out of it.
    // SAFETY: `memory` is the caller's, and has so many bytes; so has what is taken.
    unsafe {
        let moved = malloc(size);
        if !moved.is_null() {
            let bytes = malloc_usable_size(memory).min(size);
            copy_nonoverlapping(memory.cast::<u8>(), moved.cast(), bytes);
            free(memory);
        }
        moved
    }
}

/// As memalign(3).
///
/// # Safety
/// As memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    if arena::wants(size) && align.is_power_of_two() {
        return taken(arena::take(size, align));
    }
    // SAFETY: the caller's promises are the callee's.
    unsafe { __libc_memalign(align, size) }
}

/// As aligned_alloc(3).
///
/// # Safety
/// As aligned_alloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the caller's promises are the callee's.
    unsafe { memalign(align, size) }
}

/// As valloc(3).
///
/// # Safety
/// As valloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    // SAFETY: the caller's promises are the callee's.
    unsafe { memalign(PAGE, size) }
}

/// As posix_memalign(3).
///
/// # Safety
/// As posix_memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    align: size_t,
    size: size_t,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promises are the callee's, and `result` is the caller's.
    unsafe {
        let memory = memalign(align, size);
        if memory.is_null() {
            return libc::ENOMEM;
        }
        *result = memory;
    }
    0
}

/// As malloc_usable_size(3).
///
/// # Safety
/// As malloc_usable_size(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> size_t {
    if arena::holds(memory as usize) {
        return arena::size(memory as usize);
    }
    let real = real(c"malloc_usable_size");
    // SAFETY: the C library's function of this name has this type.
    let real: unsafe extern "C" fn(*mut c_void) -> size_t = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's promises are the callee's.
    unsafe { real(memory) }
}

/// Is this what the arena is for: private memory of no file, anywhere, to be read and written?
fn is_plain(access: c_int, flags: c_int) -> bool {
    let known = libc::MAP_PRIVATE
        | libc::MAP_ANONYMOUS
        | libc::MAP_NORESERVE
        | libc::MAP_POPULATE
        | libc::MAP_NONBLOCK;
    let wanted = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    access == libc::PROT_READ | libc::PROT_WRITE && flags & wanted == wanted && flags & !known == 0
}

/// As mmap(2).
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: size_t,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    if arena::wants(bytes) && is_plain(access, flags) {
        let memory = arena::take(bytes, PAGE);
        if memory.is_null() {
            out_of_memory();
            return libc::MAP_FAILED;
        }
        return memory;
    }
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if fixed && arena::holds(address as usize) {
        // Something else in the middle of a segment cannot be paged around.
        out_of_memory();
        return libc::MAP_FAILED;
    }
    // SAFETY: the caller's promises are the kernel's.
    unsafe {
        libc::syscall(libc::SYS_mmap, address, bytes, access, flags, file, offset) as *mut c_void
    }
}

/// As mmap(2), where offsets of files are long.
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: size_t,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promises are the callee's.
    unsafe { mmap(address, bytes, access, flags, file, offset) }
}

/// As munmap(2).
///
/// # Safety
/// As munmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: size_t) -> c_int {
    if arena::holds(address as usize) {
        arena::give(address as usize, bytes);
        return 0;
    }
    // SAFETY: the caller's promises are the kernel's.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) as c_int }
}

/// As mremap(2).
///
/// # Safety
/// As mremap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    fixed: *mut c_void,
) -> *mut c_void {
    if !arena::holds(address as usize) {
        // SAFETY: the caller's promises are the kernel's.
        return unsafe {
            libc::syscall(libc::SYS_mremap, address, old, new, flags, fixed) as *mut c_void
        };
    }
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let plain = flags & !libc::MREMAP_MAYMOVE == 0;
    let memory = match plain {
        true => arena::resize(address as usize, new, may_move),
        false => null_mut(),
    };
    if memory.is_null() {
        out_of_memory();
        return libc::MAP_FAILED;
    }
    memory
}

/// As madvise(2). Memory that is not needed becomes zeros, as that of a process alone does.
///
/// # Safety
/// As madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    if !arena::holds(address as usize) {
        // SAFETY: the caller's promises are the kernel's.
        return unsafe { libc::syscall(libc::SYS_madvise, address, bytes, advice) as c_int };
    }
    if [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE].contains(&advice) {
        arena::discard(address as usize, bytes.next_multiple_of(PAGE));
    }
    // All other advice is about how the kernel pages, which it does not do here.
    0
}

/// As mprotect(2).
///
/// # Safety
/// As mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, bytes: size_t, access: c_int) -> c_int {
    if arena::holds(address as usize) {
        arena::was_protected();
    }
    // SAFETY: the caller's promises are the kernel's.
    unsafe { libc::syscall(libc::SYS_mprotect, address, bytes, access) as c_int }
}

/// As fork(2).
///
/// # Safety
/// As fork(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    let real = real(c"fork");
    // SAFETY: the C library's function of this name has this type.
    process::fork(unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> pid_t>(real)
    })
}
