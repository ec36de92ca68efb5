//! Text with columns. Each column that is used is given by its name in the first line, or by its
//! number from 1 on; if none is given by name there is no first line to skip.

use super::{Extent, Extents, Fault};
use crate::access::Op;
use std::io::BufRead;
use std::str::FromStr;

/// The fields that a column can hold.
const FIELDS: [&str; 7] = ["time", "client", "op", "file", "block", "offset", "size"];
const TIME: usize = 0;
const CLIENT: usize = 1;
const OP: usize = 2;
const FILE: usize = 3;
const BLOCK: usize = 4;
const OFFSET: usize = 5;
const SIZE: usize = 6;

/// In which unit times are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    fn microseconds(self) -> f64 {
        match self {
            TimeUnit::Seconds => 1e6,
            TimeUnit::Milliseconds => 1e3,
            TimeUnit::Microseconds => 1.0,
            TimeUnit::Nanoseconds => 1e-3,
        }
    }
}

/// Which column says what.
#[derive(Clone, Debug)]
pub struct Columns {
    columns: [Option<Column>; FIELDS.len()],
    /// The byte between two columns.
    pub delimiter: u8,
    /// The unit of times.
    pub time_unit: TimeUnit,
    /// The size of a block, for the column `block`.
    pub block_bytes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Number(usize),
    Name(String),
}

/// The reason why a list of columns is refused.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// Not `field=column`.
    #[error("{0}: write field=column, as in time=1,client=5,file=key")]
    Shape(String),
    /// An unknown field.
    #[error("{0}: the fields are {fields}", fields = FIELDS.join(", "))]
    Field(String),
    /// A needed field is missing.
    #[error("no column is given for `file`, without which nothing can be replayed")]
    NoFile,
    /// Two ways to say where.
    #[error("give a column for `block` or for `offset`, not for both")]
    Both,
}

impl FromStr for Columns {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<Self, ColumnsError> {
        let mut columns = [const { None }; FIELDS.len()];
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let shape = || ColumnsError::Shape(part.to_owned());
            let (field, column) = part.split_once('=').ok_or_else(shape)?;
            let at = FIELDS.iter().position(|known| *known == field);
            let at = at.ok_or_else(|| ColumnsError::Field(field.to_owned()))?;
            columns[at] = Some(match column.parse::<usize>() {
                Ok(0) => return Err(shape()),
                Ok(number) => Column::Number(number - 1),
                Err(_) => Column::Name(column.to_owned()),
            });
        }
        match (&columns[FILE], &columns[BLOCK], &columns[OFFSET]) {
            (None, ..) => Err(ColumnsError::NoFile),
            (_, Some(_), Some(_)) => Err(ColumnsError::Both),
            _ => Ok(Self {
                columns,
                delimiter: b',',
                time_unit: TimeUnit::Seconds,
                block_bytes: 8192,
            }),
        }
    }
}

/// The rows of a text.
pub(super) struct Rows {
    rows: csv::Reader<Box<dyn BufRead>>,
    row: csv::ByteRecord,
    /// Where each field stands.
    places: [Option<usize>; FIELDS.len()],
    time_unit: TimeUnit,
    block_bytes: u64,
}

impl Rows {
    pub(super) fn begin(bytes: Box<dyn BufRead>, columns: &Columns) -> Result<Self, Fault> {
        let named = |column: &Option<Column>| matches!(column, Some(Column::Name(_)));
        let has_header = columns.columns.iter().any(named);
        let mut rows = csv::ReaderBuilder::new()
            .delimiter(columns.delimiter)
            .has_headers(has_header)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(bytes);
        let header = match has_header {
            true => rows.headers().map_err(fault)?.clone(),
            false => csv::StringRecord::new(),
        };
        let mut places = [None; FIELDS.len()];
        for (place, column) in places.iter_mut().zip(&columns.columns) {
            *place = match column {
                None => None,
                Some(Column::Number(number)) => Some(*number),
                Some(Column::Name(name)) => {
                    let at = header.iter().position(|known| known == name);
                    let known = || header.iter().collect::<Vec<_>>().join(", ");
                    let missing = || format!("no column is called {name}; there are {}", known());
                    Some(at.ok_or_else(|| Fault::Wrong(missing()))?)
                }
            };
        }
        Ok(Self {
            rows,
            row: csv::ByteRecord::new(),
            places,
            time_unit: columns.time_unit,
            block_bytes: u64::from(columns.block_bytes),
        })
    }

