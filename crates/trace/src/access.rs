//! The content of a trace: accesses of machines to blocks of files, and their times; and a trace
//! made ready to be replayed many times, eight bytes an access.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// A block was read.
    Read = 0,
    /// A block was written.
    Write = 1,
    /// A file was opened.
    Open = 2,
    /// A file was removed: all its blocks are gone.
    Delete = 3,
    /// The attributes of a file were asked for.
    Attributes = 4,
}

impl Op {
    /// All of them; the place in the list is the number in the format.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Open, Op::Delete, Op::Attributes];

    /// The word for it in text formats.
    pub fn word(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Open => "open",
            Op::Delete => "delete",
            Op::Attributes => "attributes",
        }
    }
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Microseconds since the trace began.
    pub time_us: u64,
    /// Which machine.
    pub client: u32,
    /// The kind of the access.
    pub op: Op,
    /// To which file.
    pub file: u64,
    /// To which of its blocks; 0 where the whole file is meant.
    pub block: u32,
}

/// An access as it is replayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// The number of the block; of the file where the whole file is meant.
    pub(crate) what: u32,
    pub(crate) client: u16,
    pub(crate) op: Op,
}

/// A trace in memory. Files, blocks and clients have numbers from 0 on, in the order in which they
/// came.
#[derive(Default)]
pub struct Trace {
    pub(crate) records: Vec<Record>,
    /// Of each file: the block that came last.
    last_block: Vec<u32>,
    /// Of each block: the one of the same file that came before it.
    before: Vec<u32>,
    clients: u16,
    block_bytes: u32,
}

const NONE: u32 = u32::MAX;

/// More than this cannot be numbered.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany(pub &'static str);

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the trace has too many {} for one replay", self.0)
    }
}

impl std::error::Error for TooMany {}

impl Trace {
    /// How many accesses it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many clients took part.
    pub fn clients(&self) -> u16 {
        self.clients
    }

    /// How many different blocks it names.
    pub fn blocks(&self) -> usize {
        self.before.len()
    }

    /// How many different files it names.
    pub fn files(&self) -> usize {
        self.last_block.len()
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The blocks of a file that the trace names.
    pub(crate) fn blocks_of(&self, file: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.last_block[file as usize];
        let link = |block: u32| (block != NONE).then_some(block);
        std::iter::successors(link(first), move |block| link(self.before[*block as usize]))
    }
}

/// Mixes the one number that a key is. A trace made to collide only makes its own reading slow.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = wire::mix64(self.0 ^ number);
    }
}

type Numbers<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// Makes a trace from its accesses.
pub struct Builder {
    trace: Trace,
    files: Numbers<u64, u32>,
    blocks: Numbers<u64, u32>,
    clients: Numbers<u32, u16>,
}

impl Builder {
    /// Nothing yet; blocks have this size.
    pub fn new(block_bytes: u32) -> Self {
        let trace = Trace {
            block_bytes,
            ..Trace::default()
        };
        Self {
            trace,
            files: Numbers::default(),
            blocks: Numbers::default(),
            clients: Numbers::default(),
        }
    }

    /// The next access.
    pub fn push(&mut self, access: &Access) -> Result<(), TooMany> {
        let clients = self.clients.len();
        let client = *self.clients.entry(access.client).or_insert(clients as u16);
        if clients >= usize::from(u16::MAX) {
            return Err(TooMany("clients"));
        }
        self.trace.clients = self.trace.clients.max(client + 1);
        let files = self.trace.last_block.len();
        let file = *self.files.entry(access.file).or_insert(files as u32);
        if file as usize == files {
            self.trace.last_block.push(NONE);
        }
        let what = match access.op {
            Op::Read | Op::Write => self.block(file, access.block)?,
            Op::Open | Op::Delete | Op::Attributes => file,
        };
        self.trace.records.push(Record {
            what,
            client,
            op: access.op,
        });
        Ok(())
    }

    fn block(&mut self, file: u32, block: u32) -> Result<u32, TooMany> {
        let blocks = self.trace.before.len() as u32;
        if blocks == NONE {
            return Err(TooMany("blocks"));
        }
        let number = *self
            .blocks
            .entry(u64::from(file) << 32 | u64::from(block))
            .or_insert(blocks);
        if number == blocks {
            let last = &mut self.trace.last_block[file as usize];
            self.trace.before.push(*last);
            *last = blocks;
        }
        Ok(number)
    }

    /// All accesses are in.
    pub fn finish(self) -> Trace {
        self.trace
    }
}
