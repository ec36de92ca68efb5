//! Memory that is shared by a program and its pager: a file without a name in memory. Programs map
//! it; the pager reads and writes it as a file: what it does not map costs it no page tables, and
//! the kernel does not fill frames with zeros that are about to be filled otherwise.
//!
//! Guarantees: a mapping lives as long as its owner; a frame that is written is whole before a
//! program maps it.

use crate::error::{Error, Result};
use crate::guardian::quiet_thread;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

/// Parts of a write that the kernel takes at once.
const MOST_PARTS: usize = 1024;
/// Bytes that are copied from file to file at once.
const MOST_COPIED: usize = 64 << 10;

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

/// Makes frames that hold these bytes, or puts the bytes into the frames that are there.
pub(crate) fn write(file: impl AsFd, mut parts: &mut [IoSlice<'_>], offset: usize) -> Result<()> {
    let mut offset = offset as u64;
    while !parts.is_empty() {
        let most = parts.len().min(MOST_PARTS);
        match rustix::io::pwritev(&file, &parts[..most], offset) {
            Ok(0) => return Err(Error::Kernel(Errno::NOSPC)),
            Ok(count) => {
                IoSlice::advance_slices(&mut parts, count);
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::Kernel(error)),
        }
    }
    Ok(())
}

/// The bytes of frames. A program may write them meanwhile: then the copy is of no use, and the
/// caller finds that out.
pub(crate) fn read(file: impl AsFd, buffer: &mut [u8], offset: usize) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[done..], (offset + done) as u64) {
            Ok(0) => return Err(Error::Kernel(Errno::IO)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::Kernel(error)),
        }
    }
    Ok(())
}

/// Makes frames with the content of the same frames of another file.
pub(crate) fn copy(from: impl AsFd, to: impl AsFd, offset: usize, len: usize) -> Result<()> {
    let mut buffer = vec![0; len.min(MOST_COPIED)];
    let mut done = 0;
    while done < len {
        let part = &mut buffer[..MOST_COPIED.min(len - done)];
        read(&from, part, offset + done)?;
        write(&to, &mut [IoSlice::new(part)], offset + done)?;
        done += part.len();
    }
    Ok(())
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

    /// Moves the pages to another place, all at one moment, and leaves the range without any.
    pub(crate) fn set_aside(&self) -> Option<Aside> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let at = self.address as *mut libc::c_void;
        // SAFETY: the range stays mapped, with the same content: its frames are in the file. The
        // kernel chooses the other place.
        let moved = unsafe { libc::mremap(at, self.len, self.len, flags) };
        (moved != libc::MAP_FAILED).then(|| {
            let (address, len) = (moved as usize, self.len);
            Aside {
                _pages: Mapping { address, len },
            }
        })
    }

    /// A child of fork(2) does not get the mapping.
    pub(crate) fn keep_from_children(&self) {
        let at = self.address as *mut std::ffi::c_void;
        // SAFETY: the mapping is ours; its content stays.
        let _ = unsafe { rustix::mm::madvise(at, self.len, rustix::mm::Advice::LinuxDontFork) };
    }
}

/// Pages that nobody uses at this place.
#[must_use]
pub(crate) struct Aside {
    _pages: Mapping,
}

impl Aside {
    /// Unmaps them, which takes the kernel some time: by a thread of its own.
    pub(crate) fn drop_later(self) {
        // Without a thread the closure is dropped, and the pages with it.
        let _ = quiet_thread("segment aside", move || drop(self));
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
