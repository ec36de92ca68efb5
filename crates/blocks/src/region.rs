//! Address space from the kernel, and the pages in it.
//!
//! Guarantees: a page is whole and aligned, within a region that is mapped as long as the pool or
//! one of its blocks is there.

use crate::BLOCK_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;

/// A page; its user must know that it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Page(NonNull<u8>);

// SAFETY: it is an address; the bytes there are used by the rules of the pool alone.
unsafe impl Send for Page {}
// SAFETY: as above: a shared page is only read.
unsafe impl Sync for Page {}

impl Page {
    /// The page so many pages behind, of the same region or its end.
    pub(crate) fn after(self, pages: usize) -> Page {
        Page(
            self.0
                .map_addr(|addr| addr.saturating_add(pages * BLOCK_BYTES)),
        )
    }

    fn raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// Has the kernel put memory behind so many pages from here on.
    pub(crate) fn fill(self, pages: usize) {
        // SAFETY: the pages are mapped, and no block uses them. Where the kernel does not know the
        // advice, or refuses it, the first use of each page does the same.
        let _ = unsafe { madvise(self.raw(), pages * BLOCK_BYTES, Advice::LinuxPopulateWrite) };
    }

    /// Gives the memory of so many pages from here on back to the machine; they are zeros then.
    pub(crate) fn give_back(self, pages: usize) {
        // SAFETY: the pages are mapped, no block uses them, and they are on no list.
        let done = unsafe { madvise(self.raw(), pages * BLOCK_BYTES, Advice::LinuxDontNeed) };
        debug_assert!(done.is_ok(), "pages of this process can be given back");
    }

    /// The bytes of the page.
    ///
    /// # Safety
    /// It is mapped, and nobody writes it for as long as this is used.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: by the caller; every byte of a mapped page has a value.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BLOCK_BYTES) }
    }

    /// The same, to be changed.
    ///
    /// # Safety
    /// It is mapped, and nobody else reads or writes it for as long as this is used.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), BLOCK_BYTES) }
    }
}

/// A mapping; unmapped when it is dropped.
pub(crate) struct Region {
    first: Page,
    pages: usize,
}

impl Region {
    /// Maps so many pages. A process that cannot have address space ends, as by any allocation.
    pub(crate) fn new(pages: usize) -> Region {
        let bytes = pages * BLOCK_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, wherever there is room.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let first = mapped
            .ok()
            .and_then(|first| NonNull::new(first.cast::<u8>()));
        let Some(first) = first else {
            let layout = Layout::from_size_align(bytes, BLOCK_BYTES);
            handle_alloc_error(layout.expect("a region is smaller than the address space"));
        };
        // A huge page would keep all its memory while one block of it is used.
        // SAFETY: it is the mapping of just now. A kernel without huge pages refuses.
        let _ = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        // No core dump needs the cache.
        // SAFETY: as above.
        let _ = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        let first = Page(first);
        Region { first, pages }
    }

    pub(crate) fn first(&self) -> Page {
        self.first
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: dropped with the pool's lists, when no block is left that could use it.
        let _ = unsafe { munmap(self.first.raw(), self.pages * BLOCK_BYTES) };
    }
}
