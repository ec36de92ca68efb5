//! The replica of a volume at one server, and how releases come into it: each in its turn, and
//! parts of one snapshot alone into each.

use super::super::connect::connect_within;
use super::super::parts::{Unstable, each_part, when_free};
use super::super::progress::Progress;
use super::TrustArgs;
use super::feeder::{Feeder, Feeders, Names};
use cell::Replicas;
use files::Tree;
use net::Addresses;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stream::Mark;
use wire::{
    Blob, Dump, Name, Receiving, Refusal, StoreOf, StreamHead, VolumeInfo, VolumeOp, VolumeState,
    replica_name, volume_numbers,
};

/// The replica.
pub(super) struct Replica {
    tree: Arc<Tree>,
    name: Name,
    /// Its number.
    number: u32,
    /// The releases that readers may see, the newest by the replica's name.
    releases: BTreeSet<u32>,
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

/// Are all parts of a half those of this snapshot, from this sender?
fn is_of(half: &Receiving, (head, sender): (&StreamHead, &str)) -> bool {
    let last = Mark::of(&half.after);
    let is_carried = |last: Mark| last.is_carried((head, sender));
    half.head == *head && (half.chunks == 0 || last.is_some_and(is_carried))
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
        Refusal::OlderServer => {
            "it runs an older Ariel, which has no replicas: install there what runs here".to_owned()
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
            tree: Arc::new(tree),
            name: replica_name(record.name.as_bytes()).map_err(told)?,
            number: record.replica(),
            releases: BTreeSet::new(),
            halves: BTreeMap::new(),
            unstable: Unstable::default(),
            sent_bytes: 0,
        };
        replica.look()?;
        Ok(replica)
    }

    /// The release that readers see; 0: none.
    pub(super) fn published(&self) -> u32 {
        self.releases.last().copied().unwrap_or(0)
    }

    /// The replica as others are fed from it.
    pub(super) fn feeder(&self, server: &str) -> Feeder {
        let releases = self.releases.clone();
        Feeder::new(&self.tree, (Some(server), &self.name), releases)
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
        self.releases = present.map(|(release, _)| *release).collect();
        let half = |(release, info): (u32, VolumeInfo)| Some((release, info.provenance.receiving?));
        self.halves = releases.into_iter().filter_map(half).collect();
        Ok(())
    }

    /// Releases that are made and whole are shown to readers.
    pub(super) fn publish_up_to(&mut self, made: u32) -> Result<(), String> {
        let is_whole = |(release, half): (&u32, &Receiving)| {
            (*release <= made && is_whole(half)).then_some(*release)
        };
        // There is one at most.
        let whole = self.halves.iter().find_map(is_whole);
        whole.map_or(Ok(()), |release| self.publish(release))
    }

    /// Readers see the release from now on, also after a loss of power.
    pub(super) fn publish(&mut self, release: u32) -> Result<(), String> {
        let volume = self.numbered(release)?;
        match self.tree.try_volume(VolumeOp::Publish { volume }) {
            Ok(_) => {}
            // The server may have been first: it does the same when the release is made.
            Err(Refusal::NotFound) => {
                self.look()?;
                if !self.releases.contains(&release) {
                    return Err(told(Refusal::NotFound));
                }
            }
            Err(refusal) => return Err(told(refusal)),
        }
        self.tree.sync("/").map_err(reason)?;
        self.halves.remove(&release);
        self.releases.insert(release);
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
            Ok(_) => {
                self.halves.remove(&release);
                Ok(())
            }
            // Somebody else has given it up, or published it.
            Err(Refusal::NotFound) => {
                self.look()?;
                match self.releases.contains(&release) {
                    true => Err(told(Refusal::NotFound)),
                    false => Ok(()),
                }
            }
            Err(refusal) => Err(told(refusal)),
        }
    }

    /// All of this release is here, and was not shown to readers; every one before it is shown.
    pub(super) fn prepare(
        &mut self,
        release: u32,
        feeders: &Feeders,
        progress: &Progress,
    ) -> Result<(), String> {
        while self.published() < release {
            let (next, feeder, is_whole) = match self.published() {
                0 => feeders.first(release)?,
                shown => (shown + 1, feeders.changes(shown + 1)?, false),
            };
            self.receive((next, is_whole), feeder, progress)?;
            if next == release {
                break;
            }
            self.publish(next)?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        (release, is_whole_volume): (u32, bool),
        feeder: &Feeder,
        progress: &Progress,
    ) -> Result<(), String> {
        let names = feeder.names(release, is_whole_volume)?;
        let not_sent = |refusal| feeder.not_sent(release, refusal);
        let first = feeder.dump(&names, None).map_err(not_sent)?;
        let (head, sender) = (first.head.clone(), feeder.sender());
        let of = (&head, sender.as_str());
        let half = self.begin(release, of)?;
        let mark = Mark::of(&half.after).filter(|_| half.chunks > 0);
        let first = match mark {
            Some(mark) if mark.after.0.is_empty() => return Ok(()),
            Some(mark) => feeder.dump(&names, Some(mark.after)).map_err(not_sent)?,
            None => first,
        };
        if is_whole_volume {
            progress.found(head.bytes);
        }
        self.parts((release, half.chunks), (feeder, &names), first, progress)?;
        self.tree.sync("/").map_err(reason)?;
        self.look()?;
        let has_all = |half: &Receiving| is_whole(half) && is_of(half, of);
        match self.halves.get(&release).is_some_and(has_all) {
            true => Ok(()),
            false => Err(told(Refusal::Invalid)),
        }
    }

    /// Begins to receive a snapshot, or goes on; all else that is half received is given up.
    fn begin(&mut self, release: u32, of: (&StreamHead, &str)) -> Result<Receiving, String> {
        let other = |(one, half): (&u32, &Receiving)| {
            let is_meant = *one == release && is_of(half, of);
            (!is_meant).then_some(*one)
        };
        let others: Vec<u32> = self.halves.iter().filter_map(other).collect();
        for one in others {
            self.discard(one)?;
        }
        let op = VolumeOp::ReceiveRelease {
            name: self.name.clone(),
            head: Box::new(of.0.clone()),
            release,
        };
        let info = when_free(&self.tree, &op).map_err(told)?;
        let half = info.and_then(|info| info.provenance.receiving);
        let half = half.filter(|half| is_of(half, of));
        half.ok_or_else(|| told(Refusal::Invalid))
    }

    /// Carries the parts from this one on.
    fn parts(
        &mut self,
        (release, mut part): (u32, u64),
        (feeder, names): (&Feeder, &Names),
        first: Dump,
        progress: &Progress,
    ) -> Result<(), String> {
        let volume = self.numbered(release)?;
        let (head, sender) = (first.head.clone(), feeder.sender());
        let not_sent = |refusal| feeder.not_sent(release, refusal);
        each_part(
            &feeder.tree,
            names.range(),
            first,
            not_sent,
            |dump: Dump| {
                if dump.head != head {
                    return Err(told(Refusal::Invalid));
                }
                let bytes = dump.chunk.bytes.0.len() as u64;
                let after: Blob = dump.next.unwrap_or_default();
                let kept = Mark::carried((&head, &sender), after).kept();
                let done = self.tree.restore((volume, part), kept, dump.chunk);
                done.map_err(told)?;
                part += 1;
                self.sent_bytes += bytes;
                progress.moved(bytes);
                self.unstable.sent(&self.tree, bytes).map_err(reason)
            },
        )
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
        let _ = self.tree.leave();
    }
}
