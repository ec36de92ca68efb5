//! A small sound partition for the bodies that damage it or forge parts of it.

use ariel_store::{Apply, Keep, MemoryDisk, Options, Store};
use std::sync::OnceLock;
use wire::{Caller, Fid, Make, Name, Op, Outcome, WriteMode};

pub const NAMES: [&str; 4] = ["a", "b", "inline", "d"];

pub fn options() -> Options {
    Options {
        segment_bytes: 32 << 10,
        checkpoint_bytes: 4 << 10,
        inline_bytes: 100,
        identity: 0x5eed,
        index_cache_bytes: 1 << 20,
        ..Options::default()
    }
}

pub fn apply(store: &mut Store, op: &Op, data: &[u8]) -> Outcome {
    let caller = Caller::default();
    store.apply(Apply {
        op,
        caller: &caller,
        now: 7,
        origin: None,
        data,
        delegated: None,
    })
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// The content of a file: its first letter, so that bytes of another file are noticed.
pub fn content(text: &str) -> Vec<u8> {
    let len = if text == "inline" { 50 } else { 9_000 };
    vec![text.as_bytes()[0]; len]
}

/// A sound partition, part of it not checkpointed; made once. And how many records it has.
pub fn sound() -> (MemoryDisk, u64) {
    static SOUND: OnceLock<(MemoryDisk, u64)> = OnceLock::new();
    let (disk, records) = SOUND.get_or_init(|| {
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
        let records = store.stats().records;
        drop(store);
        disk.crash(Keep::Synced);
        (disk, records)
    });
    (disk.copy(), *records)
}
