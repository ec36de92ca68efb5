//! Every ordinary operation through a mount gives what the same operation gives on a local file
//! system: each test is a script that notes what it sees, run in both places; the notes must be
//! equal. This file: files, their bytes, and names.

use crate::harness::{Cell, Random, Scratch, record};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

/// The results that a script has seen.
#[derive(Default)]
pub struct Notes(Vec<String>);

/// A failure as the number that the kernel gave.
pub trait ErrorNumber {
    fn number(&self) -> Option<i32>;
}

impl ErrorNumber for std::io::Error {
    fn number(&self) -> Option<i32> {
        self.raw_os_error()
    }
}

impl ErrorNumber for rustix::io::Errno {
    fn number(&self) -> Option<i32> {
        Some(self.raw_os_error())
    }
}

impl Notes {
    /// Notes what an operation gave: its value, or the error number.
    pub fn note<T: Debug, E: ErrorNumber>(&mut self, what: &str, result: Result<T, E>) {
        match result {
            Ok(value) => self.0.push(format!("{what}: {value:?}")),
            Err(e) => self.0.push(format!("{what}: error {:?}", e.number())),
        }
    }

    pub fn value(&mut self, what: &str, value: impl Debug) {
        self.0.push(format!("{what}: {value:?}"));
    }

    /// Notes an operation of which only success or the error counts.
    pub fn did<T, E: ErrorNumber>(&mut self, what: &str, result: Result<T, E>) {
        self.note(what, result.map(drop));
    }

    /// Notes bytes by length and sum.
    pub fn bytes(&mut self, what: &str, bytes: &[u8]) {
        self.0.push(format!(
            "{what}: {} bytes, sum {:x}",
            bytes.len(),
            record::sum(bytes)
        ));
    }

    /// Notes the whole content and the attributes that every file system gives alike.
    pub fn file(&mut self, path: &Path) {
        let what = path.file_name().unwrap().to_string_lossy().into_owned();
        match fs::read(path) {
            Ok(bytes) => self.bytes(&what, &bytes),
            Err(e) => self.note(&what, Err::<(), _>(e)),
        }
        self.attributes(path);
    }

    /// Notes mode, owner, number of links, and for files the size.
    pub fn attributes(&mut self, path: &Path) {
        let what = path.file_name().unwrap().to_string_lossy().into_owned();
        let seen = fs::symlink_metadata(path).map(|m| {
            let size = if m.is_dir() { 0 } else { m.len() };
            (
                format!("{:o}", m.mode()),
                m.uid(),
                m.gid(),
                m.nlink(),
                size,
                m.rdev(),
            )
        });
        self.note(&what, seen);
    }
}

/// Runs a script locally and through a mount, and compares the notes.
pub fn same(name: &str, script: fn(&Path, &mut Notes)) {
    let Some(cell) = Cell::start(name) else {
        return;
    };
    let mount = cell.mount();
    let plain = Scratch::new(&format!("{name}-plain"));
    let inside = mount.join("script");
    fs::create_dir(&inside).unwrap();
    let (mut expected, mut seen) = (Notes::default(), Notes::default());
    script(&plain.dir("script"), &mut expected);
    script(&inside, &mut seen);
    for (expected, seen) in expected.0.iter().zip(&seen.0) {
        assert_eq!(
            seen, expected,
            "{name}: through the mount (left), locally (right)"
        );
    }
    assert_eq!(expected.0.len(), seen.0.len(), "{name}: number of notes");
    assert!(
        !seen.0.is_empty(),
        "{name}: a script that notes nothing shows nothing"
    );
}

#[test]
fn writes_at_any_offset_and_size() {
    same("offsets", |dir, notes| {
        let path = dir.join("file");
        let file = File::create_new(&path).unwrap();
        let mut random = Random(42);
        let edges = [
            0, 1, 511, 4095, 4096, 4097, 65_535, 131_072, 1_048_575, 3_000_001,
        ];
        for round in 0..120 {
            let at = if round < edges.len() {
                edges[round] as u64
            } else {
                random.below(2_000_000)
            };
            let len = [1, 3, 4096, 4097, 100, 70_000, 9][round % 7];
            file.write_all_at(&random.bytes(len), at).unwrap();
            if round % 10 == 9 {
                let mut bytes = vec![0; 50_000];
                let n = file.read_at(&mut bytes, random.below(3_000_000)).unwrap();
                notes.bytes("part", &bytes[..n]);
            }
        }
        notes.file(&path);
        let mut buffer = [0; 10];
        notes.note("read at the end", file.read_at(&mut buffer, 99_999_999));
        notes.did("sync", file.sync_all());
        notes.did("data sync", file.sync_data());
        drop(file);
        notes.file(&path);
        let big = random.bytes(5_000_000);
        notes.did("5 MB at once", fs::write(&path, &big));
        notes.file(&path);
    });
}

