//! Copies of directories, of sources that change, fail or lie meanwhile.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, unreachable_pub)]

mod changing;
mod lies;
mod world;

use ariel_ship::{Answerer, Ask, PIECE_BYTES, Round, STRETCH_BYTES, Target, Told};
use lies::line;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use world::{World, content, noticed};

#[test]
fn a_copy_is_the_source_and_no_more() {
    let world = World::new();
    world.put("log-00000001", &content(1, 300_000));
    world.put("index.redb", &content(2, PIECE_BYTES as usize));
    world.put("empty", &[]);
    world.put("lock", b"17\n");
    fs::create_dir(world.from().join("lost+found")).unwrap();
    fs::create_dir(world.to()).unwrap();
    fs::write(world.to().join("lock"), b"4711\n").unwrap();
    fs::write(world.to().join("other"), b"x").unwrap();
    symlink("/etc/passwd", world.to().join("index.redb")).unwrap();
    let round = world
        .target()
        .last_round(&world.source(), &mut |_| {})
        .unwrap();
    world.assert_equal();
    assert_eq!(fs::read(world.to().join("lock")).unwrap(), b"4711\n");
    let bytes = 300_000 + PIECE_BYTES;
    let whole = Round {
        carried_bytes: bytes,
        looked_bytes: bytes,
        of_bytes: bytes,
    };
    assert_eq!(round, whole);
}

#[test]
fn a_copy_is_for_its_owner_alone() {
    let world = World::new();
    world.put("index.redb", b"secret");
    fs::set_permissions(
        world.from().join("index.redb"),
        PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    world
        .target()
        .last_round(&world.source(), &mut |_| {})
        .unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(world.to()), 0o700);
    assert_eq!(mode(world.to().join("index.redb")), 0o600);
}

#[test]
fn files_that_both_sides_know_are_neither_read_nor_carried_again() {
    const LEN: u64 = 16 * PIECE_BYTES + 5;
    let world = World::new();
    for file in [
        "image-00000001",
        "log-00000001",
        "log-00000002",
        "index.redb",
    ] {
        world.put(file, &content(file.len() as u8, LEN as usize));
    }
    let (answerer, mut target) = (Answerer::new(&world.from()), world.target());
    let source = world.through(&answerer);
    let mut read = 0;
    let mut go = |target: &mut Target| {
        let round = target.round(&source, &mut |_| {}).unwrap();
        let before = std::mem::replace(&mut read, answerer.summed_bytes());
        (round.carried_bytes, read - before)
    };
    assert_eq!(go(&mut target), (4 * LEN, 4 * LEN));
    assert_eq!(go(&mut target), (0, LEN), "only the index may have changed");
    world.append("log-00000002", &[7; 10]);
    assert_eq!(
        go(&mut target),
        (15, 2 * LEN + 10),
        "the last piece of a log"
    );
    assert_eq!(go(&mut target), (0, LEN));
    // Another process at the target reads what it has.
    assert_eq!(go(&mut world.target()), (0, LEN));
    // It notices when that is not what it should be.
    let damaged = world.open_copy("log-00000001");
    damaged.write_all_at(&[99], 3 * PIECE_BYTES).unwrap();
    assert_eq!(go(&mut target), (PIECE_BYTES, 2 * LEN));
    damaged.write_all_at(&[99], 5 * PIECE_BYTES).unwrap();
    assert_eq!(go(&mut world.target()), (PIECE_BYTES, 2 * LEN));
    let last = target.last_round(&source, &mut |_| {}).unwrap();
    assert_eq!(last.carried_bytes, 0);
    world.assert_equal();
}

#[test]
fn large_files_go_stretch_by_stretch() {
    const LEN: u64 = STRETCH_BYTES + 2 * PIECE_BYTES + 7;
    let world = World::new();
    for (seed, file) in [(1, "index.redb"), (2, "log-00000001")] {
        world.put(file, &content(seed, LEN as usize));
    }
    let (answerer, mut target) = (Answerer::new(&world.from()), world.target());
    let source = world.through(&answerer).plain();
    let mut seen = Vec::new();
    let round = target.round(&source, &mut |round| seen.push(round));
    assert_eq!(round.unwrap().carried_bytes, 2 * LEN);
    let looked: Vec<u64> = seen.iter().map(|round| round.looked_bytes).collect();
    assert_eq!(looked, [STRETCH_BYTES, LEN, LEN + STRETCH_BYTES, 2 * LEN]);
    assert!(seen.iter().all(|round| round.of_bytes == 2 * LEN));
    let index = world.open("index.redb");
    for at in [5, STRETCH_BYTES - 1, STRETCH_BYTES, LEN - 1] {
        let mut byte = [0];
        index.read_exact_at(&mut byte, at).unwrap();
        index.write_all_at(&[!byte[0]], at).unwrap();
    }
    let before = answerer.summed_bytes();
    let last = target.last_round(&source, &mut |_| {}).unwrap();
    assert_eq!(last.carried_bytes, 3 * PIECE_BYTES + 7);
    assert_eq!(answerer.summed_bytes() - before, LEN, "the log is known");
    world.assert_equal();
}

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let world = World::new();
    world.put("index.redb", &content(3, 70 * PIECE_BYTES as usize));
    world.put("log-00000001", &content(4, 40 * PIECE_BYTES as usize + 9));
    let all = 110 * PIECE_BYTES + 9;
    let mut failed = 0;
    for ask in 0.. {
        let _ = fs::remove_dir_all(world.to());
        let mut carried = 0;
        let source = world.failing(ask);
        let first = world
            .target()
            .last_round(&source, &mut |round| carried = round.carried_bytes);
        let on_disk = world.copied_bytes();
        let second = world
            .target()
            .last_round(&world.source(), &mut |_| {})
            .unwrap();
        world.assert_equal();
        assert_eq!(second.carried_bytes, all - on_disk, "ask {ask}");
        match first {
            Ok(_) => break,
            Err(error) => assert!(error.to_string().contains("the cable"), "{error}"),
        }
        assert!(carried <= on_disk);
        failed += 1;
    }
    // Lists of files, sums of two files, their bytes in threes and twos, the list again.
    assert_eq!(failed, 2 + 1 + 3 + 1 + 2 + 2);
}

#[test]
fn a_disk_without_room_is_noticed_before_it_is_full() {
    let world = World::new();
    world.put("held", &content(1, 100));
    world.put("log-00000001", &content(2, 100));
    world.target().round(&world.source(), &mut |_| {}).unwrap();
    // No disk is that long, and the source has no such bytes: nothing could be carried.
    let len = i64::MAX.cast_unsigned();
    let source = world.source().meanwhile(|_, ask| match ask {
        Ask::Files { after } if after.is_empty() => Some(Told::Files(vec![line("held", len)])),
        _ => None,
    });
    let error = world.target().round(&source, &mut |_| {}).unwrap_err();
    noticed(&error, &format!("needs {} bytes more", len - 100));
}
