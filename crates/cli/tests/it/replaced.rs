//! A file replaced by rename(2) is the old one or the whole new one, also when the machine that did
//! it dies before it has written everything back.

use crate::harness::{Pair, Random, real_system};
use std::fs::{self, File};

#[test]
fn a_file_renamed_over_another_is_whole_when_its_machine_dies() {
    if !real_system("replaced") {
        return;
    }
    let Some(pair) = Pair::start("replaced") else {
        return;
    };
    const FILES: u64 = 20;
    let old = |file: u64| format!("old {file}").into_bytes();
    // The larger ones are several batches of write-back.
    let new = |file: u64| {
        Random(file).bytes(if file.is_multiple_of(4) {
            3 << 20
        } else {
            10_000
        })
    };
    let dir = pair.b.join("d");
    fs::create_dir(&dir).unwrap();
    for file in 0..FILES {
        let path = dir.join(format!("f{file}"));
        fs::write(&path, old(file)).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }
    for file in 0..FILES {
        let fresh = dir.join(format!("fresh{file}"));
        fs::write(&fresh, new(file)).unwrap();
        fs::rename(fresh, dir.join(format!("f{file}"))).unwrap();
    }
    // Names are told before anything is made stable.
    let other = File::create(pair.b.join("other")).unwrap();
    other.sync_all().unwrap();
    drop(other);
    let Pair { cell: _cell, a, b } = pair;

    b.kill9();

    for file in 0..FILES {
        let found = fs::read(a.join(&format!("d/f{file}"))).unwrap();
        assert!(
            found == new(file),
            "f{file} has {} bytes after its new name was told",
            found.len()
        );
    }
}
