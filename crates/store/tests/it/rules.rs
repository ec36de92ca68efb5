//! The rules of a local file system, one by one.

use crate::world::*;
use ariel_store::Store;
use wire::*;

fn new() -> Store {
    Store::in_memory(&small()).unwrap()
}

fn refused(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn chmod(store: &mut Store, fid: Fid, mode: u16) {
    let set = Set {
        mode: Some(mode),
        ..Set::default()
    };
    assert!(matches!(
        run(store, &Op::SetAttr { fid, set }),
        Outcome::Attr(_)
    ));
}

fn chown(store: &mut Store, fid: Fid, uid: u32, gid: u32) -> Attr {
    let set = Set {
        uid: Some(uid),
        gid: Some(gid),
        ..Set::default()
    };
    match run(store, &Op::SetAttr { fid, set }) {
        Outcome::Attr(attr) => attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_who_may_changes_a_directory() {
    let mut store = new();
    let dir = mkdir(&mut store, root(), "dir");
    let op = make_op(dir, "a", Make::File, 0o600);
    assert_eq!(
        refused(run_as(&mut store, &user(5), &op, &[])),
        Refusal::Denied
    );
    chmod(&mut store, dir, 0o1777);
    let made = entry(run_as(&mut store, &user(5), &op, &[]));
    assert_eq!(
        (made.attr.uid, made.attr.gid, made.attr.mode),
        (5, 5, 0o600)
    );
    // Sticky: only the owner of the file or of the directory takes the name away.
    let unlink = Op::Unlink {
        dir,
        name: name("a"),
    };
    assert_eq!(
        refused(run_as(&mut store, &user(6), &unlink, &[])),
        Refusal::NotPermitted
    );
    let away = rename_op(dir, "a", dir, "b");
    assert_eq!(
        refused(run_as(&mut store, &user(6), &away, &[])),
        Refusal::NotPermitted
    );
    assert!(matches!(
        run_as(&mut store, &user(5), &unlink, &[]),
        Outcome::Removed { .. }
    ));
    chmod(&mut store, dir, 0o700);
    let lookup = Op::Lookup {
        dir,
        name: name("a"),
    };
    assert_eq!(
        refused(run_as(&mut store, &user(5), &lookup, &[])),
        Refusal::Denied
    );
    assert!(matches!(run(&mut store, &lookup), Outcome::Absent { .. }));
}

#[test]
fn opening_asks_for_the_mode_and_writing_does_not() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    chown(&mut store, fid, 5, 5);
    chmod(&mut store, fid, 0o440);
    let open = |read, write| Op::Open {
        fid,
        access: Access { read, write },
    };
    let mut ask = |caller: &Caller, op: &Op| run_as(&mut store, caller, op, &[]);
    assert!(matches!(
        ask(&user(5), &open(true, false)),
        Outcome::Opened(_)
    ));
    assert_eq!(refused(ask(&user(5), &open(true, true))), Refusal::Denied);
    assert_eq!(refused(ask(&user(6), &open(true, false))), Refusal::Denied);
    let unknown = Caller {
        groups: None,
        ..user(6)
    };
    assert!(matches!(
        ask(&unknown, &open(true, false)),
        Outcome::Opened(_)
    ));
    let op = write_op(fid, 0, b"opened before", WriteMode::At);
    written(run_as(&mut store, &user(5), &op, b"opened before"));
    let dir = Op::Open {
        fid: root(),
        access: Access {
            read: true,
            write: true,
        },
    };
    assert_eq!(refused(run(&mut store, &dir)), Refusal::IsDirectory);
}

#[test]
fn owners_change_modes_and_root_changes_owners() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    chown(&mut store, fid, 5, 5);
    let set = |set: Set| Op::SetAttr { fid, set };
    let mode = set(Set {
        mode: Some(0o6755),
        ..Set::default()
    });
    assert_eq!(
        refused(run_as(&mut store, &user(6), &mode, &[])),
        Refusal::NotPermitted
    );
    assert!(
        matches!(run_as(&mut store, &user(5), &mode, &[]), Outcome::Attr(a) if a.mode == 0o6755)
    );
    let away = set(Set {
        uid: Some(6),
        ..Set::default()
    });
    assert_eq!(
        refused(run_as(&mut store, &user(5), &away, &[])),
        Refusal::NotPermitted
    );
    // A new owner has not earned the old one's rights.
    assert_eq!(chown(&mut store, fid, 7, 8).mode, 0o755);
    let exact = set(Set {
        mtime: Some(SetTime::To(3)),
        ..Set::default()
    });
    assert_eq!(
        refused(run_as(&mut store, &user(5), &exact, &[])),
        Refusal::NotPermitted
    );
    assert!(matches!(run_as(&mut store, &user(7), &exact, &[]), Outcome::Attr(a) if a.mtime == 3));
    chmod(&mut store, fid, 0o6775);
    let kill = set(Set {
        kill_set_id: true,
        ..Set::default()
    });
    assert!(
        matches!(run_as(&mut store, &user(9), &kill, &[]), Outcome::Attr(a) if a.mode == 0o775)
    );
}

#[test]
fn a_set_gid_directory_hands_its_group_down() {
    let mut store = new();
    let dir = mkdir(&mut store, root(), "dir");
    chown(&mut store, dir, 0, 50);
    chmod(&mut store, dir, 0o2777);
    let file = make_op(dir, "f", Make::File, 0o2755);
    let made = entry(run_as(&mut store, &user(5), &file, &[]));
    assert_eq!((made.attr.gid, made.attr.mode), (50, 0o755));
    let sub = make_op(dir, "d", Make::Directory, 0o755);
    let made = entry(run_as(&mut store, &user(5), &sub, &[]));
    assert_eq!(
        (made.attr.gid, made.attr.mode, made.attr.nlink),
        (50, 0o2755, 2)
    );
    assert_eq!(made.dir.nlink, 3);
}

#[test]
fn nodes_and_links_have_their_own_rules() {
    let mut store = new();
    let node = |kind, rdev| Make::Node { kind, rdev };
    let device = make_op(root(), "dev", node(Kind::Block, 0x801), 0o600);
    chmod(&mut store, root(), 0o777);
    assert_eq!(
        refused(run_as(&mut store, &user(5), &device, &[])),
        Refusal::NotPermitted
    );
    assert_eq!(entry(run(&mut store, &device)).attr.rdev, 0x801);
    let fifo = make_op(root(), "fifo", node(Kind::Fifo, 9), 0o600);
    let made = entry(run_as(&mut store, &user(5), &fifo, &[]));
    assert_eq!((made.attr.kind, made.attr.rdev), (Kind::Fifo, 0));
    let link = make_op(root(), "s", Make::Symlink(b"to/there".to_vec()), 0);
    let link = entry(run(&mut store, &link));
    assert_eq!((link.attr.mode, link.attr.size), (0o777, 8));
    let fid = link.fid;
    assert_eq!(
        run(&mut store, &Op::ReadLink { fid }),
        Outcome::Target(b"to/there".to_vec())
    );
    let bad = make_op(root(), "x", node(Kind::Directory, 0), 0o600);
    assert_eq!(refused(run(&mut store, &bad)), Refusal::Invalid);
    let hard = Op::Link {
        fid: root(),
        dir: root(),
        name: name("up"),
    };
    assert_eq!(refused(run(&mut store, &hard)), Refusal::NotPermitted);
    let other = Op::Link {
        fid: Fid::root(2),
        dir: root(),
        name: name("up"),
    };
    assert_eq!(refused(run(&mut store, &other)), Refusal::CrossVolume);
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let mut store = new();
    let a = mkdir(&mut store, root(), "a");
    let b = mkdir(&mut store, a, "b");
    let c = mkdir(&mut store, b, "c");
    assert_eq!(
        refused(run(&mut store, &rename_op(root(), "a", c, "x"))),
        Refusal::Invalid
    );
    assert_eq!(
        refused(run(&mut store, &rename_op(b, "c", root(), "a"))),
        Refusal::NotEmpty
    );
    let outcome = run(&mut store, &rename_op(b, "c", root(), "c"));
    assert!(
        matches!(outcome, Outcome::Renamed { from, to, .. } if from.nlink == 2 && to.nlink == 4)
    );
    assert_eq!(store.path_of(c).unwrap(), b"/c");
    assert_eq!(store.path_of(b).unwrap(), b"/a/b");
}

#[test]
fn the_last_name_leaves_an_orphan_until_it_is_reaped() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    let data = bytes(1, 10_000);
    written(write(&mut store, fid, 0, &data));
    let reap = Op::Reap { fid };
    assert_eq!(refused(run(&mut store, &reap)), Refusal::Invalid);
    let over = make(&mut store, root(), "b");
    let outcome = run(&mut store, &rename_op(root(), "b", root(), "a"));
    assert!(
        matches!(outcome, Outcome::Renamed { victim: Some((f, a)), .. } if f == fid && a.nlink == 0)
    );
    assert_eq!(store.orphans(), [fid]);
    assert_eq!(read_all(&mut store, fid), data);
    written(write(&mut store, fid, 3, b"still open"));
    let again = Op::Link {
        fid,
        dir: root(),
        name: name("c"),
    };
    assert_eq!(refused(run(&mut store, &again)), Refusal::NotFound);
    assert_eq!(run(&mut store, &reap), Outcome::Done);
    assert_eq!(refused(run(&mut store, &reap)), Refusal::Stale);
    assert_eq!((store.attr(fid), store.stats().bytes), (Ok(None), 0));
    assert!(store.attr(over).unwrap().is_some());
    // A removed directory takes no more names.
    let dir = mkdir(&mut store, root(), "dir");
    let rmdir = Op::Rmdir {
        dir: root(),
        name: name("dir"),
    };
    run(&mut store, &rmdir);
    let op = make_op(dir, "x", Make::File, 0o644);
    assert_eq!(refused(run(&mut store, &op)), Refusal::NotFound);
}

