//! A machine dies for good, with bytes that it has not written back: its files end where the bytes
//! end that came. Nobody is shown zeros in the place of lost bytes, and holes of programs stay.

use crate::harness::{Cell, Random, real_system};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const MIB: usize = 1 << 20;

#[test]
fn a_file_ends_where_the_bytes_of_its_lost_machine_end() {
    const TEST: &str = "unwritten-end";
    const CACHE: &str = "16";
    const WRITTEN: usize = 50 * MIB;
    if !real_system(TEST) {
        return;
    }
    let Some(cell) = Cell::start(TEST) else {
        return;
    };
    // Much more than its cache holds: so some of it is at the server, and some is not.
    let (a, b) = (cell.mount(), cell.mount_with(&["--cache-mib", CACHE]));
    let bytes = Random(1).bytes(WRITTEN);
    let file = File::create(b.join("long")).unwrap();
    for (at, piece) in (0..).zip(bytes.chunks(100_000)) {
        file.write_all_at(piece, at * 100_000).unwrap();
    }
    drop(file);

    b.kill9();

    let found = fs::read(a.join("long")).unwrap();
    assert!(
        (MIB..WRITTEN).contains(&found.len()),
        "{} bytes of {WRITTEN} are no part of them",
        found.len()
    );
    let wrong = found
        .iter()
        .zip(&bytes)
        .position(|(found, was)| found != was);
    assert_eq!(wrong, None, "of {} bytes", found.len());
    assert_eq!(
        fs::metadata(a.join("long")).unwrap().len(),
        found.len() as u64
    );
}

#[test]
fn a_size_that_is_set_comes_behind_the_bytes_and_holes_stay_holes() {
    const TEST: &str = "unwritten-size";
    const FILES: u64 = 10;
    if !real_system(TEST) {
        return;
    }
    let Some(cell) = Cell::start(TEST) else {
        return;
    };
    let (a, b) = (cell.mount(), cell.mount());
    let bytes = |file: u64| Random(file).bytes(150_000 * (file as usize + 1));
    let path = |file: u64| format!("grown-{file}");
    for file in 0..FILES {
        let made = File::create(b.join(&path(file))).unwrap();
        made.write_all_at(&bytes(file), 0).unwrap();
        made.set_len(4 * MIB as u64).unwrap();
        // Bytes that are written from then on are not at the server.
        made.write_all_at(b"later", 3 * MIB as u64).unwrap();
    }
    let sparse = File::create(b.join("sparse")).unwrap();
    sparse.write_all_at(b"far", 2 * MIB as u64).unwrap();
    sparse.sync_all().unwrap();
    drop(sparse);

    b.kill9();

    for file in 0..FILES {
        let (mut expected, found) = (bytes(file), fs::read(a.join(&path(file))).unwrap());
        expected.resize(4 * MIB, 0);
        assert!(found == expected, "{}: {} bytes", path(file), found.len());
    }
    let found = fs::read(a.join("sparse")).unwrap();
    assert_eq!(found.len(), 2 * MIB + 3);
    assert!(found[..2 * MIB].iter().all(|byte| *byte == 0));
    assert_eq!(&found[2 * MIB..], b"far");
}
