//! A mount as `mount(8)`, `df` and lists of processes show it: options, source, no secrets; and the
//! errors of its program when the server's disk is full.

use crate::harness::cell::CellOptions;
use crate::harness::mount::Background;
use crate::harness::process::run_within;
use crate::harness::scratch::is_mounted;
use crate::harness::status::status;
use crate::harness::{Cell, ariel, real_system, run, text};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// The line of a mount in `/proc/self/mountinfo`.
fn line_of(point: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let wanted = format!(" {} ", point.display());
    let mut lines = table.lines();
    lines
        .find(|line| line.contains(&wanted))
        .unwrap()
        .to_owned()
}

/// mount(8) says nothing where all is well, and scripts compare what it says.
#[track_caller]
fn assert_silent(output: &Output) {
    let silent = output.stdout.is_empty() && output.stderr.is_empty();
    assert!(output.status.success() && silent, "{}", text(output));
}

#[test]
fn the_options_of_mount_are_those_of_the_mount() {
    if !real_system("mount-options") {
        return;
    }
    let Some(cell) = Cell::start("mount-options") else {
        return;
    };
    fs::write(cell.mount().join("file"), b"content").unwrap();
    let point = cell.scratch().dir("by-helper");
    cell.watch().add_mount(&point);
    for name in ["mount.ariel", "mount.fuse.ariel"] {
        // As mount(8) calls it.
        let helper = cell.scratch().join(name);
        symlink(env!("CARGO_BIN_EXE_ariel"), &helper).unwrap();
        let mut command = Command::new(&helper);
        command.arg(cell.addr()).arg(&point);
        command.args(["-n", "-o", "ro,noexec,noatime,_netdev,x-a.b=c,cache-mib=8"]);
        let output = run(&mut command);
        assert_silent(&output);
        let line = line_of(&point);
        assert!(line.contains(" ro,nosuid,nodev,noexec,noatime "), "{line}");
        let source = format!(" - fuse.ariel {} ro,", cell.addr());
        assert!(line.contains(&source), "{line}");
        assert_eq!(fs::read(point.join("file")).unwrap(), b"content");
        let refused = fs::write(point.join("file"), b"x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        assert_eq!(status(&point)["cache"]["slots"], 8 * 256);
        remounted(&helper, &cell, &point);
        let output = run(&mut ariel(&[Path::new("umount"), &point]));
        assert!(output.status.success(), "{}", text(&output));
    }
    let mut wrong = Command::new(cell.scratch().join("mount.ariel"));
    wrong
        .arg(cell.addr())
        .arg(&point)
        .args(["-o", "remount,ro"]);
    let said = text(&run(&mut wrong));
    assert!(said.contains("nothing is mounted"), "{said}");
    assert!(!is_mounted(&point), "{said}");
}

/// `mount -o remount` changes what the kernel can change, both ways, under a running mount.
fn remounted(helper: &Path, cell: &Cell, point: &Path) {
    let remount = |list: &str| {
        let mut command = Command::new(helper);
        command.arg(cell.addr()).arg(point).args(["-o", list]);
        run(&mut command)
    };
    assert_silent(&remount("remount,rw,exec"));
    let line = line_of(point);
    assert!(line.contains(" rw,nosuid,nodev,noatime "), "{line}");
    fs::write(point.join("new"), b"x").unwrap();
    assert_silent(&remount("remount,ro,user_id=0,allow_other"));
    let refused = fs::write(point.join("new"), b"y").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    assert_eq!(fs::read(point.join("new")).unwrap(), b"x");
    fs::metadata(point.join("file")).unwrap();
    let refused = text(&remount("remount,cache-mib=16"));
    assert!(refused.contains("mount again with it"), "{refused}");
}

#[test]
fn a_list_of_processes_tells_no_session() {
    if !real_system("processes") {
        return;
    }
    let Some(cell) = Cell::start("processes") else {
        return;
    };
    let mount = Background::start(&cell, "processes", &[]);
    let session = mount.status().unwrap()["session"].clone();
    let session = u64::from_str_radix(session.as_str().unwrap(), 16).unwrap();
    let (decimal, hex) = (session.to_string(), format!("{session:x}"));
    let mut seen = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_ours = line.contains(mount.path().to_str().unwrap());
        assert!(!line.contains(&decimal) && !line.contains(&hex), "{line}");
        seen += usize::from(is_ours);
    }
    assert!(seen >= 2, "a daemon and its guard: {seen}");
}

