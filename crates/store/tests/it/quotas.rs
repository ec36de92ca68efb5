//! Limits of volumes: what counts, what is refused, and what is kept.

use crate::world::*;
use ariel_store::{Apply, MemoryDisk, Store, fsck_memory};
use wire::*;

const QUOTA: Outcome = Outcome::Refused(Refusal::Quota);
const FULL: Outcome = Outcome::Refused(Refusal::NoSpace);

fn info(store: &mut Store, text: &str) -> VolumeInfo {
    let Outcome::Volumes(all) = run(store, &Op::Volumes) else {
        panic!("no volumes");
    };
    let found = all.into_iter().find(|info| info.name == name(text));
    found.expect("a volume of this name")
}

fn limit(store: &mut Store, text: &str, bytes: u64, objects: u64) {
    let (of, limits) = (name(text), Limits { bytes, objects });
    let limited = run(store, &Op::Volume(VolumeOp::Limit { of, limits }));
    assert!(matches!(limited, Outcome::Volume(_)), "{limited:?}");
    assert_eq!(info(store, text).limits, limits);
}

/// Bytes and objects of a volume, counted by walking through it.
fn count(store: &mut Store, dir: Fid) -> Room {
    let listed = run(
        store,
        &Op::ReadDir {
            dir,
            after: 0,
            max: 4096,
        },
    );
    let Outcome::Dir { entries, .. } = listed else {
        panic!("{listed:?}");
    };
    let mut all = Room {
        bytes: 0,
        objects: 1,
    };
    for entry in entries {
        all = all.and(match entry.kind {
            Kind::Directory => count(store, entry.fid),
            _ => Room {
                bytes: store.attr(entry.fid).unwrap().unwrap().used_bytes,
                objects: 1,
            },
        });
    }
    all
}

#[test]
fn what_grows_beyond_its_limit_is_refused_and_all_else_goes_on() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let file = make(&mut store, root(), "file");
    limit(&mut store, "root", 10_000, 4);
    assert!(matches!(
        write(&mut store, file, 0, &bytes(1, 9_000)),
        Outcome::Written { .. }
    ));
    assert_eq!(write(&mut store, file, 9_000, &bytes(1, 1_001)), QUOTA);
    let fills = write(&mut store, file, 8_000, &bytes(2, 2_000));
    assert!(matches!(fills, Outcome::Written { .. }), "{fills:?}");
    assert_eq!(info(&mut store, "root").bytes, 10_000);
    // Old bytes are written over, and a link is no object.
    let over = write(&mut store, file, 0, &bytes(3, 10_000));
    assert!(matches!(over, Outcome::Written { .. }), "{over:?}");
    let long = Make::Symlink(b"somewhere".to_vec());
    assert_eq!(run(&mut store, &make_op(root(), "s", long, 0o777)), QUOTA);
    mkdir(&mut store, root(), "d");
    make(&mut store, root(), "e");
    assert_eq!(
        run(&mut store, &make_op(root(), "f", Make::File, 0o644)),
        QUOTA
    );
    let link = Op::Link {
        fid: file,
        dir: root(),
        name: name("another"),
    };
    assert!(matches!(run(&mut store, &link), Outcome::Entry(_)));
    // A limit below what there is takes nothing, and keeps over a restart.
    limit(&mut store, "root", 5_000, 2);
    let over = write(&mut store, file, 5_000, &bytes(4, 100));
    assert!(matches!(over, Outcome::Written { .. }), "{over:?}");
    store.close().unwrap();
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    let expected = Limits {
        bytes: 5_000,
        objects: 2,
    };
    assert_eq!(info(&mut store, "root").limits, expected);
    assert_eq!(write(&mut store, file, 10_000, &bytes(1, 1)), QUOTA);
    let cut = Op::SetAttr {
        fid: file,
        set: Set {
            size: Some(4_000),
            ..Set::default()
        },
    };
    assert!(matches!(run(&mut store, &cut), Outcome::Attr(_)));
    let grows = write(&mut store, file, 4_000, &bytes(1, 1_000));
    assert!(matches!(grows, Outcome::Written { .. }), "{grows:?}");
    limit(&mut store, "root", 0, 0);
    make(&mut store, root(), "f");
    let op = Op::Unlink {
        dir: root(),
        name: name("another"),
    };
    assert!(matches!(run(&mut store, &op), Outcome::Removed { .. }));
    let seen = info(&mut store, "root");
    let counted = count(&mut store, root());
    assert_eq!((counted.bytes, counted.objects), (seen.bytes, seen.objects));
    store.close().unwrap();
    assert!(fsck_memory(&disk).unwrap().is_clean());
}

