//! Room that clients were given ahead: for bytes and names that they answer before the server has
//! heard of them.
//!
//! Guarantees: what all clients were given of a volume, with what the volume has, stays within its
//! limits, and all of it together within the room on the disk. So what a client answers against
//! room that it has is never refused later. A change that a client asks for at once is refused only
//! when nobody else has room left over: before that, all who have some in that volume are asked for
//! it, write back what they have promised, and keep nothing (a recall of [`Fid::room`], which is
//! held Shared by who has room).
//!
//! The room that a client is believed to have is never less than what it has: its statements are of
//! the moment when it makes them, and what has come in since is counted twice until the next one. A
//! client whose statement has not come after a restart is believed to have all that it may have.

use super::api::Disk;
use super::mutant::Mutant;
use super::requests::plan::Plan;
use super::table::Waiting;
use super::{Server, Step};
use crate::room::{cost, growth, in_blocks};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Fid, Op, Outcome, Reply, Right, Room, RoomOfDisk, SessionId};

/// The most that a client has of the room of a volume.
pub(crate) const ROOM_MOST: Room = Room {
    bytes: 1 << 30,
    objects: 1 << 17,
};
/// One client gets this part of what is left, so that others get some too.
const SHARE: u64 = 4;

/// Room that clients were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    /// By volume and session, as long as that holds the room's token.
    given: BTreeMap<(u32, SessionId), Room>,
    /// Volumes of which a client that has not come back may have room.
    doubtful: BTreeSet<u32>,
}

impl Rooms {
    /// A restarted server learns of it.
    pub(crate) fn may_be_had(&mut self, fid: Fid) {
        if fid.is_room() {
            self.doubtful.insert(fid.volume);
        }
    }
}

impl Server {
    /// A client that has come back says that it has room: as much as there may be, until it says
    /// how much.
    pub(crate) fn room_reasserted(&mut self, session: SessionId, fid: Fid) {
        if fid.is_room() {
            self.rooms.given.insert((fid.volume, session), ROOM_MOST);
        }
    }

    /// The end of a step: a client may have given up room.
    pub(crate) fn forget_room(&mut self, session: SessionId, fid: Fid) {
        if fid.is_room() && !self.has_room(session, fid) {
            self.rooms.given.remove(&(fid.volume, session));
        }
    }

    fn has_room(&self, session: SessionId, fid: Fid) -> bool {
        let holder = self.holder(session, fid);
        holder.is_some_and(|holder| holder.right > Right::None)
    }

    /// Room in a volume that clients may use without asking.
    fn promised(&self, volume: u32) -> Room {
        let fid = Fid::room(volume);
        let given = self
            .rooms
            .given
            .range((volume, 0)..=(volume, SessionId::MAX));
        let held = given.filter(|((_, session), _)| self.has_room(*session, fid));
        let sum = held.fold(Room::NONE, |sum, (_, room)| sum.and(*room));
        // A right that is left to doubt is one of clients that have not come back.
        (0..self.missing_at(fid)).fold(sum, |sum, _| sum.and(ROOM_MOST))
    }

    /// Bytes of the log for what clients may do without asking, in all volumes.
    pub fn promised_log_bytes(&self) -> u64 {
        let volumes: BTreeSet<u32> = self.volumes_with_room().collect();
        let bytes = volumes.into_iter().map(|of| self.promised(of).log_bytes());
        bytes.fold(0, u64::saturating_add)
    }

