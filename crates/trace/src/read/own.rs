//! The project's own format: a header of 16 bytes, then 24 bytes an access, little-endian.

use super::{Extent, Extents, Fault, fill, u16_at, u32_at, u64_at};
use crate::access::{Access, Op};
use std::io::{self, BufRead, Write};

/// How it begins; the last character is the version.
pub(super) const MAGIC: [u8; 8] = *b"ARIELTR1";
const HEADER: usize = 16;
const RECORD: usize = 24;

/// A trace in this format.
pub(super) struct Own {
    bytes: Box<dyn BufRead>,
    block_bytes: u32,
    begins_s: u32,
    records: u64,
}

impl Own {
    pub(super) fn begin(mut bytes: Box<dyn BufRead>) -> Result<Self, Fault> {
        let mut header = [0; HEADER];
        if !fill(&mut bytes, &mut header)? || header[..8] != MAGIC {
            let what = "it does not begin as a trace of this format and version";
            return Err(Fault::Wrong(what.to_owned()));
        }
        let block_bytes = u32_at(&header, 8);
        if block_bytes == 0 {
            return Err(Fault::Wrong("its blocks have no bytes".to_owned()));
        }
        Ok(Self {
            bytes,
            block_bytes,
            begins_s: u32_at(&header, 12),
            records: 0,
        })
    }

    pub(super) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Its time zero, in seconds since 1970; `None`: the trace is of no real time.
    pub(super) fn begins_s(&self) -> Option<u32> {
        Some(self.begins_s).filter(|begins_s| *begins_s > 0)
    }
}

impl Extents for Own {
    fn next(&mut self) -> Result<Option<Extent>, Fault> {
        let mut record = [0; RECORD];
        if !fill(&mut self.bytes, &mut record)? {
            return Ok(None);
        }
        self.records += 1;
        let Some(op) = Op::ALL.get(usize::from(record[22])) else {
            return Err(Fault::Wrong(format!(
                "there is no operation {}",
                record[22]
            )));
        };
        Ok(Some(Extent {
            time_us: u64_at(&record, 0),
            client: Some(u32::from(u16_at(&record, 20))),
            op: *op,
            file: u64_at(&record, 8),
            from: u64::from(u32_at(&record, 16)) * u64::from(self.block_bytes),
            bytes: 1,
        }))
    }

    fn place(&self) -> String {
        format!("access {}", self.records)
    }
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The format has no room for it.
    #[error("a trace has at most 65536 clients, numbered from 0 on; this one has number {0}")]
    Client(u32),
}

/// Writes a trace in this format.
pub struct Writer<W: Write> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header of a trace that was made.
    pub fn new(to: W, block_bytes: u32) -> io::Result<Self> {
        Self::of_time(to, block_bytes, 0)
    }

    /// Writes the header of a trace that was recorded: its time zero is so many seconds after the
    /// beginning of 1970.
    pub fn of_time(mut to: W, block_bytes: u32, begins_s: u32) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&block_bytes.to_le_bytes())?;
        to.write_all(&begins_s.to_le_bytes())?;
        Ok(Self { to })
    }

    /// Writes an access.
    pub fn write(&mut self, access: &Access) -> Result<(), WriteError> {
        let client = u16::try_from(access.client).map_err(|_| WriteError::Client(access.client))?;
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&access.time_us.to_le_bytes());
        record[8..16].copy_from_slice(&access.file.to_le_bytes());
        record[16..20].copy_from_slice(&access.block.to_le_bytes());
        record[20..22].copy_from_slice(&client.to_le_bytes());
        record[22] = access.op as u8;
        Ok(self.to.write_all(&record)?)
    }

    /// All of it is written out.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}