#[test]
fn a_limit_counts_the_live_tree_and_not_what_snapshots_keep() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let file = make(&mut store, root(), "file");
    write(&mut store, file, 0, &bytes(1, 9_000));
    limit(&mut store, "root", 10_000, 0);
    let (of, new) = (name("root"), name("s"));
    let frozen = run(
        &mut store,
        &Op::Volume(VolumeOp::Snapshot { of, name: new }),
    );
    assert!(matches!(frozen, Outcome::Volume(_)), "{frozen:?}");
    for seed in 2..6 {
        let over = write(&mut store, file, 0, &bytes(seed, 10_000));
        assert!(matches!(over, Outcome::Written { .. }), "{over:?}");
    }
    assert_eq!(info(&mut store, "root").bytes, 10_000);
    assert_eq!(info(&mut store, "root@s").bytes, 9_000);
    assert!(info(&mut store, "root@s").limits.is_none());
    // A clone has all that it shares, and limits of its own.
    let (of, new) = (name("root"), name("c"));
    let cloned = run(&mut store, &Op::Volume(VolumeOp::Clone { of, name: new }));
    let Outcome::Volume(cloned) = cloned else {
        panic!("{cloned:?}");
    };
    assert_eq!((cloned.bytes, cloned.limits), (10_000, Limits::default()));
    limit(&mut store, "c", 10_500, 0);
    let there = Fid {
        volume: cloned.id,
        ..file
    };
    assert_eq!(write(&mut store, there, 10_000, &bytes(1, 501)), QUOTA);
    let fits = write(&mut store, there, 10_000, &bytes(1, 500));
    assert!(matches!(fits, Outcome::Written { .. }), "{fits:?}");
    for (text, root) in [("root", root()), ("c", cloned.root())] {
        let (seen, counted) = (info(&mut store, text), count(&mut store, root));
        assert_eq!((counted.bytes, counted.objects), (seen.bytes, seen.objects));
    }
    store.close().unwrap();
    assert!(fsck_memory(&disk).unwrap().is_clean());
}

fn beside(store: &mut Store, op: &Op, data: &[u8], promised: Option<RoomOfDisk>) -> Outcome {
    let apply = Apply {
        op,
        caller: &superuser(),
        now: 7,
        origin: None,
        data,
        delegated: None,
    };
    store.apply_beside(apply, promised)
}

#[test]
fn what_is_promised_is_left_for_whom_it_was_promised() {
    let disk = MemoryDisk::new();
    disk.set_capacity(4 << 20);
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let file = make(&mut store, root(), "file");
    limit(&mut store, "root", 100_000, 10);
    let data = bytes(1, 30_000);
    let op = |offset| Op::Write {
        fid: file,
        offset,
        len: 30_000,
        mode: WriteMode::At,
    };
    let of_volume = |bytes, objects| RoomOfDisk {
        volume: Room { bytes, objects },
        log_bytes: 0,
    };
    let most = Some(of_volume(70_001, 0));
    assert_eq!(beside(&mut store, &op(0), &data, most), QUOTA);
    let less = Some(of_volume(70_000, 0));
    let fits = beside(&mut store, &op(0), &data, less);
    assert!(matches!(fits, Outcome::Written { .. }), "{fits:?}");
    let new = make_op(root(), "new", Make::File, 0o644);
    assert_eq!(beside(&mut store, &new, &[], Some(of_volume(0, 8))), QUOTA);
    // Nothing grows: nothing of what is promised is taken.
    let over = beside(&mut store, &op(0), &data, Some(of_volume(1 << 40, 9)));
    assert!(matches!(over, Outcome::Written { .. }), "{over:?}");
    let all = 4 << 20;
    let log = |log_bytes| {
        Some(RoomOfDisk {
            log_bytes,
            ..RoomOfDisk::default()
        })
    };
    assert_eq!(beside(&mut store, &op(0), &data, log(all)), FULL);
    let promised = beside(&mut store, &op(30_000), &data, None);
    assert!(matches!(promised, Outcome::Written { .. }), "{promised:?}");
}