#[test]
fn a_position_stays_while_its_name_does() {
    let mut store = new();
    for i in 0..10 {
        make(&mut store, root(), &format!("f{i}"));
    }
    let before = list(&mut store, root(), 4);
    make(&mut store, root(), "new");
    run(&mut store, &rename_op(root(), "new", root(), "f3"));
    run(&mut store, &rename_op(root(), "f5", root(), "g5"));
    let after = list(&mut store, root(), 3);
    let place = |list: &[DirEntry], text: &str| {
        list.iter()
            .find(|e| e.name == name(text))
            .map(|e| e.position)
    };
    assert_eq!(place(&before, "f3"), place(&after, "f3"));
    assert!(place(&after, "g5") > place(&before, "f9"));
    assert!(
        after
            .windows(2)
            .all(|pair| pair[0].position < pair[1].position)
    );
    assert_eq!(after.len(), 10);
    let all = run(
        &mut store,
        &Op::ReadDir {
            dir: root(),
            after: 0,
            max: 10,
        },
    );
    assert!(matches!(all, Outcome::Dir { end: true, .. }));
}

#[test]
fn a_listing_fits_into_a_message() {
    let mut store = Store::in_memory(&ariel_store::Options::default()).unwrap();
    for i in 0..4_100 {
        make(&mut store, root(), &format!("{i:0250}"));
    }
    let op = Op::ReadDir {
        dir: root(),
        after: 0,
        max: 4_096,
    };
    let outcome = run(&mut store, &op);
    assert!(wire::encode(&outcome).len() < limits::BODY_BYTES);
    assert!(matches!(&outcome, Outcome::Dir { entries, end: false, .. } if entries.len() > 1000));
    assert_eq!(list(&mut store, root(), 4_096).len(), 4_100);
}

