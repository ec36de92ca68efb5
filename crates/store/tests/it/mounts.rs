//! Mount points: things in a directory that hold the number of another volume, and how the rules
//! for directories apply to them; in snapshots, in streams, and after a crash.

use crate::stream::{receive, snapshot, stream, target, volume_named};
use crate::world::*;
use ariel_store::{Keep, MemoryDisk, Store, fsck_memory};
use wire::*;

struct World {
    disk: MemoryDisk,
    store: Store,
    /// The number of the volume `home`.
    home: u32,
}

impl World {
    fn new() -> Self {
        let disk = MemoryDisk::new();
        let mut store = Store::create_in_memory(&disk, &small()).unwrap();
        let home = create(&mut store, "home");
        Self { disk, store, home }
    }

    fn mount(&mut self, dir: Fid, text: &str) -> Entry {
        entry(run(&mut self.store, &mount_op(dir, text)))
    }

    fn nlink(&self, fid: Fid) -> u32 {
        self.store.attr(fid).unwrap().unwrap().nlink
    }

    /// All that is there is right, also after a crash.
    fn end(mut self) {
        let before = picture_of_all(&mut self.store);
        self.store.write_out().unwrap();
        drop(self.store);
        self.disk.crash(Keep::Written);
        let mut store = Store::open_in_memory(&self.disk, &small()).unwrap();
        assert_eq!(picture_of_all(&mut store), before);
        drop(store);
        let report = fsck_memory(&self.disk).unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

fn create(store: &mut Store, text: &str) -> u32 {
    let (name, mode) = (name(text), 0o755);
    match run(store, &Op::Volume(VolumeOp::Create { name, mode })) {
        Outcome::Volume(info) => info.id,
        other => panic!("{other:?}"),
    }
}

fn mount_op(dir: Fid, text: &str) -> Op {
    make_op(dir, text, Make::Mount(name("home")), 0o750)
}

fn place(dir: Fid, text: &str) -> (Fid, Name) {
    (dir, name(text))
}

fn refuses(store: &mut Store, op: &Op, refusal: Refusal) {
    assert_eq!(run(store, op), Outcome::Refused(refusal), "{op:?}");
}

#[test]
fn a_mount_point_holds_its_volume_and_counts_as_a_directory() {
    let mut world = World::new();
    let mount = world.mount(root(), "m");
    assert_eq!(mount.attr.leads_to(), Some(Fid::root(world.home)));
    assert_eq!(mount.dir.nlink, 3);
    let listed = list(&mut world.store, root(), 9);
    assert_eq!((listed[0].kind, listed[0].fid), (Kind::Mount, mount.fid));
    // It leads there whatever the volume is called, and after its end.
    let (of, new) = (name("home"), name("house"));
    run(
        &mut world.store,
        &Op::Volume(VolumeOp::Rename { of, name: new }),
    );
    let of = name("house");
    run(&mut world.store, &Op::Volume(VolumeOp::Delete { of }));
    let attr = world.store.attr(mount.fid).unwrap().unwrap();
    assert_eq!(attr.leads_to(), Some(Fid::root(world.home)));
    assert_eq!(world.store.attr(Fid::root(world.home)), Ok(None));
    refuses(&mut world.store, &mount_op(root(), "n"), Refusal::NotFound);
    let (dir, name) = place(root(), "m");
    let gone = run(&mut world.store, &Op::Unmount { dir, name });
    assert!(matches!(gone, Outcome::Removed { dir, .. } if dir.nlink == 2));
    world.end();
}

#[test]
fn only_its_own_operation_takes_it_away() {
    let mut world = World::new();
    let dir = mkdir(&mut world.store, root(), "d");
    let empty = mkdir(&mut world.store, root(), "e");
    make(&mut world.store, root(), "f");
    let mount = world.mount(dir, "m");
    let store = &mut world.store;
    let at = || place(dir, "m");
    let (d, n) = at();
    refuses(store, &Op::Rmdir { dir: d, name: n }, Refusal::MountPoint);
    let (d, n) = at();
    refuses(store, &Op::Unlink { dir: d, name: n }, Refusal::IsDirectory);
    let (d, n) = place(root(), "g");
    let fid = mount.fid;
    let link = Op::Link {
        fid,
        dir: d,
        name: n,
    };
    refuses(store, &link, Refusal::NotPermitted);
    let over = rename_op(root(), "e", dir, "m");
    refuses(store, &over, Refusal::MountPoint);
    let over = rename_op(root(), "f", dir, "m");
    refuses(store, &over, Refusal::IsDirectory);
    let access = Access {
        read: true,
        write: false,
    };
    refuses(store, &Op::Open { fid, access }, Refusal::Invalid);
    let lookup = Op::Lookup {
        dir: fid,
        name: name("x"),
    };
    refuses(store, &lookup, Refusal::NotDirectory);
    for text in ["e", "f"] {
        let (dir, name) = place(root(), text);
        refuses(store, &Op::Unmount { dir, name }, Refusal::Invalid);
    }
    // It moves like a directory: over an empty one, too, and exchanged with a file.
    assert_eq!((world.nlink(root()), world.nlink(dir)), (4, 3));
    run(&mut world.store, &rename_op(dir, "m", root(), "e"));
    assert_eq!(world.store.lookup(root(), &name("e")), Ok(Some(fid)));
    assert_eq!((world.nlink(root()), world.nlink(dir)), (4, 2));
    assert_eq!(world.nlink(empty), 0);
    let mut swap = rename_op(root(), "e", dir, "f");
    make(&mut world.store, dir, "f");
    if let Op::Rename { exchange, .. } = &mut swap {
        *exchange = true;
    }
    run(&mut world.store, &swap);
    assert_eq!(world.store.lookup(dir, &name("f")), Ok(Some(fid)));
    assert_eq!((world.nlink(root()), world.nlink(dir)), (3, 3));
    world.end();
}

#[test]
fn nothing_is_moved_or_linked_through_it() {
    let mut world = World::new();
    world.mount(root(), "m");
    let fid = make(&mut world.store, root(), "f");
    let inner = Fid::root(world.home);
    let out = rename_op(root(), "f", inner, "f");
    refuses(&mut world.store, &out, Refusal::CrossVolume);
    let (dir, name) = place(inner, "f");
    let link = Op::Link { fid, dir, name };
    refuses(&mut world.store, &link, Refusal::CrossVolume);
    world.end();
}

#[test]
fn who_owns_the_directory_and_the_volume_makes_and_removes_one() {
    let mut world = World::new();
    let dir = mkdir(&mut world.store, root(), "d");
    let own = |store: &mut Store, fid: Fid, uid: u32| {
        let set = Set {
            uid: Some(uid),
            ..Set::default()
        };
        run(store, &Op::SetAttr { fid, set });
    };
    let inner = Fid::root(world.home);
    let refused = |refusal| Outcome::Refused(refusal);
    let ask = |store: &mut Store, op: &Op| run_as(store, &user(7), op, &[]);
    // Each of both is not enough.
    for (of_dir, of_volume, expected) in [
        (0, 7, Some(Refusal::Denied)),
        (7, 0, Some(Refusal::NotPermitted)),
        (7, 7, None),
    ] {
        own(&mut world.store, dir, of_dir);
        own(&mut world.store, inner, of_volume);
        let outcome = ask(&mut world.store, &mount_op(dir, "m"));
        match expected {
            Some(refusal) => assert_eq!(outcome, refused(refusal)),
            None => assert_eq!(entry(outcome).attr.uid, 7),
        }
    }
    let (dir, name) = place(dir, "m");
    let unmount = Op::Unmount { dir, name };
    let stranger = run_as(&mut world.store, &user(8), &unmount, &[]);
    assert_eq!(stranger, refused(Refusal::Denied));
    let owner = ask(&mut world.store, &unmount);
    assert!(matches!(owner, Outcome::Removed { .. }), "{owner:?}");
    world.end();
}

#[test]
fn in_a_snapshot_it_is_an_empty_directory_and_in_a_clone_a_mount_point() {
    let mut world = World::new();
    let mount = world.mount(root(), "m");
    snapshot(&mut world.store, "root", "s");
    let frozen = volume_named(&mut world.store, "root@s").unwrap();
    let inside = Fid {
        volume: frozen.id,
        ..mount.fid
    };
    let attr = world.store.attr(inside).unwrap().unwrap();
    assert_eq!((attr.kind, attr.nlink), (Kind::Directory, 2));
    assert_eq!((attr.mode, attr.leads_to()), (0o750, None));
    let listed = list(&mut world.store, frozen.root(), 9);
    assert_eq!(listed[0].kind, Kind::Directory);
    assert!(list(&mut world.store, inside, 9).is_empty());
    let (of, new) = (name("root@s"), name("copy"));
    run(
        &mut world.store,
        &Op::Volume(VolumeOp::Clone { of, name: new }),
    );
    let copy = volume_named(&mut world.store, "copy").unwrap();
    let inside = Fid {
        volume: copy.id,
        ..mount.fid
    };
    let attr = world.store.attr(inside).unwrap().unwrap();
    assert_eq!(attr.leads_to(), Some(Fid::root(world.home)));
    let (dir, name) = place(copy.root(), "m");
    let gone = run(&mut world.store, &Op::Unmount { dir, name });
    assert!(matches!(gone, Outcome::Removed { .. }), "{gone:?}");
    world.end();
}

#[test]
fn a_stream_names_the_volume_and_each_cell_has_its_own_number() {
    let mut world = World::new();
    world.mount(root(), "m");
    snapshot(&mut world.store, "root", "s");
    let parts = stream(&mut world.store, "root@s", None);
    for (there, leads) in [(true, true), (false, false)] {
        let disk = MemoryDisk::new();
        let mut store = Store::create_in_memory(&disk, &target()).unwrap();
        create(&mut store, "other");
        let home = if there { create(&mut store, "home") } else { 0 };
        receive(&mut store, "copy", &parts, false).unwrap();
        let copy = volume_named(&mut store, "copy").unwrap();
        let entry = list(&mut store, copy.root(), 9).swap_remove(0);
        let root = entry.attr.unwrap().leads_to().unwrap();
        assert_eq!((root, home != world.home), (Fid::root(home), true));
        assert_eq!(store.attr(root).unwrap().is_some(), leads);
        let (dir, name) = place(copy.root(), "m");
        let gone = run(&mut store, &Op::Unmount { dir, name });
        assert!(matches!(gone, Outcome::Removed { .. }), "{gone:?}");
        drop(store);
        let report = fsck_memory(&disk).unwrap();
        assert!(report.is_clean(), "{report}");
    }
    // A change of it alone comes with the next stream.
    run(&mut world.store, &rename_op(root(), "m", root(), "n"));
    snapshot(&mut world.store, "root", "t");
    let later = stream(&mut world.store, "root@t", Some("root@s"));
    let mut store = Store::create_in_memory(&MemoryDisk::new(), &target()).unwrap();
    let home = [create(&mut store, "other"), create(&mut store, "home")][1];
    receive(&mut store, "copy", &parts, false).unwrap();
    receive(&mut store, "copy", &later, false).unwrap();
    let copy = volume_named(&mut store, "copy").unwrap();
    let entry = list(&mut store, copy.root(), 9).swap_remove(0);
    assert_eq!(entry.name, name("n"));
    assert_eq!(entry.attr.unwrap().leads_to(), Some(Fid::root(home)));
    world.end();
}

#[test]
fn a_volume_of_another_server_is_a_number_that_only_root_may_name() {
    let mut world = World::new();
    let far = volume_numbers::first(3).unwrap() + 4;
    let op = |text: &str, volume| make_op(root(), text, Make::MountElsewhere(volume), 0o755);
    let mount = entry(run(&mut world.store, &op("m", far)));
    assert_eq!(mount.attr.leads_to(), Some(Fid::root(far)));
    // Of its own volumes the server knows the names, and the owners.
    let home = world.home;
    refuses(&mut world.store, &op("n", home), Refusal::NotFound);
    let open = Set {
        mode: Some(0o777),
        ..Set::default()
    };
    let set = Op::SetAttr {
        fid: root(),
        set: open,
    };
    run(&mut world.store, &set);
    let refused = run_as(&mut world.store, &user(5), &op("u", far), &[]);
    assert_eq!(refused, Outcome::Refused(Refusal::NotPermitted));
    world.end();
}

#[test]
fn a_store_numbers_its_volumes_from_its_first_one_on() {
    let disk = MemoryDisk::new();
    let first = volume_numbers::first(7).unwrap();
    let options = ariel_store::Options {
        volume: first,
        ..small()
    };
    let mut store = Store::create_in_memory(&disk, &options).unwrap();
    assert_eq!(store.root(), Fid::root(first));
    assert_eq!(create(&mut store, "home"), first + 1);
    let elsewhere = make_op(store.root(), "m", Make::MountElsewhere(1), 0o755);
    assert_eq!(entry(run(&mut store, &elsewhere)).attr.rdev, 1);
    let own = make_op(store.root(), "n", Make::MountElsewhere(first + 1), 0o755);
    refuses(&mut store, &own, Refusal::NotFound);
    store.close().unwrap();
    let mut store = Store::open_in_memory(&disk, &options).unwrap();
    assert_eq!(create(&mut store, "more"), first + 2);
}

#[test]
fn a_store_that_has_given_all_its_numbers_refuses_one_more() {
    let disk = MemoryDisk::new();
    let further = volume_numbers::first_of_further(1, 2).unwrap();
    let last = further + (1 << 16) - 2;
    let options = ariel_store::Options {
        volume: last - 1,
        ..small()
    };
    let mut store = Store::create_in_memory(&disk, &options).unwrap();
    assert_eq!(create(&mut store, "home"), last);
    let (name, mode) = (name("more"), 0o755);
    let more = Op::Volume(VolumeOp::Create { name, mode });
    refuses(&mut store, &more, Refusal::NoSpace);
}
