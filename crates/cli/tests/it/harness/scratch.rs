//! A directory of one test, removed at its end, and never through a mount that is still there.

use fuse::mount::Control;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The directory; `ARIEL_IT_KEEP=1` keeps it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Others may pass through it, since some tests act as another user.
    pub fn new(name: &str) -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let leaf = format!("ariel-it-{}-{count}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(leaf);
        std::fs::create_dir(&dir).unwrap();
        set_mode(&dir, 0o755);
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a directory in it.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        set_mode(&dir, 0o755);
        dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mounted = mounts().iter().any(|m| m.point.starts_with(&self.0));
        if mounted || std::env::var_os("ARIEL_IT_KEEP").is_some() {
            super::say(&format!("kept: {}", self.0.display()));
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sets permission bits.
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// One line of the mount table.
pub struct MountLine {
    pub point: PathBuf,
    /// The minor device number: the id of the kernel's FUSE connection.
    pub minor: String,
}

/// The mount table of this process. Reading it asks no file system anything.
pub fn mounts() -> Vec<MountLine> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let minor = fields.next()?.split(':').nth(1)?.to_owned();
        let point = PathBuf::from(fields.nth(1)?.replace("\\040", " "));
        Some(MountLine { point, minor })
    };
    table.lines().filter_map(line).collect()
}

/// Is something mounted exactly here?
pub fn is_mounted(point: &Path) -> bool {
    mounts().iter().any(|m| m.point == point)
}

/// Takes a mount away whatever it answers: its connection is aborted, so that programs that wait
/// for it get an error, and the mount point is freed.
pub fn force_unmount(point: &Path) {
    for line in mounts().iter().filter(|m| m.point == point) {
        // By the time that it is opened, the number may be another test's.
        let control = line.minor.parse().map(Control::open);
        let same = mounts()
            .iter()
            .any(|m| (&m.point, &m.minor) == (&line.point, &line.minor));
        if let (true, Ok(Ok(control))) = (same, control) {
            let _ = control.abort();
        }
        let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
    }
}
