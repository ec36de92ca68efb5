//! Access lists of directories: what they decide in each operation, what is inherited, and that a
//! replay of the log decides as it was decided then.

use crate::world::*;
use access::{Entry as Right, List, Members, Rights, Who};
use ariel_store::{Keep, MemoryDisk, Store};
use wire::*;

fn list(entries: &[(Who, &str)]) -> Vec<u8> {
    let one = |(who, rights): &(Who, &str)| Right {
        negative: false,
        who: *who,
        rights: Rights::parse(rights).unwrap(),
    };
    List::new(entries.iter().map(one).collect())
        .unwrap()
        .encode()
}

fn set(dir: Fid, value: Vec<u8>) -> Op {
    Op::SetXattr {
        fid: dir,
        name: ACCESS_LIST.to_vec(),
        value,
        mode: XattrMode::Any,
    }
}

fn open(fid: Fid, write: bool) -> Op {
    let access = Access {
        read: !write,
        write,
    };
    Op::Open { fid, access }
}

fn rename(from: (Fid, &str), to: (Fid, &str)) -> Op {
    rename_op(from.0, from.1, to.0, to.1)
}

fn link(fid: Fid, dir: Fid) -> Op {
    let name = name("linked");
    Op::Link { fid, dir, name }
}

#[test]
fn the_list_decides_in_the_place_of_modes() {
    let mut store = Store::in_memory(&small()).unwrap();
    let dir = mkdir(&mut store, root(), "d");
    let file = make(&mut store, dir, "f");
    let (five, six) = (user(5), user(6));
    let ask = |store: &mut Store, caller: &Caller, op: &Op| run_as(store, caller, op, &[]);
    assert!(matches!(
        ask(&mut store, &six, &open(file, false)),
        Outcome::Opened(_)
    ));
    run(&mut store, &set(dir, list(&[(Who::User(5), "rlw")])));
    let denied = Outcome::Refused(Refusal::Denied);
    assert_eq!(ask(&mut store, &six, &open(file, false)), denied);
    assert_eq!(
        ask(
            &mut store,
            &six,
            &Op::Lookup {
                dir,
                name: name("f")
            }
        ),
        denied
    );
    assert!(matches!(
        ask(&mut store, &five, &open(file, true)),
        Outcome::Opened(_)
    ));
    let make_one = make_op(dir, "g", Make::File, 0o600);
    assert_eq!(ask(&mut store, &five, &make_one), denied);
    assert_eq!(
        ask(
            &mut store,
            &five,
            &Op::Unlink {
                dir,
                name: name("f")
            }
        ),
        denied
    );
    assert_eq!(
        ask(&mut store, &five, &set(dir, list(&[(Who::User(5), "all")]))),
        Outcome::Refused(Refusal::NotPermitted)
    );
    assert_eq!(
        run(&mut store, &set(dir, vec![1, 0])),
        Outcome::Refused(Refusal::Invalid)
    );
    assert!(store.is_governed(dir) && store.is_governed(file) && !store.is_governed(root()));
}

#[test]
fn new_directories_have_the_list_and_files_in_them_are_governed() {
    let mut store = Store::in_memory(&small()).unwrap();
    let dir = mkdir(&mut store, root(), "d");
    let (five, six) = (user(5), user(6));
    let ask = |store: &mut Store, caller: &Caller, op: &Op| run_as(store, caller, op, &[]);
    let denied = Outcome::Refused(Refusal::Denied);
    run(&mut store, &set(dir, list(&[(Who::User(5), "rlidw")])));
    let made = ask(
        &mut store,
        &five,
        &make_op(dir, "e", Make::Directory, 0o700),
    );
    let made = entry(made).fid;
    let below = ask(&mut store, &five, &make_op(made, "h", Make::File, 0o600));
    assert!(store.is_governed(made) && store.is_governed(entry(below).fid));
    assert_eq!(
        ask(
            &mut store,
            &six,
            &Op::Lookup {
                dir: made,
                name: name("h")
            }
        ),
        denied
    );
}

