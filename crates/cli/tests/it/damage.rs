//! Damaged bytes, on the wire and on the disk: reported, never believed, and harmless to others.

use crate::harness::{Cell, Mount, Random, ariel, eventually, real_system, run, text};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sends rubbish and waits until the server has closed the connection; gives our address.
fn send_rubbish(addr: &str, bytes: &[u8], then_end: bool) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let ours = stream.local_addr().unwrap().to_string();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    if then_end {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("the server keeps a connection that sent rubbish: {e}"),
    }
    ours
}

/// So many refusals have a line each in the log, whatever the time; of more in ten seconds it has
/// the number.
const LOGGED: usize = 16;

#[test]
fn rubbish_ends_its_connection_and_no_other() {
    if !real_system("rubbish") {
        return;
    }
    let Some(mut cell) = Cell::start("rubbish") else {
        return;
    };
    let mount = cell.mount();
    let mut random = Random(7);
    let mut kinds: Vec<(Vec<u8>, bool)> = vec![
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), false),
        (vec![0xff; 4096], false),
        (vec![0; 4096], false),
        (b"x".to_vec(), true),
    ];
    // The right first words, and then rubbish: in a body, in a header, and cut off in the middle.
    let header = |kind: u8, body: u32| {
        let mut bytes = b"ARIL\x01".to_vec();
        bytes.extend([kind, 0, 0]);
        bytes.extend(body.to_le_bytes());
        bytes.resize(24, 0);
        bytes
    };
    for kind in 0..4 {
        let greeting = header(kind, 0);
        for (body, then_end) in [(300, false), (u32::MAX, false), (3_000, true)] {
            let next = [greeting.clone(), header(kind + 1, body), random.bytes(300)].concat();
            kinds.push((next, then_end));
        }
    }
    kinds.extend((0..40).map(|n| (random.bytes(64 + n * 100), false)));
    for (round, (bytes, then_end)) in kinds.iter().enumerate() {
        let ours = send_rubbish(cell.addr(), bytes, *then_end);
        let told = || cell.server_log().contains(&ours);
        assert!(
            round >= LOGGED || eventually(Duration::from_secs(5), told),
            "round {round}: the log does not say why {ours} was closed"
        );
        let name = mount.join(&format!("file-{round}"));
        fs::write(&name, bytes).unwrap();
        assert_eq!(
            fs::read(&name).unwrap(),
            *bytes,
            "round {round}: another client"
        );
    }
    // Connections that say nothing must not keep anybody from being served either.
    let idle: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(cell.addr()).unwrap())
        .collect();
    fs::write(mount.join("after"), b"served").unwrap();
    assert_eq!(fs::read(cell.mount().join("after")).unwrap(), b"served");
    drop(idle);
    assert!(cell.server_runs(), "the server has ended");
}

/// Bytes that occur once in a store.
fn marked(seed: u64) -> Vec<u8> {
    Random(seed).bytes(1 << 20)
}

/// The file below `dir` that holds these bytes, and where in it.
fn find_bytes(dir: &Path, wanted: &[u8]) -> Option<(PathBuf, u64)> {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if let Some(found) = find_bytes(&path, wanted) {
                return Some(found);
            }
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            let first = wanted[0];
            let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first);
            for (at, _) in starts {
                if bytes[at..].starts_with(wanted) {
                    return Some((path, at as u64));
                }
            }
        }
    }
    None
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 0x10;
    file.write_all_at(&byte, at).unwrap();
}

