//! Sources that lie, and questions that a source refuses.

use crate::world::{World, content, noticed};
use ariel_ship::{Answerer, Ask, Bytes, FileLine, PIECE_BYTES, STRETCH_BYTES, Sum, Told};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

pub fn line(name: &str, len: u64) -> FileLine {
    FileLine {
        name: name.into(),
        len,
        state: Sum::of(b"state"),
        sum: None,
    }
}

/// The error that comes of a source which says this when it is asked so.
#[track_caller]
fn lied(is_asked: fn(&Ask) -> bool, lie: &Told) -> String {
    let world = World::new();
    world.put("index.redb", &content(1, 2 * PIECE_BYTES as usize));
    let mut errors = Vec::new();
    for is_last in [false, true] {
        let (mut target, mut on) = (world.target(), |_| {});
        let source = world
            .source()
            .meanwhile(|_, ask| is_asked(ask).then(|| lie.clone()));
        let round = match is_last {
            false => target.round(&source, &mut on),
            true => target.last_round(&source, &mut on),
        };
        errors.push(round.unwrap_err().to_string());
        let names = fs::read_dir(world.to()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| name == "index.redb"), "{names:?}");
        assert!(world.copied_bytes() <= 2 * PIECE_BYTES);
        assert_eq!(
            fs::read_dir(world.to().parent().unwrap()).unwrap().count(),
            2
        );
    }
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("use the same version"), "{}", errors[0]);
    errors.swap_remove(0)
}

fn files(ask: &Ask) -> bool {
    matches!(ask, Ask::Files { .. })
}

fn sums(ask: &Ask) -> bool {
    matches!(ask, Ask::Sums { .. })
}

fn bytes(ask: &Ask) -> bool {
    matches!(ask, Ask::Bytes { .. })
}

#[test]
fn a_list_of_files_that_cannot_be_is_refused() {
    for name in [
        "../x",
        "/tmp/x",
        "a/b",
        "..",
        ".",
        "",
        "lock",
        "a\0b",
        &"x".repeat(256),
    ] {
        let error = lied(files, &Told::Files(vec![line(name, 1)]));
        assert!(
            error.contains("a name that no file may have"),
            "{name:?}: {error}"
        );
    }
    let twice = vec![line("b", 1), line("b", 1)];
    assert!(lied(files, &Told::Files(twice)).contains("out of their order"));
    // The same list once more, in the place of what is behind it.
    assert!(lied(files, &Told::Files(vec![line("b", 1)])).contains("out of their order"));
    let many = (0..4097).map(|number| line(&format!("{number:05}"), 0));
    assert!(lied(files, &Told::Files(many.collect())).contains("too many files"));
    let long = vec![line("a", u64::MAX), line("b", 1)];
    assert!(lied(files, &Told::Files(long)).contains("no disk holds"));
    assert!(lied(files, &Told::Gone).contains("no list"));
}

#[test]
fn a_list_without_end_is_refused() {
    let world = World::new();
    let mut told = 0_u64;
    let source = world.source().plain().meanwhile(|_, _| {
        let first = told;
        told += 4096;
        let lines = (first..told).map(|number| line(&format!("{number:016}"), 0));
        Some(Told::Files(lines.collect()))
    });
    let error = world.target().round(&source, &mut |_| {}).unwrap_err();
    noticed(&error, "too many files");
}

#[test]
fn sums_and_bytes_that_cannot_be_are_refused() {
    let sum = Sum::of(b"x");
    assert!(lied(sums, &Told::Sums(vec![sum; 1025])).contains("no sums, or too many"));
    assert!(lied(sums, &Told::Bytes(Bytes(vec![1]))).contains("no sums"));
    let long = vec![1; 2 * PIECE_BYTES as usize + 1];
    assert!(lied(bytes, &Told::Bytes(Bytes(long))).contains("no bytes, or too many"));
    assert!(lied(bytes, &Told::Sums(vec![sum])).contains("no bytes"));
}

