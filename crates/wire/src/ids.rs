//! Names of things. None of them holds a location, a pointer or a host.

use serde::{Deserialize, Serialize};

/// Nanoseconds. Times of files are those of the volume's clock, which the server keeps, since 1970.
/// All others are of the clock of the process that says them, since whenever that likes.
/// Neither runs backwards.
pub type Time = u64;

/// Times of files before 1970 are the last ones of the numbers: 1 ns before it is the largest. So
/// all that was ever kept means the same as before.
pub mod file_time {
    use super::Time;

    const NS_PER_S: u64 = 1_000_000_000;
    /// The earliest time of a file, in 1901, as of other file systems.
    const EARLIEST_S: i64 = -(1 << 31);
    const EARLIEST: Time = (EARLIEST_S as u64).wrapping_mul(NS_PER_S);
    const LATEST: Time = EARLIEST - 1;

    /// Seconds since 1970 and nanoseconds behind them; a time out of range becomes the earliest
    /// one, or the latest.
    pub const fn of(seconds: i64, nanoseconds: u32) -> Time {
        if seconds < EARLIEST_S {
            return EARLIEST;
        }
        let ns = seconds as i128 * NS_PER_S as i128 + nanoseconds as i128;
        if ns > LATEST as i128 {
            return LATEST;
        }
        ns as u64
    }

    /// The same back.
    pub const fn parts(time: Time) -> (i64, u32) {
        let ns = if time > LATEST {
            time as i64 as i128
        } else {
            time as i128
        };
        let second = NS_PER_S as i128;
        (ns.div_euclid(second) as i64, ns.rem_euclid(second) as u32)
    }
}

/// Orders grants and recalls of a partition, and the restarts of its server: every grant and every
/// recall takes the next number, and a restart begins far above all earlier ones.
pub type Epoch = u64;

/// One client's stay with a server, chosen by the client at random; never zero.
pub type SessionId = u64;

/// Numbers the requests of a session from 1 upwards, never reused within it.
pub type RequestId = u64;

/// The stores of a cell number their volumes apart. The upper 8 bits of a volume's number are the
/// number of the server on which its store was made; the first server of a cell is number 0. The
/// next bit tells a server's first store, where 23 bits count, from its further ones, where 7 bits
/// number the store, and 16 count.
pub mod volume_numbers {
    const SERVER_SHIFT: u32 = 24;
    const FURTHER: u32 = 1 << 23;
    const STORE_SHIFT: u32 = 16;
    /// The highest number of a server.
    pub const SERVER_MAX: u32 = u32::MAX >> SERVER_SHIFT;
    /// The highest number of a store among those of its server; its first one is number 0.
    pub const STORE_MAX: u32 = (FURTHER >> STORE_SHIFT) - 1;

    /// The number of the server on which the volume's store was made.
    #[must_use]
    pub const fn server(volume: u32) -> u32 {
        volume >> SERVER_SHIFT
    }

    /// Is it of a further store of its server?
    #[must_use]
    pub const fn is_further(volume: u32) -> bool {
        volume & FURTHER != 0
    }

    /// A number of the store in which the volume was made, and has been ever since, that no other
    /// store of the cell has.
    #[must_use]
    pub const fn store(volume: u32) -> u32 {
        match is_further(volume) {
            true => volume >> STORE_SHIFT,
            false => server(volume) << (SERVER_SHIFT - STORE_SHIFT),
        }
    }

    /// How many volumes and snapshots the store had made with this one.
    #[must_use]
    pub const fn count(volume: u32) -> u32 {
        match is_further(volume) {
            true => volume & ((1 << STORE_SHIFT) - 1),
            false => volume & (FURTHER - 1),
        }
    }

    /// The first volume of a server's first store; `None`: no server has this number.
    #[must_use]
    pub const fn first(server: u32) -> Option<u32> {
        match server <= SERVER_MAX {
            true => Some(server << SERVER_SHIFT | 1),
            false => None,
        }
    }

    /// The first volume of one of a server's further stores; `None`: there is no such number.
    #[must_use]
    pub const fn first_of_further(server: u32, store: u32) -> Option<u32> {
        match server <= SERVER_MAX && store != 0 && store <= STORE_MAX {
            true => Some(server << SERVER_SHIFT | FURTHER | store << STORE_SHIFT | 1),
            false => None,
        }
    }