    fn volumes_with_room(&self) -> impl Iterator<Item = u32> + '_ {
        let given = self.rooms.given.keys().map(|(volume, _)| *volume);
        given.chain(self.rooms.doubtful.iter().copied())
    }

    /// Is there so much room that it need not be counted what clients have of it?
    fn is_roomy(&self, left: RoomOfDisk, need: Room) -> bool {
        let doubtful = self.rooms.doubtful.iter();
        let missing: usize = doubtful.map(|of| self.missing_at(Fid::room(*of))).sum();
        let count = (self.rooms.given.len() + missing) as u64;
        let most = Room {
            bytes: ROOM_MOST.bytes.saturating_mul(count),
            objects: ROOM_MOST.objects.saturating_mul(count),
        };
        let log_bytes = most.log_bytes().saturating_add(log_bytes(need));
        left.volume.covers(most.and(need)) && left.log_bytes >= log_bytes
    }

    /// Room that a change must leave to others; `None`: its client has room for it.
    pub(crate) fn promised_beside(&self, disk: &dyn Disk, waiting: &Waiting) -> Option<RoomOfDisk> {
        if self.is_paid(waiting) {
            return None;
        }
        let none = Some(RoomOfDisk::default());
        let Some((volume, need)) = takes(&waiting.request.op) else {
            return none;
        };
        if self.rooms.is_empty() || self.is_roomy(disk.room(volume), need) {
            return none;
        }
        Some(RoomOfDisk {
            volume: self.promised(volume),
            log_bytes: self.promised_log_bytes(),
        })
    }

    /// Was it answered ahead, and has its client the room for it?
    fn is_paid(&self, waiting: &Waiting) -> bool {
        let request = &waiting.request;
        let back = growth(&request.op).is_none();
        let Some((volume, cost)) =
            cost(&request.op).filter(|_| back || request.delegated.is_some())
        else {
            return false;
        };
        let session = waiting.session;
        let given = self.rooms.given.get(&(volume, session));
        let given = given.filter(|_| self.has_room(session, Fid::room(volume)));
        given.is_some_and(|given| given.covers(cost))
    }

    /// It has been done: its client has so much less.
    pub(crate) fn spend_room(&mut self, waiting: &Waiting) {
        if !self.is_paid(waiting) {
            return;
        }
        if let Some((volume, cost)) = cost(&waiting.request.op)
            && let Some(given) = self.rooms.given.get_mut(&(volume, waiting.session))
        {
            *given = given.without(cost);
        }
    }

    /// A change that its caller waits for may find no room beside what clients have: then they give
    /// theirs up first.
    pub(crate) fn plan_room(&self, disk: &dyn Disk, waiting: &Waiting, plan: &mut Plan) {
        let request = &waiting.request;
        if self.rooms.is_empty() || request.delegated.is_some() || request.again.is_some() {
            return;
        }
        let Some((volume, need)) = growth(&request.op) else {
            return;
        };
        if self.options.mutant == Some(Mutant::RefusesBesideUnused) {
            return;
        }
        let left = disk.room(volume);
        if self.is_roomy(left, need) {
            return;
        }
        let of_volume = left.volume.covers(self.promised(volume).and(need));
        // As many records again may be needed for what is done to make room.
        let wanted = self.promised_log_bytes().saturating_add(log_bytes(need));
        if left.log_bytes < wanted {
            let all: BTreeSet<u32> = self.volumes_with_room().collect();
            all.into_iter().for_each(|of| self.gather_room(of, plan));
        } else if !of_volume {
            self.gather_room(volume, plan);
        }
    }

    fn gather_room(&self, volume: u32, plan: &mut Plan) {
        let fid = Fid::room(volume);
        let mut holders = self.holders(fid, None);
        let held = holders.any(|(_, holder)| holder.right > Right::None);
        if held || self.missing_at(fid) > 0 {
            plan.gathers.insert(fid, Right::None);
        }
    }

    /// A client says how much room it has, and wants more.
    pub(crate) fn give_room(&mut self, step: &mut Step<'_>, waiting: &Waiting) {
        let Op::Room { volume, held, want } = waiting.request.op else {
            return;
        };
        let (session, fid) = (waiting.session, Fid::room(volume));
        let has = self.has_room(session, fid);
        let held = if has { held.min(ROOM_MOST) } else { Room::NONE };
        if has {
            self.rooms.given.insert((volume, session), held);
        }
        let mut grants = Vec::new();
        let wanted = self.files.get(&fid).is_some_and(|file| file.waits());
        let mut given = Room::NONE;
        if want != Room::NONE && !wanted && !self.only_reads(session) {
            given = self.room_for(step, volume, want.min(ROOM_MOST.without(held)));
        }
        if given != Room::NONE {
            self.grant((session, fid), Right::Shared, &mut grants);
            match grants.is_empty() {
                true => given = Room::NONE,
                false => {
                    self.rooms.given.insert((volume, session), held.and(given));
                }
            }
        }
        let mut reply = Reply::from(Outcome::Room(given));
        reply.grants = grants;
        self.answer(step, (session, &waiting.request), reply, 0);
    }

    /// The part of this that one client may have.
    fn room_for(&self, step: &Step<'_>, volume: u32, want: Room) -> Room {
        let left = step.disk.room(volume);
        if self.options.mutant == Some(Mutant::GivesRoomTwice) {
            return want.min(left.volume);
        }
        let free = left.volume.without(self.promised(volume));
        let log_bytes = left.log_bytes.saturating_sub(self.promised_log_bytes()) / SHARE;
        let share = Room {
            bytes: (free.bytes / SHARE).min(log_bytes / 2),
            objects: (free.objects / SHARE).min(log_bytes / 2 / log_bytes_of_object()),
        };
        let least = self.options.room_least;
        let enough = |share: u64, least: u64| if share < least { 0 } else { share };
        let block = in_blocks(1);
        Room {
            bytes: want.bytes.min(enough(share.bytes, least.bytes)) / block * block,
            objects: want.objects.min(enough(share.objects, least.objects)),
        }
    }
}

impl Rooms {
    fn is_empty(&self) -> bool {
        self.given.is_empty() && self.doubtful.is_empty()
    }
}

/// The volume, and what any operation takes of it at most.
fn takes(op: &Op) -> Option<(u32, Room)> {
    let lazy = match op {
        Op::Write { fid, len, .. } => Some((fid.volume, u64::from(*len))),
        _ => None,
    };
    let lazy = lazy.map(|(volume, bytes)| (volume, Room { bytes, objects: 0 }));
    growth(op).or_else(|| cost(op)).or(lazy)
}

fn log_bytes_of_object() -> u64 {
    let one = Room {
        bytes: 0,
        objects: 1,
    };
    one.log_bytes()
}

/// Bytes of the log for one change of this size, with names in it.
fn log_bytes(need: Room) -> u64 {
    need.log_bytes().saturating_add(in_blocks(1))
}
