//! The volume that is released: its snapshots, one for each release that a server may still need,
//! and the cell's record of its replicas.

use super::super::connect::connect_within;
use super::feeder::{Feeder, RELEASE, name_of};
use super::{TrustArgs, WHAT};
use crate::args::ReleaseArgs;
use crate::failure::{FAILED, Failure};
use crate::servers::{Running, ask_stores, volume_elsewhere};
use crate::signals;
use cell::{AskError, Replicas, StoreAnswer, StoreQuestion};
use files::Tree;
use net::Addresses;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use wire::{Name, Refusal, VolumeInfo, VolumeOp, VolumeState, split_volume_name};

/// The volume.
pub(super) struct Source {
    tree: Arc<Tree>,
    name: Name,
    number: u32,
    addresses: Addresses,
    credentials: PathBuf,
}

/// The number of the release that a snapshot of this name is of. Users give no such names.
pub(in crate::tree) fn release_number(snapshot: &[u8]) -> Option<u32> {
    let release = std::str::from_utf8(snapshot).ok()?.strip_prefix(RELEASE)?;
    let number = release.parse().ok()?;
    (release == u32::to_string(&number)).then_some(number)
}

/// The release that a snapshot is of.
fn release_of(volume: &Name, snapshot: &Name) -> Option<u32> {
    let (of, snapshot) = split_volume_name(snapshot);
    release_number(snapshot?).filter(|_| of == volume.as_bytes())
}

