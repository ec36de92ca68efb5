//! Replicas as readers are shown them: no release older than the one that was made last.
//!
//! Guarantees: whoever asks for the volumes of this server, as mounts and commands do that look for
//! a volume, is told of a replica when its records have been read after he asked, and the release
//! that was made last is published here; else the replica is left out. A release that was prepared
//! here is published when its record says that it is made, whoever prepared it. Where the database
//! does not answer within a second, what was known before counts: readers go on.

use super::Stores;
use super::replicas::Records;
use crate::releases::site;
use cell::Replicas;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{VolumeInfo, volume_numbers};

/// For so long at most an asker waits.
const KNOWN: Duration = Duration::from_secs(1);
/// How often the records are looked at when nobody asks, and while a release is prepared here.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_SOON: Duration = Duration::from_millis(200);
/// While a release is being published, an asker looks whether it is.
const PUBLISHED: Duration = Duration::from_millis(10);
/// After a failure of the database nobody waits for it, for so long.
const AWAY: Duration = Duration::from_secs(2);

/// Replicas that are here, and what is known of them.
#[derive(Default)]
pub(super) struct Sites {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ending: bool,
    /// The release that was made last, by the first volume of the replica's store.
    made: BTreeMap<u32, u32>,
    /// So often the records were asked for, and up to which time they have been read.
    asked: u64,
    read: u64,
    /// The database did not answer: nobody waits for it before then.
    away_until: Option<Instant>,
}

impl State {
    /// The stores whose release that was made last is not published.
    fn behind(&self, volumes: &[VolumeInfo]) -> Vec<u32> {
        let all = self.made.iter();
        let behind = all.filter(|(first, made)| site(volumes, **first).published < **made);
        behind.map(|(first_volume, _)| *first_volume).collect()
    }
}

impl Sites {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>, limit: Duration) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The thread that looks at the records is to end.
    pub(super) fn end(&self) {
        self.lock().ending = true;
        self.changed.notify_all();
    }
}

impl Stores {
    /// The record says that a replica is here.
    pub(super) fn note_record(&self, first_volume: u32, record: &Replicas) {
        let mut state = self.sites.lock();
        let made = state.made.entry(first_volume).or_default();
        // A record that was read earlier may be noted later.
        *made = record.release.max(*made);
    }

    /// No replica is in this store any more.
    pub(super) fn forget_record(&self, first_volume: u32) {
        self.sites.lock().made.remove(&first_volume);
    }

    /// The records are to be looked at now.
    pub(super) fn look_soon(&self) {
        self.sites.lock().asked += 1;
        self.sites.changed.notify_all();
    }

    /// The volumes of all stores, without replicas that are older than the release made last.
    pub(super) fn shown(&self) -> Result<Vec<VolumeInfo>, String> {
        let server = self.server()?;
        if self.sites.lock().made.is_empty() {
            return Ok(server.volumes());
        }
        let limit = Instant::now() + KNOWN;
        self.await_records(limit);
        loop {
            let volumes = server.volumes();
            let state = self.sites.lock();
            let behind = state.behind(&volumes);
            let left = limit.saturating_duration_since(Instant::now());
            let comes = |first: &u32| site(&volumes, *first).prepared.is_some();
            if left.is_zero() || state.ending || !behind.iter().any(comes) {
                drop(state);
                return Ok(without(volumes, &behind));
            }
            // The store tells nobody when it is published: this asks, until the limit.
            drop(self.sites.wait(state, left.min(PUBLISHED)));
        }
    }

    /// Waits until the records have been read by a look that began later than this.
    fn await_records(&self, limit: Instant) {
        let mut state = self.sites.lock();
        if state.away_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        // A look that is under way may have read them before.
        state.asked += 1;
        let mine = state.asked;
        self.sites.changed.notify_all();
        while state.read < mine && !state.ending {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.sites.wait(state, left);
        }
    }

    /// Looks at the records, when somebody asks and from time to time, until the server ends.
    pub(super) fn follow_releases(&self) {
        let mut state = self.sites.lock();
        while !state.ending {
            let asked = state.asked;
            drop(state);
            let looked = self.look_at_records();
            state = self.sites.lock();
            (state.read, state.away_until) = (asked, None);
            let pause = match looked {
                Ok(true) => LOOK_SOON,
                Ok(false) => LOOK,
                Err(error) => {
                    tracing::debug!(error, "the replicas are as they were before");
                    state.away_until = Some(Instant::now() + AWAY);
                    LOOK
                }
            };
            self.sites.changed.notify_all();
            let until = Instant::now() + pause;
            while state.asked == asked && !state.ending {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.sites.wait(state, left);
            }
        }
    }

    /// Reads the records, and does what follows from them; true: something comes soon. An error:
    /// the database does not answer.
    pub(super) fn look_at_records(&self) -> Result<bool, String> {
        let records = self.replicated()?;
        if let Err(error) = self.follow_records(&records) {
            tracing::warn!(
                error,
                "a replica is not as its record says: that is tried again"
            );
        }
        self.publish_made(&records)
    }

    /// Publishes the releases that are made and prepared here; true: one is prepared here.
    fn publish_made(&self, records: &Records) -> Result<bool, String> {
        let (server, own) = (self.server()?, self.own()?);
        let mut any = false;
        for (_, record) in records.iter().filter(|(_, record)| record.has(own)) {
            let first_volume = record.first_volume;
            let volumes = server.volumes_in(first_volume).unwrap_or_default();
            let Some(release) = site(&volumes, first_volume).prepared else {
                continue;
            };
            any = true;
            let number = volume_numbers::release(record.replica(), release);
            if release <= record.release
                && let Some(number) = number
            {
                server.publish(first_volume, number);
            }
        }
        Ok(any)
    }
}

/// These volumes without those of some stores.
fn without(mut volumes: Vec<VolumeInfo>, stores: &[u32]) -> Vec<VolumeInfo> {
    let store = volume_numbers::store;
    volumes.retain(|info| stores.iter().all(|first| store(*first) != store(info.id)));
    volumes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::releases::tests::{F, volume};
    use wire::VolumeState;

    #[test]
    fn a_replica_that_is_behind_is_not_shown() {
        let present = VolumeState::Present;
        let all = vec![
            volume(7, present, None),
            volume(F + 1, present, None),
            volume(F + 4, present, None),
        ];
        let shown = |made: u32| {
            let state = State {
                made: [(F, made)].into(),
                ..State::default()
            };
            let left = without(all.clone(), &state.behind(&all));
            left.iter().map(|info| info.id).collect::<Vec<_>>()
        };
        assert_eq!(shown(3), [7, F + 1, F + 4]);
        assert_eq!(shown(4), [7], "release 4 is made, and 3 is here");
        // It has come here before this server has read that it is made.
        assert_eq!(shown(2), [7, F + 1, F + 4]);
    }
}