#[test]
fn truncation_leaves_zeros() {
    same("truncation", |dir, notes| {
        let path = dir.join("file");
        fs::write(&path, Random(1).bytes(20_000)).unwrap();
        for len in [10_000, 10_001, 4096, 30_000, 0, 5, 5, 100_000, 8192] {
            let file = File::options().write(true).open(&path).unwrap();
            notes.did("set_len", file.set_len(len));
            notes.file(&path);
        }
        let file = File::options().write(true).truncate(true).open(&path);
        notes.did("open truncating", file);
        notes.file(&path);
        let hole = File::options().write(true).open(&path).unwrap();
        hole.write_all_at(b"far", 1 << 20).unwrap();
        notes.file(&path);
        let read_only = File::open(&path).unwrap();
        notes.did("set_len of what is open for reading", read_only.set_len(1));
        notes.did("write of the same", read_only.write_at(b"x", 0));
        let dir_file = File::open(dir).unwrap();
        notes.note("read of a directory", dir_file.read_at(&mut [0; 4], 0));
    });
}

#[test]
fn append_and_position() {
    same("append-one", |dir, notes| {
        let path = dir.join("log");
        let mut one = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        let mut two = File::options().append(true).read(true).open(&path).unwrap();
        for round in 0..50 {
            one.write_all(format!("one {round};").as_bytes()).unwrap();
            two.write_all(format!("two {round};").as_bytes()).unwrap();
        }
        notes.file(&path);
        notes.note("position", two.stream_position());
        two.seek(SeekFrom::Start(4)).unwrap();
        let mut word = [0; 8];
        notes.note("read", two.read_exact(&mut word));
        notes.bytes("the word", &word);
        notes.note("seek from the end", two.seek(SeekFrom::End(-3)));
        notes.did(
            "seek before the beginning",
            two.seek(SeekFrom::End(-1_000_000)),
        );
    });
}

#[test]
fn directories_are_made_and_removed() {
    same("directories", |dir, notes| {
        notes.did("mkdir", fs::create_dir(dir.join("a")));
        notes.did("mkdir again", fs::create_dir(dir.join("a")));
        notes.did("mkdir in nothing", fs::create_dir(dir.join("none/b")));
        notes.did("mkdir -p", fs::create_dir_all(dir.join("a/b/c/d/e/f")));
        notes.attributes(&dir.join("a"));
        notes.attributes(&dir.join("a/b"));
        notes.did("rmdir of a full one", fs::remove_dir(dir.join("a")));
        notes.did("rmdir", fs::remove_dir(dir.join("a/b/c/d/e/f")));
        notes.did("rmdir of nothing", fs::remove_dir(dir.join("a/b/c/d/e/f")));
        fs::write(dir.join("file"), b"x").unwrap();
        notes.did("rmdir of a file", fs::remove_dir(dir.join("file")));
        notes.did("unlink of a directory", fs::remove_file(dir.join("a")));
        notes.did("below a file", fs::create_dir(dir.join("file/x")));
        notes.did("mkdir over a file", fs::create_dir(dir.join("file")));
        notes.did(
            "open of a directory for writing",
            File::create(dir.join("a")),
        );
        notes.did("rmdir of .", rustix::fs::rmdir(dir.join("a/.")));
        notes.did("rmdir of ..", rustix::fs::rmdir(dir.join("a/b/..")));
        notes.did("remove the whole tree", fs::remove_dir_all(dir.join("a")));
        notes.attributes(dir);
    });
}

