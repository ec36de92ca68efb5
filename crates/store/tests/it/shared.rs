//! Copies that share bytes: what they cost, that each file goes its own way afterwards, and that
//! nobody loses anything when segments are cleaned and removed.

use crate::world::*;
use ariel_store::{Keep, MemoryDisk, Store, fsck_memory};
use wire::*;

fn copy(store: &mut Store, (from, at): (Fid, u64), (to, offset): (Fid, u64), len: u32) -> u32 {
    let op = Op::Copy {
        from,
        at,
        to,
        offset,
        len,
    };
    match run(store, &op) {
        Outcome::Copied { len, .. } => len,
        other => panic!("{other:?}"),
    }
}

/// Ends the store in order or not, and opens it again; it must be clean.
fn again(store: Store, disk: &MemoryDisk, orderly: bool) -> Store {
    let mut store = store;
    store.write_out().unwrap();
    if orderly {
        store.close().unwrap();
    } else {
        drop(store);
    }
    disk.crash(Keep::Written);
    let report = fsck_memory(disk).unwrap();
    assert!(report.is_clean(), "{report}");
    Store::open_in_memory(disk, &small()).unwrap()
}

#[test]
fn a_copy_takes_no_room_and_each_goes_its_own_way() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let (from, to) = (
        make(&mut store, root(), "from"),
        make(&mut store, root(), "to"),
    );
    let content = bytes(1, 20_000);
    for (n, part) in content.chunks(3_000).enumerate() {
        written(write(&mut store, from, 3_000 * n as u64, part));
    }
    let before = store.stats().appended_bytes;
    assert_eq!(copy(&mut store, (from, 0), (to, 0), 1 << 20), 20_000);
    let more = store.stats().appended_bytes - before;
    // The first bytes, which may lie in the index, and no others.
    assert!(more < 1_024 + 300, "{more} bytes in the log for a copy");
    let mut expected = [content.clone(), content.clone()];
    for round in 0..6u64 {
        assert!(read_all(&mut store, from) == expected[0], "round {round}");
        assert!(read_all(&mut store, to) == expected[1], "round {round}");
        let side = round as usize % 2;
        let (at, data) = (1_777 * round as usize, bytes(10 + round, 900));
        expected[side][at..at + 900].copy_from_slice(&data);
        written(write(&mut store, [from, to][side], at as u64, &data));
        store = again(store, &disk, round % 3 == 0);
    }
    run(
        &mut store,
        &Op::Unlink {
            dir: root(),
            name: name("from"),
        },
    );
    run(&mut store, &Op::Reap { fid: from });
    store = again(store, &disk, true);
    assert!(read_all(&mut store, to) == expected[1], "alone");
}

#[test]
fn a_large_copy_is_one_operation_of_so_many_pieces() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let (from, to) = (
        make(&mut store, root(), "from"),
        make(&mut store, root(), "to"),
    );
    // More than a message carries, and more pieces than one operation takes over.
    let content = bytes(1, 1_500 * 3_000);
    for (n, part) in content.chunks(3_000).enumerate() {
        written(write(&mut store, from, 3_000 * n as u64, part));
    }
    let before = store.stats().appended_bytes;
    let most = limits::COPY_BYTES;
    let first = u64::from(copy(&mut store, (from, 0), (to, 0), most));
    assert!(first > 2 * u64::from(limits::BULK_BYTES), "{first}");
    assert!(first < content.len() as u64, "it takes over all of it");
    let rest = copy(&mut store, (from, first), (to, first), most);
    assert_eq!(first + u64::from(rest), content.len() as u64);
    let more = store.stats().appended_bytes - before;
    assert!(more < 2 * (1_024 + 300), "{more} bytes in the log");
    store = again(store, &disk, false);
    assert!(read_all(&mut store, to) == content);
    // A copy to a directory is refused before anything is read for it.
    let op = Op::Copy {
        from,
        at: 0,
        to: root(),
        offset: 0,
        len: most,
    };
    let outcome = run(&mut store, &op);
    assert_eq!(outcome, Outcome::Refused(Refusal::IsDirectory));
}

