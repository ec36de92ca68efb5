//! One open description of `/dev/fuse`: whole messages in, whole messages out. A request's answer
//! goes to the description its request was read from, because the kernel looks for it only there;
//! notifications may go to any. Knows which threads serve requests, so that none of them can
//! block itself with a notification.

use std::cell::Cell;
use std::ffi::c_int;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: joins a fresh description to the connection of an older one.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Path of the device.
pub(crate) const PATH: &str = "/dev/fuse";

thread_local! {
    static SERVES_REQUESTS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one that reads requests.
pub(crate) fn mark_serving_thread() {
    SERVES_REQUESTS.set(true);
}

/// Whether the calling thread reads requests.
pub(crate) fn is_serving_thread() -> bool {
    SERVES_REQUESTS.get()
}

/// The result of a read of the device.
pub(crate) enum Incoming {
    /// A request of this many bytes.
    Request(usize),
    /// The connection is over: unmounted or aborted.
    Over,
}

/// An open description of the device.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Device { fd }
    }

    /// Another description of the same connection, with a queue of its own for what was read
    /// and not answered.
    pub(crate) fn try_clone(&self) -> Result<Device, Errno> {
        let fd = rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let mut old = self.fd.as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, the number of a descriptor, from the address
        // given; `old` outlives the call and the kernel checks what the number refers to.
        unsafe { ioctl(&fd, Updater::<CLONE, u32>::new(&mut old))? };
        Ok(Device { fd })
    }

    /// The next request, into `buffer`. Waits.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Incoming, Errno> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => return Ok(Incoming::Over),
                Ok(len) => return Ok(Incoming::Request(len)),
                // ENOENT: the request was taken back while it was being copied.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => {
                    return Ok(Incoming::Over);
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// One message, which the kernel takes whole or not at all.
    pub(crate) fn write(&self, message: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            match rustix::io::writev(&self.fd, message) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// One buffer of `writev`.
#[repr(C)]
struct Part {
    base: *const u8,
    len: usize,
}

impl From<&[u8]> for Part {
    fn from(bytes: &[u8]) -> Part {
        Part {
            base: bytes.as_ptr(),
            len: bytes.len(),
        }
    }
}

unsafe extern "C" {
    fn writev(fd: c_int, parts: *const Part, count: c_int) -> isize;
}

impl Device {
    /// A message whose last byte cannot be read: the kernel takes it up to there. `Ok`: so it did.
    pub(crate) fn write_but_last(&self, head: &[u8], body: &[u8]) -> Result<(), Errno> {
        /// The page at the beginning of the address space is never mapped.
        const NOWHERE: *const u8 = std::ptr::without_provenance(1);
        let last = Part {
            base: NOWHERE,
            len: 1,
        };
        let parts = [Part::from(head), Part::from(body), last];
        loop {
            // SAFETY: the first two parts point to bytes that outlive the call; the kernel reads
            // them only. It finds that the last one is not mapped, and fails with EFAULT: nothing
            // in this process is read through it.
            let taken =
                unsafe { writev(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as c_int) };
            if taken >= 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::FAULT => return Ok(()),
                Errno::INTR => {}
                errno => return Err(errno),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
