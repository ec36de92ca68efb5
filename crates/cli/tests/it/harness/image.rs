//! A disk that loses its power on command: a file system in a file, whose log of the last seconds
//! is thrown away. Bytes that were not synced are lost, as with the machine.

use super::process::shell_ok;
use super::scratch::Scratch;
use std::path::{Path, PathBuf};

/// `EXT4_IOC_SHUTDOWN`, and the flag by which its log is not written out first.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys\n\
    dir = os.open(sys.argv[1], os.O_RDONLY)\n\
    fcntl.ioctl(dir, 0x8004587d, struct.pack('I', 2))\n";

/// The file system, and where it is mounted.
pub struct Image {
    dir: PathBuf,
    home: PathBuf,
}

impl Image {
    /// One of this size; `None` where none can be mounted.
    pub fn new(scratch: &Scratch, mib: u64) -> Self {
        let (dir, home) = (scratch.dir("disk"), scratch.path().to_owned());
        shell_ok(
            &home,
            &format!("truncate -s {mib}M image && mkfs.ext4 -q -F image"),
        );
        let image = Self { dir, home };
        image.mount();
        image
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn mount(&self) {
        shell_ok(&self.home, "mount -o loop image disk");
    }

    /// The power fails: nothing more reaches the disk.
    pub fn fail(&self) {
        let script = self.home.join("shut_down.py");
        std::fs::write(&script, SHUT_DOWN).unwrap();
        shell_ok(&self.home, "python3 shut_down.py disk");
    }

    /// The power is back; nobody uses the file system.
    pub fn come_back(&self) {
        shell_ok(&self.home, "umount disk");
        self.mount();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.dir, flags);
    }
}
