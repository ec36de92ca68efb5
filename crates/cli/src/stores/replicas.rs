//! Replicas on this server: read-only copies of volumes, each in a further store whose number is
//! the same at every server that has one.
//!
//! Guarantees: the store of a replica is served here while the cell's record of it names this
//! server, and it is removed when no record does; whatever dies in between, the next look at the
//! records brings both together. Replicas have no [`logic::placement::Placement`], and never move.
//! A replica that is lost comes back with the next release. `releases` sees to what readers are
//! shown.

use super::{Stores, record_of};
use cell::{Replicas, StoreAnswer};
use server::Server;
use std::path::PathBuf;
use wire::{Name, VolumeState, is_replica_name, is_volume_name, replica_name};

/// So often is a record changed that others change, too.
const TRIES: usize = 16;

/// All volumes that have replicas, by number.
pub(super) type Records = Vec<(u32, Replicas)>;

fn changed_by_others() -> String {
    "other servers change the replicas of this volume at the same moment: try again".into()
}

impl Stores {
    pub(super) fn replicas(&self, volume: u32) -> Result<Option<Replicas>, String> {
        let record = self.cell().replicas(volume);
        record.map_err(|error| error.to_string())
    }

    pub(super) fn replicated(&self) -> Result<Records, String> {
        let all = self.cell().replicated();
        all.map_err(|error| error.to_string())
    }

    fn change_replicas(
        &self,
        volume: u32,
        from: Option<&Replicas>,
        to: Option<&Replicas>,
    ) -> Result<bool, String> {
        let changed = self.cell().change_replicas(volume, from, to);
        changed.map_err(|error| error.to_string())
    }

    /// Is it the store of a replica? None of the rules for other stores holds for it.
    pub(super) fn is_replica(&self, first_volume: u32) -> Result<bool, String> {
        if self.own.is_none() || self.places.is_replica(first_volume) {
            return Ok(self.own.is_some());
        }
        if self.placement(first_volume)?.is_some() {
            return Ok(false);
        }
        let record = self.cell().replicas_in(first_volume);
        Ok(record.map_err(|error| error.to_string())?.is_some())
    }

    /// Makes a replica of a volume here, still without any release; the number of the first volume
    /// of its store, also if it is here already.
    pub(super) fn replicate(&self, volume: u32, name: &str) -> Result<u32, String> {
        let own = self.own()?;
        let _acting = self.act();
        for _ in 0..TRIES {
            let all = self.replicated()?;
            let before = all.iter().find(|(of, _)| *of == volume).map(|(_, it)| it);
            let after = match before {
                Some(record) if record.has(own) => {
                    self.serve_replica(volume, record)?;
                    return Ok(record.first_volume);
                }
                _ => self.one_more(&all, before, (volume, name))?,
            };
            if self.change_replicas(volume, before, Some(&after))? {
                self.serve_replica(volume, &after)?;
                return Ok(after.first_volume);
            }
        }
        Err(changed_by_others())
    }

    /// The record with this server, if a volume of this name may have a replica here.
    fn one_more(
        &self,
        all: &Records,
        before: Option<&Replicas>,
        (volume, name): (u32, &str),
    ) -> Result<Replicas, String> {
        let own = self.own()?;
        let named = before.map_or(name, |record| record.name.as_str());
        let replica = may_be_replicated(all, (volume, named))?;
        let first_volume = before.map(|record| record.first_volume);
        for info in self.server()?.volumes() {
            let is_other = first_volume.map(record_of) != Some(record_of(info.id));
            let counts = is_other && !matches!(info.state, VolumeState::Deleted(_));
            if counts && info.name == replica {
                return Err(format!(
                    "this server has a volume called {replica} already: rename it first"
                ));
            }
        }
        let one_more = match before {
            Some(record) => record.with(own),
            None => {
                let cure = "have the replica on another server";
                Some(Replicas::first(name, self.new_store(cure)?, own))
            }
        };
        one_more.ok_or_else(changed_by_others)
    }

    /// Serves the store of a replica; it is made where it is not here. The caller holds `acting`.
    fn serve_replica(&self, volume: u32, record: &Replicas) -> Result<(), String> {
        let first_volume = record.first_volume;
        if self.lock().ending {
            return Err("the server ends".into());
        }
        self.note_record(first_volume, record);
        let server = self.server()?;
        if server.serves(first_volume) {
            return Ok(());
        }
        if !self.places.is_replica(first_volume) {
            self.places.is_for_replica(first_volume, volume)?;
        }
        let opened = server.open_or_make_store(&self.places.store(first_volume), first_volume);
        opened.map_err(|error| format!("the replica of {} is not served: {error}", record.name))?;
        tracing::info!(first_volume, name = record.name, "a replica is served");
        Ok(())
    }

    /// Takes the replica of a volume away from here.
    pub(super) fn unreplicate(&self, volume: u32) -> Result<(), String> {
        let own = self.own()?;
        for _ in 0..TRIES {
            let acting = self.act();
            let none = "this server has no replica of the volume: `ariel volume show` tells which \
                        servers have one";
            let record = self.replicas(volume)?.ok_or(none)?;
            let next = record.without(own).ok_or(none)?;
            if self.change_replicas(volume, Some(&record), next.as_ref())? {
                let aside = self.set_replica_aside(record.first_volume)?;
                drop(acting);
                return self.places.remove_aside(&aside);
            }
        }
        Err(changed_by_others())
    }

