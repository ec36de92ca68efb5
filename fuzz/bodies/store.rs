//! A partition whose bytes somebody has changed: segments, records, values of the index. Checking
//! and opening return; what is still read was written once, or is refused.
//!
//! The input is a list of changes of four bytes each: what (a file's byte, a value of the index, a
//! whole file), and where.

use crate::partition::{NAMES, content, name, options, sound};
use ariel_store::{MemoryDisk, Options, Store, fsck_memory};
use wire::{Fid, Outcome};

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
    run_on(bytes, &options());
}

/// The same on a store with these options: a planted fault, for instance.
pub fn run_on(bytes: &[u8], options: &Options) {
    let (disk, _) = sound();
    let (changes, _) = bytes.as_chunks::<4>();
    for change in changes.iter().take(64) {
        damage(&disk, change);
    }
    // Either may refuse; neither may panic.
    let _ = fsck_memory(&disk);
    let Ok(mut store) = Store::open_in_memory(&disk, options) else {
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
