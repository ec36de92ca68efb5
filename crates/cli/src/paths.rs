//! Paths as people give them.
//!
//! Guarantees: nothing here asks the file system mounted at the path given: its daemon may be dead,
//! or be counted on not to be asked.

use crate::failure::Failure;
use anyhow::Context;
use std::env;
use std::path::{Path, PathBuf};

/// Links followed before it is called a loop; the kernel's own limit.
const LINKS_MAX: usize = 40;

/// The real path of a mount point: all but the last component are resolved by the kernel, the last
/// only if it is a symbolic link, which no mount point is.
pub(crate) fn mount_point(dir: &Path) -> std::io::Result<PathBuf> {
    let mut path = std::path::absolute(dir)?;
    for _ in 0..LINKS_MAX {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return path.canonicalize();
        };
        let real = parent.canonicalize()?.join(name);
        // Of a directory the kernel answers by itself that it is no link.
        match std::fs::read_link(&real) {
            Ok(target) => path = real.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(real),
        }
    }
    path.canonicalize()
}

/// Where `up` keeps its store.
pub(crate) fn default_data() -> Result<PathBuf, Failure> {
    match env::var_os("XDG_DATA_HOME").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() => Ok(dir.join("ariel")),
        _ => Ok(home()?.join(".local/share/ariel")),
    }
}

/// The user's own configuration.
pub(crate) fn config() -> Option<PathBuf> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    let dir = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(dir?.join("ariel"))
}

/// Where `up` mounts.
pub(crate) fn default_mount() -> Result<PathBuf, Failure> {
    Ok(home()?.join("ariel"))
}

fn home() -> Result<PathBuf, Failure> {
    let home = env::var_os("HOME").map(PathBuf::from);
    home.filter(|home| home.is_absolute()).ok_or_else(|| {
        Failure::of(
            "up",
            "the variable HOME is not set: give --data DIR and --mount DIR",
        )
    })
}

/// Said of a path of another file system.
pub(crate) const ON_NO_MOUNT: &str =
    "it is on no mount of Ariel: see them with `findmnt -t fuse.ariel`";

/// Where the mount with this minor number of its device is.
pub(crate) fn mounts_of(connection: u32) -> anyhow::Result<Vec<PathBuf>> {
    let all = fuse::mount::mounts().context("the mounts cannot be read")?;
    let its = all
        .into_iter()
        .filter(|entry| entry.connection == connection && entry.is_ariel());
    Ok(its.map(|entry| entry.mount_point).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn links_to_a_mount_point_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("point")).unwrap();
        std::os::unix::fs::symlink("point", real.join("link")).unwrap();
        std::os::unix::fs::symlink(real.join("link"), real.join("second")).unwrap();
        for name in ["point", "link", "second", "./point", "point/.."] {
            let expected = if name == "point/.." {
                real.clone()
            } else {
                real.join("point")
            };
            assert_eq!(mount_point(&real.join(name)).unwrap(), expected, "{name}");
        }
        assert!(mount_point(&real.join("none/point")).is_err());
        std::os::unix::fs::symlink("loop", real.join("loop")).unwrap();
        assert!(mount_point(&real.join("loop")).is_err());
    }
}
