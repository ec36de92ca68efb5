//! Images: the whole index as it was at a checkpoint, in a file beside the log. With the log from
//! that place on, the index can be made again, whatever has been cleaned and removed before it.
//!
//! An image is a header, blocks of keys and values, and an end. Each block has a checksum over the
//! partition's identity, the image's number, its own number and its bytes; without its end, an
//! image is none. It is written from a view of the engine, piece by piece, and never changed.

use crate::disk::{Disk, Files};
use crate::engine::{Batch, Engine};
use crate::error::StoreError;
use crate::key::{self, Key};
use crate::log::Place;
use crate::record::{FORMAT, reads_format};
use crate::value::{self, Counters};
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"ArielImg";
const HEADER_BYTES: usize = 56;
/// A block ends behind so many bytes of keys and values.
const BLOCK_BYTES: usize = 256 << 10;
/// No block is longer: one key and its value are added to those.
const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Keys that are read at once.
const PART: usize = 1024;

/// An image on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) number: u32,
    /// Of the partition.
    identity: u64,
    /// Where in the log it was made: records from there on are not in it.
    pub(crate) place: Place,
    /// The number of the first of them.
    pub(crate) sequence: u64,
    pub(crate) bytes: u64,
}

/// The name of an image's file.
pub(crate) fn name(number: u32) -> String {
    format!("image-{number:08}")
}

fn number(file: &str) -> Option<u32> {
    let number = file.strip_prefix("image-")?.parse().ok()?;
    (name(number) == file).then_some(number)
}

