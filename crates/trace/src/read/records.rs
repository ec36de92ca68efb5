//! Formats of records of a fixed size that others publish: oracleGeneral and vscsi.

use super::{Extent, Extents, Fault, fill, u16_at, u32_at, u64_at};
use crate::access::Op;
use std::io::BufRead;

/// 24 bytes a record: time in seconds (u32), object (u64), its bytes (u32), when it is accessed
/// next (i64, not used here).
pub(super) struct OracleGeneral {
    bytes: Box<dyn BufRead>,
    records: u64,
}

impl OracleGeneral {
    pub(super) fn new(bytes: Box<dyn BufRead>) -> Self {
        Self { bytes, records: 0 }
    }
}

impl Extents for OracleGeneral {
    fn next(&mut self) -> Result<Option<Extent>, Fault> {
        let mut record = [0; 24];
        loop {
            if !fill(&mut self.bytes, &mut record)? {
                return Ok(None);
            }
            self.records += 1;
            // Objects without bytes are in some of these traces; nothing is read of them.
            if u32_at(&record, 12) > 0 {
                break;
            }
        }
        Ok(Some(Extent {
            time_us: u64::from(u32_at(&record, 0)) * 1_000_000,
            client: None,
            op: Op::Read,
            file: u64_at(&record, 4),
            from: 0,
            bytes: u64::from(u32_at(&record, 12)),
        }))
    }

    fn place(&self) -> String {
        format!("record {}", self.records)
    }
}

/// Where the fields of a version stand, and how long its records are.
#[derive(Clone, Copy)]
struct Layout {
    size: usize,
    command: usize,
    version: usize,
    length: usize,
}

const VERSIONS: [(u16, Layout); 2] = [
    (
        1,
        Layout {
            size: 32,
            command: 12,
            version: 14,
            length: 4,
        },
    ),
    (
        2,
        Layout {
            size: 40,
            command: 0,
            version: 2,
            length: 8,
        },
    ),
];

/// In both versions: the first sector, the time in microseconds.
const SECTOR: usize = 16;
const TIME: usize = 24;
const SECTOR_BYTES: u64 = 512;

/// The commands of SCSI disks that read, and those that write: of 6, 10, 12, 16 bytes.
const READS: [u16; 4] = [0x08, 0x28, 0xa8, 0x88];
const WRITES: [u16; 4] = [0x0a, 0x2a, 0xaa, 0x8a];

/// Accesses of virtual machines to their disks. The trace is one disk: one file.
pub(super) struct Vscsi {
    bytes: Box<dyn BufRead>,
    layout: Layout,
    records: u64,
}

impl Vscsi {
    /// Both versions say which they are, in different places: the one where the first two records
    /// agree is meant.
    pub(super) fn begin(mut bytes: Box<dyn BufRead>) -> Result<Self, Fault> {
        let first = bytes.fill_buf()?;
        let fits = |(number, layout): &&(u16, Layout)| {
            let at = |record: usize| record * layout.size + layout.version;
            let one = |at: usize| first.len() >= at + 2 && u16_at(first, at) >> 8 == *number;
            let only = first.len() == layout.size;
            one(at(0)) && (only || one(at(1)))
        };
        let Some((_, layout)) = VERSIONS.iter().find(fits) else {
            let what = "it is neither of version 1 nor of version 2 of vscsi";
            return Err(Fault::Wrong(what.to_owned()));
        };
        let layout = *layout;
        Ok(Self {
            bytes,
            layout,
            records: 0,
        })
    }
}

impl Extents for Vscsi {
    fn next(&mut self) -> Result<Option<Extent>, Fault> {
        let mut record = [0; 40];
        loop {
            let record = &mut record[..self.layout.size];
            if !fill(&mut self.bytes, record)? {
                return Ok(None);
            }
            self.records += 1;
            let command = u16_at(record, self.layout.command);
            let op = match command {
                command if READS.contains(&command) => Op::Read,
                command if WRITES.contains(&command) => Op::Write,
                // The others move no blocks.
                _ => continue,
            };
            return Ok(Some(Extent {
                time_us: u64_at(record, TIME),
                client: None,
                op,
                file: 0,
                from: u64_at(record, SECTOR).saturating_mul(SECTOR_BYTES),
                bytes: u64::from(u32_at(record, self.layout.length)),
            }));
        }
    }

    fn place(&self) -> String {
        format!("record {}", self.records)
    }
}
