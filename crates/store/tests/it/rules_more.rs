//! More rules of a local file system: what ends with a change of the bytes, and whiteouts.

use crate::world::*;
use ariel_store::Store;
use wire::*;

fn new() -> Store {
    Store::in_memory(&small()).unwrap()
}

fn set(store: &mut Store, caller: &Caller, fid: Fid, set: Set) -> Attr {
    match run_as(store, caller, &Op::SetAttr { fid, set }, &[]) {
        Outcome::Attr(attr) => attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_set_group_id_bit_stays_for_the_group_alone() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    for (mode, by, left) in [(0o2666, 5, 0o666), (0o2666, 8, 0o2666), (0o2676, 8, 0o676)] {
        let change = Set {
            mode: Some(mode),
            gid: Some(8),
            ..Set::default()
        };
        set(&mut store, &superuser(), fid, change);
        let kill = Set {
            kill_set_id: true,
            ..Set::default()
        };
        let after = set(&mut store, &user(by), fid, kill);
        assert_eq!(after.mode, left, "{mode:o} by {by}");
    }
}

#[test]
fn write_back_takes_no_capabilities() {
    let mut store = new();
    let fid = make(&mut store, root(), "a");
    let name = b"security.capability".to_vec();
    let give = Op::SetXattr {
        fid,
        name: name.clone(),
        value: b"all".to_vec(),
        mode: XattrMode::Any,
    };
    assert!(matches!(run(&mut store, &give), Outcome::Attr(_)));
    let (size, mtime, ctime) = (2, 1, 1);
    for (mode, stays) in [
        (WriteMode::Back { size, mtime, ctime }, true),
        (WriteMode::Lazy, true),
        (WriteMode::At, false),
    ] {
        written(run_as(
            &mut store,
            &superuser(),
            &write_op(fid, 0, b"#!", mode),
            b"#!",
        ));
        let name = name.clone();
        let has = run(&mut store, &Op::GetXattr { fid, name });
        assert_eq!(matches!(has, Outcome::Value(_)), stays, "{mode:?}");
    }
}

#[test]
fn a_whiteout_is_left_in_one_step() {
    let mut store = new();
    let dir = mkdir(&mut store, root(), "d");
    for (to, there) in [(root(), false), (dir, true)] {
        let fid = make(&mut store, root(), "old");
        let victim = there.then(|| make(&mut store, to, "new"));
        let op = Op::Rename {
            from: root(),
            name: name("old"),
            to,
            new: name("new"),
            no_replace: true,
            exchange: true,
        };
        let Outcome::Renamed {
            fid: moved,
            victim: gone,
            ..
        } = run(&mut store, &op)
        else {
            panic!("not renamed");
        };
        assert_eq!((moved, gone.map(|(fid, _)| fid)), (fid, victim));
        let left = store.lookup(root(), &name("old")).unwrap().unwrap();
        let attr = store.attr(left).unwrap().unwrap();
        assert_eq!((attr.kind, attr.rdev, attr.nlink), (Kind::Character, 0, 1));
        assert_eq!(store.lookup(to, &name("new")), Ok(Some(fid)));
        assert_eq!(store.place(left), Ok(Some((root(), name("old")))));
        let unlink = Op::Unlink {
            dir: root(),
            name: name("old"),
        };
        assert!(matches!(run(&mut store, &unlink), Outcome::Removed { .. }));
    }
}
