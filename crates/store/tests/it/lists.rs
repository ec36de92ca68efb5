//! Access lists: what they do to modes, what is inherited; and files that get their name late.

use crate::world::*;
use ariel_store::Store;
use wire::*;

fn new() -> Store {
    Store::in_memory(&small()).unwrap()
}

/// A list as Linux hands it over.
fn encoded(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&bits.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn set(store: &mut Store, fid: Fid, name: &[u8], value: Vec<u8>) -> Outcome {
    let op = Op::SetXattr {
        fid,
        name: name.to_vec(),
        value,
        mode: XattrMode::Any,
    };
    run(store, &op)
}

fn get(store: &mut Store, fid: Fid, name: &[u8]) -> Outcome {
    let name = name.to_vec();
    run(store, &Op::GetXattr { fid, name })
}

fn mode(store: &Store, fid: Fid) -> u16 {
    store.attr(fid).unwrap().unwrap().mode
}

/// The list of `getfacl`: rwx for the owner, for user 5 and within the mask.
fn named(mask: u16) -> Vec<u8> {
    let entries = [(1, 7, 0), (2, 7, 5), (4, 5, 0), (16, mask, 0), (32, 4, 0)];
    encoded(&entries)
}

#[test]
fn a_list_and_the_mode_follow_each_other() {
    let mut store = new();
    let fid = make(&mut store, root(), "f");
    assert!(matches!(
        set(&mut store, fid, ACCESS, named(6)),
        Outcome::Attr(_)
    ));
    assert_eq!(mode(&store, fid), 0o764, "the group's bits are the mask");
    let bits = Set {
        mode: Some(0o4710),
        ..Set::default()
    };
    run(&mut store, &Op::SetAttr { fid, set: bits });
    let followed = [(1, 7, 0), (2, 7, 5), (4, 5, 0), (16, 1, 0), (32, 0, 0)];
    assert_eq!(
        get(&mut store, fid, ACCESS),
        Outcome::Value(encoded(&followed))
    );
    // A list that says what a mode says is kept by the mode alone.
    let plain = encoded(&[(1, 6, 0), (4, 4, 0), (32, 0, 0)]);
    assert!(matches!(
        set(&mut store, fid, ACCESS, plain),
        Outcome::Attr(_)
    ));
    assert_eq!(mode(&store, fid), 0o4640);
    let none = Outcome::Refused(Refusal::NoAttribute);
    assert_eq!(get(&mut store, fid, ACCESS), none);
    let refused = [(DEFAULT, Refusal::Denied), (ACCESS, Refusal::Invalid)];
    for (name, refusal) in refused {
        let value = if name == DEFAULT {
            named(7)
        } else {
            b"no list".to_vec()
        };
        assert_eq!(set(&mut store, fid, name, value), Outcome::Refused(refusal));
    }
    assert!(store.check().is_clean());
}

#[test]
fn a_default_list_takes_the_place_of_the_umask() {
    let mut store = new();
    let dir = mkdir(&mut store, root(), "d");
    let masked = |mode: u32| mode | 0o077 << UMASK_SHIFT;
    let made = entry(run(
        &mut store,
        &make_op(dir, "before", Make::File, masked(0o666)),
    ));
    assert_eq!(made.attr.mode, 0o600, "the umask counts");
    assert!(matches!(
        set(&mut store, dir, DEFAULT, named(7)),
        Outcome::Attr(_)
    ));
    let made = entry(run(
        &mut store,
        &make_op(dir, "f", Make::File, masked(0o660)),
    ));
    assert_eq!(
        made.attr.mode, 0o660,
        "the list counts, within what was asked for"
    );
    let inherited = [(1, 6, 0), (2, 7, 5), (4, 5, 0), (16, 6, 0), (32, 0, 0)];
    let value = get(&mut store, made.fid, ACCESS);
    assert_eq!(value, Outcome::Value(encoded(&inherited)));
    let five = |store: &mut Store, want: Access| {
        let op = Op::Open {
            fid: made.fid,
            access: want,
        };
        matches!(run_as(store, &user(5), &op, &[]), Outcome::Opened(_))
    };
    let write = Access {
        read: true,
        write: true,
    };
    assert!(five(&mut store, write), "user 5 may read and write");
    let sub = entry(run(
        &mut store,
        &make_op(dir, "s", Make::Directory, masked(0o777)),
    ));
    assert_eq!(sub.attr.mode, 0o774);
    assert_eq!(get(&mut store, sub.fid, DEFAULT), Outcome::Value(named(7)));
    let symlink = make_op(dir, "l", Make::Symlink(b"x".to_vec()), masked(0o777));
    assert_eq!(entry(run(&mut store, &symlink)).attr.mode, 0o777);
    assert!(store.check().is_clean());
}

#[test]
fn a_file_without_a_name_gets_its_first_one_only() {
    let mut store = new();
    let open = Access {
        read: true,
        write: true,
    };
    let make = Op::MakeNameless {
        dir: root(),
        mode: 0o666 | 0o022 << UMASK_SHIFT,
        open,
    };
    let made = entry(run(&mut store, &make));
    assert_eq!((made.attr.nlink, made.attr.mode), (0, 0o644));
    assert_eq!(store.orphans(), vec![made.fid]);
    assert!(store.check().is_clean());
    let link = |text: &str| Op::Link {
        fid: made.fid,
        dir: root(),
        name: name(text),
    };
    assert_eq!(entry(run(&mut store, &link("f"))).attr.nlink, 1);
    assert_eq!(store.orphans(), vec![]);
    assert_eq!(store.path_of(made.fid), Some(b"/f".to_vec()));
    let unlink = Op::Unlink {
        dir: root(),
        name: name("f"),
    };
    assert!(matches!(run(&mut store, &unlink), Outcome::Removed { .. }));
    let late = run(&mut store, &link("again"));
    assert_eq!(late, Outcome::Refused(Refusal::NotFound));
    assert!(store.check().is_clean());
}
