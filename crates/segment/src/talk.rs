//! The messages between a program and its pager: short ones of words, with descriptors.
//!
//! A program has two sockets to its pager. On one it makes calls, each with one answer. On the
//! other the pager gives orders, and its end tells that the pager is gone.

use crate::error::{Error, Result};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Words of a message.
const WORDS: usize = 8;
pub(crate) type Words = [u64; WORDS];

/// Descriptors of a message, at most.
const FDS: usize = 2;

/// Calls of a program. The first word of the answer is 0, or an index into [`REFUSALS`] plus 1.
pub(crate) mod call {
    /// The first: with the pager's end of the orders.
    pub(crate) const JOIN: u64 = 1;
    /// Bytes, limit: number and memory of a new segment.
    pub(crate) const MAKE: u64 = 2;
    /// Number, address, with the program's side of its faults.
    pub(crate) const ATTACH: u64 = 3;
    /// Number, kind, limit, 1 if the program has unmapped all since `UNMAPPING`: number, memory and
    /// bytes of the child.
    pub(crate) const FORK: u64 = 4;
    /// Number.
    pub(crate) const DELETE: u64 = 5;
    /// Number, first page, count.
    pub(crate) const DISCARD: u64 = 6;
    /// Number, frames.
    pub(crate) const LIMIT: u64 = 7;
    /// Number: figures.
    pub(crate) const STAT: u64 = 8;
    /// Number: the number of the next segment after this one, of any program, and its process.
    pub(crate) const NEXT: u64 = 9;
    /// The pager's work so far: eight counters from the one of this number on.
    pub(crate) const COUNTERS: u64 = 10;
    /// Number: the program begins to unmap all of it, for a fork.
    pub(crate) const UNMAPPING: u64 = 11;
}

/// Orders of a pager.
pub(crate) mod order {
    /// Address, bytes: the next use is to be a fault.
    pub(crate) const UNMAP: u64 = 1;
    /// Number, with a copy of the program's side of its faults, to be kept.
    pub(crate) const KEEP: u64 = 2;
    /// Number: to be kept no longer.
    pub(crate) const RELEASE: u64 = 3;
    /// The program must end: a page cannot be had or kept.
    pub(crate) const END: u64 = 4;
}

/// Why a call is refused.
pub(crate) const REFUSALS: [&str; 4] = [
    "there is no such segment",
    "a segment has 1 page to 16 TiB, and a limit of at least 16 pages",
    "the pager cannot make the segment: its memory or its descriptors are used up",
    "the pager does not know this call: it is of another version",
];
pub(crate) const NO_SEGMENT: u64 = 1;
pub(crate) const BAD_SIZE: u64 = 2;
pub(crate) const NO_ROOM: u64 = 3;
pub(crate) const UNKNOWN: u64 = 4;

pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    socketpair(AddressFamily::UNIX, kind, flags, None).map_err(Error::Pager)
}

/// Sends a message. `wait`: also while the other side has no room.
pub(crate) fn send(
    to: impl AsFd,
    words: &Words,
    fds: &[BorrowedFd<'_>],
    wait: bool,
) -> std::result::Result<(), Errno> {
    let mut bytes = [0; WORDS * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let mut flags = SendFlags::NOSIGNAL;
    if !wait {
        flags |= SendFlags::DONTWAIT;
    }
    loop {
        match sendmsg(&to, &[IoSlice::new(&bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

/// Waits for a message; `None`: the other side is gone.
pub(crate) fn receive(
    from: impl AsFd,
) -> std::result::Result<Option<(Words, Vec<OwnedFd>)>, Errno> {
    let mut bytes = [0; WORDS * 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let count = loop {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(&from, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?.bytes,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if count != bytes.len() {
        return Ok(None);
    }
    let mut words = [0; WORDS];
    for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let from = <[u8; 8]>::try_from(from);
        *word = u64::from_ne_bytes(from.expect("a chunk of 8 bytes has 8 bytes"));
    }
    Ok(Some((words, fds)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_message_carries_words_and_descriptors_and_an_end_is_seen() {
        let (here, there) = pair().unwrap();
        let words = [1, 2, 3, 4, 5, 6, 7, u64::MAX];
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        send(&here, &words, &[file.as_fd(), file.as_fd()], true).unwrap();
        let (received, fds) = receive(&there).unwrap().unwrap();
        assert_eq!((received, fds.len()), (words, 2));
        drop(here);
        assert!(receive(&there).unwrap().is_none());
    }
}
