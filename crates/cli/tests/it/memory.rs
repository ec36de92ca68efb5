//! A cache whose size varies, in a control group with little memory: the mount is never killed, and
//! memory that a program wants goes back to it at once.

use crate::harness::cell::CellOptions;
use crate::harness::group::Group;
use crate::harness::process::{Proc, run_within};
use crate::harness::status::{resident_mib, status};
use crate::harness::{Cell, Mount, Random, eventually, real_system, text};
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// `alone`: no other test runs meanwhile.
fn start(test: &str, mib: u64, alone: bool) -> Option<(Cell, Group)> {
    if !real_system(test) {
        return None;
    }
    let group = Group::new(test, mib)?;
    let options = CellOptions {
        alone,
        ..CellOptions::default()
    };
    let cell = Cell::start_with(test, options)?;
    Some((cell, group))
}

fn of_memory(mount: &Mount, field: &str) -> u64 {
    status(mount.path())["memory"][field].as_u64().unwrap()
}

/// Programs in the group write and read more than it holds, all at once.
#[test]
fn a_mount_in_a_group_of_64_mib_is_never_killed() {
    let Some((cell, group)) = start("small-group", 64, false) else {
        return;
    };
    let mount = group.mount(&cell);
    assert!(of_memory(&mount, "size_bytes") < 64 << 20);
    let reference = cell.scratch().join("reference");
    fs::write(&reference, Random(1).bytes(24 << 20)).unwrap();
    let script = "for round in 1 2 3; do for file in a b c; do cp $1 $2/$3-$file || exit 1; done; \
                  for file in a b c; do cmp $1 $2/$3-$file || exit 2; done; done";
    let mut loads: Vec<Proc> = (0..3)
        .map(|n| {
            let mut command = group.command("sh");
            command.args(["-c", script, "sh"]);
            command.args([reference.as_path(), mount.path()]);
            command.arg(n.to_string());
            let said = fs::File::create(cell.scratch().join(&format!("said-{n}"))).unwrap();
            command.stderr(said);
            Proc::spawn(&mut command, Some(cell.watch())).unwrap()
        })
        .collect();
    for (n, load) in loads.iter_mut().enumerate() {
        let ended = load.wait(LIMIT).expect("it ends");
        let said = fs::read_to_string(cell.scratch().join(&format!("said-{n}"))).unwrap();
        assert!(ended.success(), "{ended}: {said}\n{}", mount.log());
    }
    assert_eq!(group.killed(), 0, "{}", mount.log());
    assert!(of_memory(&mount, "presses") > 0);
    assert!(of_memory(&mount, "given_back_bytes") > 0);
}

#[test]
fn memory_that_a_program_wants_goes_back_to_it_and_comes_back_after_it() {
    const FILE_MIB: u64 = 320;
    // The mount has a few tens of milliseconds to give it back.
    let Some((cell, group)) = start("wanted", 512, true) else {
        return;
    };
    let mount = group.mount(&cell);
    let file = mount.join("file");
    let bytes = Random(2).bytes((FILE_MIB << 20) as usize);
    // While a cache fills, what its process needs beside it is not known yet.
    let filled = eventually(Duration::from_secs(60), || {
        fs::write(&file, &bytes).unwrap();
        let written = fs::File::open(&file).and_then(|file| file.sync_all());
        written.unwrap();
        resident_mib(mount.path()) > FILE_MIB
    });
    assert!(filled, "{}", status(mount.path())["memory"]);
    let full = resident_mib(mount.path());
    let before = of_memory(&mount, "given_back_bytes");

    // It touches all of it, 1 GiB a second (a program that is faster takes the reserve before a
    // busy machine lets the mount look), and says how much the mount has when it has got that.
    let pid = status(mount.path())["pid"].as_u64().unwrap();
    let script = format!(
        "import time\nhave = bytearray(360 << 20)\nbegun = time.monotonic()\n\
         for at in range(0, len(have), 4096):\n\
         \thave[at] = 1\n\
         \tif at % 65536 == 0: time.sleep(max(0, begun + at / 2**30 - time.monotonic()))\n\
         print(next(line for line in open('/proc/{pid}/status') if 'VmRSS' in line).split()[1])"
    );
    let mut command = group.command("python3");
    let output = run_within(command.args(["-c", &script]), LIMIT);
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output),
        mount.log()
    );
    let kib: u64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    let left = kib >> 10;
    assert!(left < 180, "{full} MiB before, {left} MiB with the program");
    assert_eq!(group.killed(), 0);
    let given_back = (of_memory(&mount, "given_back_bytes") - before) >> 20;
    assert!(
        (full - left) * 10 >= given_back * 9,
        "{given_back} MiB were given back, {full} MiB before, {left} MiB after"
    );
    let back = eventually(Duration::from_secs(60), || {
        of_memory(&mount, "size_bytes") >> 20 > FILE_MIB
    });
    assert!(back, "{}", status(mount.path())["memory"]);
    assert_eq!(fs::read(&file).unwrap(), bytes);
}