#[test]
fn holes_are_copied_as_holes_over_what_was_there() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let (from, to) = (
        make(&mut store, root(), "from"),
        make(&mut store, root(), "to"),
    );
    // The other one has its first bytes in the index, and an extent behind them.
    written(write(&mut store, to, 0, &bytes(3, 90)));
    written(write(&mut store, to, 5_000, &bytes(4, 5_000)));
    let mut expected = read_all(&mut store, to);
    set_size(&mut store, from, 9_000);
    written(write(&mut store, from, 4_000, &bytes(5, 500)));
    assert_eq!(copy(&mut store, (from, 10), (to, 20), 8_000), 8_000);
    let source = read_all(&mut store, from);
    expected[20..8_020].copy_from_slice(&source[10..8_010]);
    store = again(store, &disk, false);
    assert!(read_all(&mut store, to) == expected);
    let hole = run(
        &mut store,
        &Op::Find {
            fid: to,
            offset: 100,
            hole: true,
        },
    );
    // The first bytes are copied whatever they are.
    assert_eq!(hole, Outcome::Position(1_034));
    let data = run(
        &mut store,
        &Op::Find {
            fid: to,
            offset: 1_034,
            hole: false,
        },
    );
    assert_eq!(data, Outcome::Position(4_010));
}

#[test]
fn a_file_is_copied_within_itself_as_it_was() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "f");
    let mut expected = bytes(6, 12_000);
    written(write(&mut store, fid, 0, &expected));
    for (at, offset, len) in [
        (0, 6_000, 5_000),
        (3_000, 1_000, 7_001),
        (10, 11_000, 4_000),
    ] {
        assert_eq!(copy(&mut store, (fid, at), (fid, offset), len), len);
        let part = expected[at as usize..at as usize + len as usize].to_vec();
        let end = offset as usize + part.len();
        expected.resize(expected.len().max(end), 0);
        expected[offset as usize..end].copy_from_slice(&part);
        store = again(store, &disk, false);
        assert!(read_all(&mut store, fid) == expected, "{at} to {offset}");
    }
}

/// Segments in which only borrowers have bytes left are cleaned like others, and removed.
#[test]
fn borrowers_keep_their_bytes_when_segments_are_cleaned() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let source = make(&mut store, root(), "source");
    let noise = make(&mut store, root(), "noise");
    let files: Vec<Fid> = (0..4)
        .map(|n| make(&mut store, root(), &format!("copy-{n}")))
        .collect();
    let mut expected = vec![Vec::new(); files.len()];
    for round in 0..160u64 {
        let data = bytes(round, 6_000);
        written(write(&mut store, source, 0, &data));
        if round % 4 > 0 {
            continue;
        }
        let turn = round as usize / 4 % files.len();
        let (file, known) = (files[turn], &mut expected[turn]);
        // A part of it that begins anywhere, at the end of what is there.
        let (at, len) = (round * 31 % 3_000, 1_500 + (round * 97 % 1_000) as u32);
        let end = known.len() as u64;
        assert_eq!(copy(&mut store, (source, at), (file, end), len), len);
        known.extend_from_slice(&data[at as usize..at as usize + len as usize]);
        // Another borrows from the borrower.
        let other = (turn + 1) % files.len();
        let end_of_other = expected[other].len() as u64;
        copy(&mut store, (file, end), (files[other], end_of_other), 700);
        expected[other].extend_from_slice(&data[at as usize..at as usize + 700]);
    }
    for round in 0..600u64 {
        written(write(&mut store, noise, 0, &bytes(round, 4_000)));
        store.write_out().unwrap();
    }
    let stats = store.stats();
    assert!(stats.cleaned_bytes > 10_000, "{stats:?}");
    let on_disk: u64 = disk.files().iter().map(|(_, len)| len).sum();
    assert!(
        on_disk < 4 * stats.live_bytes,
        "{on_disk} bytes for {stats:?}"
    );
    for orderly in [false, true] {
        for (file, known) in files.iter().zip(&expected) {
            assert!(read_all(&mut store, *file) == *known);
        }
        store = again(store, &disk, orderly);
    }
    // With the last borrower the last segments go, and the notes of borrowers.
    for (n, file) in files.iter().enumerate() {
        let name = name(&format!("copy-{n}"));
        run(&mut store, &Op::Unlink { dir: root(), name });
        assert_eq!(run(&mut store, &Op::Reap { fid: *file }), Outcome::Done);
    }
    set_size(&mut store, source, 0);
    set_size(&mut store, noise, 0);
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let stats = store.stats();
    assert_eq!((stats.live_bytes, stats.segments), (0, 1), "{stats:?}");
}
