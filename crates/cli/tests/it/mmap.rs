//! One mount maps a file, the other writes it. A mapping is held by a small Python program, since
//! mapping memory is not safe Rust.

use crate::exact::ROUNDS;
use crate::harness::process::{Proc, system_python};
use crate::harness::{Pair, Random, has_program};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Answers `r OFFSET LEN` with the mapping's bytes in hex, `w OFFSET HEX` by storing and msync.
const MAPPER: &str = r#"
import mmap, os, sys
path, how = sys.argv[1], sys.argv[2]
writes = how == "shared-write"
fd = os.open(path, os.O_RDWR if writes else os.O_RDONLY)
flags = mmap.MAP_PRIVATE if how == "private" else mmap.MAP_SHARED
prot = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
m = mmap.mmap(fd, os.fstat(fd).st_size, flags=flags, prot=prot)
print("ready", flush=True)
for line in sys.stdin:
    what, at, arg = line.split()
    at = int(at)
    if what == "r":
        print(m[at:at + int(arg)].hex(), flush=True)
    else:
        data = bytes.fromhex(arg)
        m[at:at + len(data)] = data
        m.flush()
        print("stored", flush=True)
"#;

const LEN: usize = 64 * 1024;

struct Mapping {
    _python: Proc,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Mapping {
    fn new(pair: &Pair, path: &Path, how: &str) -> Self {
        let mut command = Command::new(system_python());
        command.args(["-c", MAPPER]).arg(path).arg(how);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = Proc::spawn(&mut command, Some(pair.cell.watch())).unwrap();
        let input = python.child().stdin.take().unwrap();
        let output = BufReader::new(python.child().stdout.take().unwrap());
        let mut mapping = Self {
            _python: python,
            input,
            output,
        };
        assert_eq!(mapping.line(), "ready");
        mapping
    }

    /// When the mapping hangs, the watchdog ends the program and this fails.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(
            !line.is_empty(),
            "the program that holds the mapping has ended"
        );
        line.trim_end().to_owned()
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.line()
    }

    fn read(&mut self, at: usize, len: usize) -> String {
        self.ask(&format!("r {at} {len}"))
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        assert_eq!(self.ask(&format!("w {at} {}", hex(bytes))), "stored");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_mapping_shows_what_the_other_mount_writes() {
    if !has_program("mmap-read", "python3") {
        return;
    }
    let Some(pair) = Pair::start("mmap-read") else {
        return;
    };
    fs::write(pair.a.join("file"), vec![0; LEN]).unwrap();
    let mut mapping = Mapping::new(&pair, &pair.b.join("file"), "shared");
    let held = File::options()
        .write(true)
        .open(pair.a.join("file"))
        .unwrap();
    let mut random = Random(1);
    for round in 0..ROUNDS {
        let at = random.below(LEN as u64 - 300) as usize;
        let bytes = random.bytes(300);
        if round % 2 == 0 {
            let file = File::options()
                .write(true)
                .open(pair.a.join("file"))
                .unwrap();
            file.write_all_at(&bytes, at as u64).unwrap();
        } else {
            held.write_all_at(&bytes, at as u64).unwrap();
        }
        assert_eq!(mapping.read(at, 300), hex(&bytes), "round {round}: at {at}");
    }
}

#[test]
fn a_private_mapping_shows_what_was_there_when_it_was_made() {
    if !has_program("mmap-private", "python3") {
        return;
    }
    let Some(pair) = Pair::start("mmap-private") else {
        return;
    };
    let mut random = Random(2);
    for round in 0..20 {
        let bytes = random.bytes(LEN);
        fs::write(pair.a.join("file"), &bytes).unwrap();
        let mut mapping = Mapping::new(&pair, &pair.b.join("file"), "private");
        for at in [0, 4000, LEN - 200] {
            assert_eq!(
                mapping.read(at, 200),
                hex(&bytes[at..at + 200]),
                "round {round}"
            );
        }
    }
}

#[test]
fn what_is_stored_in_a_shared_mapping_is_seen_after_msync() {
    if !has_program("mmap-write", "python3") {
        return;
    }
    let Some(pair) = Pair::start("mmap-write") else {
        return;
    };
    fs::write(pair.a.join("file"), vec![0; LEN]).unwrap();
    let mut mapping = Mapping::new(&pair, &pair.b.join("file"), "shared-write");
    let held = File::open(pair.a.join("file")).unwrap();
    let mut random = Random(3);
    for round in 0..100 {
        let at = random.below(LEN as u64 - 300) as usize;
        let bytes = random.bytes(300);
        mapping.store(at, &bytes);
        let mut seen = vec![0; 300];
        let by_name = File::open(pair.a.join("file")).unwrap();
        for file in [&held, &by_name] {
            file.read_exact_at(&mut seen, at as u64).unwrap();
            assert_eq!(hex(&seen), hex(&bytes), "round {round}: at {at}");
        }
    }
}
