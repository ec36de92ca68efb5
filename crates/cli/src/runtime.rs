//! The directory of control sockets and of logs that have no better place.
//!
//! Guarantees: the directory belongs to this user and nobody else may look into it, so every
//! process that answers at a socket in it, or asks there, is this user's or root's.

use anyhow::{Context, anyhow, bail};
use rustix::process::geteuid;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory of the server that `ariel-server.service` runs.
const OF_SERVICE: &str = "/run/ariel-server";

/// Where such a directory may be, the best place first.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let user = geteuid();
    let mut places = Vec::new();
    // A service manager has made one for this service alone.
    if let Some(dir) = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from)
        && dir.is_absolute()
    {
        places.push(dir);
    }
    if user.is_root() {
        places.push(PathBuf::from("/run/ariel"));
    } else if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && dir.is_absolute()
    {
        places.push(dir.join("ariel"));
    }
    places.push(PathBuf::from(format!("/tmp/ariel-{}", user.as_raw())));
    places
}

/// Where a process may be that this user asks: root also asks the server that systemd runs as a
/// user of its own.
pub(crate) fn asked() -> Vec<PathBuf> {
    let mut places = candidates();
    if geteuid().is_root() {
        places.push(PathBuf::from(OF_SERVICE));
    }
    places
}

/// Where users reach root's daemons, each for himself.
pub(crate) const OF_USERS: &str = "/run/ariel-users";

/// Where a daemon may be that takes logins.
pub(crate) fn users_dirs() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(OF_USERS)];
    places.extend(candidates());
    places
}

/// Where this process takes logins: root's for all users, and anybody else's for himself.
pub(crate) fn users_dir() -> anyhow::Result<PathBuf> {
    if !geteuid().is_root() {
        return dir();
    }
    let place = PathBuf::from(OF_USERS);
    let failed = || format!("{OF_USERS} cannot be made");
    match DirBuilder::new().create(&place) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(failed);
        }
        _ => {}
    }
    let found = place.symlink_metadata().with_context(failed)?;
    if !found.is_dir() || found.uid() != 0 || found.mode() & 0o022 != 0 {
        bail!("{OF_USERS} is not a directory that root alone may change: remove it");
    }
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&place, open).with_context(failed)?;
    Ok(place)
}

/// The directory, made if it is not there.
pub(crate) fn dir() -> anyhow::Result<PathBuf> {
    let mut last = anyhow!("no place for control sockets");
    for place in candidates() {
        match make(&place) {
            Ok(()) => return Ok(place),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn make(dir: &Path) -> anyhow::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{} cannot be made", dir.display()));
        }
        _ => {}
    }
    // Not followed: a link could lead to where others may write.
    let found = dir
        .symlink_metadata()
        .with_context(|| dir.display().to_string())?;
    let ours = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    if !ours {
        bail!(
            "{} is not a directory of this user alone: remove it, or chmod 700 it",
            dir.display()
        );
    }
    Ok(())
}

/// Name of the files of a server.
pub(crate) fn of_server(port: u16) -> String {
    format!("server-{port}")
}

/// The names of the control sockets of servers, of those at which this user may ask.
pub(crate) fn servers() -> Vec<String> {
    let mut names = Vec::new();
    for dir in asked() {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.extend(files.filter_map(|file| {
            let name = file.strip_suffix(".sock")?;
            name.starts_with("server-").then(|| name.to_owned())
        }));
    }
    names
}

/// Name of the files of a mount: paths may be longer than the name of a socket.
pub(crate) fn of_mount(mount_point: &Path) -> String {
    format!("mount-{:016x}", hash(mount_point.as_os_str().as_bytes()))
}

/// FNV-1a: the same in every version of the program, which a hasher of the standard library
/// does not promise.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_open_to_others_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("ariel");
        make(&dir).unwrap();
        make(&dir).unwrap();
        assert_eq!(dir.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make(&dir).is_err());
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(make(&link).is_err());
    }

    #[test]
    fn a_socket_of_any_mount_point_has_a_name_that_fits() {
        let long = PathBuf::from(format!("/{}", "x".repeat(4000)));
        assert!(of_mount(&long).len() < 40);
        assert_ne!(of_mount(Path::new("/a")), of_mount(Path::new("/b")));
    }
}
