//! A question and its answer over a connection of their own: how machines join a cell, renew their
//! certificates, and are administered. Four bytes of length, then the bytes, each way.
//!
//! Guarantees: neither is longer than [`QUESTION_BYTES_MAX`] and [`ANSWER_BYTES_MAX`], and no more
//! memory is taken than has come; both ends give up at their deadline.

use super::shake::Secured;
use crate::clock;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Duration;

/// Most bytes of a question.
pub(crate) const QUESTION_BYTES_MAX: usize = 16 << 10;
/// Most bytes of an answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A protected connection that carries one question and one answer.
pub(crate) struct Exchange<'a> {
    socket: &'a TcpStream,
    secured: Secured,
    deadline_ns: u64,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(socket: &'a TcpStream, secured: Secured, deadline_ns: u64) -> Exchange<'a> {
        Exchange {
            socket,
            secured,
            deadline_ns,
        }
    }

    /// It is given up only then.
    pub(crate) fn extend(&mut self, deadline_ns: u64) {
        self.deadline_ns = deadline_ns;
    }

    fn left(&self) -> io::Result<Duration> {
        match self.deadline_ns.saturating_sub(clock::now_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        }
    }

    pub(crate) fn say(&mut self, text: &[u8]) -> io::Result<()> {
        let len = u32::try_from(text.len())
            .map_err(io::Error::other)?
            .to_le_bytes();
        let mut said = 0;
        let total = len.len() + text.len();
        while said < total {
            let rest = text
                .get(said.saturating_sub(len.len())..)
                .unwrap_or_default();
            let head = len.get(said..).unwrap_or_default();
            self.secured.sealer.seal(&[head, rest])?;
            loop {
                self.socket.set_write_timeout(Some(self.left()?))?;
                let written = {
                    let mut control = SendAncillaryBuffer::default();
                    let flags = SendFlags::NOSIGNAL;
                    sendmsg(
                        self.socket,
                        &self.secured.sealer.slices(),
                        &mut control,
                        flags,
                    )?
                };
                if let Some(plain) = self.secured.sealer.advance(written) {
                    said += plain;
                    break;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn hear(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        let mut filled = 0;
        while filled < len.len() {
            filled += self.read(&mut len[filled..])?;
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > most {
            let what = format!("{len} bytes were announced, {most} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        while text.len() < len {
            let wanted = piece.len().min(len - text.len());
            let read = self.read(&mut piece[..wanted])?;
            text.extend_from_slice(&piece[..read]);
        }
        Ok(text)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.socket.set_read_timeout(Some(self.left()?))?;
            match self.secured.opener.read(self.socket, into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// Reads what the peer still says until its end, within its time: closing earlier could take the
/// last answer from it.
pub(crate) fn await_end(socket: &TcpStream, deadline_ns: u64) {
    // An error means that the connection is gone already.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut rubbish = [0; 1024];
    let mut from = socket;
    loop {
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        let timeout = Some(Duration::from_nanos(left_ns));
        if left_ns == 0 || socket.set_read_timeout(timeout).is_err() {
            return;
        }
        if !matches!(from.read(&mut rubbish), Ok(1..)) {
            return;
        }
    }
}
