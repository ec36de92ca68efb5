//! Machines behind slow links. One has much changed in a file that another one opens: that one
//! waits until all of it has come, and has all of it; nothing is set aside. In the long form this
//! takes longer than a client is waited for that does not answer. And one that reads and one that
//! writes the same file without end both get on.

use crate::harness::machines::Machines;
use crate::harness::{Random, has_program, long};
use crate::machines::can_have_machines;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const CLIENTS: [&str; 2] = ["writer", "reader"];
const MBIT: u32 = 16;
const PIECE: usize = 1 << 20;

/// A cell with a mount on each of two machines; any user may write there.
fn cell() -> Machines {
    let mut machines = Machines::new(&[&["server"], &CLIENTS[..]].concat());
    machines.make_cell(("server", &CLIENTS), "/srv/a", "true");
    // Root of a client is nobody here.
    let mount = "ariel mount server:7070 /mnt";
    machines.must(
        "server",
        &format!("{mount} --credentials /srv/a/cell/machine"),
    );
    machines.must("server", "chmod 777 /mnt; ariel umount /mnt");
    for client in CLIENTS {
        machines.must(client, &format!("{mount} --cache-mib 1024"));
    }
    machines
}

#[test]
fn a_file_that_is_written_back_over_a_slow_link_is_waited_for_and_whole() {
    let test = "slow_link";
    if !can_have_machines(test) || !has_program(test, "tc") {
        return;
    }
    let mib = if long() { 224 } else { 8 };
    let mut machines = cell();
    machines.slow(MBIT);
    let pieces: Vec<Vec<u8>> = {
        let mut random = Random(11);
        (0..mib).map(|_| random.bytes(PIECE)).collect()
    };
    let began = Instant::now();
    let mut file = File::create(machines.at("writer", "/mnt/file")).unwrap();
    for piece in &pieces {
        file.write_all(piece).unwrap();
    }
    let wrote = began.elapsed();
    let read = File::open(machines.at("reader", "/mnt/file")).unwrap();
    let mut last = vec![0; PIECE];
    let at = (pieces.len() - 1) * PIECE;
    read.read_exact_at(&mut last, at as u64).unwrap();
    let waited = began.elapsed();
    println!("{mib} MiB written in {wrote:.1?}, the reader has the last of them at {waited:.1?}");
    assert!(last == pieces[pieces.len() - 1], "the last MiB is wrong");
    assert_eq!(
        read.metadata().unwrap().len(),
        (pieces.len() * PIECE) as u64
    );
    file.sync_all().unwrap();
    drop((file, read));
    let names = fs::read_dir(machines.at("reader", "/mnt")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"], "something was set aside");
    for client in CLIENTS {
        machines.must(client, "ariel umount /mnt");
    }
}

/// The reader's kernel caches the file, since it was opened before the writer came: the right to
/// keep the bytes of an answer is taken back before each write, and that overtakes the bytes.
#[test]
fn a_reader_gets_on_beside_a_machine_that_writes_without_end() {
    const LEN: usize = 4 * PIECE;
    let test = "slow_reader";
    if !can_have_machines(test) || !has_program(test, "tc") {
        return;
    }
    let mut machines = cell();
    fs::write(machines.at("writer", "/mnt/file"), vec![1; LEN]).unwrap();
    let reader = File::open(machines.at("reader", "/mnt/file")).unwrap();
    let mut piece = vec![0; PIECE];
    reader.read_exact_at(&mut piece, 0).unwrap();
    machines.slow(100);
    let path = machines.at("writer", "/mnt/file");
    let writer = File::options().write(true).open(path).unwrap();
    let ends = Instant::now() + Duration::from_secs(5);
    let writes = std::thread::spawn(move || {
        let mut writes = 0;
        while Instant::now() < ends {
            let at = (writes * 4096) % LEN;
            writer.write_all_at(&[2; 4096], at as u64).unwrap();
            writes += 1;
        }
        writes
    });
    let mut reads = 0;
    let mut longest = Duration::ZERO;
    while Instant::now() < ends {
        let began = Instant::now();
        let at = (reads * PIECE) % LEN;
        reader.read_exact_at(&mut piece, at as u64).unwrap();
        longest = longest.max(began.elapsed());
        reads += 1;
    }
    let writes = writes.join().unwrap();
    println!("{writes} writes of 4 KiB, {reads} reads of 1 MiB, the longest took {longest:.1?}");
    assert!(
        reads > 3 && writes > 3,
        "one of the two waits for the other"
    );
    drop(reader);
    for client in CLIENTS {
        machines.must(client, "ariel umount /mnt");
    }
}
