//! Reads traces: the project's own format and three that others publish, also compressed.
//! `docs/traces.md` describes the formats, and says which field stands for the client.
//!
//! Guarantees: files come from anywhere. With any content, reading does not panic, takes no more
//! memory than its buffers, and an error says where it is.

mod columns;
mod merge;
mod own;
mod pack;
mod records;

pub use columns::{Columns, ColumnsError, TimeUnit};
pub use merge::merge;
pub use own::{WriteError, Writer};

use crate::access::{Access, Op};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

/// How a trace is written down.
#[derive(Clone, Debug)]
pub enum Format {
    /// The project's own.
    Own,
    /// oracleGeneral of libCacheSim.
    OracleGeneral,
    /// vscsi of CloudPhysics, version 1 or 2.
    Vscsi,
    /// Text with columns.
    Csv(Columns),
}

/// The reason why a trace is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It could not be read.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {place}: {what}", path = path.display())]
    Wrong {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// The fault, and the cure.
        what: String,
    },
}

/// A piece of a file that was accessed, in bytes; all of a file where an operation needs no more.
struct Extent {
    time_us: u64,
    /// `None`: the format does not say.
    client: Option<u32>,
    op: Op,
    file: u64,
    from: u64,
    bytes: u64,
}

/// A source of the extents of one format.
trait Extents {
    /// The next one; `None` at the end. An error is what is wrong with it.
    fn next(&mut self) -> Result<Option<Extent>, Fault>;
    /// Where the last one stood, for people.
    fn place(&self) -> String;
}

enum Fault {
    Io(io::Error),
    Wrong(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

/// A trace that is being read, block by block.
pub struct Reader {
    path: PathBuf,
    extents: Box<dyn Extents>,
    block_bytes: u32,
    /// The client of a trace whose format names none.
    client: u32,
    /// Its time zero in seconds since 1970, where the format says it.
    begins_s: Option<u32>,
    /// Traces whose formats name none do not share files.
    apart: bool,
    /// The rest of the last extent: the access of its next block, and how many follow.
    run: Option<(Access, u32)>,
}

/// No access reaches further: a file of so many blocks has more bytes than any file system allows
/// at the usual sizes.
const BLOCKS: u64 = 1 << 32;

impl Reader {
    /// Opens a trace. Without a format its beginning and its name tell it. `client` stands for the
    /// machine where the format names none; with `apart`, such a trace has files of its own.
    pub fn open(
        path: &Path,
        format: Option<&Format>,
        block_bytes: u32,
        client: u32,
        apart: bool,
    ) -> Result<Self, ReadError> {
        let failed = |fault| failed(path, "its beginning".to_owned(), fault);
        let mut bytes = pack::open(path).map_err(|error| failed(Fault::Io(error)))?;
        let format = match format {
            Some(format) => format.clone(),
            None => guess(path, &mut bytes).map_err(failed)?,
        };
        let mut own_bytes = block_bytes;
        let mut begins_s = None;
        let extents: Box<dyn Extents> = match format {
            Format::Own => {
                let own = own::Own::begin(bytes).map_err(failed)?;
                own_bytes = own.block_bytes();
                begins_s = own.begins_s();
                Box::new(own)
            }
            Format::OracleGeneral => Box::new(records::OracleGeneral::new(bytes)),
            Format::Vscsi => Box::new(records::Vscsi::begin(bytes).map_err(failed)?),
            Format::Csv(columns) => {
                Box::new(columns::Rows::begin(bytes, &columns).map_err(failed)?)
            }
        };
        Ok(Self {
            path: path.to_owned(),
            extents,
            block_bytes: own_bytes,
            client,
            begins_s,
            apart,
            run: None,
        })
    }

    /// The size of its blocks: its own if the format says it, else as it was asked for.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn next_access(&mut self) -> Result<Option<Access>, Fault> {
        loop {
            if let Some((access, left)) = &mut self.run {
                let now = *access;
                access.block = access.block.wrapping_add(1);
                *left -= 1;
                if *left == 0 {
                    self.run = None;
                }
                return Ok(Some(now));
            }
            let Some(extent) = self.extents.next()? else {
                return Ok(None);
            };
            self.run = Some(self.blocks(&extent)?);
        }
    }

    /// The first access of an extent, and how many there are.
    fn blocks(&self, extent: &Extent) -> Result<(Access, u32), Fault> {
        let size = u64::from(self.block_bytes);
        let end = extent.from.saturating_add(extent.bytes.max(1));
        let (first, last) = (extent.from / size, (end - 1) / size);
        if last >= BLOCKS {
            let what = format!("it reaches to byte {end}, which no file has: is the unit right?");
            return Err(Fault::Wrong(what));
        }
        let count = match extent.op {
            Op::Read | Op::Write => last - first + 1,
            Op::Open | Op::Delete | Op::Attributes => 1,
        };
        let file = match self.apart {
            true => wire::mix64(extent.file ^ wire::mix64(u64::from(self.client) + 1)),
            false => extent.file,
        };
        let access = Access {
            time_us: extent.time_us,
            client: extent.client.unwrap_or(self.client),
            op: extent.op,
            file,
            block: first as u32,
        };
        Ok((access, count as u32))
    }
}

impl Iterator for Reader {
    type Item = Result<Access, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_access();
        let place = || self.extents.place();
        next.map_err(|fault| failed(&self.path, place(), fault))
            .transpose()
    }
}

fn failed(path: &Path, place: String, fault: Fault) -> ReadError {
    let path = path.to_owned();
    match fault {
        Fault::Io(error) => ReadError::Io { path, error },
        Fault::Wrong(what) => ReadError::Wrong { path, place, what },
    }
}

/// The format, by the first bytes, else by the name.
fn guess(path: &Path, bytes: &mut dyn BufRead) -> Result<Format, Fault> {
    if bytes.fill_buf()?.starts_with(&own::MAGIC) {
        return Ok(Format::Own);
    }
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    if name.contains("oraclegeneral") {
        return Ok(Format::OracleGeneral);
    }
    if name.contains("vscsi") {
        return Ok(Format::Vscsi);
    }
    let cure = "say which: --format own, oracle-general, vscsi or csv (with --columns)";
    Err(Fault::Wrong(format!(
        "neither its bytes nor its name tell the format: {cure}"
    )))
}

/// Fills a record. `false`: the trace ends before it; an end within it is an error.
fn fill(from: &mut dyn Read, record: &mut [u8]) -> Result<bool, Fault> {
    let mut have = 0;
    while have < record.len() {
        match from.read(&mut record[have..]) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => {
                let what = format!("the file ends after {have} of {} bytes", record.len());
                return Err(Fault::Wrong(
                    what + " of a record: it was cut, or is of another format",
                ));
            }
            Ok(bytes) => have += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Fault::Io(error)),
        }
    }
    Ok(true)
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from(u16_at(record, at)) | u32::from(u16_at(record, at + 2)) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

#[cfg(test)]
mod tests;
