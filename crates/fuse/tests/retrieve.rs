//! The price of fetching pages back from the kernel (`FUSE_NOTIFY_RETRIEVE`), beside that of a copy
//! of one's own: why a client that lends keeps such a copy (docs/cooperation.md). The test says the
//! times, and holds what the decision rests on: the kernel gives what it has, and forgets without a
//! word.
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_fuse::abi::{
    Attr, EntryOut, InHeader, InitOut, MAJOR, MINOR, Opcode, OpenOut, OutHeader, fopen,
    init as flags, notify,
};
use ariel_fuse::mount::{self, can_mount};
use ariel_fuse::{MountOptions, Mounted};
use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const PIECE: usize = 1 << 20;
const PIECES: u64 = 64;
const NODE: u64 = 2;
const HEADER: usize = size_of::<InHeader>();
/// Of `fuse_notify_retrieve_in`, which stands before the pages: offset and length lie in it.
const RETRIEVED: usize = 40;

fn byte(offset: u64) -> u8 {
    (offset >> 12) as u8
}

/// A mount with one file, served by hand.
struct OneFile {
    device: File,
    point: PathBuf,
    request: Vec<u8>,
}

impl OneFile {
    fn new(dir: &std::path::Path) -> Self {
        let Mounted {
            fd, mount_point, ..
        } = mount::mount(dir, &MountOptions::default()).unwrap();
        Self {
            device: File::from(fd),
            point: mount_point,
            request: vec![0; 2 * PIECE],
        }
    }

    fn answer(&mut self, unique: u64, body: &[u8]) {
        self.say(unique, 0, body);
    }

    fn say(&mut self, unique: u64, error: i32, body: &[u8]) {
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        let header = OutHeader { len, error, unique };
        self.device
            .write_all(&[header.as_bytes(), body].concat())
            .unwrap();
    }

    /// Serves a request; the pages that the kernel was asked for, if it is their coming.
    fn serve(&mut self) -> Option<(u64, Vec<u8>)> {
        let len = self.device.read(&mut self.request).unwrap();
        let header = InHeader::read_from_bytes(&self.request[..HEADER]).unwrap();
        let body = self.request[HEADER..len].to_vec();
        let word = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
        let attr = Attr {
            ino: header.nodeid,
            size: PIECES * PIECE as u64,
            mode: if header.nodeid == 1 {
                0o040_755
            } else {
                0o100_644
            },
            nlink: 1,
            ..Attr::default()
        };
        let of = |opcode: Opcode| header.opcode == opcode.0;
        match () {
            () if of(Opcode::NOTIFY_REPLY) => {
                return Some((word(8), body[RETRIEVED..].to_vec()));
            }
            () if of(Opcode::INIT) => self.answer(header.unique, init().as_bytes()),
            () if of(Opcode::LOOKUP) => {
                let entry = EntryOut {
                    nodeid: NODE,
                    entry_valid: 1000,
                    attr_valid: 1000,
                    attr: Attr {
                        ino: NODE,
                        mode: 0o100_644,
                        ..attr
                    },
                    ..EntryOut::default()
                };
                self.answer(header.unique, entry.as_bytes());
            }
            () if of(Opcode::OPEN) => {
                let open = OpenOut {
                    fh: 0,
                    // The pages stay, and its end waits for nobody.
                    open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH,
                    backing_id: 0,
                };
                self.answer(header.unique, open.as_bytes());
            }
            () if of(Opcode::READ) => {
                let size = u32::from_ne_bytes(body[16..20].try_into().unwrap());
                let bytes: Vec<u8> = (word(8)..word(8) + u64::from(size)).map(byte).collect();
                self.answer(header.unique, &bytes);
            }
            () if of(Opcode::GETATTR) => {
                let out = ariel_fuse::abi::AttrOut {
                    attr_valid: 1000,
                    attr_valid_nsec: 0,
                    padding: 0,
                    attr,
                };
                self.answer(header.unique, out.as_bytes());
            }
            () if of(Opcode::FORGET) || of(Opcode::BATCH_FORGET) => {}
            () => self.say(header.unique, -rustix::io::Errno::NOSYS.raw_os_error(), &[]),
        }
        None
    }

    /// Serves requests until a program has ended.
    fn serve_for<T: Send + 'static>(&mut self, program: thread::JoinHandle<T>) -> T {
        let poll = |device: &File| {
            let mut fds = [rustix::event::PollFd::new(
                device,
                rustix::event::PollFlags::IN,
            )];
            let time = Duration::from_millis(10).try_into().unwrap();
            rustix::event::poll(&mut fds, Some(&time)).unwrap() > 0
        };
        while !program.is_finished() {
            if poll(&self.device) {
                self.serve();
            }
        }
        program.join().unwrap()
    }

    /// Has the kernel give these bytes of the file, as far as it has them.
    fn retrieve(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let body = [1, NODE, offset, u64::from(len)]
            .map(u64::to_ne_bytes)
            .concat();
        self.say(0, notify::RETRIEVE, &body);
        loop {
            if let Some((at, bytes)) = self.serve() {
                assert_eq!(at, offset);
                return bytes;
            }
        }
    }
}

impl Drop for OneFile {
    fn drop(&mut self) {
        let _ = mount::unmount(&self.point);
    }
}

fn init() -> InitOut {
    InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: PIECE as u32,
        flags: flags::MAX_PAGES as u32,
        max_background: 16,
        congestion_threshold: 12,
        max_write: PIECE as u32,
        time_gran: 1,
        max_pages: 256,
        ..InitOut::default()
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn pages_come_back_from_the_kernel_as_long_as_it_has_them() {
    if !can_mount() {
        println!("SKIPPED: a real mount needs root and /dev/fuse");
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut served = OneFile::new(dir.path());
    let path = served.point.join("file");
    let reading = thread::spawn(move || {
        let mut file = File::open(path).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, PIECES * PIECE as u64);
        file
    });
    let file = served.serve_for(reading);
    let kept = File::from(memfd_create("kept", MemfdFlags::empty()).unwrap());
    for len in [4096, PIECE as u32] {
        let (mut fetched, mut copied) = (Vec::new(), Vec::new());
        let mut bytes = vec![0; len as usize];
        for number in 0..PIECES {
            let offset = number * PIECE as u64;
            let began = Instant::now();
            let found = served.retrieve(offset, len);
            let took = began.elapsed();
            assert!((offset..).zip(&found).all(|(at, found)| byte(at) == *found));
            if found.len() < len as usize {
                continue; // the kernel has not all of it
            }
            fetched.push(took);
            kept.write_all_at(&found, offset).unwrap();
            let began = Instant::now();
            kept.read_exact_at(&mut bytes, offset).unwrap();
            copied.push(began.elapsed());
        }
        let whole = fetched.len();
        assert!(whole > 0, "the kernel has nothing of {len} bytes whole");
        println!(
            "{len} bytes: {:?} from the kernel, {:?} from an own copy; {whole} of {PIECES} whole",
            median(fetched),
            median(copied)
        );
    }
    // The kernel gives pages up, and says nothing.
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert_eq!(served.retrieve(0, 4096), b"");
    drop(file);
}
