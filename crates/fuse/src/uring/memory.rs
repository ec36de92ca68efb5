//! The memory of seats: where the kernel puts requests and takes their answers from.
//!
//! A seat's memory may be touched by the kernel, only inside system calls of the thread that
//! registered the seat; by that thread, from a request's arrival until it has copied the request
//! out; then by the holder of the right to answer, until the answer is committed. No reference into
//! it is ever made: bytes are copied in and out. Pages that nobody has used cost nothing, so each
//! seat has room for the largest request.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, UringArea, UringEntry, UringHeader};

/// The payload begins here; a whole page, so that it begins with one.
const PAYLOAD: usize = 4096;
/// So much of a payload is kept when memory is given back.
const KEPT: usize = 64 << 10;

/// Part of memory, as the kernel takes it (`struct iovec`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Part {
    base: *mut c_void,
    len: usize,
}

/// A request that was copied out.
pub(super) struct Taken {
    /// Bytes of the whole message.
    pub(super) len: usize,
    /// The number by which the answer's command names it.
    pub(super) commit_id: u64,
}

/// Some seats.
pub(super) struct Seats {
    base: NonNull<u8>,
    payload_len: usize,
    /// Which have used more of their payload than is kept.
    large: Box<[AtomicBool]>,
    any_large: AtomicBool,
}

// SAFETY: the memory belongs to the value until it is dropped, and is accessed by copying only;
// that no two threads do so at once is the rule at the top of this file.
unsafe impl Send for Seats {}
// SAFETY: as above.
unsafe impl Sync for Seats {}

