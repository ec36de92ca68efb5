//! Memory that is not needed any more goes back to the system.

/// Has the allocator give back all whole pages that are free, wherever they are. By itself it gives
/// back only what is free at the end of a heap; so what a cache has dropped would stay.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, changes nothing that is in use, and may be called by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
