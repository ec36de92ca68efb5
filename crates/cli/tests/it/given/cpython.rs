//! CPython's own tests of modules that work on files, with their temporary directory on a mount and
//! on the local disk.

use super::{Found, LIMIT, build, given, judge, patient_cell};
use crate::harness::process::run_within;
use std::path::Path;
use std::process::Command;

const MODULES: [&str; 45] = [
    "test_aifc",
    "test_bufio",
    "test_bz2",
    "test_compileall",
    "test_dbm",
    "test_dbm_dumb",
    "test_dbm_gnu",
    "test_dbm_ndbm",
    "test_dbm_sqlite3",
    "test_dircache",
    "test_ensurepip",
    "test_fcntl",
    "test_file",
    "test_file_eintr",
    "test_filecmp",
    "test_fileinput",
    "test_fileio",
    "test_ftplib",
    "test_genericpath",
    "test_getpath",
    "test_glob",
    "test_gzip",
    "test_httpservers",
    "test_import",
    "test_io",
    "test_largefile",
    "test_linecache",
    "test_lzma",
    "test_mailbox",
    "test_mmap",
    "test_netrc",
    "test_ntpath",
    "test_os",
    "test_pathlib",
    "test_posix",
    "test_posixpath",
    "test_py_compile",
    "test_shelve",
    "test_selectors",
    "test_shutil",
    "test_sqlite3",
    "test_stat",
    "test_tarfile",
    "test_tempfile",
    "test_zipfile",
];

/// Runs each module; one that this version does not have is left out.
fn run(sources: &Path, dir: &Path) -> Found {
    std::fs::create_dir_all(dir).unwrap();
    let mut found = Found::default();
    for module in MODULES {
        let tests = sources.join("Lib/test");
        let there = tests.join(module).is_dir() || tests.join(format!("{module}.py")).is_file();
        if !there {
            continue;
        }
        let mut command = Command::new("./python");
        command
            .args(["-m", "test", "--tempdir"])
            .arg(dir)
            .arg(module);
        command
            .current_dir(sources)
            .env("TMPDIR", dir)
            .env("LC_ALL", "C.UTF-8");
        let output = run_within(&mut command, LIMIT);
        let set = match output.status.success() {
            true => &mut found.passed,
            false => &mut found.failed,
        };
        set.insert(module.to_owned());
    }
    found
}

#[test]
fn cpython_passes_its_own_tests_as_on_the_local_disk() {
    let Some(dir) = given("CPYTHON", "CPython") else {
        return;
    };
    let Some(cell) = patient_cell("cpython") else {
        return;
    };
    let mount = cell.mount_with(&["--trusted"]);
    let sources = build(&dir, cell.scratch(), "./configure -q && make -s -j2");
    let on_disk = run(&sources, &cell.scratch().join("python-on-disk"));
    let on_mount = run(&sources, &mount.join("python"));
    judge("CPython", &on_mount, &on_disk);
}
