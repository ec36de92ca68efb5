//! The work of fsx, through two mounts in turn: random operations on one file, each by one of them,
//! and after each what it shows is compared with memory. Nothing is under way at the same time, so
//! there is only one right answer.
//!
//! Each mount has the file open for reading and for writing, and opens it again now and then: so
//! the file is cached, write-shared, and cached again by the other one.

use crate::harness::process::{run_within, shell_ok, system_python};
use crate::harness::{Pair, Random, has_program, say};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The longest that the file gets.
const LEN: u64 = 128 << 10;
/// The longest of one operation.
const PIECE: u64 = 20 << 10;

/// Maps the file and reads it, or stores into it.
const MAPPER: &str = "
import mmap, os, sys
path, at, arg = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fd = os.open(path, os.O_RDWR)
m = mmap.mmap(fd, os.fstat(fd).st_size)
if arg.isdigit():
    sys.stdout.write(m[at:at + int(arg)].hex())
else:
    data = bytes.fromhex(arg[1:])
    m[at:at + len(data)] = data
    m.flush()
";

/// The file as one mount has it.
struct Side {
    path: PathBuf,
    reader: Option<File>,
    writer: Option<File>,
}

impl Side {
    fn new(dir: &Path) -> Self {
        let path = dir.join("file");
        Self {
            path,
            reader: None,
            writer: None,
        }
    }

    fn reader(&mut self) -> &File {
        let path = &self.path;
        self.reader.get_or_insert_with(|| File::open(path).unwrap())
    }

    fn writer(&mut self) -> &File {
        let path = &self.path;
        let open = || File::options().read(true).write(true).open(path).unwrap();
        self.writer.get_or_insert_with(open)
    }

