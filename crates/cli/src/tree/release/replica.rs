//! The replica of a volume at one server, and how releases come into it: each in its turn, and
//! parts of one snapshot alone into each.

use super::super::connect::connect_within;
use super::super::parts::{Range, Unstable, each_part, when_free};
use super::super::progress::Progress;
use super::TrustArgs;
use super::source::Source;
use cell::Replicas;
use files::Tree;
use net::Addresses;
use std::collections::{BTreeMap, BTreeSet};
use stream::Mark;
use wire::{
    Blob, Dump, Name, Receiving, Refusal, StoreOf, StreamHead, VolumeInfo, VolumeOp, VolumeState,
    replica_name, volume_numbers,
};

/// The replica.
pub(super) struct Replica {
    tree: Tree,
    name: Name,
    /// Its number.
    number: u32,
    published: u32,
    /// Releases that readers do not see, and how much of them has come.
    halves: BTreeMap<u32, Receiving>,
    unstable: Unstable,
    sent_bytes: u64,
}

/// Has all of it come?
fn is_whole(half: &Receiving) -> bool {
    let mark = Mark::of(&half.after);
    mark.is_some_and(|mark| half.chunks > 0 && mark.after.0.is_empty())
}

/// Are all parts of a half those of this snapshot?
fn is_of(half: &Receiving, head: &StreamHead) -> bool {
    let last = Mark::of(&half.after);
    half.head == *head && (half.chunks == 0 || last.is_some_and(|last| last.is_carried(head)))
}

/// A failure, with advice.
fn told(refusal: Refusal) -> String {
    match refusal {
        Refusal::NoAnswer | Refusal::SessionLost => {
            super::not_reached("it does not answer any more")
        }
        Refusal::NoSpace => {
            "its disk is full: make room there, and release again, which goes on".to_owned()
        }
        Refusal::Disk => "its disk failed: see the server's log".to_owned(),
        Refusal::NotPermitted => "only root may release a volume".to_owned(),
        Refusal::Invalid | Refusal::NotFound => {
            "what it has of the release does not fit: another command, or somebody, has given it \
             up meanwhile. Release again"
                .to_owned()
        }
        Refusal::Busy => {
            "it is still removing what was given up before: release again in a minute".to_owned()
        }
        other => format!("it refuses the release: {other:?}"),
    }
}

fn reason(error: files::Error) -> String {
    error.reason()
}

impl Replica {
    /// A session with the replica's store, and what is there.
    pub(super) fn connect(
        trust: &TrustArgs,
        server: &Addresses,
        record: &Replicas,
    ) -> Result<Replica, String> {
        let store = StoreOf::Number(record.first_volume).text();
        let store = String::from_utf8_lossy(&store).into_owned();
        let tree = connect_within(trust, server, store).map_err(|error| error.to_string())?;
        let mut replica = Replica {
            tree,
            name: replica_name(record.name.as_bytes()).map_err(told)?,
            number: record.replica(),
            published: 0,
            halves: BTreeMap::new(),
            unstable: Unstable::default(),
            sent_bytes: 0,
        };
        replica.look()?;
        Ok(replica)
    }