#[test]
fn rename_over_files_and_directories() {
    same("rename", |dir, notes| {
        let p = |name: &str| dir.join(name);
        for (name, content) in [("f1", "one"), ("f2", "two"), ("f3", "three")] {
            fs::write(p(name), content).unwrap();
        }
        fs::create_dir_all(p("full/inner")).unwrap();
        fs::create_dir(p("empty")).unwrap();
        fs::create_dir(p("empty2")).unwrap();
        let steps = [
            ("f1", "new"),
            ("new", "f2"),
            ("f2", "f2"),
            ("none", "f2"),
            ("f2", "empty"),
            ("empty", "f2"),
            ("empty", "full"),
            ("full", "empty"),
            ("empty2", "empty/inner"),
            ("empty", "empty/inner/x"),
            ("empty/inner", "empty"),
            ("f3", "f2/x"),
            ("f3", "none/x"),
            ("empty/inner", "moved"),
            ("f3", "moved/f3"),
        ];
        for (from, to) in steps {
            notes.did(&format!("{from} -> {to}"), fs::rename(p(from), p(to)));
        }
        let links = [("f2", "link")];
        for (from, to) in links {
            fs::hard_link(p(from), p(to)).unwrap();
            notes.did(
                "rename between names of one file",
                fs::rename(p(from), p(to)),
            );
        }
        for name in ["f1", "f2", "f3", "link", "moved/f3"] {
            notes.file(&p(name));
        }
        for name in ["empty", "full", "moved"] {
            notes.attributes(&p(name));
        }
        let up = fs::metadata(p("moved/..")).unwrap().ino() == fs::metadata(dir).unwrap().ino();
        notes.value(".. of what was moved is where it is", up);
    });
}

#[test]
fn rename_flags() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    same("rename-flags", |dir, notes| {
        let (one, two) = (dir.join("one"), dir.join("two"));
        fs::write(&one, b"1").unwrap();
        fs::write(&two, b"22").unwrap();
        let refuse = renameat_with(CWD, &one, CWD, &two, RenameFlags::NOREPLACE);
        notes.did("noreplace over a name", refuse);
        notes.file(&two);
        let free = renameat_with(CWD, &one, CWD, dir.join("free"), RenameFlags::NOREPLACE);
        notes.did("noreplace to a free name", free);
        notes.file(&dir.join("free"));
    });
}

#[test]
fn links_and_symlinks() {
    same("links", |dir, notes| {
        let p = |name: &str| dir.join(name);
        fs::write(p("file"), b"content").unwrap();
        fs::create_dir(p("dir")).unwrap();
        notes.did("link", fs::hard_link(p("file"), p("link")));
        notes.did(
            "link in a directory",
            fs::hard_link(p("file"), p("dir/link")),
        );
        notes.did("link over a name", fs::hard_link(p("file"), p("link")));
        notes.did("link of a directory", fs::hard_link(p("dir"), p("dir2")));
        notes.did("link of nothing", fs::hard_link(p("none"), p("x")));
        fs::write(p("link"), b"changed through a link").unwrap();
        notes.file(&p("file"));
        let inodes = ["file", "link", "dir/link"].map(|n| fs::metadata(p(n)).unwrap().ino());
        notes.value("one inode", inodes.iter().all(|i| *i == inodes[0]));
        notes.did("unlink one", fs::remove_file(p("file")));
        notes.file(&p("dir/link"));
        for (target, name) in [
            ("dir/link", "s1"),
            ("none", "s2"),
            ("s3", "s3"),
            ("dir", "s4"),
        ] {
            notes.did("symlink", symlink(target, p(name)));
            notes.note("readlink", fs::read_link(p(name)));
            notes.attributes(&p(name));
            notes.note("through it", fs::metadata(p(name)).map(|m| m.is_dir()));
        }
        let long = "x".repeat(4000);
        notes.did("long target", symlink(&long, p("long")));
        notes.note("long target", fs::read_link(p("long")));
        notes.did("symlink over a name", symlink("x", p("s1")));
        notes.note("readlink of a file", fs::read_link(p("link")));
        notes.did("unlink of a symlink", fs::remove_file(p("s1")));
        notes.file(&p("dir/link"));
        notes.did(
            "create through a dangling link",
            fs::write(p("s2"), b"made"),
        );
        notes.file(&p("none"));
    });
}

#[test]
fn unlinked_files_live_while_they_are_open() {
    same("unlinked", |dir, notes| {
        let path = dir.join("file");
        let file = File::create_new(&path).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        notes.did("unlink", fs::remove_file(&path));
        notes.did("again", fs::remove_file(&path));
        notes.did("write", file.write_all_at(&Random(5).bytes(100_000), 3));
        let mut bytes = vec![0; 200_000];
        let n = file.read_at(&mut bytes, 0).unwrap();
        notes.bytes("read", &bytes[..n]);
        notes.note("links", file.metadata().map(|m| (m.nlink(), m.len())));
        notes.did("set_len", file.set_len(10));
        notes.did("sync", file.sync_all());
        notes.did("a new file of the name", fs::write(&path, b"another"));
        notes.note("size of the first", file.metadata().map(|m| m.len()));
        notes.file(&path);
        let empty: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        notes.value("names", empty);
    });
}
