//! The file of the index, page by page under checksums: whatever is read from it is what was
//! written, or an error. So a key that the engine does not find is absent, and not rotten.
//!
//! The engine writes pages of 4 KiB where nothing refers to them, syncs, and then changes its
//! header, which is the only page that it writes over. The checksums lie apart from the pages, a
//! page of them before each 1024 pages, and are written with the next sync: a write of them that is
//! torn changes only those of pages that nothing refers to yet. The header is kept twice, and each
//! sync writes over the older one. The content found when the file was opened may not be on stable
//! storage, for a sync may have failed before: the newer header is written again, byte by byte the
//! same, and synced before anything else is written.

use crate::disk::Disk;
use parking_lot::RwLock;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Bytes of a page, of the engine and of this file.
pub(crate) const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;
/// Pages of the engine that one page of checksums covers.
const GROUP: u64 = PAGE / 4;
/// Where in the file the two headers lie: no damage of a page's size reaches both.
const HEADERS: [u64; 2] = [0, 2];
/// The first page behind them.
const FIRST: u64 = 3;

const MAGIC: [u8; 8] = *b"ArielIdx";
/// Which of these layouts a file has.
const LAYOUT: u32 = 1;
/// Where in a header what the engine keeps in its first page begins.
const ENGINE_AT: usize = 64;
/// Bytes of its first page that the engine uses, and more.
const ENGINE_BYTES: usize = 2048;

/// The file of the index.
#[derive(Debug)]
pub(crate) struct Pages {
    disk: Arc<dyn Disk>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    /// Pages of the engine.
    count: u64,
    /// The first of them.
    first: Box<[u8; ENGINE_BYTES]>,
    /// Headers that were written so far.
    generation: u64,
    /// It changed since the last of them.
    changed: bool,
    /// The last of them is on stable storage.
    settled: bool,
    /// Checksums, as far as they were needed.
    sums: BTreeMap<u64, Sums>,
}

/// The checksums of a group of pages; 0: never written, so all zeros.
#[derive(Clone, Debug)]
struct Sums {
    sums: Box<[u32; GROUP as usize]>,
    changed: bool,
}

fn rotten(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Where in the file a page of the engine lies, in pages.
fn place(page: u64) -> u64 {
    sums_place(page / GROUP) + 1 + page % GROUP
}

fn sums_place(group: u64) -> u64 {
    FIRST + group * (GROUP + 1)
}

/// Pages of the file for so many of the engine.
fn file_pages(count: u64) -> u64 {
    match count.checked_sub(1) {
        Some(last) => place(last) + 1,
        None => 0,
    }
}

/// Pages of the engine that a file of so many pages has.
fn engine_pages(pages: u64) -> u64 {
    let behind = pages.saturating_sub(FIRST);
    let (groups, rest) = (behind / (GROUP + 1), behind % (GROUP + 1));
    groups * GROUP + rest.saturating_sub(1)
}

/// The checksum of a page of the engine; never 0.
fn sum(page: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), bytes).max(1)
}

fn header(state: &State) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&LAYOUT.to_le_bytes());
    page[16..24].copy_from_slice(&state.generation.to_le_bytes());
    page[ENGINE_AT..ENGINE_AT + ENGINE_BYTES].copy_from_slice(&state.first[..]);
    let check = crc32c::crc32c(&page[..PAGE_BYTES - 4]);
    page[PAGE_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    page
}

/// The generation of a header, and the engine's first page; `None`: it is not one.
fn parse_header(page: &[u8]) -> Option<(u64, Box<[u8; ENGINE_BYTES]>)> {
    let (content, check) = page.split_at(PAGE_BYTES - 4);
    let sound = content[..8] == MAGIC
        && content[8..12] == LAYOUT.to_le_bytes()
        && check == crc32c::crc32c(content).to_le_bytes();
    let generation = u64::from_le_bytes(content[16..24].try_into().ok()?);
    let first = content[ENGINE_AT..ENGINE_AT + ENGINE_BYTES]
        .try_into()
        .ok()?;
    sound.then(|| (generation, Box::new(first)))
}

