//! `ariel umount`: the daemon writes everything back and unmounts; a mount whose daemon is gone is
//! removed without it. With `--force` it takes seconds whatever the server does, or the daemon.

use crate::failure::Failure;
use crate::{control, paths, runtime, show};
use anyhow::bail;
use fuse::MountError;
use fuse::mount::{Control, MountId};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long the daemon may take to end by force: it gives up what does not get on in 10 s.
const FORCE_TIME: Duration = Duration::from_secs(15);

pub(crate) fn umount(dir: &Path, force: bool) -> Result<ExitCode, Failure> {
    let done = if force { end(dir) } else { unmount(dir) };
    match done {
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

/// Ends a mount whatever is lost.
fn end(dir: &Path) -> anyhow::Result<()> {
    let not_mounted = || MountError::NotMounted(dir.to_owned());
    let point = paths::mount_point(dir).map_err(|_| not_mounted())?;
    let entry = fuse::mount::find(&point)?;
    if entry.as_ref().is_some_and(|entry| !entry.is_ariel()) {
        bail!("{} is no mount of Ariel: use umount(8)", point.display());
    }
    let name = runtime::of_mount(&point);
    let lost = match control::ask(&name, "force", Some(FORCE_TIME)) {
        Ok(Some(answer)) => match (answer["error"].as_str(), answer["lost"].as_str()) {
            (Some(error), _) => bail!("{error}"),
            (None, Some(lost)) => Some(lost.to_owned()),
            (None, None) => None,
        },
        // No daemon: nothing is known of what it had.
        Ok(None) if entry.is_none() => return Err(not_mounted().into()),
        Ok(None) => None,
        Err(error) => {
            control::kill(&name)?;
            let what = "what the server has not got is lost";
            Some(format!(
                "the daemon did not answer and was killed ({error:#}): {what}"
            ))
        }
    };
    let id = MountId::at(&point);
    if let Some(entry) = fuse::mount::find(&point)? {
        // Frees the programs that wait; without a control the unmount does so in time.
        let control = id.and_then(|id| Control::of_mount((id, &point), entry.connection));
        if let Ok(Some(control)) = control {
            let _ = control.abort();
        }
        fuse::mount::unmount(&point)?;
    }
    if let Some(lost) = lost {
        show::print(&lost);
    }
    Ok(())
}
