//! Mount points on real mounts: seen at once by all, with the numbers of their volume, and nothing
//! goes through them that stays within a volume; over restarts, the end of the volume, snapshots
//! and clones; and what the kernel keeps.

use crate::harness::process::shell_ok;
use crate::harness::status::{Doors, cost_of};
use crate::harness::{Cell, Mount, Pair, ariel, eventually, names, real_system, run};
use crate::refused::joins;
use crate::volumes::{done, refused};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, openat, renameat_with, statvfs, unlinkat,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

/// Two mounts of a cell with a volume `home`, which is limited, and not yet anywhere.
fn start(name: &str) -> Option<Pair> {
    if !real_system(name) {
        return None;
    }
    let pair = Pair::start(name)?;
    let limits = ["home", "--mode", "777", "--quota", "8M", "--objects", "50"];
    done(&pair.cell, "create", &limits);
    Some(pair)
}

#[track_caller]
fn fails<T>(result: std::io::Result<T>, errno: Errno) {
    let number = result.err().and_then(|error| error.raw_os_error());
    assert_eq!(number, Some(errno.raw_os_error()));
}

#[test]
fn a_mount_point_is_seen_at_once_and_shows_its_volume() {
    const QUOTA: u64 = 8 << 20;
    let Some(pair) = start("mountpoints-seen") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    // Both kernels keep that there is no such name, and one has the directory for itself.
    fs::create_dir(a.join("d")).unwrap();
    fs::write(a.join("d/f"), "outer").unwrap();
    for dir in [a, b] {
        fails(fs::metadata(dir.join("home")), Errno::NOENT);
        fails(fs::metadata(dir.join("d/home")), Errno::NOENT);
    }
    done(cell, "mount", &["home", "/home"]);
    done(cell, "mount", &["home", "/d/home"]);
    for dir in [a, b] {
        assert!(fs::metadata(dir.join("home")).unwrap().is_dir());
        assert_eq!(names(dir), ["d", "home"]);
        assert_eq!(fs::metadata(dir).unwrap().nlink(), 4);
    }
    done(cell, "unmount", &["/d/home"]);
    for dir in [a, b] {
        fails(fs::metadata(dir.join("d/home")), Errno::NOENT);
    }
    fs::write(a.join("home/f"), "inner").unwrap();
    assert_eq!(fs::read(b.join("home/f")).unwrap(), b"inner");
    assert_eq!(fs::read(b.join("home/../d/f")).unwrap(), b"outer");
    // Its own numbers.
    let inner = statvfs(b.join("home").as_path()).unwrap();
    assert_eq!(inner.f_blocks * inner.f_frsize, QUOTA);
    assert_eq!(inner.f_files, 50);
    let outer = statvfs(b).unwrap();
    assert_ne!(outer.f_blocks * outer.f_frsize, QUOTA);
    let (one, other) = (b.join("home/f"), b.join("d/f"));
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_ne!(number(&one), number(&other));
    // Its own limits.
    fails(
        fs::write(a.join("home/big"), vec![7; 9 << 20]),
        Errno::DQUOT,
    );
    fs::write(a.join("d/big"), vec![7; 9 << 20]).unwrap();
}

#[test]
fn nothing_is_renamed_or_linked_across_and_nothing_but_unmount_removes_it() {
    let Some(pair) = start("mountpoints-across") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    done(cell, "mount", &["home", "/home"]);
    fs::create_dir(a.join("d")).unwrap();
    fs::create_dir(a.join("home/sub")).unwrap();
    fs::write(a.join("f"), "outer").unwrap();
    fs::write(b.join("home/g"), "inner").unwrap();
    fails(fs::rename(a.join("f"), a.join("home/f")), Errno::XDEV);
    fails(fs::rename(b.join("home/g"), b.join("g")), Errno::XDEV);
    fails(fs::rename(b.join("home/sub"), b.join("sub")), Errno::XDEV);
    fails(fs::hard_link(a.join("f"), a.join("home/f")), Errno::XDEV);
    shell_ok(a, "mv f home/f && mv home/g g && cat home/f g");
    // It is not empty, and when it is it still is a mount point.
    for empties in [false, true] {
        if empties {
            shell_ok(a, "rm -r home/*");
        }
        fails(fs::remove_dir(a.join("home")), Errno::BUSY);
        fails(fs::rename(b.join("d"), b.join("home")), Errno::BUSY);
        fails(fs::create_dir(b.join("home")), Errno::EXIST);
    }
    let unlinked = unlinkat(CWD, a.join("home"), AtFlags::empty());
    assert_eq!(unlinked, Err(Errno::ISDIR));
    refused(cell, "mount", &["home", "/d"], "takes one that is free");
    refused(cell, "mount", &["none", "/n"], "`ariel volume list`");
    refused(cell, "unmount", &["/d"], "no mount point");
    refused(cell, "unmount", &["/none"], "No such file");
    // It moves like a directory, also one with programs in it.
    fs::write(b.join("home/h"), "here").unwrap();
    fs::rename(a.join("home"), a.join("d/house")).unwrap();
    assert_eq!(fs::read(b.join("d/house/h")).unwrap(), b"here");
    fails(fs::metadata(b.join("home")), Errno::NOENT);
    let (from, to) = (b.join("d/house"), b.join("g"));
    renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(a.join("g/h")).unwrap(), b"here");
    assert_eq!(fs::read(a.join("d/house")).unwrap(), b"inner");
    fs::create_dir(a.join("empty")).unwrap();
    fs::rename(a.join("g"), a.join("empty")).unwrap();
    assert_eq!(fs::read(b.join("empty/h")).unwrap(), b"here");
    done(cell, "unmount", &["/empty"]);
    assert_eq!(names(b), ["d"]);
}

