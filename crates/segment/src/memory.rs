//! Memory that is shared by a program and its pager: a file without a name in memory, and mappings
//! of it.
//!
//! Guarantees: a mapping lives as long as its owner; a range that is used is within it.

use crate::error::{Error, Result};
use crate::uffd::PAGE;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};

/// Mapped bytes of a memory file.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    len: usize,
}

/// A memory file of so many bytes, without frames.
pub(crate) fn file(bytes: usize) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("ariel-segment", MemfdFlags::CLOEXEC);
    let fd = fd.map_err(Error::Kernel)?;
    rustix::fs::ftruncate(&fd, bytes as u64).map_err(Error::Kernel)?;
    Ok(fd)
}

/// Makes frames of zeros.
pub(crate) fn allocate(file: impl AsFd, offset: usize, len: usize) -> Result<()> {
    let (offset, len) = (offset as u64, len as u64);
    rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len).map_err(Error::Kernel)
}

/// Gives frames up, and unmaps them everywhere.
pub(crate) fn punch(file: impl AsFd, offset: usize, len: usize) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset as u64, len as u64).map_err(Error::Kernel)
}

impl Mapping {
    /// Maps a memory file whole, anywhere.
    pub(crate) fn new(file: impl AsFd, len: usize) -> Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that exists.
        let address = unsafe { map(std::ptr::null_mut(), len, MapFlags::SHARED, file) }?;
        Ok(Self { address, len })
    }

    /// Maps a memory file in the place of what is there.
    ///
    /// # Safety
    /// Nothing uses the range any more, and nothing else will unmap it.
    pub(crate) unsafe fn replace(file: impl AsFd, address: usize, len: usize) -> Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the caller gives the range away.
        let address = unsafe { map(address as *mut _, len, flags, file) }?;
        Ok(Self { address, len })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A child of fork(2) does not get the mapping.
    pub(crate) fn keep_from_children(&self) {
        let at = self.address as *mut std::ffi::c_void;
        // SAFETY: the mapping is ours; its content stays.
        let _ = unsafe { rustix::mm::madvise(at, self.len, rustix::mm::Advice::LinuxDontFork) };
    }

    /// Maps the frames of a range here with one call. Without it each costs a fault of its own.
    pub(crate) fn populate(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len);
        let at = (self.address + offset) as *mut std::ffi::c_void;
        // SAFETY: the range is mapped as long as `self` lives, and its content stays. Where the
        // kernel does not do it (before 5.14) the faults do.
        let _ = unsafe { rustix::mm::madvise(at, len, rustix::mm::Advice::LinuxPopulateWrite) };
    }

    /// Gives the bytes of a range to a function that writes them.
    ///
    /// # Safety
    /// Nothing else reads or writes the range meanwhile: no program maps these frames, and no other
    /// job works on them.
    pub(crate) unsafe fn fill<R>(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        assert!(offset + len <= self.len);
        let at = (self.address + offset) as *mut u8;
        // SAFETY: the range is mapped as long as `self` lives, and the caller alone uses it.
        write(unsafe { std::slice::from_raw_parts_mut(at, len) })
    }

    /// A copy of a range. A program may write it meanwhile: then the copy is of no use, and the
    /// caller finds that out.
    pub(crate) fn copy_out(&self, offset: usize, buffer: &mut [u8]) {
        assert!(offset + buffer.len() <= self.len);
        let from = (self.address + offset) as *const u8;
        // SAFETY: the range is mapped as long as `self` lives; the buffer is apart from it.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) }
    }

    /// Copies one page from another mapping.
    pub(crate) fn copy_page(&self, from: &Self, offset: usize) {
        assert!(offset + PAGE <= self.len && offset + PAGE <= from.len);
        let (from, to) = (from.address + offset, self.address + offset);
        // SAFETY: both pages are mapped as long as their mappings live, and are not the same one.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE) }
    }
}

/// # Safety
/// As mmap(2) with these flags.
unsafe fn map(
    at: *mut std::ffi::c_void,
    len: usize,
    flags: MapFlags,
    file: impl AsFd,
) -> Result<usize> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller answers for the place.
    let address =
        unsafe { rustix::mm::mmap(at, len, access, flags | MapFlags::NORESERVE, file, 0) };
    address.map(|at| at as usize).map_err(Error::Kernel)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping is ours, and its owner is at its end.
            let _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.len) };
        }
    }
}
