//! The room of a file (`st_blocks`), and its copies by programs that copy sparsely: counted at
//! once, of what is dirty in a mount's cache too, on the mount that writes and on others.

use crate::harness::process::shell_ok;
use crate::harness::{Pair, Random, has_program};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes that stat(2) says a file occupies.
fn used(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// The same of a file that occupies so much, with what the last sector may have more.
fn occupies(path: &Path, bytes: u64) {
    let found = used(path);
    let path = path.display();
    assert!(
        (bytes..bytes + 4096).contains(&found),
        "{path} occupies {found} bytes, and {bytes} were written"
    );
}

#[test]
fn tar_archives_what_is_not_written_back() {
    if !has_program("sparse-tar", "tar") {
        return;
    }
    let Some(pair) = Pair::start("sparse-tar") else {
        return;
    };
    let mut random = Random(23);
    for (round, len) in [1, 700, 100_000, 3 << 20].into_iter().enumerate() {
        let (one, other) = pair.sides(round);
        fs::write(one.join("f"), random.bytes(len)).unwrap();
        shell_ok(one, "tar cSf q f && tar xOf q f | cmp - f");
        shell_ok(other, "tar cSf r f && tar xOf r f | cmp - f && cmp q r");
        shell_ok(one, "cp --sparse=auto f g && cmp f g");
        shell_ok(other, "cp --sparse=auto f h && cmp f h && rm f g h q r");
    }
}

#[test]
fn a_tree_copied_and_archived_at_once_is_whole() {
    if !has_program("sparse-tree", "tar") {
        return;
    }
    let Some(pair) = Pair::start("sparse-tree") else {
        return;
    };
    let (one, other) = pair.sides(0);
    shell_ok(
        one,
        "mkdir t && for n in $(seq 100); do seq $((n * 40)) >t/$n; done && cp -a t u && \
         tar cSf q u && mkdir x && tar xf q -C x && diff -r t x/u",
    );
    shell_ok(
        other,
        "tar cSf r u && mkdir y && tar xf r -C y && diff -r t y/u",
    );
}

#[test]
fn blocks_count_what_was_written_at_once_and_everywhere() {
    let Some(pair) = Pair::start("sparse-blocks") else {
        return;
    };
    const BLOCK: u64 = 4096;
    for round in 0..4 {
        let (one, other) = pair.sides(round);
        let (here, there) = (one.join("f"), other.join("f"));
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&here).unwrap();
        assert_eq!(used(&here), 0);
        file.write_all_at(&[1; 100], 0).unwrap();
        occupies(&here, 100);
        occupies(&there, 100);
        // A hole of a mebibyte, and data behind it.
        file.write_all_at(&[2; 3 * BLOCK as usize], 1 << 20)
            .unwrap();
        occupies(&here, 3 * BLOCK + 100);
        occupies(&there, 3 * BLOCK + 100);
        // Written again, it occupies no more; made stable, the same.
        file.write_all_at(&[3; 2 * BLOCK as usize], 1 << 20)
            .unwrap();
        occupies(&here, 3 * BLOCK + 100);
        file.sync_all().unwrap();
        occupies(&here, 3 * BLOCK + 100);
        occupies(&there, 3 * BLOCK + 100);
        file.write_all_at(&[4; BLOCK as usize], 1 << 20).unwrap();
        occupies(&here, 3 * BLOCK + 100);
        // Truncated and grown again, punched, and given up.
        file.set_len((1 << 20) + BLOCK).unwrap();
        occupies(&here, BLOCK + 100);
        file.set_len(1 << 21).unwrap();
        occupies(&here, BLOCK + 100);
        occupies(&there, BLOCK + 100);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 1 << 20, BLOCK).unwrap();
        occupies(&here, 100);
        occupies(&there, 100);
        drop(file);
        // The other one goes on with it.
        let file = File::options().write(true).open(&there).unwrap();
        file.write_all_at(&[5; BLOCK as usize], 1 << 16).unwrap();
        occupies(&there, BLOCK + 100);
        occupies(&here, BLOCK + 100);
        fs::remove_file(&here).unwrap();
    }
}

#[test]
fn du_says_what_was_written() {
    let Some(pair) = Pair::start("sparse-du") else {
        return;
    };
    let (one, other) = pair.sides(0);
    shell_ok(one, "mkdir d && head -c 1048576 /dev/urandom >d/f");
    for side in [one, other] {
        let said = shell_ok(side, "du -k d/f | cut -f1");
        assert_eq!(said.trim(), "1024");
    }
}
