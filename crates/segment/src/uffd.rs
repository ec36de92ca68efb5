//! userfaultfd: how the kernel tells of faults, and how they are answered.
//!
//! Guarantees: the calls that change what a program sees take effect or return an error; a call
//! that the kernel asks to repeat (`EAGAIN`: the program changes its mappings meanwhile) is
//! repeated here. A program that is gone is no error: there is nobody left to serve.

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of a page.
pub const PAGE: usize = 4096;

const API: u64 = 0xaa;
/// The features needed of the kernel: faults of shared memory that is missing, that is there and
/// not mapped (5.13), that is protected (5.19), and the thread that met the fault.
const FEATURES: u64 = PAGEFAULT_FLAG_WP | MISSING_SHMEM | THREAD_ID | MINOR_SHMEM | WP_SHMEM;
const PAGEFAULT_FLAG_WP: u64 = 1;
const MISSING_SHMEM: u64 = 1 << 5;
const THREAD_ID: u64 = 1 << 8;
const MINOR_SHMEM: u64 = 1 << 10;
const WP_SHMEM: u64 = 1 << 12;

const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const MODE_MINOR: u64 = 4;

const PROTECT: u64 = 1;
const CONTINUE_PROTECTED: u64 = 2;

const EVENT_PAGEFAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1;

/// The numbers of the calls: direction, size, type 0xaa and number.
const fn call(direction: u64, number: u64, size: usize) -> u64 {
    (direction << 30) | ((size as u64) << 16) | (0xaa << 8) | number
}
const READ_WRITE: u64 = 3;
const IOCTL_API: u64 = call(READ_WRITE, 0x3f, 24);
const IOCTL_REGISTER: u64 = call(READ_WRITE, 0x00, 32);
const IOCTL_WAKE: u64 = call(2, 0x02, 16);
const IOCTL_ZEROPAGE: u64 = call(READ_WRITE, 0x04, 32);
const IOCTL_WRITEPROTECT: u64 = call(READ_WRITE, 0x06, 24);
const IOCTL_CONTINUE: u64 = call(READ_WRITE, 0x07, 32);

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) address: u64,
    pub(crate) write: bool,
    pub(crate) thread: u32,
}

/// The kernel's side of the memory of one program.
#[derive(Debug)]
pub(crate) struct Uffd(OwnedFd);

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Uffd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Uffd {
    /// For the memory of this process.
    pub(crate) fn new() -> Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes flags and returns a descriptor that is ours.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let uffd = match fd {
            0.. => {
                // SAFETY: the kernel has just returned this descriptor to this caller alone.
                Self(unsafe { OwnedFd::from_raw_fd(fd as i32) })
            }
            _ => Self::by_device().map_err(|_| Error::Faults(last_errno()))?,
        };
        let mut words = [API, FEATURES, 0];
        uffd.ioctl(IOCTL_API, &mut words).map_err(Error::Kernel)?;
        Ok(uffd)
    }

    /// Where the system call is for root alone, the device may be given to others.
    fn by_device() -> std::result::Result<Self, Errno> {
        use rustix::fs::{Mode, OFlags};
        const IOCTL_NEW: u64 = 0xaa00;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/userfaultfd", flags, Mode::empty())?;
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes flags and returns a descriptor that is ours.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOCTL_NEW, flags) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the kernel has just returned this descriptor to this caller alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Calls the kernel with words that it reads and writes.
    fn ioctl<const N: usize>(
        &self,
        number: u64,
        words: &mut [u64; N],
    ) -> std::result::Result<(), Errno> {
        // SAFETY: `words` has the size that the call's number names, and outlives the call.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), number, words.as_mut_ptr()) };
        if done < 0 { Err(last_errno()) } else { Ok(()) }
    }

    /// Faults of this range come here from now on.
    pub(crate) fn register(&self, address: usize, len: usize) -> Result<()> {
        let modes = MODE_MISSING | MODE_WP | MODE_MINOR;
        let mut words = [address as u64, len as u64, modes, 0];
        self.ioctl(IOCTL_REGISTER, &mut words)
            .map_err(Error::Kernel)
    }

    /// The next faults, without waiting.
    pub(crate) fn read(&self, faults: &mut Vec<Fault>) -> std::result::Result<(), Errno> {
        // struct uffd_msg: event; at 8: flags, at 16: address, at 24: the thread.
        let mut buffer = [[0_u64; 4]; 16];
        let len = size_of_val(&buffer);
        // SAFETY: the buffer is ours, and as long as is said.
        let count = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), len) };
        if count < 0 {
            return match last_errno() {
                Errno::AGAIN | Errno::INTR => Ok(()),
                error => Err(error),
            };
        }
        let messages = &buffer[..count as usize / 32];
        let is_fault = |message: &&[u64; 4]| message[0] as u8 == EVENT_PAGEFAULT;
        faults.extend(messages.iter().filter(is_fault).map(|message| Fault {
            write: message[1] & FAULT_WRITE != 0,
            address: message[2],
            thread: message[3] as u32,
        }));
        Ok(())
    }

    /// Maps the pages in the memory's frames. Pages that are mapped already get the wanted
    /// protection.
    pub(crate) fn map(&self, address: usize, len: usize, writable: bool) -> Result<()> {
        let mode = if writable { 0 } else { CONTINUE_PROTECTED };
        let mut done = 0;
        while done < len {
            let (at, rest) = (address + done, len - done);
            let mut words = [at as u64, rest as u64, mode, 0];
            let result = self.ioctl(IOCTL_CONTINUE, &mut words);
            done += (words[3] as i64).max(0) as usize;
            match result {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    self.protect(address + done, PAGE, !writable)?;
                    self.wake(address + done, PAGE)?;
                    done += PAGE;
                }
                Err(error) => match again(error)? {
                    Again::Yes => {}
                    Again::Gone => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Makes and maps frames of zeros, which may be written.
    pub(crate) fn zero(&self, address: usize, len: usize) -> Result<()> {
        loop {
            let mut words = [address as u64, len as u64, 0, 0];
            match self.ioctl(IOCTL_ZEROPAGE, &mut words) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => return self.map(address, len, true),
                Err(error) => match again(error)? {
                    Again::Yes => {}
                    Again::Gone => return Ok(()),
                },
            }
        }
    }

    /// Writes are faults from now on, or are not any more (and wait no longer).
    pub(crate) fn protect(&self, address: usize, len: usize, protected: bool) -> Result<()> {
        let mode = if protected { PROTECT } else { 0 };
        loop {
            let mut words = [address as u64, len as u64, mode];
            match self.ioctl(IOCTL_WRITEPROTECT, &mut words) {
                Ok(()) => return Ok(()),
                Err(error) => match again(error)? {
                    Again::Yes => {}
                    Again::Gone => return Ok(()),
                },
            }
        }
    }

    /// Threads that wait for these pages try again.
    fn wake(&self, address: usize, len: usize) -> Result<()> {
        let mut words = [address as u64, len as u64];
        match self.ioctl(IOCTL_WAKE, &mut words) {
            Ok(()) => Ok(()),
            Err(error) => again(error).map(drop),
        }
    }
}

enum Again {
    Yes,
    Gone,
}

/// The meaning of the kernel's refusal of an answer.
fn again(error: Errno) -> Result<Again> {
    match error {
        Errno::AGAIN | Errno::INTR => Ok(Again::Yes),
        // No such process, or no such mapping any more: the program has ended or unmaps it.
        Errno::SRCH | Errno::NOENT => Ok(Again::Gone),
        error => Err(Error::Kernel(error)),
    }
}

pub(crate) fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
