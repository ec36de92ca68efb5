//! The stores from which releases come to a replica: that of the volume, and those of the other
//! replicas, which say of each object the release that has changed it last.

use super::super::parts::Range;
use files::Tree;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::{Blob, Dump, Name, Refusal, snapshot_name};

/// The name of a release, behind that of its volume.
pub(super) const RELEASE: &str = "release-";

/// One of them.
#[derive(Clone)]
pub(super) struct Feeder {
    pub(super) tree: Arc<Tree>,
    /// The server's name; none: it is the volume's own.
    server: Option<String>,
    /// The volume, or its replica.
    volume: Name,
    /// The releases of which it has snapshots.
    releases: BTreeSet<u32>,
}

/// A release, and the one before it, by their names.
pub(super) struct Names(pub(super) Name, pub(super) Option<Name>);

impl Names {
    pub(super) fn range(&self) -> Range<'_> {
        (&self.0, self.1.as_ref())
    }
}

/// The whole name of a release.
pub(super) fn name_of(volume: &Name, release: u32) -> Result<Name, Refusal> {
    let name = format!("{RELEASE}{release}");
    snapshot_name(volume.as_bytes(), name.as_bytes())
}

impl Feeder {
    pub(super) fn new(
        tree: &Arc<Tree>,
        (server, volume): (Option<&str>, &Name),
        releases: BTreeSet<u32>,
    ) -> Feeder {
        Feeder {
            tree: Arc::clone(tree),
            server: server.map(str::to_owned),
            volume: volume.clone(),
            releases,
        }
    }

    /// Is it another replica?
    pub(super) fn is_replica(&self) -> bool {
        self.server.is_some()
    }

    /// The newest release that it has.
    pub(super) fn newest(&self) -> Option<u32> {
        self.releases.last().copied()
    }

    /// Has it what changed from one release to the next one?
    pub(super) fn has_changes(&self, release: u32) -> bool {
        self.releases.contains(&release) && self.releases.contains(&(release - 1))
    }

    /// The store among all that send parts.
    pub(super) fn sender(&self) -> String {
        let server = self.server.as_deref().unwrap_or_default();
        format!("{server}:{}", self.volume)
    }

    /// The names of a release, and of the one since which it is sent.
    pub(super) fn names(&self, release: u32, is_whole: bool) -> Result<Names, String> {
        let name = |release| {
            name_of(&self.volume, release).map_err(|refusal| self.not_sent(release, refusal))
        };
        let since = (!is_whole).then(|| name(release - 1)).transpose()?;
        Ok(Names(name(release)?, since))
    }

    /// A part of it.
    pub(super) fn dump(&self, names: &Names, after: Option<Blob>) -> Result<Dump, Refusal> {
        self.tree.dump(names.range(), after, false)
    }

    /// The reason why a release is not sent.
    pub(super) fn not_sent(&self, release: u32, refusal: Refusal) -> String {
        let whose = match &self.server {
            None => "the volume's server".to_owned(),
            Some(server) => server.clone(),
        };
        let why = match refusal {
            Refusal::NotFound | Refusal::Stale | Refusal::CrossVolume => {
                "the snapshot, or the one before it, is not there any more: release again"
            }
            Refusal::NotPermitted => "only root may have all that a volume has",
            Refusal::Damaged => {
                "the stored bytes are damaged: its log says of which file, and `ariel fsck` what \
                 else is"
            }
            Refusal::NoAnswer | Refusal::SessionLost => {
                "it does not answer any more: see whether it runs, with `ariel cell servers`, and \
                 release again, which goes on"
            }
            other => {
                return format!("{whose} cannot send release {release}: {other:?}");
            }
        };
        format!("{whose} cannot send release {release}: {why}")
    }
}

/// All of them.
pub(super) struct Feeders {
    pub(super) all: Vec<Feeder>,
    /// No server has any release, so the first one may come from the volume whole. Were there one,
    /// files that did not change would be other objects here than there.
    pub(super) begins: bool,
}

impl Feeders {
    /// The first release that a new replica gets, whole, and from where, if this one is being made.
    pub(super) fn first(&self, release: u32) -> Result<(u32, &Feeder, bool), String> {
        let replicas = self.all.iter().filter(|feeder| feeder.is_replica());
        let fed = replicas.filter_map(|feeder| Some((feeder.newest()?, feeder)));
        let newest = fed.max_by_key(|(newest, _)| *newest);
        match newest {
            Some((newest, feeder)) => Ok((newest, feeder, true)),
            None if self.begins => {
                let mut own = self.all.iter().filter(|feeder| !feeder.is_replica());
                let own = own.next().ok_or("nobody has the release")?;
                Ok((release, own, true))
            }
            None => Err(
                "it has no release yet, and gets the first one from another server that has one, \
                 of which none is reached: see `ariel cell servers`, and release again"
                    .to_owned(),
            ),
        }
    }

    /// A store that has what changed from one release to this one.
    pub(super) fn changes(&self, release: u32) -> Result<&Feeder, String> {
        let mut all = self.all.iter();
        let found = all.find(|feeder| feeder.has_changes(release));
        found.ok_or_else(|| {
            format!(
                "it lacks release {release}, of which nobody has the snapshot any more, or not the \
                 one before it: make the replica anew, with `ariel volume replicate --not-on \
                 SERVER` and `--on SERVER`, and release again"
            )
        })
    }
}
