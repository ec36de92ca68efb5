//! The state of the thread that writes a link: the bytes that it took from the queue, and, over
//! TLS, those of them that are sealed already.
//!
//! Guarantees: a write never waits. The sealed bytes are the first of those that were taken, and
//! leave before anything else; they count as written when all of them have left.

use crate::queue::{Queue, SLICES, Unsent};
use crate::tls::record::Sealer;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;
use std::net::TcpStream;

/// The pen of a link.
pub(crate) struct Pen {
    unsent: Unsent,
    sealer: Option<Sealer>,
}

impl Pen {
    pub(crate) fn new(sealer: Option<Sealer>) -> Pen {
        Pen {
            unsent: Unsent::default(),
            sealer,
        }
    }

    /// All that was taken is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Takes what leaves next, when all that was taken is written. Returns by how many bytes that
    /// is more than was queued.
    pub(crate) fn take(&mut self, queue: &mut Queue) -> usize {
        self.unsent.take(queue)
    }

    pub(crate) fn clear(&mut self) {
        self.unsent.clear();
    }

    /// Writes once: how many bytes of what was taken have left.
    pub(crate) fn write(&mut self, socket: &TcpStream) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (filled, offered) = self.unsent.fill(&mut slices);
        let slices = &slices[..filled];
        let written = match &mut self.sealer {
            None => send(socket, slices),
            Some(sealer) => send_sealed(sealer, socket, slices),
        };
        match written {
            Ok((written, offered_now)) => {
                self.unsent.advance(written, offered.min(offered_now));
                Ok(written)
            }
            Err(Errno::AGAIN) => {
                self.unsent.advance(0, 1);
                Err(Errno::AGAIN)
            }
            Err(error) => Err(error),
        }
    }
}

/// How many bytes were written, of how many.
fn send(socket: &TcpStream, slices: &[IoSlice<'_>]) -> Result<(usize, usize), Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    let written = sendmsg(socket, slices, &mut control, flags)?;
    Ok((written, slices.iter().map(|slice| slice.len()).sum()))
}

/// The same for the bytes that records protect: none until all records have left.
fn send_sealed(
    sealer: &mut Sealer,
    socket: &TcpStream,
    slices: &[IoSlice<'_>],
) -> Result<(usize, usize), Errno> {
    if sealer.is_empty() {
        let mut plain = [&[] as &[u8]; SLICES];
        for (plain, slice) in plain.iter_mut().zip(slices) {
            *plain = slice;
        }
        let sealed = sealer.seal(&plain[..slices.len()]);
        sealed.map_err(|_| Errno::PROTO)?;
    }
    loop {
        let (written, _) = match send(socket, &sealer.slices()) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        if let Some(plain) = sealer.advance(written) {
            return Ok((plain, plain));
        }
    }
}