#[test]
fn write_back_brings_size_and_time_and_never_shrinks() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    let back = |size, mtime| WriteMode::Back {
        size,
        mtime,
        ctime: mtime,
    };
    let op = write_op(fid, 4_096, b"block", back(10_000, 6));
    let (_, attr) = written(run_as(&mut store, &superuser(), &op, b"block"));
    assert_eq!((attr.size, attr.mtime), (10_000, 6));
    let version = attr.version;
    let op = write_op(fid, 0, b"", back(9, 5));
    let (_, attr) = written(run(&mut store, &op));
    assert_eq!((attr.size, attr.mtime), (10_000, 5));
    assert!(attr.version > version);
    let content = read_all(&mut store, fid);
    assert_eq!(&content[4_096..4_101], b"block");
    assert!(content[..4_096].iter().all(|b| *b == 0));
    let nothing = write_op(fid, 0, b"", WriteMode::At);
    let (_, same) = written(run(&mut store, &nothing));
    assert_eq!(same, attr);
    let lie = Op::Write {
        fid,
        offset: 0,
        len: 4,
        mode: WriteMode::At,
    };
    assert_eq!(
        refused(run_as(&mut store, &superuser(), &lie, b"five!")),
        Refusal::Invalid
    );
    let far = write_op(fid, limits::FILE_BYTES, b"x", WriteMode::At);
    assert_eq!(
        refused(run_as(&mut store, &superuser(), &far, b"x")),
        Refusal::TooLarge
    );
}

