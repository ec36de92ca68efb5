//! A disk with one arm: each read waits until the one before it has ended, and then for as long as
//! the arm takes. A file system in a file, which a file system of this process shows to the kernel.

use super::process::shell_ok;
use super::scratch::Scratch;
use fuse::abi::{Attr, AttrOut, EntryOut, OpenOut, ROOT_ID, fopen};
use fuse::{Errno, FOREVER, Handler, MountOptions, Operation, Options, Reply, Request, Session};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// The only file, and its node id.
const NAME: &str = "image";
const NODE: u64 = ROOT_ID + 1;

/// The disk.
pub struct SlowDisk {
    dir: PathBuf,
    shown: PathBuf,
    arm: Arc<Arm>,
    _session: Session,
}

/// The state of the arm.
#[derive(Default)]
struct Arm {
    takes_us: AtomicU64,
    reads: AtomicU64,
}

enum Job {
    Read(u64, u32, Reply),
    Write(u64, Vec<u8>, Reply),
}

/// The handler of the requests for the file.
struct Shown {
    len: u64,
    jobs: Sender<Job>,
}

impl Shown {
    fn attr(&self, node: u64) -> Attr {
        let (mode, size) = match node {
            ROOT_ID => (0o040_755, 0),
            _ => (0o100_600, self.len),
        };
        Attr {
            ino: node,
            size,
            mode,
            nlink: 1,
            blksize: 4096,
            ..Attr::default()
        }
    }
}

impl Handler for Shown {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.nodeid;
        match request.operation {
            Operation::Lookup { name } if name == NAME.as_bytes() => {
                reply.entry(&EntryOut::new(NODE, 0, self.attr(NODE), FOREVER, FOREVER));
            }
            Operation::Lookup { .. } => drop(reply.entry(&EntryOut::absent(FOREVER))),
            Operation::Getattr { .. } => {
                reply.attr(&AttrOut::new(self.attr(node), FOREVER));
            }
            // Nothing of it is cached: the arm moves for each read.
            Operation::Open(_) => drop(reply.open(&OpenOut::new(0, fopen::DIRECT_IO))),
            Operation::Read(read) => {
                let job = Job::Read(read.offset, read.size, reply);
                self.jobs.send(job).unwrap();
            }
            Operation::Write(write) => {
                let job = Job::Write(write.offset, write.data.to_vec(), reply);
                self.jobs.send(job).unwrap();
            }
            Operation::Flush { .. } | Operation::Release(_) | Operation::Fsync { .. } => {
                reply.ok();
            }
            Operation::Forget(_) | Operation::BatchForget(_) | Operation::Interrupt { .. } => {}
            _ => drop(reply.error(Errno::NOSYS)),
        }
    }
}

/// Does one job after the other.
fn work(file: &File, jobs: Receiver<Job>, arm: &Arm) {
    for job in jobs {
        match job {
            Job::Read(offset, size, reply) => {
                arm.reads.fetch_add(1, Ordering::Relaxed);
                // The time that the arm takes: that is what the disk is for.
                thread::sleep(Duration::from_micros(arm.takes_us.load(Ordering::Relaxed)));
                let mut bytes = vec![0; size as usize];
                match file.read_exact_at(&mut bytes, offset) {
                    Ok(()) => reply.bytes(&bytes),
                    Err(_) => reply.error(Errno::IO),
                };
            }
            Job::Write(offset, bytes, reply) => {
                match file.write_all_at(&bytes, offset) {
                    Ok(()) => reply.written(bytes.len() as u32),
                    Err(_) => reply.error(Errno::IO),
                };
            }
        }
    }
}

impl SlowDisk {
    /// A disk of this size, as fast as memory at first.
    pub fn new(scratch: &Scratch, mib: u64) -> Self {
        let file = scratch.join("slow");
        let line = format!("truncate -s {mib}M slow && mkfs.ext4 -q -F slow");
        shell_ok(scratch.path(), &line);
        let (dir, shown) = (scratch.dir("disk"), scratch.dir("shown"));
        let mounted = fuse::mount::mount(&shown, &MountOptions::default()).unwrap();
        let options = Options {
            threads: 1,
            ..Options::default()
        };
        let session = Session::new(mounted.fd, options).unwrap();
        let (jobs, to_do) = mpsc::channel();
        let (file, arm) = (
            File::options().read(true).write(true).open(file),
            Arm::default(),
        );
        let (file, arm) = (file.unwrap(), Arc::new(arm));
        let of_thread = Arc::clone(&arm);
        thread::spawn(move || work(&file, to_do, &of_thread));
        let handler = Shown {
            len: mib << 20,
            jobs,
        };
        session.serve(Arc::new(handler)).unwrap();
        let disk = Self {
            dir,
            shown,
            arm,
            _session: session,
        };
        shell_ok(scratch.path(), &format!("mount -o loop shown/{NAME} disk"));
        disk
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// From now on the arm takes so long for each read.
    pub fn takes(&self, time: Duration) {
        let micros = time.as_micros() as u64;
        self.arm.takes_us.store(micros, Ordering::Relaxed);
    }

    /// How many reads there were.
    pub fn reads(&self) -> u64 {
        self.arm.reads.load(Ordering::Relaxed)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.takes(Duration::ZERO);
        // The second one is in use until the kernel has let the loop device go.
        for dir in [&self.dir, &self.shown] {
            let _ = unmount(dir, UnmountFlags::DETACH);
        }
    }
}