#[test]
fn a_last_round_believes_only_bytes_that_have_their_sums() {
    let world = World::new();
    world.put("index.redb", &content(1, 2 * PIECE_BYTES as usize));
    let lies = [
        (
            bytes as fn(&Ask) -> bool,
            Told::Bytes(Bytes(content(9, 2 * PIECE_BYTES as usize))),
        ),
        (bytes, Told::Bytes(Bytes(content(1, PIECE_BYTES as usize)))),
        (sums, Told::Sums(vec![Sum::of(b"x"); 3])),
        (sums, Told::Sums(vec![Sum::of(b"x"); 1])),
        (sums, Told::Sums(vec![Sum::of(b"x"); 2])),
    ];
    for (is_asked, lie) in lies {
        let source = world
            .source()
            .meanwhile(|_, ask| is_asked(ask).then(|| lie.clone()));
        let error = world.target().last_round(&source, &mut |_| {}).unwrap_err();
        noticed(&error, "`index.redb` changed");
        assert!(world.copied_bytes() <= 2 * PIECE_BYTES);
        drop(source);
        world
            .target()
            .last_round(&world.source(), &mut |_| {})
            .unwrap();
        world.assert_equal();
        fs::remove_dir_all(world.to()).unwrap();
    }
}

#[test]
fn a_source_refuses_questions_about_anything_else() {
    let world = World::new();
    world.put("index.redb", &content(1, 100));
    world.put("lock", b"17");
    fs::write(world.from().join("../secret"), b"secret").unwrap();
    let answerer = Answerer::new(&world.from());
    let refused = |ask: &Ask| answerer.answer(ask).unwrap_err().to_string();
    let sums = |file: &str, from| {
        let file = file.into();
        Ask::Sums { file, from }
    };
    let bytes = |file: &str, pieces: &[u64]| {
        let (file, pieces) = (file.into(), pieces.to_vec());
        Ask::Bytes { file, pieces }
    };
    let absolute = world.from().join("index.redb").display().to_string();
    for name in [
        "../secret",
        "./index.redb",
        &absolute,
        "..",
        ".",
        "",
        "lock",
    ] {
        assert!(refused(&sums(name, 0)).contains("no name"), "{name}");
        assert!(refused(&bytes(name, &[0])).contains("no name"), "{name}");
    }
    fs::create_dir(world.from().join("dir")).unwrap();
    assert!(refused(&sums("dir", 0)).contains("no plain file"));
    for from in [1, PIECE_BYTES, STRETCH_BYTES + 1, u64::MAX] {
        assert!(refused(&sums("index.redb", from)).contains("no stretch"));
    }
    assert!(refused(&sums("index.redb", u64::MAX - u64::MAX % STRETCH_BYTES)).contains("no stre"));
    for pieces in [&[1, 1][..], &[2, 1], &(0..33).collect::<Vec<u64>>()] {
        assert!(refused(&bytes("index.redb", pieces)).contains("too many pieces"));
    }
    assert!(refused(&bytes("index.redb", &[u64::MAX])).contains("no file has"));
    let told = |ask: &Ask| answerer.answer(ask).unwrap();
    assert_eq!(told(&sums("none", 0)), Told::Gone);
    assert_eq!(told(&bytes("none", &[0])), Told::Gone);
    assert_eq!(told(&sums("index.redb", STRETCH_BYTES)), Told::Sums(vec![]));
    assert_eq!(
        told(&bytes("index.redb", &[0, 9])),
        Told::Bytes(Bytes(content(1, 100)))
    );
    let Told::Files(lines) = told(&Ask::Files { after: "".into() }) else {
        panic!("no list");
    };
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_source_does_not_leave_out_what_it_cannot_copy() {
    let world = World::new();
    let answerer = Answerer::new(&world.from());
    let link = world.from().join("log-00000001");
    symlink("/etc/passwd", &link).unwrap();
    let refused = |ask: &Ask| answerer.answer(ask).unwrap_err().to_string();
    let list = Ask::Files { after: "".into() };
    assert!(refused(&list).contains("put a plain file in its place"));
    let file = "log-00000001".to_owned();
    refused(&Ask::Sums { file, from: 0 });
    fs::remove_file(&link).unwrap();
    let _socket = UnixListener::bind(&link).unwrap();
    assert!(refused(&list).contains("put a plain file in its place"));
}