#[test]
fn write_back_brings_a_time_beyond_now_only_if_it_was_set() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    let mode = WriteMode::Back {
        size: 5,
        mtime: 99,
        ctime: 98,
    };
    let op = write_op(fid, 0, b"block", mode);
    let (_, attr) = written(run_as(&mut store, &superuser(), &op, b"block"));
    assert_eq!(
        (attr.mtime, attr.ctime),
        (7, 7),
        "the time of the operation"
    );
    let set = Set {
        mtime: Some(SetTime::To(99)),
        ..Set::default()
    };
    run(&mut store, &Op::SetAttr { fid, set });
    let (_, attr) = written(run_as(&mut store, &superuser(), &op, b"block"));
    assert_eq!((attr.mtime, attr.ctime), (99, 7));
}

#[test]
fn what_was_cut_off_reads_as_zeros() {
    let mut store = new();
    for len in [80, 9_000] {
        let fid = make(&mut store, root(), &format!("f{len}"));
        written(write(&mut store, fid, 0, &bytes(1, len)));
        set_size(&mut store, fid, 50);
        set_size(&mut store, fid, 20_000);
        let content = read_all(&mut store, fid);
        assert_eq!(content.len(), 20_000);
        assert_eq!(content[..50], bytes(1, len)[..50]);
        assert!(content[50..].iter().all(|b| *b == 0));
        assert_eq!(store.attr(fid).unwrap().unwrap().used_bytes, 50);
    }
}

#[test]
fn extended_attributes_have_their_name_spaces() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    chown(&mut store, fid, 5, 5);
    let set = |name: &str| Op::SetXattr {
        fid,
        name: name.as_bytes().to_vec(),
        value: b"v".to_vec(),
        mode: XattrMode::Any,
    };
    let mut ask = |uid, op: &Op| run_as(&mut store, &user(uid), op, &[]);
    assert!(matches!(ask(5, &set("user.a")), Outcome::Attr(_)));
    assert_eq!(refused(ask(6, &set("user.a"))), Refusal::Denied);
    assert_eq!(refused(ask(5, &set("trusted.a"))), Refusal::NotPermitted);
    assert!(matches!(ask(0, &set("trusted.a")), Outcome::Attr(_)));
    assert!(matches!(
        ask(0, &set("security.capability")),
        Outcome::Attr(_)
    ));
    assert_eq!(refused(ask(0, &set("strange"))), Refusal::NotSupported);
    let list = Op::ListXattr { fid };
    let seen = b"security.capability\0user.a\0".to_vec();
    assert_eq!(ask(5, &list), Outcome::Value(seen));
    let trusted = Op::GetXattr {
        fid,
        name: b"trusted.a".to_vec(),
    };
    assert_eq!(refused(ask(5, &trusted)), Refusal::NoAttribute);
    assert_eq!(ask(0, &trusted), Outcome::Value(b"v".to_vec()));
    // A program that was changed has no capabilities any more.
    written(write(&mut store, fid, 0, b"#!"));
    let list = run_as(&mut store, &user(5), &list, &[]);
    assert_eq!(list, Outcome::Value(b"user.a\0".to_vec()));
}

#[test]
fn what_has_its_own_function_is_not_applied() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    assert_eq!(
        refused(run(&mut store, &Op::Sync { fid })),
        Refusal::Invalid
    );
    let read = Op::Read {
        fid,
        offset: 0,
        len: 1,
    };
    assert_eq!(refused(run(&mut store, &read)), Refusal::Invalid);
    let gone = Fid { uniq: 9, ..fid };
    assert_eq!(
        refused(run(&mut store, &Op::GetAttr { fid: gone })),
        Refusal::Stale
    );
    assert!(matches!(run(&mut store, &Op::StatFs), Outcome::Filesystem(f) if f.files == 2));
}
