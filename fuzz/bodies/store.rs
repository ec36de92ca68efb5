//! A partition whose bytes somebody has changed: segments, records, values of the index. Checking
//! and opening return; what is still read was written once, or is refused.
//!
//! The input is a list of changes of four bytes each: what (a file's byte, a value of the index, a
//! whole file), and where.

use ariel_store::{Apply, Keep, MemoryDisk, Options, Store, fsck_memory};
use std::sync::OnceLock;
use wire::{Caller, Fid, Make, Name, Op, Outcome, WriteMode};

const NAMES: [&str; 4] = ["a", "b", "inline", "d"];

fn options() -> Options {
    Options {
        segment_bytes: 32 << 10,
        checkpoint_bytes: 4 << 10,
        inline_bytes: 100,
        identity: 0x5eed,
        index_cache_bytes: 1 << 20,
        ..Options::default()
    }
}

fn apply(store: &mut Store, op: &Op, data: &[u8]) -> Outcome {
    let caller = Caller::default();
    store.apply(Apply {
        op,
        caller: &caller,
        now: 7,
        origin: None,
        data,
    })
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// What a file holds: its first letter, so that bytes of another file are noticed.
fn content(text: &str) -> Vec<u8> {
    let len = if text == "inline" { 50 } else { 9_000 };
    vec![text.as_bytes()[0]; len]
}

/// A sound partition, part of it not checkpointed; made once.
fn sound() -> MemoryDisk {
    static SOUND: OnceLock<MemoryDisk> = OnceLock::new();
    let disk = SOUND.get_or_init(|| {
        let disk = MemoryDisk::new();
        let mut store = Store::create_in_memory(&disk, &options()).expect("an empty disk");
        for text in NAMES {
            let make = Op::Make {
                dir: Fid::root(1),
                name: name(text),
                make: Make::File,
                mode: 0o644,
                open: None,
            };
            let Outcome::Entry(entry) = apply(&mut store, &make, &[]) else {
                panic!("the name is free");
            };
            let data = content(text);
            let write = Op::Write {
                fid: entry.fid,
                offset: 0,
                len: data.len() as u32,
                mode: WriteMode::At,
            };
            apply(&mut store, &write, &data);
            if text == "b" {
                store.checkpoint().expect("the disk works");
            }
        }
        store.write_out().expect("the disk works");
        store.sync_handle().sync().expect("the disk works");
        drop(store);
        disk.crash(Keep::Synced);
        disk
    });
    disk.copy()
}

fn damage(disk: &MemoryDisk, change: &[u8; 4]) {
    let at = usize::from(u16::from_le_bytes([change[2], change[3]]));
    let files = disk.files();
    let Some((file, len)) = files.get(usize::from(change[1]) % files.len().max(1)) else {
        return;
    };
    match change[0] % 16 {
        0 => drop(disk.lose(file)),
        1..=4 => drop(disk.flip_index(at % 32, change[1] % 8)),
        _ => drop(disk.flip(file, at as u64 % (*len).max(1))),
    }
}

/// Panics if a rule is broken.
pub fn run(bytes: &[u8]) {
    let disk = sound();
    let (changes, _) = bytes.as_chunks::<4>();
    for change in changes.iter().take(64) {
        damage(&disk, change);
    }
    // Either may refuse; neither may panic.
    let _ = fsck_memory(&disk);
    let Ok(mut store) = Store::open_in_memory(&disk, &options()) else {
        return;
    };
    for text in NAMES {
        let Ok(Some(fid)) = store.lookup(Fid::root(1), &name(text)) else {
            continue;
        };
        let mut got = Vec::new();
        let outcome = store.read(fid, 0, 20_000, &mut got);
        if !matches!(outcome, Outcome::Refused(_)) {
            // The write may have been lost with the end of the log, but never be half right.
            assert!(
                got.is_empty() || got == content(text),
                "{text} reads otherwise"
            );
        }
    }
    let _ = store.check();
    let _ = store.close();
}
