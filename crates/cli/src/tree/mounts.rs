//! `ariel volume mount` and `ariel volume unmount`: volumes at paths of the tree.
//!
//! Guarantees: when a command ends with 0 all machines see the change, and it is on the server's
//! disk.

use super::connect::connect_in;
use super::volume::end;
use crate::args::{MountPointArgs, UnmountArgs};
use crate::failure::Failure;
use crate::servers;
use files::{MountError, Tree};
use std::path::Path;
use std::process::ExitCode;
use wire::{Refusal, VolumeState};

pub(super) fn mount(args: &MountPointArgs) -> Result<ExitCode, Failure> {
    let (at, path) = (&args.at, &args.path);
    let tree = connect_in(&at.trust, &at.server, args.volume.as_ref())?;
    let failed = |error: MountError| told(path, not_made(&error), &error);
    let made = match tree.mount_volume(&args.name, path) {
        Err(MountError::Refused(Refusal::NotFound)) => elsewhere(args).and_then(|volume| {
            let none = MountError::Refused(Refusal::NotFound);
            let volume = volume.ok_or_else(|| failed(none))?;
            tree.mount_elsewhere(volume, path).map_err(failed)
        }),
        made => made.map_err(failed),
    };
    over(tree, made)
}

/// The number of the volume, where another server of the cell has it.
fn elsewhere(args: &MountPointArgs) -> Result<Option<u32>, Failure> {
    let (trust, server) = (&args.at.trust, &args.at.server);
    let found = servers::volume_elsewhere("volume mount", server, (trust, &args.name))?;
    let present = found.filter(|(_, info)| info.state == VolumeState::Present);
    Ok(present.map(|(_, info)| info.id))
}

pub(super) fn unmount(args: &UnmountArgs) -> Result<ExitCode, Failure> {
    let (at, path) = (&args.at, &args.path);
    let tree = connect_in(&at.trust, &at.server, args.volume.as_ref())?;
    let removed = tree.unmount_volume(path);
    over(
        tree,
        removed.map_err(|error| told(path, not_removed(&error), &error)),
    )
}

/// Gives back what the way to the path has brought, also if it was in vain: others would wait for
/// it until the lease ends.
fn over(tree: Tree, done: Result<(), Failure>) -> Result<ExitCode, Failure> {
    let ended = end(tree);
    done?;
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// The cure for a mount point that could not be made.
fn not_made(error: &MountError) -> Option<&'static str> {
    let MountError::Refused(refusal) = error else {
        return None;
    };
    match refusal {
        Refusal::NotFound => Some(
            "there is no such volume: see `ariel volume list`, with `--all` those of all servers",
        ),
        Refusal::Exists => Some("something has this name: a mount point takes one that is free"),
        Refusal::NotPermitted | Refusal::Denied => {
            Some("only root may do this, or who owns both the directory and the volume's root")
        }
        _ => None,
    }
}

/// The cure for one that could not be removed.
fn not_removed(error: &MountError) -> Option<&'static str> {
    let MountError::Refused(refusal) = error else {
        return None;
    };
    match refusal {
        Refusal::Invalid => Some("it is no mount point: rm and rmdir remove what it is"),
        Refusal::NotPermitted | Refusal::Denied => Some(
            "only root may do this, the owner of the directory, or who has made the mount point",
        ),
        _ => None,
    }
}

fn told(path: &Path, cure: Option<&str>, error: &MountError) -> Failure {
    let reason = cure.map_or_else(|| error.reason(path), str::to_owned);
    Failure::of(&path.display().to_string(), reason)
}
