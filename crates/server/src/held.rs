//! The rights that clients may hold, noted for the next run of the server's process: a file beside
//! the store.
//!
//! Guarantees: notes from before a message left are known to the next run, if only the process
//! has died. Nothing of it is synced: after a failure of the machine itself it counts for nothing,
//! which the numbers of the machine's start and of the disk's mount in the file tell; nor does a
//! damaged one. Then the next run waits for all clients, as it must. If the file cannot be written,
//! it is removed, and the same is so. It is written anew when it has become much longer than its
//! content.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wire::{Fid, Right, SessionId};

/// A client, an object, and the most that it may hold.
pub(crate) type Line = (SessionId, Fid, Right);

const MAGIC: u64 = u64::from_le_bytes(*b"ARIELHD1");
const RECORD: usize = 32;
/// It is not written anew before so many bytes have come, and eight times what was written then.
const GROWS: u64 = 64 << 20;
/// Stands in the place of a session in the record which says that nothing is missing before it.
const COMPLETE: SessionId = 0;

/// The file.
pub(crate) struct HeldLog {
    path: PathBuf,
    /// Which run of the machine this is.
    machine: String,
    /// The directory that the path goes through, whatever has its name by now.
    _dir: Option<File>,
    /// `None`: it could not be written, or could not be made.
    file: Option<File>,
    /// Not written yet.
    buffer: Vec<u8>,
    /// Nor this, which comes behind the changes of the step.
    lowered: Vec<u8>,
    written: u64,
    rewritten: u64,
}

fn checksum(bytes: &[u8]) -> u32 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash >> 32) as u32 ^ hash as u32
}