#[test]
fn a_writer_is_told_that_the_disk_is_full_and_nobody_asks_again_and_again() {
    if !real_system("no-room") {
        return;
    }
    let options = CellOptions {
        disk_mib: Some(300),
        ..CellOptions::default()
    };
    let Some(cell) = Cell::start_with("no-room", options) else {
        return;
    };
    let mount = cell.mount_with(&["--cache-mib", "32"]);
    let mut file = File::create(mount.join("large")).unwrap();
    let piece = vec![7; 1 << 20];
    let written = (0..600).map(|_| file.write_all(&piece));
    let refused = written
        .into_iter()
        .find_map(Result::err)
        .expect("there is no end to it");
    assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    // Two seconds of trying, as a program that does not give up.
    let line = format!(
        "timeout 2 sh -c 'while :; do echo x >> {}/large; done'",
        mount.path().display()
    );
    let mut command = Command::new("/bin/sh");
    let _ = run_within(command.args(["-c", &line]), Duration::from_secs(20));
    let refused = status(mount.path())["refused_write_backs"]
        .as_u64()
        .unwrap();
    assert_eq!(refused, 0, "write(2) is refused, and nothing behind it");
    assert!(
        mount.log().matches("refused").count() < 20,
        "{}",
        mount.log()
    );
    drop(file);
    fs::remove_file(mount.join("large")).unwrap();
    fs::write(mount.join("small"), b"there is room again").unwrap();
    File::open(mount.join("small")).unwrap().sync_all().unwrap();
}

#[test]
fn a_mount_whose_credential_has_a_relative_path_comes_back_after_a_restart_of_the_server() {
    if !real_system("relative-credential") {
        return;
    }
    let Some(mut cell) = Cell::start("relative-credential") else {
        return;
    };
    assert!(!cell.is_insecure(), "the mount shows a credential");
    let point = cell.scratch().dir("relative");
    cell.watch().add_mount(&point);
    let mut mount = ariel(&["mount"]);
    mount.current_dir(cell.data().join("cell"));
    mount.arg(cell.addr()).arg(&point);
    let output = run(mount.args(["--credentials", "machine"]));
    assert!(output.status.success(), "{}", text(&output));
    fs::write(point.join("file"), b"content").unwrap();
    cell.restart();
    fs::create_dir(point.join("dir")).unwrap();
    File::open(&point).unwrap().sync_all().unwrap();
    let output = run(&mut ariel(&[Path::new("umount"), &point]));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_volume_that_is_not_there_is_said_at_once() {
    let Some(cell) = Cell::start("no-volume") else {
        return;
    };
    let point = cell.scratch().dir("none");
    let mut mount = ariel(&["mount", "--volume", "nope"]);
    mount.arg(cell.addr()).arg(&point).args(cell.trust());
    let output = run_within(&mut mount, Duration::from_secs(6));
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("refuses this client"), "{said}");
    assert!(said.contains("a volume that is not there"), "{said}");
}

#[test]
fn blocks_that_are_read_past_the_cache_count_as_fetched() {
    let Some(cell) = Cell::start("cold-counts") else {
        return;
    };
    let first = cell.mount();
    fs::write(first.join("file"), vec![7; 4 << 20]).unwrap();
    drop(first);
    let cold = cell.mount();
    assert_eq!(fs::read(cold.join("file")).unwrap().len(), 4 << 20);
    let told = status(cold.path());
    for (group, name) in [("cache", "misses"), ("cooperation", "fetched")] {
        let count = told[group][name].as_u64().unwrap();
        assert!((1024..2048).contains(&count), "{name}: {count}, {told}");
    }
}

#[test]
fn conflicts_of_another_file_system_are_refused() {
    let scratch = crate::harness::Scratch::new("no-conflicts");
    let output = run(ariel(&["conflicts"]).arg(scratch.path()));
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("on no mount of Ariel"), "{said}");
}

#[test]
fn up_on_a_directory_with_something_in_it_starts_no_server() {
    let scratch = crate::harness::Scratch::new("up-not-empty");
    let (data, point) = (scratch.join("data"), scratch.dir("full"));
    fs::write(point.join("x"), b"x").unwrap();
    let mut up = ariel(&["up", "--data"]);
    let output = run(up.arg(&data).arg("--mount").arg(&point));
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("is not empty"), "{said}");
    assert!(!data.exists(), "a cell was made for nothing");
}

#[test]
fn an_unmount_of_nothing_says_where_mounts_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = dir.path().join("none/below");
    for at in [
        dir.path(),
        &file,
        &file.join("below"),
        &missing,
        Path::new("/proc"),
    ] {
        for force in [&[][..], &["--force"]] {
            let output = run(ariel(&["umount"]).args(force).arg(at));
            let said = text(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let name = format!("nothing is mounted at {} by Ariel", at.display());
            assert!(said.contains(&name) && said.contains("findmnt"), "{said}");
            assert!(!said.contains("mkdir"), "{said}");
        }
    }
}
