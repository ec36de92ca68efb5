//! Damaged bytes, on the wire and on the disk: reported, never believed, and harmless to others.

use crate::harness::{Cell, Random, eventually, real_system, text};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt;
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
        let told = eventually(Duration::from_secs(5), || cell.server_log().contains(&ours));
        assert!(
            told,
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
