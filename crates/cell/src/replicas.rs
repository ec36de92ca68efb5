//! The replicas of volumes: one record for each volume that has some, in the cell's database.
//!
//! Guarantees: the record says which servers have replicas, in which store (the same number at each
//! of them), and which release was made last. It is changed by compare-and-swap alone, each change
//! has a turn of its own, and no two records ever have the same store: so a change that was decided
//! by an older record is not made, however late it comes. Releases count up by one; the change that
//! counts one is what makes it.

use crate::database::Changes;
use crate::members::{Cell, CellError, decode, encode, place, refused};
use serde::{Deserialize, Serialize};
use wire::volume_numbers;

const REPLICAS: &str = "replicas";
/// So often is a server that is forgotten taken out of a record that others change.
const TRIES: usize = 16;

/// The replicas of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// The name of the volume.
    pub name: String,
    /// The number of the first volume of the store that each replica is in.
    pub first_volume: u32,
    /// The servers that have replicas.
    pub servers: Vec<String>,
    /// The release that was made last; 0: none was.
    pub release: u32,
    /// Raised with each change.
    pub turn: u64,
}

impl Replicas {
    /// A server is the first one to have a replica of a volume.
    #[must_use]
    pub fn first(name: &str, first_volume: u32, server: &str) -> Replicas {
        Replicas {
            name: name.to_owned(),
            first_volume,
            servers: vec![server.to_owned()],
            release: 0,
            turn: 1,
        }
    }

    fn next(&self) -> Replicas {
        Replicas {
            turn: self.turn + 1,
            ..self.clone()
        }
    }

    /// Has this server a replica?
    #[must_use]
    pub fn has(&self, server: &str) -> bool {
        self.servers.iter().any(|one| one == server)
    }

    /// The number of each replica.
    #[must_use]
    pub fn replica(&self) -> u32 {
        volume_numbers::replica(self.first_volume)
    }

    /// One more server has a replica; `None`: it has one already.
    #[must_use]
    pub fn with(&self, server: &str) -> Option<Replicas> {
        let mut next = self.next();
        next.servers.push(server.to_owned());
        (!self.has(server)).then_some(next)
    }

    /// A server has none any more. With the last one the record goes: see `Some(None)`. `None`: the
    /// server has no replica.
    #[must_use]
    pub fn without(&self, server: &str) -> Option<Option<Replicas>> {
        let mut next = self.next();
        next.servers.retain(|one| one != server);
        let is_left = !next.servers.is_empty();
        self.has(server).then_some(is_left.then_some(next))
    }

    /// A release begins, in a turn of its own: one that began before cannot be made any more.
    #[must_use]
    pub fn begun(&self) -> Replicas {
        self.next()
    }

    /// The release that began in this turn is made; `None`: it is not the next one, the store has
    /// no number for it, or the record has changed since.
    #[must_use]
    pub fn released(&self, release: u32, turn: u64) -> Option<Replicas> {
        volume_numbers::release(self.replica(), release)?;
        let is_next = self.release.checked_add(1) == Some(release) && self.turn == turn;
        is_next.then(|| Replicas {
            release,
            ..self.next()
        })
    }
}

impl Replicas {
    /// Was this release made by the one that began in this turn, and nothing has changed since?
    #[must_use]
    pub fn is_released(&self, release: u32, turn: u64) -> bool {
        self.release == release && self.turn == turn + 1
    }
}

impl Cell {
    /// The replicas of the volume of this number; `None`: it has none.
    ///
    /// # Errors
    /// The database fails.
    pub fn replicas(&self, volume: u32) -> Result<Option<Replicas>, CellError> {
        let bytes = self.database.get(&place(REPLICAS, volume))?;
        bytes.as_deref().map(decode).transpose()
    }

    /// All volumes that have replicas, by number, with these.
    ///
    /// # Errors
    /// The database fails.
    pub fn replicated(&self) -> Result<Vec<(u32, Replicas)>, CellError> {
        let all = self.database.list(REPLICAS)?;
        let read = all.iter().map(|(volume, bytes)| {
            let number = volume.parse();
            let number = number.map_err(|_| refused(format!("{volume} is no number of a volume")));
            Ok((number?, decode(bytes)?))
        });
        read.collect()
    }

    /// The volume whose replicas are in this store, and these.
    ///
    /// # Errors
    /// The database fails.
    pub fn replicas_in(&self, first_volume: u32) -> Result<Option<(u32, Replicas)>, CellError> {
        let mut all = self.replicated()?.into_iter();
        Ok(all.find(|(_, replicas)| replicas.first_volume == first_volume))
    }