    /// No record names this server for the store of a replica: its clients hear that it is
    /// elsewhere. Where its directory is then; the caller holds `acting`.
    fn set_replica_aside(&self, first_volume: u32) -> Result<PathBuf, String> {
        self.forget_record(first_volume);
        if let Err(error) = self.server()?.close_store(first_volume) {
            tracing::warn!(first_volume, %error, "a replica that goes was not closed in order");
        }
        let aside = self.places.set_aside(first_volume)?;
        self.places.is_no_replica(first_volume)?;
        tracing::info!(first_volume, "a replica is removed");
        Ok(aside)
    }

    /// A release begins: the record with the turn of its own; none: the volume has no replicas.
    pub(super) fn begin_release(&self, volume: u32) -> Result<Option<Replicas>, String> {
        self.own()?;
        for _ in 0..TRIES {
            let Some(record) = self.replicas(volume)? else {
                return Ok(None);
            };
            let begun = record.begun();
            if self.change_replicas(volume, Some(&record), Some(&begun))? {
                return Ok(Some(begun));
            }
        }
        Err(changed_by_others())
    }

    /// A release is made that began in this turn, when the servers that are to have it have
    /// prepared it.
    pub(super) fn release(
        &self,
        volume: u32,
        release: u32,
        turn: u64,
    ) -> Result<StoreAnswer, String> {
        self.own()?;
        let record = self.replicas(volume)?;
        let record = record.ok_or("the volume has no replicas: `ariel volume replicate`")?;
        if !record.is_released(release, turn) {
            let changed = "the replicas of the volume have changed, or another release has begun: \
                           `ariel volume release` begins again, with what the volume is then";
            let next = record.released(release, turn).ok_or(changed)?;
            if !self.change_replicas(volume, Some(&record), Some(&next))? {
                return Err(changed.into());
            }
        }
        self.look_soon();
        Ok(StoreAnswer::Done)
    }

    /// The releases that are here of a replica.
    pub(super) fn site(&self, first_volume: u32) -> Result<StoreAnswer, String> {
        let volumes = self.server()?.volumes_in(first_volume);
        let volumes = volumes.ok_or("this server serves no replica in that store")?;
        Ok(StoreAnswer::Site(crate::releases::site(
            &volumes,
            first_volume,
        )))
    }

    /// Serves the replicas that the records name this server for, and removes all others.
    pub(super) fn follow_records(&self, records: &Records) -> Result<(), String> {
        let server = self.server()?;
        if self.are_followed(&server, records)? {
            return Ok(());
        }
        // The records may be others by now: this server may just have changed one.
        let acting = self.act();
        let records = self.replicated()?;
        let own = self.own()?;
        let mut done = Ok(());
        for (volume, record) in records.iter().filter(|(_, record)| record.has(own)) {
            done = done.and(self.serve_replica(*volume, record));
        }
        let mut aside = Vec::new();
        for first_volume in self.places.replicas()? {
            if !is_named(own, &records, first_volume) {
                aside.push(self.set_replica_aside(first_volume)?);
            }
        }
        drop(acting);
        for dir in aside {
            self.places.remove_aside(&dir)?;
        }
        done
    }

    fn are_followed(&self, server: &Server, records: &Records) -> Result<bool, String> {
        let own = self.own()?;
        let mut mine = records.iter().filter(|(_, record)| record.has(own));
        let are_served = mine.all(|(_, record)| {
            self.note_record(record.first_volume, record);
            server.serves(record.first_volume)
        });
        let mut here = self.places.replicas()?.into_iter();
        Ok(are_served && here.all(|first_volume| is_named(own, records, first_volume)))
    }
}

/// Does a record name this server for a store?
fn is_named(own: &str, records: &Records, first_volume: u32) -> bool {
    let mut all = records.iter();
    all.any(|(_, record)| record.first_volume == first_volume && record.has(own))
}

/// The name of the replicas of a volume, if it may have some.
fn may_be_replicated(all: &Records, (volume, name): (u32, &str)) -> Result<Name, String> {
    if !is_volume_name(name.as_bytes()) {
        return Err(format!("{name} is not the name of a volume"));
    }
    let is_inside = |record: &Replicas| record_of(record.first_volume) == record_of(volume);
    if is_replica_name(name.as_bytes()) || all.iter().any(|(_, record)| is_inside(record)) {
        return Err(format!(
            "{name} is a replica itself: have more replicas of the volume that it is of"
        ));
    }
    let is_other = |(of, record): &(u32, Replicas)| *of != volume && record.name == name;
    if all.iter().any(is_other) {
        return Err(format!(
            "another volume of the name {name} has replicas in this cell: rename this one first"
        ));
    }
    replica_name(name.as_bytes()).map_err(|_| {
        format!("{name} is too long, as replicas are called {name}.readonly: rename it first")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const F: u32 = 0x0181_0001;

    #[test]
    fn a_volume_may_have_replicas_that_is_none_and_whose_name_is_free() {
        let all = vec![(7, Replicas::first("data", F, "a"))];
        let may = |volume, name: &str| may_be_replicated(&all, (volume, name));
        assert_eq!(may(7, "data").unwrap().as_bytes(), b"data.readonly");
        assert!(may(8, "other").is_ok());
        let refused = [
            (8, "data", "another volume"),
            (F + 1, "data", "replica itself"),
            (9, "x.readonly", "replica itself"),
            (7, "data@monday", "not the name"),
            (9, &"a".repeat(wire::VOLUME_NAME_BYTES), "too long"),
        ];
        for (volume, name, why) in refused {
            let error = may(volume, name).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_store_is_kept_while_a_record_names_the_server() {
        let all = vec![(7, Replicas::first("data", F, "a"))];
        assert!(is_named("a", &all, F));
        assert!(!is_named("b", &all, F) && !is_named("a", &all, F + (1 << 16)));
    }
}