impl Pages {
    /// Opens the file, which may be empty.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> io::Result<Self> {
        let pages = disk.len()? / PAGE;
        let mut state = State {
            count: engine_pages(pages),
            first: Box::new([0; ENGINE_BYTES]),
            generation: 0,
            changed: false,
            settled: false,
            sums: BTreeMap::new(),
        };
        let (mut found, mut written) = (0, false);
        for at in HEADERS.iter().filter(|at| **at < pages) {
            let mut page = vec![0; PAGE_BYTES];
            disk.read_at(at * PAGE, &mut page)?;
            written |= page.iter().any(|byte| *byte != 0);
            if let Some((generation, first)) = parse_header(&page) {
                found += 1;
                if generation > state.generation {
                    (state.generation, state.first) = (generation, first);
                }
            }
        }
        if written && found == 0 {
            return Err(rotten("it has no header that reads".to_owned()));
        }
        if !written && state.count > 0 {
            // Its making was interrupted before its first sync.
            disk.resize(0)?;
            state.count = 0;
        }
        if found < HEADERS.len() && state.generation > 1 {
            tracing::warn!("one of the two headers of the index does not read, the other does");
        }
        Ok(Self {
            disk,
            state: RwLock::new(state),
        })
    }

    /// Makes sure that the last header is on stable storage.
    fn settle(&self, state: &mut State) -> io::Result<()> {
        if !state.settled && state.generation > 0 {
            self.write_header(state)?;
            self.disk.sync()?;
        }
        state.settled = true;
        Ok(())
    }

    fn write_header(&self, state: &State) -> io::Result<()> {
        let at = HEADERS[(state.generation % 2) as usize] * PAGE;
        self.disk.write_at(at, &header(state))
    }

    /// Makes sure that the checksums of a group are in memory.
    fn load(&self, state: &mut State, group: u64) -> io::Result<()> {
        if state.sums.contains_key(&group) {
            return Ok(());
        }
        let mut page = vec![0; PAGE_BYTES];
        self.disk.read_at(sums_place(group) * PAGE, &mut page)?;
        let mut sums = Box::new([0; GROUP as usize]);
        for (sum, bytes) in sums.iter_mut().zip(page.as_chunks::<4>().0) {
            *sum = u32::from_le_bytes(*bytes);
        }
        let changed = false;
        state.sums.insert(group, Sums { sums, changed });
        Ok(())
    }

    /// The checksum that a page should have.
    fn expected(&self, page: u64) -> io::Result<u32> {
        let (group, at) = (page / GROUP, (page % GROUP) as usize);
        if let Some(sums) = self.state.read().sums.get(&group) {
            return Ok(sums.sums[at]);
        }
        let mut state = self.state.write();
        self.load(&mut state, group)?;
        Ok(state.sums.get(&group).map_or(0, |sums| sums.sums[at]))
    }

    fn verify(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        let sound = match self.expected(page)? {
            0 => bytes.iter().all(|byte| *byte == 0),
            expected => expected == sum(page, bytes),
        };
        match sound {
            true => Ok(()),
            false => Err(rotten(format!("page {page} of it has a wrong checksum"))),
        }
    }
}

/// The pages of `bytes` from `offset` on, in runs that lie together in the file: the first page of
/// each, and where in `bytes` it begins and ends.
fn runs(offset: u64, len: usize) -> io::Result<Vec<(u64, std::ops::Range<usize>)>> {
    if !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE_BYTES) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (mut page, end) = (offset / PAGE, (offset + len as u64) / PAGE);
    let first = page;
    let mut runs = Vec::new();
    while page < end {
        let next = (page / GROUP + 1) * GROUP;
        let to = next.min(end);
        let at = |page: u64| (page - first) as usize * PAGE_BYTES;
        runs.push((page, at(page)..at(to)));
        page = to;
    }
    Ok(runs)
}