    /// Changes the replicas of a volume from these to those; none: it had, or is to have, none.
    /// False: they were others, and nothing is changed.
    ///
    /// # Errors
    /// The database fails, and it is not known whether they were changed.
    pub fn change_replicas(
        &self,
        volume: u32,
        before: Option<&Replicas>,
        after: Option<&Replicas>,
    ) -> Result<bool, CellError> {
        let at = place(REPLICAS, volume);
        let changes = Changes {
            when: vec![(at.clone(), before.map(encode).transpose()?)],
            then: vec![(at, after.map(encode).transpose()?)],
        };
        Ok(self.database.commit(&changes)?)
    }

    /// A server that will never come back has no replicas.
    pub(crate) fn forget_replicas_of(&self, server: &str) -> Result<(), CellError> {
        for (volume, _) in self.replicated()? {
            let mut tries = 0..TRIES;
            while let Some(now) = self.replicas(volume)?
                && let Some(next) = now.without(server)
            {
                if self.change_replicas(volume, Some(&now), next.as_ref())? {
                    break;
                }
                tries.next().ok_or(CellError::Outdated)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_cell::cell;

    const F: u32 = 0x0181_0001;

    #[test]
    fn servers_come_and_go_and_the_record_with_the_last_one() {
        let one = Replicas::first("data", F, "a");
        assert_eq!(one.with("a"), None);
        let two = one.with("b").unwrap();
        assert!(two.has("a") && two.has("b") && two.turn > one.turn);
        assert_eq!(two.without("c"), None);
        let left = two.without("a").unwrap().unwrap();
        assert_eq!(
            (left.servers.as_slice(), left.turn),
            (&["b".to_owned()][..], 3)
        );
        assert_eq!(left.without("b"), Some(None));
    }

    #[test]
    fn releases_count_up_by_one_as_far_as_the_store_has_numbers() {
        let none = Replicas::first("data", F, "a");
        let first = none.released(1, none.turn).unwrap();
        assert!(first.is_released(1, none.turn) && !first.is_released(1, first.turn));
        // One that began before does not count any more.
        assert_eq!(none.begun().released(1, none.turn), None);
        assert_eq!((first.release, first.turn), (1, 2));
        for wrong in [0, 1, 3] {
            assert_eq!(first.released(wrong, first.turn), None, "{wrong}");
        }
        let late = Replicas {
            release: 65_532,
            ..first
        };
        let last = late.released(65_533, late.turn).unwrap();
        assert_eq!(last.released(65_534, last.turn), None);
    }

    #[test]
    fn a_record_is_changed_only_from_what_it_is() {
        let (_dir, cell) = cell();
        assert_eq!(cell.replicas(7).unwrap(), None);
        let first = Replicas::first("data", F, "a");
        assert!(cell.change_replicas(7, None, Some(&first)).unwrap());
        assert!(!cell.change_replicas(7, None, Some(&first)).unwrap());
        let two = first.with("b").unwrap();
        assert!(cell.change_replicas(7, Some(&first), Some(&two)).unwrap());
        let late = first.with("c").unwrap();
        assert!(!cell.change_replicas(7, Some(&first), Some(&late)).unwrap());
        assert_eq!(cell.replicas(7).unwrap(), Some(two.clone()));
        assert_eq!(cell.replicas_in(F).unwrap(), Some((7, two.clone())));
        assert_eq!(cell.replicas_in(F + 9).unwrap(), None);
        // The servers are what they were once: the turn tells that they are not the same.
        let back = two.without("b").unwrap().unwrap();
        assert!(cell.change_replicas(7, Some(&two), Some(&back)).unwrap());
        assert!(!cell.change_replicas(7, Some(&first), Some(&late)).unwrap());
    }

    #[test]
    fn a_server_that_is_forgotten_has_no_replicas() {
        let (_dir, cell) = cell();
        let alone = Replicas::first("one", F, "a");
        let both = Replicas::first("two", F + (1 << 16), "a")
            .with("b")
            .unwrap();
        assert!(cell.change_replicas(7, None, Some(&alone)).unwrap());
        assert!(cell.change_replicas(8, None, Some(&both)).unwrap());
        cell.forget_replicas_of("a").unwrap();
        assert_eq!(cell.replicas(7).unwrap(), None);
        assert_eq!(cell.replicas(8).unwrap().unwrap().servers, ["b"]);
        let before = cell.replicated().unwrap();
        cell.forget_replicas_of("a").unwrap();
        assert_eq!(cell.replicated().unwrap(), before);
    }
}