#[test]
fn no_file_is_governed_by_two_lists_or_leaves_one_for_those_who_lack_a_right() {
    let mut store = Store::in_memory(&small()).unwrap();
    let (dir, other) = (
        mkdir(&mut store, root(), "d"),
        mkdir(&mut store, root(), "o"),
    );
    let (file, plain) = (make(&mut store, dir, "f"), make(&mut store, other, "p"));
    run(&mut store, &set(dir, list(&[(Who::User(5), "rlid")])));
    let mode = Some(0o777);
    let open_to_all = Set {
        mode,
        ..Set::default()
    };
    run(
        &mut store,
        &Op::SetAttr {
            fid: other,
            set: open_to_all,
        },
    );
    let across = Outcome::Refused(Refusal::CrossVolume);
    assert_eq!(run(&mut store, &link(file, other)), across);
    assert_eq!(run(&mut store, &link(plain, dir)), across);
    assert!(matches!(
        run(&mut store, &link(file, dir)),
        Outcome::Entry(_)
    ));
    // A file with two names stays where its list is.
    assert_eq!(run(&mut store, &rename((dir, "f"), (other, "f"))), across);
    run(
        &mut store,
        &Op::Unlink {
            dir,
            name: name("linked"),
        },
    );
    let five = user(5);
    let moves = rename((dir, "f"), (other, "f"));
    let denied = Outcome::Refused(Refusal::Denied);
    assert_eq!(
        run_as(&mut store, &five, &moves, &[]),
        denied,
        "he may not write it"
    );
    let enters = rename((other, "p"), (dir, "p"));
    assert_eq!(
        run_as(&mut store, &five, &enters, &[]),
        denied,
        "nor this one, of root"
    );
    run(&mut store, &set(dir, list(&[(Who::User(5), "rlidw")])));
    assert!(matches!(
        run_as(&mut store, &five, &moves, &[]),
        Outcome::Renamed { .. }
    ));
    assert!(!store.is_governed(file));
}

#[test]
fn what_is_shown_says_who_is_in_a_group_now_and_what_was_decided_stays() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let group = *access::GROUPS.start();
    let dir = mkdir(&mut store, root(), "d");
    run(&mut store, &set(dir, list(&[(Who::Group(group), "rlidw")])));
    store.set_members(Members::new([(group, vec![5])]));
    let mut five = user(5);
    store.members().everywhere().join(&mut five);
    let made = run_as(
        &mut store,
        &five,
        &make_op(dir, "f", Make::File, 0o600),
        &[],
    );
    let file = entry(made).fid;
    let shown = |store: &Store| {
        let op = Op::GetXattr {
            fid: dir,
            name: b"system.posix_acl_access".to_vec(),
        };
        let mut outcome = Outcome::Refused(Refusal::NoAttribute);
        store.show(store.members().everywhere(), &op, &mut outcome);
        outcome
    };
    let with_five = shown(&store);
    assert!(matches!(&with_five, Outcome::Value(value) if value.len() == 4 + 5 * 8));
    store.set_members(Members::default());
    assert_eq!(shown(&store), Outcome::Refused(Refusal::NoAttribute));
    // He is in no group any more when the log is read again; what he made is there.
    store.write_out().unwrap();
    store.sync_handle().sync().unwrap();
    drop(store);
    disk.crash(Keep::Synced);
    let store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(store.attr(file).unwrap().unwrap().uid, 5);
    assert!(store.is_governed(file));
}

/// Each answer that shows a directory shows it as its list does, whatever else the answer tells.
#[test]
fn removals_show_the_directory_by_its_list() {
    let mut store = Store::in_memory(&small()).unwrap();
    let (create, mode) = (name("home"), 0o755);
    let volume = VolumeOp::Create { name: create, mode };
    assert!(matches!(
        run(&mut store, &Op::Volume(volume)),
        Outcome::Volume(_)
    ));
    let dir = mkdir(&mut store, root(), "d");
    make(&mut store, dir, "f");
    mkdir(&mut store, dir, "sub");
    let mount = make_op(dir, "m", Make::Mount(name("home")), 0o755);
    assert!(matches!(run(&mut store, &mount), Outcome::Entry(_)));
    run(&mut store, &set(dir, list(&[(Who::User(5), "rl")])));
    let mut told = store.attr(dir).unwrap().unwrap();
    let kept = told.mode;
    store.show_attr(dir, &mut told);
    assert_ne!(told.mode, kept, "the list shows another mode than is kept");
    let [file, sub, mount] = ["f", "sub", "m"].map(name);
    for op in [
        Op::Unlink { dir, name: file },
        Op::Rmdir { dir, name: sub },
        Op::Unmount { dir, name: mount },
    ] {
        let mut outcome = run(&mut store, &op);
        store.show(store.members().everywhere(), &op, &mut outcome);
        let Outcome::Removed { dir: shown, .. } = outcome else {
            panic!("{op:?}: {outcome:?}");
        };
        assert_eq!(shown.mode, told.mode, "{op:?}");
    }
}
