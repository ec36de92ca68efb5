//! Positions that clients have chosen for the names that they made.

use crate::world::*;
use ariel_store::{Apply, Keep, MemoryDisk, Store};
use wire::*;

/// Applies what a client has done already, and has chosen this position for.
fn told(store: &mut Store, op: &Op, position: u64) {
    let reserved = match run(store, &Op::Reserve { count: 1 }) {
        Outcome::Numbers { first, .. } => first,
        other => panic!("no numbers: {other:?}"),
    };
    let makes = matches!(op, Op::Make { .. });
    let vnode = if makes { reserved } else { 0 };
    let outcome = store.apply(Apply {
        op,
        caller: &superuser(),
        now: 9,
        origin: None,
        data: &[],
        delegated: Some(Chosen { vnode, position }),
    });
    assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

fn told_make(store: &mut Store, text: &str, position: u64) {
    told(store, &make_op(root(), text, Make::File, 0o644), position);
}

fn told_rename(store: &mut Store, from: &str, to: &str, position: u64) {
    let op = Op::Rename {
        from: root(),
        name: name(from),
        to: root(),
        new: name(to),
        no_replace: false,
        exchange: false,
    };
    told(store, &op, position);
}

/// The names in order, and the last position.
fn listing(store: &mut Store) -> (Vec<(String, u64)>, u64) {
    let (dir, after, max) = (root(), 0, 100);
    match run(store, &Op::ReadDir { dir, after, max }) {
        Outcome::Dir { entries, last, .. } => {
            let text = |entry: DirEntry| {
                let name = String::from_utf8(entry.name.as_bytes().to_vec()).unwrap();
                (name, entry.position)
            };
            (entries.into_iter().map(text).collect(), last)
        }
        other => panic!("no listing: {other:?}"),
    }
}

#[test]
fn a_name_stands_where_its_client_has_told_its_programs_also_after_a_crash() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    make(&mut store, root(), "first");
    // Others were made and removed before the server has heard of them.
    told_make(&mut store, "fifth", 5);
    make(&mut store, root(), "sixth");
    // It takes the name of one that has never been told of.
    told_make(&mut store, "eighth", 8);
    told_rename(&mut store, "eighth", "third", 3);
    // A name that stays keeps its place.
    told_rename(&mut store, "third", "fifth", 70);
    told_make(&mut store, "ninth", 0);
    let expected = [("first", 1), ("fifth", 5), ("sixth", 6), ("ninth", 9)];
    let expected = expected.map(|(name, at)| (name.to_string(), at)).to_vec();
    assert_eq!(listing(&mut store), (expected.clone(), 9));
    store.write_out().unwrap();
    drop(store);
    disk.crash(Keep::Written);
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(listing(&mut store), (expected, 9));
    assert!(store.check().is_clean());
}

#[test]
fn what_no_client_may_choose_is_not_taken() {
    let mut store = Store::in_memory(&small()).unwrap();
    make(&mut store, root(), "a");
    told_make(&mut store, "b", 1); // a name stands there
    told_make(&mut store, "c", limits::POSITIONS);
    told_make(&mut store, "d", u64::MAX);
    let names = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
    let names = names.map(|(name, at)| (name.to_string(), at)).to_vec();
    assert_eq!(listing(&mut store), (names, 4));
}

#[test]
fn a_change_that_is_told_late_sets_no_time_of_change_back() {
    let mut store = Store::create_in_memory(&MemoryDisk::new(), &small()).unwrap();
    let dir = mkdir(&mut store, root(), "dir");
    let ctime = |store: &mut Store| match run(store, &Op::GetAttr { fid: dir }) {
        Outcome::Attr(attr) => attr.ctime,
        other => panic!("no attributes: {other:?}"),
    };
    let mut at = |now: u64, op: &Op| {
        let outcome = store.apply(Apply {
            op,
            caller: &superuser(),
            now,
            origin: None,
            data: &[],
            delegated: None,
        });
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        ctime(&mut store)
    };
    let rename = Op::Rename {
        from: root(),
        name: name("dir"),
        to: root(),
        new: name("other"),
        no_replace: false,
        exchange: false,
    };
    assert_eq!(at(30, &rename), 30);
    assert_eq!(at(20, &make_op(dir, "file", Make::File, 0o644)), 30);
    let mode = Set {
        mode: Some(0o700),
        ..Set::default()
    };
    assert_eq!(
        at(
            25,
            &Op::SetAttr {
                fid: dir,
                set: mode
            }
        ),
        30
    );
    assert_eq!(at(31, &make_op(dir, "more", Make::File, 0o644)), 31);
}
