//! Files that belong to their owner alone.

use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes a directory that nobody else may look into, if it is not there.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Writes a file, or leaves the old one as it is.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&aside)?;
    // It may have been there, with other permissions.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    // Root may keep what belongs to the user of a service.
    if let (true, Some(dir)) = (geteuid().is_root(), path.parent()) {
        let owner = fs::metadata(dir)?;
        std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // The reason is told; this is only tidying up.
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Reads a file that nobody else may read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let found = fs::metadata(path)?;
    if found.mode() & 0o077 != 0 {
        let what = format!("others may read it: chmod 600 {}", path.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, what));
    }
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_is_its_owners_alone_and_others_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        make_dir(&deep).unwrap();
        make_dir(&deep).unwrap();
        assert_eq!(deep.metadata().unwrap().mode() & 0o777, 0o700);
        let path = deep.join("secret");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("chmod 600"));
    }
}