    /// A replica in a further store: the next volume after the first one, which stays empty.
    #[must_use]
    pub const fn replica(first: u32) -> u32 {
        first + 1
    }

    /// May this be a replica?
    #[must_use]
    pub const fn is_replica(volume: u32) -> bool {
        is_further(volume) && count(volume) == 2
    }

    /// A release of a replica, from 1 on: the same number at each server. `None`: the store has no
    /// number for it.
    #[must_use]
    pub const fn release(replica: u32, release: u32) -> Option<u32> {
        match release < (1 << STORE_SHIFT) - 2 {
            true => Some(replica + release),
            false => None,
        }
    }

    /// The first volume of the further store that has this volume; `None`: it is in a first store.
    #[must_use]
    pub const fn first_beside(volume: u32) -> Option<u32> {
        match is_further(volume) {
            true => Some(store(volume) << STORE_SHIFT | 1),
            false => None,
        }
    }
}

/// Names a file, a directory or any other object for ever (Andrew, section 5.2): it holds no
/// location, and is not used again when the object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fid {
    /// The volume that the object belongs to.
    pub volume: u32,
    /// The object within the volume.
    pub vnode: u64,
    /// Tells two uses of one vnode number apart.
    pub uniq: u32,
}

impl Fid {
    /// The root directory of a volume.
    pub const fn root(volume: u32) -> Self {
        Self {
            volume,
            vnode: 1,
            uniq: 1,
        }
    }

    /// The directory of a volume's snapshots. The partition shows it, and keeps it nowhere.
    pub const fn snapshots(volume: u32) -> Self {
        Self {
            volume,
            vnode: SNAPSHOTS_VNODE,
            uniq: 1,
        }
    }

    /// Stands for the room in a volume that clients were given ahead: no object has this number. A
    /// client with some of it holds Shared.
    pub const fn room(volume: u32) -> Self {
        Self {
            volume,
            vnode: ROOM_VNODE,
            uniq: 1,
        }
    }

    /// Does it stand for room?
    pub const fn is_room(&self) -> bool {
        self.vnode == ROOM_VNODE
    }

    /// Is it the directory of a volume's snapshots?
    pub const fn is_snapshots(&self) -> bool {
        self.vnode == SNAPSHOTS_VNODE
    }
}

/// Numbers of objects stay below this one, which the directory of a volume's snapshots has.
pub const SNAPSHOTS_VNODE: u64 = (1 << 48) - 1;
/// No object has the number that stands for room.
const ROOM_VNODE: u64 = 0;

impl core::fmt::Display for Fid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.volume, self.vnode, self.uniq)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::volume_numbers::*;

    #[test]
    fn stores_number_their_volumes_apart() {
        let first = |number| first(number).unwrap();
        let further = |number, store| first_of_further(number, store).unwrap();
        let stores = [
            first(0),
            first(3),
            further(0, 1),
            further(0, STORE_MAX),
            further(3, 1),
        ];
        for (at, one) in stores.iter().enumerate() {
            let others = stores[at + 1..].iter();
            assert!(others.into_iter().all(|other| store(*other) != store(*one)));
            assert_eq!((count(*one), store(*one + 9)), (1, store(*one)));
            let beside = is_further(*one).then_some(*one);
            assert_eq!(first_beside(*one + 9), beside);
        }
        assert_eq!(stores.map(server), [0, 3, 0, 0, 3]);
        let of = replica(further(3, 1));
        assert!(is_replica(of) && !is_replica(of + 1) && !is_replica(first(3) + 1));
        assert_eq!(release(of, 1), Some(of + 1));
        let last = release(of, 65_533).unwrap();
        assert_eq!((store(last), release(of, 65_534)), (store(of), None));
        assert_eq!(count(first(3) + 1_000_000), 1_000_001);
        assert!(first_of_further(0, 0).is_none() && first_of_further(0, STORE_MAX + 1).is_none());
        assert_eq!(server(further(SERVER_MAX, STORE_MAX)), SERVER_MAX);
    }
}
