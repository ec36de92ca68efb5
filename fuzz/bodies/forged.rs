//! A partition with pieces that have right checksums and say anything: records at the end of the
//! log and in a segment behind it, values of the index. Checking, opening, asking and writing
//! return, and so does opening again.
//!
//! The input is a list of pieces: what it is, a number, a length of two bytes, and that many bytes.
//! So what stands behind the checksums is decoded, which random changes of bytes hardly reach.

use crate::partition::{NAMES, apply, name, options, sound};
use ariel_store::{MemoryDisk, Store, forge_record, forge_segment, fsck_memory};
use wire::{Fid, Op, WriteMode};

/// Where the log ends, for the next forged piece.
struct End {
    segment: u32,
    sequence: u64,
}

fn last_segment(disk: &MemoryDisk) -> (String, u32) {
    let files = disk.files();
    let (name, _) = files.last().expect("a partition has a log");
    let number = name.strip_prefix("log-").and_then(|n| n.parse().ok());
    (name.clone(), number.expect("only the log has files here"))
}

fn forge(disk: &MemoryDisk, end: &mut End, (kind, number): (u8, u8), bytes: &[u8]) {
    let identity = options().identity;
    match kind % 4 {
        0 | 1 => {
            // The first bytes are the file's, the others say what happened.
            let data = bytes.len() * usize::from(kind & 1) * usize::from(number) / 255;
            let (data, meta) = bytes.split_at(data);
            let record = forge_record(identity, end.segment, end.sequence, data, meta);
            disk.extend(&last_segment(disk).0, &record);
            end.sequence += 1;
        }
        2 => drop(disk.forge_index(usize::from(number), bytes)),
        _ => {
            end.segment += 1;
            let first = end.sequence + u64::from(number % 2);
            let header = forge_segment(identity, end.segment, first);
            disk.add(&format!("log-{:08}", end.segment), &header);
        }
    }
}

/// Asks and writes, whatever the answers.
fn use_it(store: &mut Store) {
    let mut got = Vec::new();
    for vnode in 1..8 {
        let fid = Fid {
            vnode,
            ..Fid::root(1)
        };
        let list = Op::ReadDir {
            dir: fid,
            after: 0,
            max: 100,
        };
        apply(store, &list, &[]);
        apply(store, &Op::GetAttr { fid }, &[]);
        apply(store, &Op::ListXattr { fid }, &[]);
        let _ = store.read(fid, 0, 20_000, &mut got);
        let write = Op::Write {
            fid,
            offset: 100,
            len: 4,
            mode: WriteMode::At,
        };
        apply(store, &write, b"data");
        let _ = store.path_of(fid);
    }
    for text in NAMES {
        let dir = Fid::root(1);
        let name = name(text);
        apply(store, &Op::Unlink { dir, name }, &[]);
    }
    for fid in store.orphans() {
        apply(store, &Op::Reap { fid }, &[]);
    }
}

/// Panics if a rule is broken.
pub fn run(bytes: &[u8]) {
    let (disk, records) = sound();
    let mut end = End {
        segment: last_segment(&disk).1,
        sequence: records + 1,
    };
    let mut rest = bytes;
    for _ in 0..16 {
        let &[kind, number, low, high, ref more @ ..] = rest else {
            break;
        };
        let len = usize::from(u16::from_le_bytes([low, high])).min(more.len());
        let (piece, left) = more.split_at(len);
        forge(&disk, &mut end, (kind, number), piece);
        rest = left;
    }
    let _ = fsck_memory(&disk);
    for _ in 0..2 {
        let Ok(mut store) = Store::open_in_memory(&disk, &options()) else {
            return;
        };
        let _ = store.check();
        use_it(&mut store);
        let _ = store.checkpoint();
        let _ = store.close();
    }
}