impl Seats {
    pub(super) fn new(count: usize, payload_len: usize) -> Result<Seats, Errno> {
        let len = count * (PAYLOAD + payload_len);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping, at a place of the kernel's choice.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, access, flags)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let large = (0..count).map(|_| AtomicBool::new(false)).collect();
        Ok(Seats {
            base,
            payload_len,
            large,
            any_large: AtomicBool::new(false),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.large.len()
    }

    fn header(&self, seat: usize) -> *mut u8 {
        assert!(seat < self.count(), "there is no seat {seat}");
        // SAFETY: the seat is one of those that the mapping was made for.
        unsafe { self.base.as_ptr().add(seat * (PAYLOAD + self.payload_len)) }
    }

    fn payload(&self, seat: usize) -> *mut u8 {
        // SAFETY: a seat's memory is longer than its head.
        unsafe { self.header(seat).add(PAYLOAD) }
    }

    /// The parts to register.
    pub(super) fn parts(&self, seat: usize) -> [Part; 2] {
        let part = |base: *mut u8, len| Part {
            base: base.cast(),
            len,
        };
        [
            part(self.header(seat), size_of::<UringHeader>()),
            part(self.payload(seat), self.payload_len),
        ]
    }

    /// Copies the request out, as one message. The error: its parts do not fit together, and this
    /// is by what it is answered.
    pub(super) fn take(&self, seat: usize, message: &mut [u8]) -> Result<Taken, u64> {
        let mut head = UringHeader::default();
        // SAFETY: the head lies in the seat's memory, which nobody else touches now; any bytes
        // are a value of the structure.
        unsafe {
            let from = self.header(seat);
            ptr::copy_nonoverlapping(from, head.as_mut_bytes().as_mut_ptr(), size_of_val(&head));
        }
        let (payload_len, commit_id) = (head.entry.payload_sz as usize, head.entry.commit_id);
        let request = InHeader::read_from_prefix(head.in_out.as_bytes());
        let len = request.map_or(0, |(request, _)| request.len as usize);
        let args_len = len
            .checked_sub(size_of::<InHeader>() + payload_len)
            .filter(|args_len| *args_len <= size_of::<UringArea>())
            .ok_or(commit_id)?;
        if payload_len > self.payload_len || len > message.len() {
            return Err(commit_id);
        }
        let (first, rest) = message.split_at_mut(size_of::<InHeader>());
        let (args, rest) = rest.split_at_mut(args_len);
        first.copy_from_slice(&head.in_out.as_bytes()[..first.len()]);
        args.copy_from_slice(&head.op_in.as_bytes()[..args_len]);
        // SAFETY: so many bytes of payload were put there, and `rest` is at least as long.
        unsafe {
            ptr::copy_nonoverlapping(self.payload(seat), rest.as_mut_ptr(), payload_len);
        }
        self.note(seat, payload_len);
        Ok(Taken { len, commit_id })
    }

    /// Puts an answer there. EINVAL: it is longer than any can be.
    pub(super) fn put(
        &self,
        seat: usize,
        (unique, error): (u64, i32),
        slices: &[&[u8]],
    ) -> Result<(), Errno> {
        let payload_len = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if payload_len > self.payload_len {
            return Err(Errno::INVAL);
        }
        let head = OutHeader {
            len: (size_of::<OutHeader>() + payload_len) as u32,
            error,
            unique,
        };
        let entry = UringEntry {
            payload_sz: payload_len as u32,
            ..UringEntry::default()
        };
        let mut at = self.payload(seat);
        // SAFETY: the places lie in the seat's memory, which nobody else touches now, and the
        // payload is as long as was checked.
        unsafe {
            let to = self.header(seat);
            ptr::copy_nonoverlapping(head.as_bytes().as_ptr(), to, size_of_val(&head));
            let to = to.add(offset_of!(UringHeader, entry));
            ptr::copy_nonoverlapping(entry.as_bytes().as_ptr(), to, size_of_val(&entry));
            for slice in slices {
                ptr::copy_nonoverlapping(slice.as_ptr(), at, slice.len());
                at = at.add(slice.len());
            }
        }
        self.note(seat, payload_len);
        Ok(())
    }

    fn note(&self, seat: usize, payload_len: usize) {
        if payload_len > KEPT {
            self.large[seat].store(true, Ordering::Relaxed);
            self.any_large.store(true, Ordering::Relaxed);
        }
    }

    /// May there be seats that hold memory that they do not need while they are empty?
    pub(super) fn any_large(&self) -> bool {
        self.any_large.load(Ordering::Relaxed)
    }

    /// Forgets that, before each seat is trimmed that is empty; the others say it again.
    pub(super) fn begin_trim(&self) {
        self.any_large.store(false, Ordering::Relaxed);
    }

    /// The seat is not empty: its memory is given back another time.
    pub(super) fn trim_later(&self, seat: usize) {
        if self.large[seat].load(Ordering::Relaxed) {
            self.any_large.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the memory of an empty seat back but for a little. To be called by the thread that
    /// registered it.
    pub(super) fn trim(&self, seat: usize) {
        if !self.large[seat].swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(len) = self.payload_len.checked_sub(KEPT) else {
            return;
        };
        // SAFETY: the range is part of the mapping, and holds nothing: the seat is empty.
        let given = unsafe {
            let from = self.payload(seat).add(KEPT);
            rustix::mm::madvise(from.cast(), len, Advice::LinuxDontNeed)
        };
        if let Err(errno) = given {
            tracing::debug!(%errno, "memory of requests is kept");
        }
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let len = self.count() * (PAYLOAD + self.payload_len);
        // SAFETY: the mapping that `new` made. The kernel writes to it only inside system calls
        // of the thread that registered the seats, which keeps them alive as long as it runs.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "a mapping can be removed: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fill(seats: &Seats, seat: usize, len: u32, args: &[u8], payload: &[u8]) {
        let mut head = UringHeader::default();
        let request = InHeader {
            len,
            opcode: 15,
            unique: 8,
            ..InHeader::default()
        };
        head.in_out.as_mut_bytes()[..40].copy_from_slice(request.as_bytes());
        head.op_in.as_mut_bytes()[..args.len()].copy_from_slice(args);
        head.entry.commit_id = 9;
        head.entry.payload_sz = payload.len() as u32;
        // SAFETY: both places are in the seat's memory.
        unsafe {
            let (at, to) = (seats.header(seat), seats.payload(seat));
            ptr::copy_nonoverlapping(head.as_bytes().as_ptr(), at, size_of_val(&head));
            ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len());
        }
    }

    #[test]
    fn a_request_becomes_one_message_again() {
        let seats = Seats::new(3, 8192).unwrap();
        fill(&seats, 1, 40 + 4 + 3, &[1, 2, 3, 4], b"abc");
        let mut message = [0; 100];
        let taken = seats.take(1, &mut message).unwrap();
        assert_eq!((taken.len, taken.commit_id), (47, 9));
        assert_eq!(message[40..47], [1, 2, 3, 4, b'a', b'b', b'c']);
    }

    #[test]
    fn parts_that_do_not_fit_together_are_refused() {
        let seats = Seats::new(1, 8192).unwrap();
        let mut message = [0; 10_000];
        for (len, payload) in [(0, 0), (39, 0), (40, 1), (40 + 129, 0), (40 + 8193, 8193)] {
            fill(&seats, 0, len, &[], &vec![0; payload.min(8192)]);
            if payload == 8193 {
                let at = offset_of!(UringHeader, entry) + offset_of!(UringEntry, payload_sz);
                // SAFETY: a field of the seat's head.
                unsafe { seats.header(0).add(at).cast::<u32>().write(8193) };
            }
            assert_eq!(seats.take(0, &mut message).err(), Some(9), "{len}");
        }
        fill(&seats, 0, 40 + 128, &[5; 128], b"");
        assert_eq!(seats.take(0, &mut message).unwrap().len, 168);
        assert_eq!(seats.take(0, &mut message[..167]).err(), Some(9));
    }

    #[test]
    fn an_answer_that_is_too_long_is_refused_and_a_long_one_is_trimmed() {
        let seats = Seats::new(2, 1 << 20).unwrap();
        let bytes = vec![7; 1 << 20];
        assert_eq!(seats.put(0, (1, 0), &[&bytes, &[1]]), Err(Errno::INVAL));
        assert!(!seats.any_large());
        seats.put(0, (1, 0), &[&bytes[..9], &bytes[9..]]).unwrap();
        assert!(seats.any_large());
        seats.begin_trim();
        seats.trim(0);
        // SAFETY: bytes of the seat's payload.
        let (kept, given) = unsafe {
            let payload = seats.payload(0);
            (payload.add(KEPT - 1).read(), payload.add(KEPT).read())
        };
        assert_eq!((kept, given, seats.any_large()), (7, 0, false));
    }
}