/// The numbers of all images, ascending; some may have no end.
pub(crate) fn numbers(files: &dyn Files) -> Result<Vec<u32>, StoreError> {
    let names = files.list();
    let names = names.map_err(|e| StoreError::io("list the partition", e))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|file| number(file)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn header(image: &Image, format: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    for number in [format, image.number, image.place.segment, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [image.identity, image.place.offset, image.sequence] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes.resize(HEADER_BYTES, 0);
    bytes
}

fn parse_header(number: u32, bytes: &[u8]) -> Option<Image> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let image = Image {
        number: word(12)?,
        identity: long(24)?,
        place: Place {
            segment: word(16)?,
            offset: long(32)?,
        },
        sequence: long(40)?,
        bytes: 0,
    };
    let format = word(8)?;
    let sound = reads_format(format) && header(&image, format) == bytes;
    (image.number == number && sound).then_some(image)
}

/// The header of a block: its length, and the checksum that says where it belongs. Its end is a
/// block without bytes.
fn block_header(image: &Image, nth: u64, bytes: &[u8]) -> [u8; 8] {
    let mut check = crc32c::crc32c(&image.identity.to_le_bytes());
    check = crc32c::crc32c_append(check, &image.number.to_le_bytes());
    check = crc32c::crc32c_append(check, &nth.to_le_bytes());
    check = crc32c::crc32c_append(check, bytes);
    let mut header = [0; 8];
    header[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    header[4..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Writes blocks one behind the other.
struct Writer<'a> {
    image: &'a mut Image,
    disk: Arc<dyn Disk>,
    block: Vec<u8>,
    blocks: u64,
}

impl Writer<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.block
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.block
            .extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        if self.block.len() >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let header = block_header(self.image, self.blocks, &self.block);
        let parts: [&[u8]; 2] = [&header, &self.block];
        self.disk.write_parts_at(self.image.bytes, &parts)?;
        self.image.bytes += (header.len() + self.block.len()) as u64;
        self.blocks += 1;
        self.block.clear();
        Ok(())
    }
}

fn bad(number: u32) -> StoreError {
    StoreError::Damaged(format!("the image {} of the index", name(number)))
}

/// Writes an image of a view of the index, which is on stable storage when this returns. An image
/// is never made of what is damaged.
pub(crate) fn write(
    files: &dyn Files,
    view: &dyn Engine,
    (number, identity): (u32, u64),
) -> Result<Image, StoreError> {
    let file = name(number);
    let io = |e| StoreError::io(format!("write {file}"), e);
    let damaged = || {
        view.doubt();
        StoreError::Damaged("the index: a value of it has a wrong checksum".to_owned())
    };
    let sealed = view.get(&key::counters())?.ok_or_else(damaged)?;
    let counters = value::unseal(&key::counters(), sealed).ok_or_else(damaged)?;
    let counters: Counters = value::decode(&counters).ok_or_else(damaged)?;
    let mut image = Image {
        number,
        identity,
        place: Place {
            segment: counters.segment,
            offset: counters.offset,
        },
        sequence: counters.sequence,
        bytes: HEADER_BYTES as u64,
    };
    let disk = files.open(&file, true).map_err(io)?;
    disk.resize(0).map_err(io)?;
    disk.write_at(0, &header(&image, FORMAT)).map_err(io)?;
    let mut writer = Writer {
        image: &mut image,
        disk: disk.clone(),
        block: Vec::new(),
        blocks: 0,
    };
    let (mut from, to) = key::all();
    loop {
        let part = view.scan(&from, &to, PART)?;
        let Some((last, _)) = part.last() else {
            break;
        };
        from = key::after(last);
        for (key, sealed) in part {
            let value = value::unseal(&key, sealed).ok_or_else(damaged)?;
            writer.pair(&key, &value).map_err(io)?;
        }
    }
    if !writer.block.is_empty() {
        writer.end_block().map_err(io)?;
    }
    writer.end_block().map_err(io)?;
    disk.sync().map_err(io)?;
    files.sync().map_err(io)?;
    Ok(image)
}

/// An image's header, and whether it has an end; the part between has not been read.
pub(crate) fn look(files: &dyn Files, number: u32) -> Result<Option<Image>, StoreError> {
    let io = |e| StoreError::io(format!("read {}", name(number)), e);
    let disk = files.open(&name(number), false).map_err(io)?;
    let len = disk.len().map_err(io)?;
    let mut bytes = [0; HEADER_BYTES];
    if len < (HEADER_BYTES + 8) as u64 {
        return Ok(None);
    }
    disk.read_at(0, &mut bytes).map_err(io)?;
    let mut end = [0; 8];
    disk.read_at(len - 8, &mut end).map_err(io)?;
    let image = parse_header(number, &bytes).filter(|_| end[..4] == [0; 4]);
    Ok(image.map(|image| Image {
        bytes: len,
        ..image
    }))
}

/// The newest image that has a header and an end.
pub(crate) fn newest(files: &dyn Files) -> Result<Option<Image>, StoreError> {
    for number in numbers(files)?.into_iter().rev() {
        if let Some(image) = look(files, number)? {
            return Ok(Some(image));
        }
    }
    Ok(None)
}

/// Reads all of an image, and gives its keys and values away piece by piece. Keys that were given
/// away before an error must not be used.
pub(crate) fn read(
    files: &dyn Files,
    image: &Image,
    mut give: impl FnMut(Batch) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let file = name(image.number);
    let io = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => bad(image.number),
        _ => StoreError::io(format!("read {file}"), e),
    };
    let disk = files.open(&file, false).map_err(io)?;
    let mut at = HEADER_BYTES as u64;
    for nth in 0.. {
        let mut header = [0; 8];
        disk.read_at(at, &mut header).map_err(io)?;
        let [a, b, c, d, ..] = header;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > BLOCK_BYTES_MAX {
            return Err(bad(image.number));
        }
        let mut block = vec![0; len];
        disk.read_at(at + 8, &mut block).map_err(io)?;
        if block_header(image, nth, &block) != header {
            return Err(bad(image.number));
        }
        at += (8 + len) as u64;
        if len == 0 {
            break;
        }
        give(pairs(&block).ok_or_else(|| bad(image.number))?)?;
    }
    match at == image.bytes {
        true => Ok(()),
        false => Err(bad(image.number)),
    }
}

/// Takes a block apart.
fn pairs(mut block: &[u8]) -> Option<Batch> {
    let mut batch = Batch::new();
    while !block.is_empty() {
        let (lens, rest) = block.split_at_checked(8)?;
        let len = |at: usize| Some(u32::from_le_bytes(lens[at..at + 4].try_into().ok()?));
        let (key, rest) = rest.split_at_checked(len(0)? as usize)?;
        let (value, rest) = rest.split_at_checked(len(4)? as usize)?;
        batch.insert(Key::from(key), Some(value.to_vec()));
        block = rest;
    }
    Some(batch)
}