    /// The text in the column of a field; `None`: no column was given for it.
    fn text(&self, field: usize) -> Result<Option<&[u8]>, Fault> {
        let Some(place) = self.places[field] else {
            return Ok(None);
        };
        let missing = || {
            let (name, place) = (FIELDS[field], place + 1);
            Fault::Wrong(format!(
                "the row has no column {place}, which is to say the {name}"
            ))
        };
        self.row.get(place).map(Some).ok_or_else(missing)
    }

    fn number(&self, field: usize) -> Result<Option<f64>, Fault> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        let shown = String::from_utf8_lossy(text);
        let number = shown.parse::<f64>().ok().filter(|number| *number >= 0.0);
        let wrong = || Fault::Wrong(format!("{} `{shown}` is no number", FIELDS[field]));
        number.map(Some).ok_or_else(wrong)
    }

    /// A number that names something, or the words of a name, mixed.
    fn name(&self, field: usize) -> Result<Option<u64>, Fault> {
        let named = |text: &[u8]| match std::str::from_utf8(text).map(str::parse) {
            Ok(Ok(number)) => number,
            _ => text
                .iter()
                .fold(0, |so_far, byte| wire::mix64(so_far ^ u64::from(*byte)) + 1),
        };
        Ok(self.text(field)?.map(named))
    }

    fn extent(&self) -> Result<Extent, Fault> {
        let op = match self.text(OP)? {
            None => Op::Read,
            Some(word) => operation(word)?,
        };
        let client = self
            .name(CLIENT)?
            .map(|client| (client ^ (client >> 32)) as u32);
        let time = self.number(TIME)?.unwrap_or(0.0) * self.time_unit.microseconds();
        let block = self.number(BLOCK)?.map(|block| block as u64);
        let from = match block {
            Some(block) => block.saturating_mul(self.block_bytes),
            None => self.number(OFFSET)?.unwrap_or(0.0) as u64,
        };
        Ok(Extent {
            time_us: time as u64,
            client,
            op,
            file: self.name(FILE)?.unwrap_or(0),
            from,
            bytes: self.number(SIZE)?.unwrap_or(1.0) as u64,
        })
    }
}

/// The operation that a word stands for, in the traces of file systems, disks and key-value stores.
fn operation(word: &[u8]) -> Result<Op, Fault> {
    let word = String::from_utf8_lossy(word).to_lowercase();
    match word.as_str() {
        "read" | "r" | "rs" | "get" | "gets" | "0" | "28" => Ok(Op::Read),
        "write" | "w" | "ws" | "put" | "set" | "add" | "replace" | "cas" | "append" | "prepend"
        | "incr" | "decr" | "1" | "2a" => Ok(Op::Write),
        "open" => Ok(Op::Open),
        "delete" | "remove" | "unlink" | "d" => Ok(Op::Delete),
        "attributes" | "getattr" | "stat" | "head" => Ok(Op::Attributes),
        _ => {
            let known = "read, write, open, delete, attributes, or words of SCSI, S3 and memcached";
            Err(Fault::Wrong(format!(
                "the operation `{word}` is none of {known}"
            )))
        }
    }
}

fn fault(error: csv::Error) -> Fault {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Fault::Io(error),
        kind => Fault::Wrong(format!("{kind:?}")),
    }
}

impl Extents for Rows {
    fn next(&mut self) -> Result<Option<Extent>, Fault> {
        match self.rows.read_byte_record(&mut self.row).map_err(fault)? {
            true => self.extent().map(Some),
            false => Ok(None),
        }
    }

    fn place(&self) -> String {
        let line = self.row.position().map_or(1, csv::Position::line);
        format!("line {line}")
    }
}
