//! Capabilities and set-id bits end with a change of a file's bytes, at the moment of the change
//! and on all mounts, as on a local disk; and what is set afterwards stays.

use crate::harness::process::{run, text};
use crate::harness::{Pair, has_program};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const CAPABILITY: &str = "security.capability";

/// `cap_dac_read_search=ep`, as the kernel keeps it.
fn capability() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 2, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn give(path: &Path) {
    setxattr(path, CAPABILITY, &capability(), XattrFlags::empty()).unwrap();
}

fn has(path: &Path) -> bool {
    getxattr(path, CAPABILITY, &mut [0; 64][..]).is_ok()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs a line of shell in a directory, as an ordinary user.
fn as_user(dir: &Path, line: &str) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir(dir);
    let output = run(command.uid(12_345).gid(23_456));
    assert!(output.status.success(), "{line}: {}", text(&output));
}

/// Commands that change the bytes of `prog`.
const CHANGES: [&str; 6] = [
    "echo more >> prog",
    ": > prog",
    "printf x | dd of=prog bs=1 conv=notrunc status=none",
    "truncate -s 3 prog",
    "fallocate -l 100 prog",
    "fallocate -p -o 0 -l 3 prog",
];

#[test]
fn capabilities_end_with_any_change_of_the_bytes() {
    if !has_program("capabilities", "fallocate") {
        return;
    }
    let Some(pair) = Pair::start("capabilities") else {
        return;
    };
    let mut round = 0;
    for line in CHANGES {
        // The one that changes it, and the one that made it; known to both before.
        for writes_other in [false, true] {
            round += 1;
            let (one, other) = pair.sides(round);
            let program = one.join("prog");
            fs::write(&program, b"#!/bin/sh").unwrap();
            set_mode(&program, 0o777);
            give(&program);
            assert!(has(&program) && has(&other.join("prog")));
            as_user(if writes_other { other } else { one }, line);
            for side in [one, other] {
                assert!(!has(&side.join("prog")), "{line}: they are still there");
            }
            fs::remove_file(program).unwrap();
        }
    }
}

#[test]
fn roots_writes_take_them_at_once_too() {
    let Some(pair) = Pair::start("capabilities-root") else {
        return;
    };
    let (one, other) = pair.sides(0);
    let program = one.join("prog");
    fs::write(&program, b"#!/bin/sh").unwrap();
    let file = File::options().write(true).open(&program).unwrap();
    for round in 0..20 {
        give(&program);
        file.write_all_at(b"#!/bin/sh", 0).unwrap();
        assert!(!has(&program), "round {round}: they are still there");
        assert!(round % 2 == 0 || !has(&other.join("prog")));
    }
}

#[test]
fn capabilities_set_after_a_write_stay() {
    let Some(pair) = Pair::start("setcap") else {
        return;
    };
    for round in 0..3 {
        let (one, other) = pair.sides(round);
        let program = one.join("prog");
        fs::copy("/bin/true", &program).unwrap();
        give(&program);
        match round {
            0 => assert!(fs::read(other.join("prog")).unwrap() == fs::read("/bin/true").unwrap()),
            1 => File::open(&program).unwrap().sync_all().unwrap(),
            _ => {}
        }
        assert!(has(&program) && has(&other.join("prog")));
        fs::remove_file(program).unwrap();
    }
}

#[test]
fn the_set_group_id_bit_goes_by_who_writes() {
    if !has_program("set-gid", "fallocate") {
        return;
    }
    let Some(pair) = Pair::start("set-gid") else {
        return;
    };
    for (round, line) in CHANGES.iter().enumerate() {
        // Not executable by the group: the bit stays when a member of the group writes.
        for (group, left) in [(2, 0o666), (23_456, 0o2666)] {
            let (one, other) = pair.sides(round);
            let program = one.join("prog");
            fs::write(&program, b"#!/bin/sh").unwrap();
            chown(&program, None, Some(group)).unwrap();
            set_mode(&program, 0o2666);
            as_user(other, line);
            for side in [one, other] {
                let mode = fs::metadata(side.join("prog")).unwrap().mode() & 0o7777;
                assert_eq!(mode, left, "{line}, group {group}");
            }
            fs::remove_file(program).unwrap();
        }
    }
}

#[test]
fn a_new_owner_ends_the_set_group_id_bit_only_where_it_lets_the_group_execute() {
    let Some(pair) = Pair::start("set-gid-owner") else {
        return;
    };
    for (round, (mode, left)) in [(0o6644, 0o2644), (0o6654, 0o654)].into_iter().enumerate() {
        let (one, other) = pair.sides(round);
        let path = one.join("prog");
        fs::write(&path, b"#!/bin/sh").unwrap();
        chown(&path, Some(1000), Some(23_456)).unwrap();
        set_mode(&path, mode);
        chown(other.join("prog"), Some(1001), None).unwrap();
        for side in [one, other] {
            let seen = fs::metadata(side.join("prog")).unwrap().mode() & 0o7777;
            assert_eq!(seen, left, "mode {mode:o} before");
        }
        fs::remove_file(path).unwrap();
    }
}