    fn map(&self, at: u64, arg: &str) -> String {
        let mut command = Command::new(system_python());
        command.args(["-c", MAPPER]).arg(&self.path);
        command.args([&at.to_string(), arg]);
        let output = run_within(&mut command, Duration::from_secs(30));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The file as it must be, and what is drawn.
struct Run {
    random: Random,
    model: Vec<u8>,
}

impl Run {
    /// A place in the file and a length that end within `LEN`.
    fn span(&mut self) -> (u64, u64) {
        let at = self.random.below(LEN);
        let len = 1 + self.random.below(PIECE.min(LEN - at));
        // Often of whole pages, where the kernel does other things than within them.
        if self.random.below(3) == 0 {
            return (
                at / 4096 * 4096,
                len.next_multiple_of(4096).min(LEN - at / 4096 * 4096),
            );
        }
        (at, len)
    }

    fn grow(&mut self, end: u64) {
        if self.model.len() < end as usize {
            self.model.resize(end as usize, 0);
        }
    }

    fn within(&self, at: u64, len: u64) -> std::ops::Range<usize> {
        let size = self.model.len();
        size.min(at as usize)..size.min((at + len) as usize)
    }

    /// Does one operation of one mount; returns its description.
    fn step(&mut self, side: &mut Side) -> String {
        let (at, len) = self.span();
        match self.random.below(100) {
            0..30 => self.read(side, (at, len)),
            30..52 => {
                let data = self.random.bytes(len as usize);
                side.writer().write_all_at(&data, at).unwrap();
                self.grow(at + len);
                self.model[at as usize..(at + len) as usize].copy_from_slice(&data);
                format!("write {len} at {at}")
            }
            52..62 => {
                let size = self.random.below(LEN);
                side.writer().set_len(size).unwrap();
                self.model.resize(size as usize, 0);
                format!("truncate to {size}")
            }
            62..72 => self.allocate(side, (at, len)),
            72..80 => self.copy(side, (at, len)),
            80..90 => {
                let size = std::fs::metadata(&side.path).unwrap().len();
                assert_eq!(size, self.model.len() as u64, "stat shows another size");
                "stat".to_owned()
            }
            90..94 => {
                side.reader = None;
                "close what reads".to_owned()
            }
            94..98 => {
                side.writer = None;
                "close what writes".to_owned()
            }
            98 => {
                side.writer().sync_all().unwrap();
                "fsync".to_owned()
            }
            _ => self.map(side, (at, len)),
        }
    }

    fn read(&mut self, side: &mut Side, (at, len): (u64, u64)) -> String {
        let mut bytes = vec![0; len as usize];
        let file = match self.random.below(3) {
            0 => side.writer(),
            _ => side.reader(),
        };
        let mut done = 0;
        while let n @ 1.. = file.read_at(&mut bytes[done..], at + done as u64).unwrap() {
            done += n;
        }
        let expected = &self.model[self.within(at, len)];
        let differs = (0..).zip(bytes[..done].iter().zip(expected));
        let first = differs.clone().find(|(_, (a, b))| a != b);
        assert_eq!(
            done,
            expected.len(),
            "a read of {len} at {at} ends elsewhere"
        );
        assert!(
            first.is_none(),
            "a read of {len} at {at} differs: {first:?}"
        );
        format!("read {len} at {at}")
    }

    fn allocate(&mut self, side: &mut Side, (at, len): (u64, u64)) -> String {
        let keep = FallocateFlags::KEEP_SIZE;
        let flags = [
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | keep,
            FallocateFlags::empty(),
            keep,
        ];
        let flags = flags[self.random.below(5) as usize];
        fallocate(side.writer(), flags, at, len).unwrap();
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let range = self.within(at, len);
            self.model[range].fill(0);
        }
        if !flags.contains(keep) {
            self.grow(at + len);
        }
        format!("fallocate {flags:?} {len} at {at}")
    }

    fn copy(&mut self, side: &mut Side, (at, len): (u64, u64)) -> String {
        let to = self.random.below(LEN);
        // Not beyond the end: it moves when a copy makes the file longer.
        let len = self.within(at, len.min(LEN - to)).len() as u64;
        if at < to + len && to < at + len {
            return "nothing: a copy onto itself".to_owned();
        }
        // The kernel goes by the size that it knows of the source: as programs do, ask for it.
        assert_eq!(
            side.writer().metadata().unwrap().len(),
            self.model.len() as u64
        );
        let (mut from, mut onto, mut left) = (at, to, len as usize);
        loop {
            let file = side.writer();
            let n = copy_file_range(file, Some(&mut from), file, Some(&mut onto), left).unwrap();
            left -= n;
            if n == 0 || left == 0 {
                break;
            }
        }
        let bytes = self.model[self.within(at, len)].to_vec();
        if !bytes.is_empty() {
            let end = to as usize + bytes.len();
            self.grow(end as u64);
            self.model[to as usize..end].copy_from_slice(&bytes);
        }
        format!("copy {len} from {at} to {to}")
    }

    fn map(&mut self, side: &Side, (at, len): (u64, u64)) -> String {
        let range = self.within(at, len);
        if range.is_empty() {
            return "nothing to map".to_owned();
        }
        let len = range.len().min(2000);
        let range = range.start..range.start + len;
        if self.random.below(2) == 0 {
            let shown = side.map(at, &len.to_string());
            let expected = hex(&self.model[range]);
            assert!(shown == expected, "a mapping shows other bytes");
            return format!("map and load {len} at {at}");
        }
        let data = self.random.bytes(len);
        side.map(at, &format!("x{}", hex(&data)));
        self.model[range].copy_from_slice(&data);
        format!("map and store {len} at {at}")
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Does so many operations; a failure says the seed, and what was done last.
fn exercise(pair: &Pair, seed: u64, operations: u64) {
    shell_ok(pair.a.path(), "rm -f file && touch file");
    let mut sides = [Side::new(pair.a.path()), Side::new(pair.b.path())];
    let (random, model) = (Random(seed), Vec::new());
    let mut run = Run { random, model };
    let mut last: Vec<String> = Vec::new();
    for number in 0..operations {
        let which = run.random.below(2) as usize;
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step(&mut sides[which])));
        match done {
            Ok(what) => {
                last.push(format!("{number}: {} {what}", ["A", "B"][which]));
                if last.len() > 30 {
                    last.remove(0);
                }
            }
            Err(panic) => {
                say(&format!(
                    "seed {seed}, operation {number} of {}:",
                    ["A", "B"][which]
                ));
                last.iter().for_each(|line| say(line));
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn what_two_mounts_do_in_turn_is_what_one_disk_would_do() {
    if !has_program("two-mounts-fsx", "python3") {
        return;
    }
    let Some(pair) = Pair::start("two-mounts-fsx") else {
        return;
    };
    let long = std::env::var_os("ARIEL_LONG").is_some();
    let (seeds, operations) = if long { (5, 10_000) } else { (2, 1500) };
    for seed in 1..=seeds {
        exercise(&pair, seed, operations);
    }
}
