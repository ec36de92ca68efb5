//! The answer to one request: given exactly once, by any thread, at any time. A `Reply` that is
//! dropped unanswered answers EIO and says so in the log, so that no caller waits for ever.
//! An answer the kernel no longer wants (the request was aborted, the mount is gone) is no
//! error; a handle or a look-up that was given with it was then never taken.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use client::front::now_ns;
use rustix::io::Errno;
use tracing::{debug, error};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{self, Attr, AttrOut, EntryOut, OpenOut, OutHeader, Statx, StatxOut};
use crate::counters::Counters;
use crate::device::Device;
use crate::directory::DirectoryBuffer;
use crate::uring::Seat;

/// A lifetime that does not end by itself (136 years; larger numbers overflow in old kernels).
pub const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The fate of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel has it.
    Taken,
    /// The kernel no longer wanted it: a handle opened gets no `RELEASE`, a look-up no `FORGET`.
    Unwanted,
}

/// Where an answer goes: to where its request came from.
#[derive(Debug)]
pub(crate) enum Way {
    /// It is written to the device.
    Device(Arc<Device>),
    /// It is left where the request was.
    Seat(Seat),
}

impl Way {
    pub(crate) fn send(&self, unique: u64, error: i32, slices: &[&[u8]]) -> Result<(), Errno> {
        match self {
            Way::Device(device) => write(device, unique, error, slices),
            Way::Seat(seat) => seat.answer(unique, error, slices),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The kernel waits.
    Must,
    /// `INTERRUPT`: an error may be answered.
    May,
    /// `FORGET`: an answer would be an error.
    No,
}

/// Measures how long an answer takes.
#[derive(Debug)]
pub(crate) struct Watch {
    counters: Arc<Counters>,
    came_ns: u64,
    bytes: u64,
}

impl Watch {
    /// A request of so many bytes came.
    pub(crate) fn new(counters: &Arc<Counters>, came_ns: u64, bytes: usize) -> Watch {
        Watch {
            counters: Arc::clone(counters),
            came_ns,
            bytes: bytes as u64,
        }
    }

    fn note(&self, opcode: abi::Opcode, slices: &[&[u8]]) {
        let answer: usize = slices.iter().map(|slice| slice.len()).sum();
        let took_ns = now_ns().saturating_sub(self.came_ns);
        let bytes = self.bytes + answer as u64;
        self.counters.answered(opcode, took_ns, bytes);
    }
}

/// The right, and duty, to answer one request.
#[derive(Debug)]
pub struct Reply {
    watch: Watch,
    way: Way,
    unique: u64,
    opcode: abi::Opcode,
    expected: Expected,
}

impl EntryOut {
    /// A name that exists. `ino` and the rest are in `attr`.
    #[must_use]
    pub fn new(
        nodeid: u64,
        generation: u64,
        attr: Attr,
        name_lifetime: Duration,
        attr_lifetime: Duration,
    ) -> Self {
        EntryOut {
            nodeid,
            generation,
            entry_valid: name_lifetime.as_secs(),
            attr_valid: attr_lifetime.as_secs(),
            entry_valid_nsec: name_lifetime.subsec_nanos(),
            attr_valid_nsec: attr_lifetime.subsec_nanos(),
            attr,
        }
    }

    /// A name that does not exist, which the kernel may remember for `name_lifetime`. (With no
    /// lifetime, ENOENT says the same.)
    #[must_use]
    pub fn absent(name_lifetime: Duration) -> Self {
        Self::new(0, 0, Attr::default(), name_lifetime, Duration::ZERO)
    }
}

impl AttrOut {
    /// Attributes the kernel may keep for `lifetime`.
    #[must_use]
    pub fn new(attr: Attr, lifetime: Duration) -> Self {
        AttrOut {
            attr_valid: lifetime.as_secs(),
            attr_valid_nsec: lifetime.subsec_nanos(),
            padding: 0,
            attr,
        }
    }
}

impl StatxOut {
    /// Attributes the kernel may keep for `lifetime`.
    #[must_use]
    pub fn new(stat: Statx, lifetime: Duration) -> Self {
        StatxOut {
            attr_valid: lifetime.as_secs(),
            attr_valid_nsec: lifetime.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat,
        }
    }
}

impl OpenOut {
    /// A file handle with `abi::fopen` flags.
    #[must_use]
    pub fn new(fh: u64, open_flags: u32) -> Self {
        OpenOut {
            fh,
            open_flags,
            backing_id: 0,
        }
    }
}

impl Reply {
    pub(crate) fn new(way: Way, unique: u64, opcode: abi::Opcode, watch: Watch) -> Self {
        let expected = match opcode {
            // A seat is the kernel's again only when it was answered.
            _ if opcode.expects_reply() || matches!(way, Way::Seat(_)) => Expected::Must,
            abi::Opcode::INTERRUPT => Expected::May,
            _ => Expected::No,
        };
        Reply {
            watch,
            way,
            unique,
            opcode,
            expected,
        }
    }

    /// The request's number, which `INTERRUPT` names.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Done, with nothing to say.
    pub fn ok(self) -> Delivery {
        self.send(0, &[])
    }

    /// Refused, or failed.
    pub fn error(self, errno: Errno) -> Delivery {
        self.send(-errno.raw_os_error(), &[])
    }

    /// To `LOOKUP`, `MKNOD`, `MKDIR`, `SYMLINK` and `LINK`.
    pub fn entry(self, entry: &EntryOut) -> Delivery {
        self.structure(entry)
    }

    /// To `GETATTR` and `SETATTR`.
    pub fn attr(self, attr: &AttrOut) -> Delivery {
        self.structure(attr)
    }

    /// To `OPEN` and `OPENDIR`.
    pub fn open(self, open: &OpenOut) -> Delivery {
        self.structure(open)
    }

    /// To `CREATE` and `TMPFILE`.
    pub fn create(self, entry: &EntryOut, open: &OpenOut) -> Delivery {
        self.slices(&[entry.as_bytes(), open.as_bytes()])
    }

    /// To `WRITE` and `COPY_FILE_RANGE`: the number of bytes written.
    pub fn written(self, size: u32) -> Delivery {
        self.structure(&abi::WriteOut { size, padding: 0 })
    }

    /// To `COPY_FILE_RANGE_64`.
    pub fn copied(self, bytes_copied: u64) -> Delivery {
        self.structure(&abi::CopyFileRangeOut { bytes_copied })
    }

    /// To `STATFS`.
    pub fn statfs(self, statfs: &abi::Kstatfs) -> Delivery {
        self.structure(statfs)
    }

    /// To `GETXATTR` and `LISTXATTR` with size 0. (With another size: `bytes`.)
    pub fn xattr_size(self, size: u32) -> Delivery {
        self.structure(&abi::GetxattrOut { size, padding: 0 })
    }

    /// To `GETLK`.
    pub fn lock(self, lock: &abi::FileLock) -> Delivery {
        self.structure(lock)
    }

    /// To `LSEEK`.
    pub fn position(self, offset: u64) -> Delivery {
        self.structure(&abi::LseekOut { offset })
    }

    /// To `STATX`.
    pub fn statx(self, statx: &StatxOut) -> Delivery {
        self.structure(statx)
    }

    /// To `BMAP`.
    pub fn block(self, block: u64) -> Delivery {
        self.structure(&abi::BmapOut { block })
    }

    /// To `POLL`.
    pub fn poll(self, revents: u32) -> Delivery {
        self.structure(&abi::PollOut {
            revents,
            padding: 0,
        })
    }

    /// To `IOCTL`.
    pub fn ioctl(self, result: i32, output: &[u8]) -> Delivery {
        let head = abi::IoctlOut {
            result,
            ..abi::IoctlOut::default()
        };
        self.slices(&[head.as_bytes(), output])
    }

    /// To `READDIR` and `READDIRPLUS`.
    pub fn directory(self, entries: &DirectoryBuffer) -> Delivery {
        self.bytes(entries.as_bytes())
    }

    /// To `READ`, `READLINK`, `GETXATTR` and `LISTXATTR`.
    pub fn bytes(self, bytes: &[u8]) -> Delivery {
        self.slices(&[bytes])
    }

    /// The same from several places, which are not copied together.
    pub fn slices(self, slices: &[&[u8]]) -> Delivery {
        self.send(0, slices)
    }

    fn structure<T: IntoBytes + Immutable>(self, structure: &T) -> Delivery {
        self.slices(&[structure.as_bytes()])
    }

    fn send(mut self, error: i32, slices: &[&[u8]]) -> Delivery {
        let expected = std::mem::replace(&mut self.expected, Expected::No);
        match expected {
            Expected::No => Delivery::Unwanted,
            Expected::May if error == 0 => Delivery::Unwanted,
            Expected::May | Expected::Must => deliver(&self, error, slices),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.expected == Expected::Must {
            error!(opcode = %self.opcode, unique = self.unique, "request dropped unanswered");
            deliver(self, -Errno::IO.raw_os_error(), &[]);
        }
    }
}

/// Writes an answer. One the kernel finds malformed is followed by EIO, as the caller may still
/// be waiting.
fn deliver(reply: &Reply, error: i32, slices: &[&[u8]]) -> Delivery {
    let sent = reply.way.send(reply.unique, error, slices);
    reply.watch.note(reply.opcode, slices);
    match sent {
        Ok(()) => Delivery::Taken,
        Err(errno) if is_unwanted(errno) => {
            debug!(opcode = %reply.opcode, unique = reply.unique, "answer no longer wanted");
            Delivery::Unwanted
        }
        Err(errno) => {
            error!(opcode = %reply.opcode, unique = reply.unique, %errno, "answer not accepted");
            if let Way::Device(device) = &reply.way {
                // Nobody is left waiting if this fails too: then the request has ended.
                let _ = write(device, reply.unique, -Errno::IO.raw_os_error(), &[]);
            }
            Delivery::Unwanted
        }
    }
}

fn is_unwanted(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN | Errno::PERM
    )
}

/// Most slices of an answer that are not copied together first.
const SLICES_MAX: usize = 320;

/// One answer, written at once.
pub(crate) fn write(
    device: &Device,
    unique: u64,
    error: i32,
    slices: &[&[u8]],
) -> Result<(), Errno> {
    let len = size_of::<OutHeader>() + slices.iter().map(|slice| slice.len()).sum::<usize>();
    let head = OutHeader {
        len: u32::try_from(len).map_err(|_| Errno::INVAL)?,
        error,
        unique,
    };
    if slices.len() > SLICES_MAX {
        let whole = slices.concat();
        return device.write(&[IoSlice::new(head.as_bytes()), IoSlice::new(&whole)]);
    }
    match slices {
        [] => device.write(&[IoSlice::new(head.as_bytes())]),
        [only] => device.write(&[IoSlice::new(head.as_bytes()), IoSlice::new(only)]),
        several => {
            let mut parts = Vec::with_capacity(1 + several.len());
            parts.push(IoSlice::new(head.as_bytes()));
            parts.extend(several.iter().map(|slice| IoSlice::new(slice)));
            device.write(&parts)
        }
    }
}