/// Where in the engine's first page this is; `None`: it is in others.
fn within_first(offset: u64, len: usize) -> io::Result<Option<std::ops::Range<usize>>> {
    if offset >= PAGE {
        return Ok(None);
    }
    let range = offset as usize..offset as usize + len;
    match range.end <= ENGINE_BYTES {
        true => Ok(Some(range)),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl StorageBackend for Pages {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.read().count * PAGE)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if let Some(range) = within_first(offset, out.len())? {
            out.copy_from_slice(&self.state.read().first[range]);
            return Ok(());
        }
        for (first, range) in runs(offset, out.len())? {
            let out = &mut out[range];
            self.disk.read_at(place(first) * PAGE, out)?;
            for (page, bytes) in (first..).zip(out.chunks(PAGE_BYTES)) {
                self.verify(page, bytes)?;
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let state = &mut *self.state.write();
        self.settle(state)?;
        let count = len.div_ceil(PAGE);
        if count < state.count {
            // Pages that come in their place one day begin as zeros.
            let (group, from) = (count / GROUP, (count % GROUP) as usize);
            if from > 0 {
                self.load(state, group)?;
            }
            state.sums.retain(|of, _| *of <= group);
            if let Some(sums) = state.sums.get_mut(&group) {
                sums.sums[from..].fill(0);
                sums.changed = from > 0;
            }
            if from == 0 {
                state.sums.remove(&group);
            }
        }
        self.disk.resize(file_pages(count) * PAGE)?;
        state.count = count;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let state = &mut *self.state.write();
        for (group, sums) in state.sums.iter_mut().filter(|(_, sums)| sums.changed) {
            let page: Vec<u8> = sums.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            self.disk.write_at(sums_place(*group) * PAGE, &page)?;
            sums.changed = false;
        }
        if state.changed && state.count > 0 {
            state.generation += 1;
            self.write_header(state)?;
            state.changed = false;
        }
        // redb takes nothing more after a failure, and the file is opened again.
        self.disk.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(range) = within_first(offset, data.len())? {
            let state = &mut *self.state.write();
            self.settle(state)?;
            state.first[range].copy_from_slice(data);
            state.changed = true;
            return Ok(());
        }
        for (first, range) in runs(offset, data.len())? {
            let data = &data[range];
            let all = (first..).zip(data.chunks(PAGE_BYTES));
            let fresh: Vec<u32> = all.map(|(page, bytes)| sum(page, bytes)).collect();
            let state = &mut *self.state.write();
            self.settle(state)?;
            self.load(state, first / GROUP)?;
            self.disk.write_at(place(first) * PAGE, data)?;
            if let Some(sums) = state.sums.get_mut(&(first / GROUP)) {
                let at = (first % GROUP) as usize;
                sums.sums[at..at + fresh.len()].copy_from_slice(&fresh);
                sums.changed = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::Files;
    use crate::memory::MemoryDisk;

    const NAME: &str = "pages";

    fn open(disk: &MemoryDisk) -> io::Result<Pages> {
        Pages::open(Files::open(disk, NAME, true)?)
    }

    /// A page that tells its number.
    fn page(number: u64) -> Vec<u8> {
        let byte = |at: u64| (number * 31 + at * 7 % 251) as u8;
        (0..PAGE).map(byte).collect()
    }

    const PAGES: [u64; 5] = [1, 2, GROUP - 1, GROUP, GROUP + 7];

    /// Pages in two groups, and a first page that was written in three generations.
    fn written() -> MemoryDisk {
        let disk = MemoryDisk::new();
        let pages = open(&disk).unwrap();
        pages.set_len((GROUP + 9) * PAGE).unwrap();
        for generation in 1..=3 {
            pages.write(0, &[generation; 320]).unwrap();
            for number in PAGES {
                pages.write(number * PAGE, &page(number)).unwrap();
            }
            pages.sync_data().unwrap();
        }
        disk
    }

    fn first(pages: &Pages) -> u8 {
        let mut first = [0; 320];
        pages.read(0, &mut first).unwrap();
        assert!(first.iter().all(|byte| *byte == first[0]));
        first[0]
    }

    #[test]
    fn what_was_written_is_read_and_what_was_not_is_zeros() {
        let pages = open(&written()).unwrap();
        assert_eq!(pages.len().unwrap(), (GROUP + 9) * PAGE);
        assert_eq!(first(&pages), 3);
        let mut two = vec![0; 2 * PAGE_BYTES];
        pages.read((GROUP - 1) * PAGE, &mut two).unwrap();
        assert!(two == [page(GROUP - 1), page(GROUP)].concat());
        pages.read(3 * PAGE, &mut two).unwrap();
        assert!(two.iter().all(|byte| *byte == 0));
        // Bytes that are cut off are zeros when they come again.
        pages.set_len(GROUP * PAGE).unwrap();
        pages.set_len((GROUP + 9) * PAGE).unwrap();
        let mut one = vec![1; PAGE_BYTES];
        pages.read(GROUP * PAGE, &mut one).unwrap();
        assert!(one.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn damage_anywhere_is_an_error_or_nothing() {
        let disk = written();
        let len = disk.files()[0].1;
        let mut errors = 0;
        for nth in 0..3_000_u64 {
            let at = nth * (len - 1) / 3_000 + nth % 97;
            let disk = disk.copy();
            assert!(disk.flip(NAME, at.min(len - 1)));
            let pages = open(&disk).unwrap();
            // The generation before is whole, too: the engine had synced all of it.
            assert!(first(&pages) >= 2, "byte {at}");
            for number in PAGES {
                let mut found = vec![0; PAGE_BYTES];
                match pages.read(number * PAGE, &mut found) {
                    Ok(()) => assert!(found == page(number), "byte {at}: page {number}"),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                        errors += 1;
                    }
                }
            }
        }
        assert!(errors > 5, "{errors}");
    }

    #[test]
    fn a_file_without_a_header_is_refused_and_an_interrupted_one_begins_anew() {
        let disk = written();
        for at in HEADERS {
            assert!(disk.damage(NAME, at * PAGE, &[7; PAGE_BYTES]));
        }
        assert_eq!(open(&disk).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let disk = MemoryDisk::new();
        open(&disk).unwrap().set_len(9 * PAGE).unwrap();
        assert_eq!(open(&disk).unwrap().len().unwrap(), 0);
    }
}