impl Source {
    pub(super) fn find(args: &ReleaseArgs, running: &Running) -> Result<Source, Failure> {
        let name = &args.name;
        let of = name.to_string();
        let Some(credentials) = running.trust.credentials.clone() else {
            let text = "volumes have replicas on the servers of a cell only: docs/servers.md";
            return Err(Failure::of(&of, text));
        };
        let trust = TrustArgs {
            credentials: Some(credentials.clone()),
            insecure_loopback: false,
        };
        let found = volume_elsewhere(WHAT, &args.at.server, (&trust, name))?;
        let present = found.filter(|(_, info)| info.state == VolumeState::Present);
        let (addresses, info) = present.ok_or_else(|| {
            Failure::of(
                &of,
                "there is no such volume: see `ariel volume list --all`",
            )
        })?;
        let tree = connect_within(&trust, &addresses, of.clone());
        Ok(Source {
            tree: Arc::new(tree.map_err(|error| Failure::of(&of, error))?),
            name: name.clone(),
            number: info.id,
            addresses,
            credentials,
        })
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// The store, with the releases that it has.
    pub(super) fn feeder(&self) -> Result<Feeder, Failure> {
        Ok(Feeder::new(
            &self.tree,
            (None, &self.name),
            self.releases()?,
        ))
    }

    pub(super) fn failure(&self, text: impl Display) -> Failure {
        Failure::of(&self.name.to_string(), text)
    }

    /// When a signal ends the command, it gives its claim back: the next one waits for nothing.
    pub(super) fn ends_in_order(&self) -> Result<(), Failure> {
        let tree = Arc::clone(&self.tree);
        let end = move || {
            // The server may be the reason why somebody wants it to end.
            let _ = tree.leave();
            std::process::exit(i32::from(FAILED));
        };
        signals::on_end(end).map_err(|error| Failure::of(WHAT, error))
    }

    /// From now on this command alone makes releases of the volume. `waits`: another one is to be
    /// waited for.
    pub(super) fn claim(&self, waits: impl FnOnce()) -> Result<(), Failure> {
        let failed = |error: files::Error| self.failure(error.reason());
        if self.tree.claim(false).map_err(failed)? {
            return Ok(());
        }
        waits();
        self.tree.claim(true).map(drop).map_err(failed)
    }

    /// Does it still?
    pub(super) fn is_claimed(&self) -> Result<(), Failure> {
        match self.tree.claim(false) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failure("another release of it has begun: this one is not made")),
            Err(error) => Err(self.failure(error.reason())),
        }
    }

    fn ask(&self, question: StoreQuestion) -> Result<StoreAnswer, Failure> {
        ask_stores(WHAT, (&self.addresses, &self.credentials), question)
    }

    /// A release begins: the replicas as the cell's record says.
    pub(super) fn begin(&self) -> Result<Replicas, Failure> {
        let volume = self.number;
        self.record(StoreQuestion::BeginRelease { volume })
    }

    fn record(&self, question: StoreQuestion) -> Result<Replicas, Failure> {
        match self.ask(question)? {
            StoreAnswer::Replicas(Some(record)) => Ok(record),
            StoreAnswer::Replicas(None) => Err(self.failure(format!(
                "no server has a replica of it: `ariel volume replicate ADDR {} --on SERVER` makes \
                 one",
                self.name
            ))),
            _ => Err(Failure::of(WHAT, AskError::Strange)),
        }
    }

    /// The release is made: the record says so.
    pub(super) fn make(&self, release: u32, turn: u64) -> Result<(), Failure> {
        let volume = self.number;
        let question = StoreQuestion::Release {
            volume,
            release,
            turn,
        };
        let Err(error) = self.ask(question) else {
            return Ok(());
        };
        // The answer may be lost alone.
        match self.record(StoreQuestion::Replicas { volume }) {
            Ok(record) if record.is_released(release, turn) => Ok(()),
            _ => Err(self.failure(format!(
                "{error}. Release {release} is with the servers, and as far as is known it is not \
                 made: the same command makes it, or another one"
            ))),
        }
    }

    /// The volume's snapshots of releases, each with its release. A command that was killed may
    /// have left some that are deleted, and not purged.
    fn snapshots(&self) -> Result<Vec<(u32, VolumeInfo)>, Failure> {
        let all = self.tree.volumes();
        let all = all.map_err(|error| self.failure(error.reason()))?;
        let release = |info: VolumeInfo| {
            let ours = info.snapshot_of == Some(self.number);
            Some((release_of(&self.name, &info.name).filter(|_| ours)?, info))
        };
        Ok(all.into_iter().filter_map(release).collect())
    }

    /// The releases of which it has snapshots.
    pub(super) fn releases(&self) -> Result<BTreeSet<u32>, Failure> {
        let all = self.snapshots()?.into_iter();
        let there = all.filter(|(_, info)| info.state == VolumeState::Present);
        Ok(there.map(|(release, _)| release).collect())
    }

    /// The volume as it is now is this release, and on the server's disk.
    pub(super) fn freeze(&self, release: u32) -> Result<(), Failure> {
        let name = Name::new(format!("{RELEASE}{release}").as_bytes());
        let name = name.map_err(|error| self.failure(error))?;
        let of = self.name.clone();
        let made = self.tree.try_volume(VolumeOp::Snapshot { of, name });
        made.map_err(|refusal| self.told(refusal))?;
        let synced = self.tree.sync("/");
        synced.map_err(|error| self.failure(error.reason()))
    }

    /// A snapshot is of no use any more.
    pub(super) fn remove(&self, release: u32) -> Result<(), Failure> {
        self.remove_all(|one| one == release)
    }

    /// The snapshots of older releases are of no use any more.
    pub(super) fn remove_below(&self, release: u32) -> Result<(), Failure> {
        self.remove_all(|one| one < release)
    }

    fn remove_all(&self, is_useless: impl Fn(u32) -> bool) -> Result<(), Failure> {
        let told = |refusal| self.told(refusal);
        for (release, info) in self.snapshots()? {
            if !is_useless(release) {
                continue;
            }
            if info.state == VolumeState::Present {
                let of = name_of(&self.name, release).map_err(told)?;
                let deleted = self.tree.try_volume(VolumeOp::Delete { of });
                deleted.map_err(told)?;
            }
            let volume = info.id;
            let purged = self.tree.try_volume(VolumeOp::Purge { volume });
            purged.map_err(told)?;
        }
        Ok(())
    }

    /// The error for a refusal, with advice.
    fn told(&self, refusal: Refusal) -> Failure {
        let text = match refusal {
            Refusal::NotPermitted | Refusal::Denied | Refusal::ReadOnly => {
                "releases are for root of a machine whose root is root: see `ariel machine grant \
                 --root`, or use an administrator's credential (`--credentials DIR`)"
                    .to_owned()
            }
            Refusal::NoSpace => {
                "its server's disk is full, or has as many volumes and snapshots as it may have: \
                 delete and purge some"
                    .to_owned()
            }
            Refusal::NoAnswer | Refusal::SessionLost => {
                "its server does not answer any more: see whether it runs, with `ariel cell \
                 servers`, and release again"
                    .to_owned()
            }
            other => format!("its server refuses a snapshot for the release: {other:?}"),
        };
        self.failure(text)
    }

    pub(super) fn close(self) -> Result<(), Failure> {
        let name = self.name.to_string();
        self.tree.leave().map_err(|error| Failure::of(&name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_known_by_its_name() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let of = |snapshot: &str| release_of(&name("data"), &name(snapshot));
        assert_eq!(of("data@release-7"), Some(7));
        for other in [
            "data@monday",
            "data@release-",
            "data@release-07",
            "data@release-7a",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(of("data2@release-7"), None);
    }
}