#[test]
fn a_flipped_byte_is_an_error_and_never_data() {
    if !real_system("flipped") {
        return;
    }
    let Some(mut cell) = Cell::start("flipped") else {
        return;
    };
    let mount = cell.mount();
    for (name, seed) in [("sound", 1), ("damaged-one", 2), ("sound-too", 3)] {
        let file = File::create(mount.join(name)).unwrap();
        file.write_all_at(&marked(seed), 0).unwrap();
        file.sync_all().unwrap();
    }
    drop(mount);
    cell.stop_server();
    cell.assert_clean();
    // 64 bytes out of the middle: they lie together however the file is cut into extents.
    let piece = &marked(2)[500_000..500_064];
    let (path, at) =
        find_bytes(&cell.data(), piece).expect("file bytes lie in segments as they are");
    flip(&path, at + 13);
    cell.expect_damage();

    let output = cell.fsck();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(1),
        "fsck of a damaged store: {}",
        text(&output)
    );
    assert!(
        told.contains("damaged-one"),
        "fsck does not name the file: {told}"
    );

    cell.start_server();
    let mount = cell.mount();
    let file = File::open(mount.join("damaged-one")).unwrap();
    let mut bytes = vec![0; 64];
    let read = file
        .read_at(&mut bytes, 500_000)
        .map_err(|e| e.raw_os_error());
    let eio = rustix::io::Errno::IO.raw_os_error();
    assert_eq!(read, Err(Some(eio)), "a damaged block is EIO");
    let whole = fs::read(mount.join("damaged-one")).map(|bytes| bytes.len());
    assert!(
        whole.is_err(),
        "the whole file was read although a block is damaged: {whole:?}"
    );
    let named = eventually(Duration::from_secs(5), || {
        cell.server_log().contains("damaged-one")
    });
    assert!(
        named,
        "the server's log does not name the file\n{}",
        cell.server_log()
    );
    assert!(fs::read(mount.join("sound")).unwrap() == marked(1));
    assert!(fs::read(mount.join("sound-too")).unwrap() == marked(3));
    // Written anew it is sound again.
    drop(file);
    fs::write(mount.join("damaged-one"), marked(4)).unwrap();
    assert!(fs::read(mount.join("damaged-one")).unwrap() == marked(4));
}

/// Breaks every page of the index in which these bytes are: it says that it has more entries than
/// fit. (A page of redb begins with its kind, 1 of a leaf, and the number of its entries.)
fn break_pages(index: &Path, with: &[u8]) -> usize {
    const PAGE: usize = 4096;
    let mut bytes = fs::read(index).unwrap();
    let has = |page: &[u8]| page[0] == 1 && page.windows(with.len()).any(|part| part == with);
    let mut broken = 0;
    for page in bytes.chunks_exact_mut(PAGE) {
        if has(page) {
            page[2..4].copy_from_slice(&[0xff, 0x7f]);
            broken += 1;
        }
    }
    fs::write(index, bytes).unwrap();
    broken
}

