//! `ariel umount`: the daemon writes everything back and unmounts; a mount whose daemon is gone is
//! removed without it.

use crate::failure::Failure;
use crate::{control, paths, runtime};
use anyhow::bail;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn umount(dir: &Path) -> Result<ExitCode, Failure> {
    match unmount(dir) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::of("umount", format_args!("{error:#}"))),
    }
}

/// Unmounts, with everything written back where the daemon lives.
pub(crate) fn unmount(dir: &Path) -> anyhow::Result<()> {
    let Ok(point) = paths::mount_point(dir) else {
        return Ok(fuse::mount::unmount(dir).map(drop)?);
    };
    // Writing back takes as long as it takes: the daemon gives up when nothing moves.
    match control::ask(&runtime::of_mount(&point), "unmount", None)? {
        Some(answer) => match answer["error"].as_str() {
            None => Ok(()),
            Some(error) => bail!("{error}"),
        },
        None => {
            let entry = fuse::mount::find(&point)?;
            if entry.is_some_and(|entry| !entry.is_ariel()) {
                bail!("{} is no mount of Ariel: use umount(8)", point.display());
            }
            Ok(fuse::mount::unmount(&point).map(drop)?)
        }
    }
}