fn record((session, fid, right): Line) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..8].copy_from_slice(&session.to_le_bytes());
    bytes[8..12].copy_from_slice(&fid.volume.to_le_bytes());
    bytes[12..20].copy_from_slice(&fid.vnode.to_le_bytes());
    bytes[20..24].copy_from_slice(&fid.uniq.to_le_bytes());
    bytes[24] = right as u8;
    let sum = checksum(&bytes[..28]);
    bytes[28..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The record that nothing is missing before.
fn complete() -> [u8; RECORD] {
    record((COMPLETE, Fid::root(0), Right::Exclusive))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn read_record(bytes: &[u8]) -> Option<Line> {
    let sum = u32::from_le_bytes(number(bytes, 28)?);
    if sum != checksum(&bytes[..28]) {
        return None;
    }
    let fid = Fid {
        volume: u32::from_le_bytes(number(bytes, 8)?),
        vnode: u64::from_le_bytes(number(bytes, 12)?),
        uniq: u32::from_le_bytes(number(bytes, 20)?),
    };
    let all = [
        Right::None,
        Right::Transient,
        Right::Shared,
        Right::Exclusive,
    ];
    let right = all.into_iter().find(|right| *right as u8 == bytes[24])?;
    Some((u64::from_le_bytes(number(bytes, 0)?), fid, right))
}

/// The first record: what kind of file it is, and in which run of the machine it was written.
fn header(machine: &str) -> [u8; RECORD] {
    let run = Fid {
        volume: checksum(machine.as_bytes()),
        vnode: machine.len() as u64,
        uniq: checksum(machine.trim().as_bytes()).rotate_left(7),
    };
    record((MAGIC, run, Right::None))
}

/// The notes of a file, if it has all of them and they are of this run of the machine.
fn read(bytes: &[u8], machine: &str) -> Option<Vec<Line>> {
    let mut records = bytes.chunks_exact(RECORD);
    if records.next()? != header(machine) {
        return None;
    }
    let (mut held, mut all) = (HashMap::new(), false);
    // Bytes behind the last whole record were cut off in the middle, and no message depended on
    // them.
    for bytes in records {
        let (session, fid, right) = read_record(bytes)?;
        match (session, right) {
            (COMPLETE, _) => all = true,
            (_, Right::None) => drop(held.remove(&(session, fid))),
            _ => drop(held.insert((session, fid), right)),
        }
    }
    let lines = held.into_iter();
    all.then(|| {
        lines
            .map(|((session, fid), right)| (session, fid, right))
            .collect()
    })
}

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no other mount ever gets.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Tells one run of the machine from another, and one mount of the disk: a disk can lose its power
/// alone. (Before Linux 6.8 the mount's number may be given again.)
fn machine_run(data: &Path) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let wanted = MNT_ID_UNIQUE | StatxFlags::MNT_ID;
    let mount = statx(CWD, data, AtFlags::empty(), wanted)?.stx_mnt_id;
    Ok(format!("{} {mount}", boot.trim()))
}

impl HeldLog {
    /// A store that was closed in order on another machine has come whole to this one: its notes
    /// count as if it had been closed here.
    pub(crate) fn has_come(data: &Path) -> io::Result<()> {
        let path = data.join("held");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            bytes => bytes?,
        };
        let (is_head, rest) = match bytes.split_at_checked(RECORD) {
            Some((head, rest)) => (
                read_record(head).is_some_and(|(magic, ..)| magic == MAGIC),
                rest,
            ),
            None => (false, &[][..]),
        };
        if !is_head {
            return fs::remove_file(&path);
        }
        let new = path.with_extension("new");
        fs::write(&new, [&header(&machine_run(data)?)[..], rest].concat())?;
        fs::rename(&new, &path)
    }

    /// Takes over the file of the last run. Returns what the sessions that are known may hold, if
    /// that is known; the file says the same then.
    pub(crate) fn open(data: &Path, known: &[SessionId]) -> (Self, Option<Vec<Line>>) {
        let dir = File::open(data).ok();
        let within = dir
            .as_ref()
            .map(|dir| format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let within = within.map_or_else(|| data.to_owned(), PathBuf::from);
        let mut log = Self {
            machine: String::new(),
            path: within.join("held"),
            _dir: dir,
            file: None,
            buffer: Vec::new(),
            lowered: Vec::new(),
            written: 0,
            rewritten: 0,
        };
        let Ok(machine) = machine_run(data) else {
            log.give_up("this machine does not say when it was started");
            return (log, None);
        };
        log.machine.clone_from(&machine);
        let bytes = fs::read(&log.path).unwrap_or_default();
        let held = read(&bytes, &machine).map(|mut held| {
            held.retain(|(session, ..)| known.binary_search(session).is_ok());
            held
        });
        // Without sessions nothing is held.
        let held = held.or_else(|| known.is_empty().then(Vec::new));
        let lines = held.iter().flatten().copied();
        if let Err(error) = log.write_anew(&machine, lines, held.is_some()) {
            log.give_up(&error.to_string());
            return (log, held);
        }
        (log, held)
    }

    fn write_anew(
        &mut self,
        machine: &str,
        lines: impl Iterator<Item = Line>,
        all: bool,
    ) -> io::Result<()> {
        let mut bytes = header(machine).to_vec();
        bytes.extend(lines.flat_map(record));
        if all {
            bytes.extend(complete());
        }
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(&bytes)?;
        fs::rename(&new, &self.path)?;
        self.file = Some(file);
        (self.written, self.rewritten) = (0, bytes.len() as u64);
        Ok(())
    }

    /// A client may hold so much from now on; `less` than before: it is written when the changes
    /// are from which that follows.
    pub(crate) fn note(&mut self, line: Line, less: bool) {
        if self.file.is_some() {
            let buffer = if less {
                &mut self.lowered
            } else {
                &mut self.buffer
            };
            buffer.extend(record(line));
        }
    }

    /// The changes of this step are written: hands the rest of its notes to the operating system.
    pub(crate) fn write_lowered(&mut self) {
        self.buffer.append(&mut self.lowered);
        self.write_out();
    }

    /// All clients of the last run have said what they hold: from now on nothing is missing.
    pub(crate) fn complete(&mut self) {
        if self.file.is_some() {
            self.buffer.extend(complete());
        }
    }

    /// Hands the notes to the operating system. If it cannot, the next run waits for all.
    pub(crate) fn write_out(&mut self) {
        let Some(file) = &mut self.file else {
            return;
        };
        if self.buffer.is_empty() {
            return;
        }
        let written = file.write_all(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if let Err(error) = written {
            self.give_up(&error.to_string());
        }
    }

    /// Has it become much longer than what it says?
    pub(crate) fn has_grown(&self) -> bool {
        self.file.is_some() && self.written > GROWS.max(8 * self.rewritten)
    }

    /// Writes anew what is held.
    pub(crate) fn shorten(&mut self, held: impl Iterator<Item = Line>) {
        self.buffer.clear();
        let machine = self.machine.clone();
        if let Err(error) = self.write_anew(&machine, held, true) {
            self.give_up(&error.to_string());
        }
    }

    /// The next run must not believe what is left of it.
    fn give_up(&mut self, why: &str) {
        self.file = None;
        (self.buffer, self.lowered) = (Vec::new(), Vec::new());
        tracing::warn!(
            why,
            "what clients hold cannot be noted: after a restart all clients are waited for"
        );
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let path = self.path.display();
            tracing::error!(%error, %path, "an outdated file cannot be removed: remove it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(vnode: u64) -> Fid {
        Fid {
            vnode,
            ..Fid::root(1)
        }
    }

    fn sorted(held: Option<Vec<Line>>) -> Vec<(SessionId, u64, Right)> {
        let held = held.expect("all is known");
        let mut lines: Vec<_> = held
            .iter()
            .map(|line| (line.0, line.1.vnode, line.2))
            .collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn the_next_run_knows_what_was_noted_of_the_sessions_that_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, held) = HeldLog::open(dir.path(), &[]);
        assert_eq!(sorted(held), vec![]);
        log.note((7, fid(1), Right::Shared), false);
        log.note((7, fid(2), Right::Exclusive), false);
        log.note((8, fid(2), Right::Shared), false);
        log.note((9, fid(3), Right::Shared), false);
        log.note((7, fid(1), Right::None), true);
        log.write_lowered();
        log.note((8, fid(4), Right::Exclusive), false);
        drop(log);
        let (mut log, held) = HeldLog::open(dir.path(), &[7, 8]);
        let left = vec![(7, 2, Right::Exclusive), (8, 2, Right::Shared)];
        assert_eq!(sorted(held), left);
        log.note((8, fid(2), Right::None), true);
        log.write_out();
        let (_, held) = HeldLog::open(dir.path(), &[7, 8]);
        assert_eq!(sorted(held), left, "the step's changes are not written yet");
        log.shorten([(7, fid(2), Right::Exclusive)].into_iter());
        let (_, held) = HeldLog::open(dir.path(), &[7, 8]);
        assert_eq!(sorted(held), vec![(7, 2, Right::Exclusive)]);
    }

    #[test]
    fn what_is_damaged_or_of_another_run_of_the_machine_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = HeldLog::open(dir.path(), &[]);
        log.note((7, fid(2), Right::Exclusive), false);
        log.write_out();
        let bytes = fs::read(dir.path().join("held")).unwrap();
        let machine = machine_run(dir.path()).unwrap();
        assert!(read(&bytes, &machine).is_some());
        assert!(read(&bytes, "another start").is_none());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            // A record that is cut off at the end was told to nobody; no other may be missing.
            assert!(read(&bytes, &machine).is_none(), "byte {at}");
        }
        assert_eq!(read(&bytes[..bytes.len() - 1], &machine), Some(vec![]));
    }

    #[test]
    fn as_long_as_something_is_missing_nothing_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        // There are sessions, and no file: a failure of the machine, or an older server.
        let (mut log, held) = HeldLog::open(dir.path(), &[7]);
        assert_eq!(held, None);
        log.note((8, fid(2), Right::Exclusive), false);
        log.write_out();
        drop(log);
        let (mut log, held) = HeldLog::open(dir.path(), &[7, 8]);
        assert_eq!(held, None);
        log.note((8, fid(2), Right::Exclusive), false);
        log.complete();
        log.write_out();
        let (_, held) = HeldLog::open(dir.path(), &[8]);
        assert_eq!(sorted(held), vec![(8, 2, Right::Exclusive)]);
    }
}