/// Reads all files; how many were read and how many refused as damaged.
fn read_names(mount: &Mount, directories: usize) -> (usize, usize) {
    let eio = Some(rustix::io::Errno::IO.raw_os_error());
    let (mut good, mut bad) = (0, 0);
    for number in 0..directories {
        for file in 0..50 {
            let path = mount.join(&format!("dir-{number}/name-{number}-{file}"));
            match fs::read(&path) {
                Ok(content) => good += usize::from(content == b"content"),
                Err(error) if error.raw_os_error() == eio => bad += 1,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }
    (good, bad)
}

#[test]
fn a_damaged_page_of_the_index_is_an_error_at_most_and_the_index_is_made_again() {
    if !real_system("index-page") {
        return;
    }
    let Some(mut cell) = Cell::start("index-page") else {
        return;
    };
    let mount = cell.mount();
    let directories = 40;
    for number in 0..directories {
        let dir = mount.join(&format!("dir-{number}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..50 {
            fs::write(dir.join(format!("name-{number}-{file}")), b"content").unwrap();
        }
    }
    drop(mount);
    cell.stop_server();
    let index = cell.data().join("index.redb");
    assert!(break_pages(&index, b"name-7-25") > 0, "it is nowhere");

    cell.start_server();
    let mount = cell.mount();
    let (good, bad) = read_names(&mount, directories);
    assert!(good > 10 * bad, "{good} good, {bad} damaged");
    assert!(cell.server_runs(), "the server has ended");
    // Changes go on beside it.
    fs::write(mount.join("new"), b"new").unwrap();
    File::open(mount.join("new")).unwrap().sync_all().unwrap();
    let again = eventually(Duration::from_secs(60), || {
        cell.server_log().contains("the index has been made again")
    });
    assert!(again, "{}", cell.server_log());
    assert_eq!(read_names(&mount, directories), (50 * directories, 0));
    assert_eq!(fs::read(mount.join("new")).unwrap(), b"new");
    assert!(cell.data().join("index.damaged").exists());
}

#[test]
fn half_an_index_and_a_missing_lock_are_no_matter() {
    if !real_system("half-index") {
        return;
    }
    let Some(mut cell) = Cell::start("half-index") else {
        return;
    };
    fs::write(cell.mount().join("file"), marked(5)).unwrap();
    cell.stop_server();
    let (data, index) = (cell.data(), cell.data().join("index.redb"));
    fs::remove_file(data.join("lock")).unwrap();
    let file = File::options().write(true).open(&index).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let checked = text(&cell.fsck());
    assert!(
        checked.contains("--repair") && checked.contains("DAMAGED"),
        "{checked}"
    );
    cell.start_server();
    assert!(fs::read(cell.mount().join("file")).unwrap() == marked(5));
    assert!(cell.server_log().contains("made again from the log"));
}

#[test]
fn a_lost_piece_of_a_file_is_found_beside_the_work_and_noted_by_a_repair() {
    if !real_system("repair") {
        return;
    }
    let Some(mut cell) = Cell::start("repair") else {
        return;
    };
    let mount = cell.mount();
    for (name, seed) in [("sound", 1), ("damaged-one", 2)] {
        let file = File::create(mount.join(name)).unwrap();
        file.write_all_at(&marked(seed), 0).unwrap();
        file.sync_all().unwrap();
    }
    drop(mount);
    cell.stop_server();
    let piece = &marked(2)[500_000..500_064];
    let (path, at) = find_bytes(&cell.data(), piece).expect("it lies in a segment");
    flip(&path, at + 13);
    cell.expect_damage();

    cell.start_server();
    let beside = text(&run(&mut ariel(&["fsck", cell.addr()])));
    assert!(
        beside.contains("damaged-one") && beside.contains("exit status: 1"),
        "{beside}"
    );
    let data = cell.data();
    let data = data.to_str().unwrap();
    let refused = text(&run(&mut ariel(&["fsck", "--repair", data])));
    assert!(refused.contains("exit status: 2"), "{refused}");
    cell.stop_server();
    let plan = text(&run(&mut ariel(&["fsck", "--repair", "--dry-run", data])));
    assert!(
        plan.contains("would be done") && plan.contains("damaged-one"),
        "{plan}"
    );
    assert!(text(&cell.fsck()).contains("exit status: 1"), "it did");
    let done = text(&run(&mut ariel(&["fsck", "--repair", data])));
    assert!(
        done.contains("exit status: 0") && done.contains("are lost"),
        "{done}"
    );
    assert!(text(&cell.fsck()).contains("exit status: 0"));

    cell.start_server();
    let mount = cell.mount();
    let file = File::open(mount.join("damaged-one")).unwrap();
    let mut bytes = vec![0; 64];
    let read = file.read_at(&mut bytes, 500_000);
    let eio = rustix::io::Errno::IO.raw_os_error();
    assert_eq!(read.map_err(|e| e.raw_os_error()), Err(Some(eio)));
    assert!(fs::read(mount.join("sound")).unwrap() == marked(1));
    let beside = text(&run(&mut ariel(&["fsck", cell.addr()])));
    assert!(beside.contains("exit status: 0"), "{beside}");
}

#[test]
fn a_store_is_its_owners_alone() {
    if !real_system("modes") {
        return;
    }
    let Some(cell) = Cell::start("modes") else {
        return;
    };
    fs::write(cell.mount().join("file"), b"secret").unwrap();
    let open_to_others = |path: &Path| fs::metadata(path).unwrap().mode() & 0o077;
    assert_eq!(open_to_others(&cell.data()), 0);
    for entry in fs::read_dir(cell.data()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(open_to_others(&path), 0, "{}", path.display());
    }
}