#[test]
fn who_is_inside_when_it_is_removed_goes_on() {
    let Some(pair) = start("mountpoints-inside") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    done(cell, "mount", &["home", "/home"]);
    fs::create_dir(a.join("home/sub")).unwrap();
    fs::write(a.join("home/sub/f"), "before").unwrap();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = openat(CWD, b.join("home/sub"), flags, Mode::empty()).unwrap();
    let mut file = File::options()
        .read(true)
        .append(true)
        .open(b.join("home/sub/f"))
        .unwrap();
    done(cell, "unmount", &["/home"]);
    for dir in [a, b] {
        fails(fs::metadata(dir.join("home")), Errno::NOENT);
        fails(fs::read(dir.join("home/sub/f")), Errno::NOENT);
    }
    file.write_all(b" and after").unwrap();
    let inside = openat(&dir, "f", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut text = String::new();
    File::from(inside).read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    fs::create_dir(b.join("home")).unwrap();
    assert!(names(&a.join("home")).is_empty());
    done(cell, "mount", &["home", "/again"]);
    assert_eq!(fs::read(a.join("again/sub/f")).unwrap(), text.as_bytes());
}

#[test]
fn it_outlives_restarts_and_the_end_of_its_volume() {
    let Some(mut pair) = start("mountpoints-restart") else {
        return;
    };
    done(&pair.cell, "mount", &["home", "/home"]);
    fs::write(pair.a.join("home/f"), "kept").unwrap();
    let mut open = File::open(pair.b.join("home/f")).unwrap();
    pair.cell.kill9();
    pair.cell.start_server();
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
    assert_eq!(fs::read(cell.mount().join("home/f")).unwrap(), b"kept");
    // It is called by its number.
    done(cell, "rename", &["home", "house"]);
    assert_eq!(fs::read(b.join("home/f")).unwrap(), b"kept");
    done(cell, "delete", &["house"]);
    let fresh = cell.mount();
    for dir in [a, b, fresh.path()] {
        fails(fs::read(dir.join("home/f")), Errno::STALE);
        assert_eq!(names(dir), ["home"]);
        fails(fs::create_dir(dir.join("home")), Errno::STALE);
    }
    assert!(
        fresh.log().contains("ariel volume undelete"),
        "{}",
        fresh.log()
    );
    done(cell, "undelete", &["house"]);
    for dir in [a, b, fresh.path()] {
        assert_eq!(fs::read(dir.join("home/f")).unwrap(), b"kept");
    }
    done(cell, "delete", &["house"]);
    done(cell, "unmount", &["/home"]);
    for dir in [a, b, fresh.path()] {
        assert!(names(dir).is_empty());
    }
}

#[test]
fn snapshots_hold_an_empty_directory_and_clones_the_mount_point() {
    let Some(pair) = start("mountpoints-versions") else {
        return;
    };
    let (cell, a) = (&pair.cell, pair.a.path());
    done(cell, "mount", &["home", "/home"]);
    fs::write(a.join("home/f"), "now").unwrap();
    done(cell, "snapshot", &["root", "s"]);
    done(cell, "snapshot", &["home", "t"]);
    done(cell, "clone", &["root@s", "copy"]);
    let frozen = cell.mount_with(&["--volume", "root@s"]);
    for dir in [frozen.path(), &a.join(".snapshots/s")] {
        assert_eq!(names(dir), ["home"]);
        assert!(names(&dir.join("home")).is_empty());
    }
    // The volume behind it has snapshots of its own.
    fs::write(a.join("home/f"), "later").unwrap();
    assert_eq!(fs::read(a.join("home/.snapshots/t/f")).unwrap(), b"now");
    let copy = cell.mount_with(&["--volume", "copy"]);
    assert_eq!(fs::read(copy.join("home/f")).unwrap(), b"later");
    done(cell, "unmount", &["--volume", "copy", "/home"]);
    fails(fs::metadata(copy.join("home")), Errno::NOENT);
    assert_eq!(fs::read(a.join("home/f")).unwrap(), b"later");
    // Volumes in each other: the way back is refused.
    done(cell, "mount", &["--volume", "home", "root", "/back"]);
    done(cell, "mount", &["--volume", "home", "home", "/self"]);
    fails(fs::metadata(a.join("home/back")), Errno::LOOP);
    fails(fs::metadata(a.join("home/self")), Errno::LOOP);
    let inner = cell.mount_with(&["--volume", "home"]);
    assert_eq!(names(&inner.join("back")), ["home"]);
    fails(fs::metadata(inner.join("back/home")), Errno::LOOP);
}

#[test]
fn a_volume_in_several_places_is_one() {
    let Some(pair) = start("mountpoints-several") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    for place in ["/one", "/other"] {
        done(cell, "mount", &["home", place]);
    }
    for round in 0..20 {
        let (here, there) = pair.sides(round);
        let text = format!("round {round}");
        fs::write(here.join("one/f"), &text).unwrap();
        assert_eq!(fs::read(here.join("other/f")).unwrap(), text.as_bytes());
        assert_eq!(fs::read(there.join("other/f")).unwrap(), text.as_bytes());
        assert_eq!(fs::read(there.join("one/f")).unwrap(), text.as_bytes());
    }
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(number(&a.join("one/f")), number(&b.join("other/f")));
    done(cell, "unmount", &["/one"]);
    assert_eq!(fs::read(a.join("other/f")).unwrap(), b"round 19");
}

#[test]
fn the_kernel_keeps_what_is_behind_a_mount_point() {
    let Some(pair) = start("mountpoints-warm") else {
        return;
    };
    let (cell, a) = (&pair.cell, pair.a.path());
    done(cell, "mount", &["home", "/home"]);
    fs::create_dir(a.join("home/sub")).unwrap();
    for file in 0..40 {
        fs::write(a.join(format!("home/sub/{file}")), "warm").unwrap();
    }
    let look = || {
        for file in 0..40 {
            fs::metadata(a.join(format!("home/sub/{file}"))).unwrap();
            fails(
                fs::metadata(a.join(format!("home/no-{file}"))),
                Errno::NOENT,
            );
        }
        assert_eq!(names(&a.join("home/sub")).len(), 40);
    };
    // The kernel may drop what it likes, so once in a few times nobody must be asked anything.
    look();
    let silent = eventually(Duration::from_secs(20), || {
        let Doors { daemon, server } = cost_of(a, cell.addr(), look);
        daemon.is_empty() && server.is_empty()
    });
    assert!(silent, "somebody is asked for what is known");
}

#[test]
fn users_and_machines_without_rights_come_through_by_the_modes_behind() {
    const USER: u32 = 1234;
    let Some(pair) = start("mountpoints-rights") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    done(cell, "mount", &["home", "/home"]);
    fs::write(a.join("home/f"), "theirs").unwrap();
    chown(a.join("home"), Some(USER), Some(USER)).unwrap();
    let guest = joins(cell, "guest");
    let by_guest = || {
        let place = format!("{}:/home/f", cell.addr());
        let output = run(ariel(&["cat", "--credentials"]).arg(&guest).arg(place));
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let by_user = || {
        let user = format!("setpriv --reuid {USER} --regid {USER} --clear-groups");
        shell_ok(b, &format!("{user} cat home/f 2>&1 || true"))
    };
    let mode = |mode| fs::set_permissions(a.join("home"), PermissionsExt::from_mode(mode)).unwrap();
    mode(0o755);
    assert_eq!(
        (by_guest().as_str(), by_user().as_str()),
        ("theirs", "theirs")
    );
    mode(0o700);
    let said = by_guest();
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(by_user(), "theirs");
    mode(0o005);
    let said = by_user();
    assert!(said.contains("Permission denied"), "{said}");
}

/// A mount whose tree is a part of a volume goes, with mount points in use below it.
#[test]
fn mounts_end_with_mount_points_in_them() {
    let Some(pair) = start("mountpoints-end") else {
        return;
    };
    let cell = &pair.cell;
    done(cell, "mount", &["home", "/home"]);
    let mount: Mount = cell.mount();
    fs::write(mount.join("home/f"), "x").unwrap();
    // All that was written before it ended is there.
    drop(mount);
    assert_eq!(fs::read(pair.a.join("home/f")).unwrap(), b"x");
    killed(cell);
    assert_eq!(fs::read(pair.b.join("home/f")).unwrap(), b"x");
}

fn killed(cell: &Cell) {
    let mount = cell.mount();
    let open = File::open(mount.join("home/f")).unwrap();
    drop(open);
    mount.kill9();
}