    /// The release that readers see; 0: none.
    pub(super) fn published(&self) -> u32 {
        self.published
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// The number of a release.
    fn numbered(&self, release: u32) -> Result<u32, String> {
        volume_numbers::release(self.number, release).ok_or_else(|| told(Refusal::NoSpace))
    }

    /// Learns what is there.
    fn look(&mut self) -> Result<(), String> {
        let all = self.tree.volumes().map_err(reason)?;
        let release = |info: &VolumeInfo| {
            let release = info.id.checked_sub(self.number)?;
            (release > 0).then_some((release, info.clone()))
        };
        let releases: Vec<(u32, VolumeInfo)> = all.iter().filter_map(release).collect();
        let present = releases
            .iter()
            .filter(|(_, info)| info.state == VolumeState::Present);
        self.published = present.map(|(release, _)| *release).max().unwrap_or(0);
        let half = |(release, info): (u32, VolumeInfo)| Some((release, info.provenance.receiving?));
        self.halves = releases.into_iter().filter_map(half).collect();
        Ok(())
    }

    /// Releases that are made and whole are shown to readers.
    pub(super) fn publish_up_to(&mut self, made: u32) -> Result<(), String> {
        while self.published < made {
            let next = self.published + 1;
            if !self.halves.get(&next).is_some_and(is_whole) {
                break;
            }
            self.publish(next)?;
        }
        Ok(())
    }

    /// Readers see the release from now on, also after a loss of power.
    pub(super) fn publish(&mut self, release: u32) -> Result<(), String> {
        let volume = self.numbered(release)?;
        let done = self.tree.try_volume(VolumeOp::Publish { volume });
        done.map_err(told)?;
        self.tree.sync("/").map_err(reason)?;
        self.halves.remove(&release);
        self.published = release;
        Ok(())
    }

    /// Nothing of a release is here that was not made.
    pub(super) fn give_up(&mut self, release: u32) -> Result<(), String> {
        if self.halves.contains_key(&release) {
            self.discard(release)?;
        }
        Ok(())
    }

    fn discard(&mut self, release: u32) -> Result<(), String> {
        let volume = self.numbered(release)?;
        match when_free(&self.tree, &VolumeOp::Discard { volume }) {
            // Somebody else has given it up.
            Ok(_) | Err(Refusal::NotFound) => {
                self.halves.remove(&release);
                Ok(())
            }
            Err(refusal) => Err(told(refusal)),
        }
    }

    /// All of this release is here, and was not shown to readers; every one before it is shown.
    pub(super) fn prepare(
        &mut self,
        release: u32,
        (source, kept): (&Source, &BTreeSet<u32>),
        progress: &Progress,
    ) -> Result<(), String> {
        for one in self.published + 1..=release {
            let missing = [one - 1, one]
                .into_iter()
                .find(|it| *it > 0 && !kept.contains(it));
            if let Some(missing) = missing {
                return Err(lacks(one, missing, source.name()));
            }
            self.receive(one, source, progress)?;
            if one < release {
                self.publish(one)?;
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        release: u32,
        source: &Source,
        progress: &Progress,
    ) -> Result<(), String> {
        let of = source.release(release).map_err(told)?;
        let since = match release {
            1 => None,
            _ => Some(source.release(release - 1).map_err(told)?),
        };
        let range = (&of, since.as_ref());
        let dump = |after| source.tree().dump(range, after, false);
        let first = dump(None).map_err(|refusal| not_sent(&of, refusal))?;
        let head = first.head.clone();
        let half = self.begin(release, &head)?;
        let mark = Mark::of(&half.after).filter(|_| half.chunks > 0);
        let first = match mark {
            Some(mark) if mark.after.0.is_empty() => return Ok(()),
            Some(mark) => dump(Some(mark.after)).map_err(|refusal| not_sent(&of, refusal))?,
            None => first,
        };
        if head.since.is_none() {
            progress.found(head.bytes);
        }
        let volume = self.numbered(release)?;
        self.parts((volume, half.chunks), (source, range, first), progress)?;
        self.tree.sync("/").map_err(reason)?;
        self.look()?;
        let has_all = |half: &Receiving| is_whole(half) && is_of(half, &head);
        match self.halves.get(&release).is_some_and(has_all) {
            true => Ok(()),
            false => Err(told(Refusal::Invalid)),
        }
    }

    /// Begins to receive a snapshot, or goes on.
    fn begin(&mut self, release: u32, head: &StreamHead) -> Result<Receiving, String> {
        if self
            .halves
            .get(&release)
            .is_some_and(|half| !is_of(half, head))
        {
            self.discard(release)?;
        }
        let op = VolumeOp::ReceiveRelease {
            name: self.name.clone(),
            head: Box::new(head.clone()),
            release,
        };
        let info = when_free(&self.tree, &op).map_err(told)?;
        let half = info.and_then(|info| info.provenance.receiving);
        let half = half.filter(|half| is_of(half, head));
        half.ok_or_else(|| told(Refusal::Invalid))
    }

    /// Carries the parts from this one on.
    fn parts(
        &mut self,
        (volume, mut number): (u32, u64),
        (source, range, first): (&Source, Range<'_>, Dump),
        progress: &Progress,
    ) -> Result<(), String> {
        let head = first.head.clone();
        let refused = |refusal| not_sent(range.0, refusal);
        each_part(source.tree(), range, first, refused, |dump: Dump| {
            if dump.head != head {
                return Err(told(Refusal::Invalid));
            }
            let bytes = dump.chunk.bytes.0.len() as u64;
            let after: Blob = dump.next.unwrap_or_default();
            let kept = Mark::carried(&head, after).kept();
            let done = self.tree.restore((volume, number), kept, dump.chunk);
            done.map_err(told)?;
            number += 1;
            self.sent_bytes += bytes;
            progress.moved(bytes);
            self.unstable.sent(&self.tree, bytes).map_err(reason)
        })
    }

    /// Older releases go, but for what readers have open of them.
    pub(super) fn drop_below(&mut self, below: u32) -> Result<(), String> {
        let volume = self.number;
        let dropped = self
            .tree
            .try_volume(VolumeOp::DropReleases { volume, below });
        dropped.map(drop).map_err(|refusal| {
            format!(
                "readers see the release, and older ones take room still: {}",
                told(refusal)
            )
        })
    }

    pub(super) fn close(self) {
        // All that counts is on the server's disk.
        let _ = self.tree.close();
    }
}

fn lacks(release: u32, missing: u32, volume: &Name) -> String {
    format!(
        "it lacks release {release}, which it cannot get: {volume} has no snapshot \
         release-{missing} any more. Take the replica away, with `ariel volume replicate ADDR \
         {volume} --not-on SERVER`, and make it anew"
    )
}

/// The volume's server does not give what is to be sent.
fn not_sent(release: &Name, refusal: Refusal) -> String {
    let why = match refusal {
        Refusal::NotFound | Refusal::Stale | Refusal::CrossVolume => {
            "the snapshot, or the one before it, is not there any more: release again"
        }
        Refusal::NotPermitted => "only root may send all that a volume has",
        Refusal::Damaged => {
            "the stored bytes are damaged: the log of the volume's server says of which file, and \
             `ariel fsck` what else is"
        }
        Refusal::NoAnswer | Refusal::SessionLost => {
            "the volume's server does not answer any more: see whether it runs, with `ariel cell \
             servers`, and release again, which goes on"
        }
        other => return format!("{release} cannot be sent: {other:?}"),
    };
    format!("{release} cannot be sent: {why}")
}
