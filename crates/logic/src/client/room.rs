//! Room that the server has given ahead: changes that are answered here, before the server has
//! heard of them, are answered against this, and so are never refused later.
//!
//! Guarantees: what is dirty of files, and what is kept of delegated changes, is covered by room
//! that the server counts as this client's. A write or a change of names that finds none is not
//! answered here: more is asked for, and if there is none, it goes to the server as it is, which
//! does it or refuses it. So ENOSPC and EDQUOT come from write(2) and from what makes a name, and
//! never from a later close, fsync, recall or write-back.
//!
//! A block of 4 KiB takes as much, whatever the server has of it; a block that is changed again
//! while it is on its way takes that twice. Bytes that are stored through a mapping cannot be
//! refused, and wait for nobody: without room they are kept until there is some.
//!
//! When the server recalls room, what it covers is written back and told, and nothing is kept. That
//! does not wait for stranded bytes: they have lost their token, and the file that is made for them
//! may itself need what is recalled. Room that is not used for a while goes back by itself.

use crate::Ticket;
use crate::client::api::How;
use crate::client::data::cache::BlockState;
use crate::client::mutant::Mutant;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use crate::room::cost;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use wire::limits::BLOCK_BYTES;
use wire::{Caller, Epoch, Fid, Hold, Op, Outcome, Refusal, Reply, Right, Room, Time, WriteMode};

/// So much is asked for at first, and at most, when little is left.
const FIRST: Room = Room {
    bytes: 4 << 20,
    objects: 4096,
};
const MORE: Room = Room {
    bytes: 256 << 20,
    objects: 1 << 16,
};
/// As much of a volume as the server gives to one client.
const MOST_BYTES: u64 = 1 << 30;
/// How long after there was too little more is asked for again.
const SHORT_NS: Time = 1_000_000_000;
/// Room that was not used for so long goes back.
const IDLE_NS: Time = 30_000_000_000;

/// Room that this client has in a volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumeRoom {
    /// All that it has, what is reserved included.
    held: Room,
    /// For delegated changes that the server has not answered.
    kept: Room,
    /// A question for more is on its way.
    asked: bool,
    /// So much is asked for next, when less than this is left unused.
    next: Room,
    low: Room,
    /// There was too little: until then no more is asked for.
    short_until: Time,
    /// Writes that wait for the answer.
    parked: Vec<Ticket>,
    /// The server wants it back.
    recalled: Option<Epoch>,
    /// When any of it was used last.
    used_at: Time,
}

impl Default for VolumeRoom {
    fn default() -> Self {
        Self {
            held: Room::NONE,
            kept: Room::NONE,
            asked: false,
            next: FIRST,
            low: half(FIRST),
            short_until: 0,
            parked: Vec::new(),
            recalled: None,
            used_at: 0,
        }
    }
}

/// Its room in all volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    volumes: BTreeMap<u32, VolumeRoom>,
    /// In some of them it is recalled.
    recalled: bool,
}

/// The fate of a write that could be answered from the cache.
pub(crate) enum Admitted {
    /// There is room for it.
    Here,
    /// It waits.
    Waits,
    /// The server does it, or refuses it.
    AtServer,
}

fn half(room: Room) -> Room {
    Room {
        bytes: room.bytes / 2,
        objects: room.objects / 2,
    }
}

fn blocks(count: u64) -> Room {
    Room {
        bytes: count * u64::from(BLOCK_BYTES),
        objects: 0,
    }
}

impl Client {
    /// Room for changes that are answered, and that the server has not said that it has.
    fn reserved(&self, volume: u32) -> Room {
        let known = self.rooms.volumes.get(&volume);
        let kept = known.map_or(Room::NONE, |of| of.kept);
        kept.and(blocks(self.cache.changed_in(volume)))
    }

    /// Room for changes that must be written back or told before it goes back.
    fn owed(&self, volume: u32) -> Room {
        let stranded = self.stranded.keys().filter(|fid| fid.volume == volume);
        let stranded = stranded.map(|fid| u64::from(self.cache.changed(*fid).count));
        self.reserved(volume).without(blocks(stranded.sum()))
    }

    /// Room that may be used at once.
    fn unused_room(&self, volume: u32) -> Room {
        let known = self.rooms.volumes.get(&volume);
        match known.filter(|of| of.recalled.is_none()) {
            Some(of) => of.held.without(self.reserved(volume)),
            None => Room::NONE,
        }
    }

    fn volume_room(&mut self, volume: u32) -> &mut VolumeRoom {
        self.rooms.volumes.entry(volume).or_default()
    }

    /// Is there room for a change that is to be answered here?
    pub(crate) fn has_room_for(&self, op: &Op) -> bool {
        if !self.options.room_ahead || self.options.mutant == Some(Mutant::AnswersWithoutRoom) {
            return true;
        }
        cost(op).is_none_or(|(volume, cost)| self.unused_room(volume).covers(cost))
    }

    /// A delegated change is answered, and kept.
    pub(crate) fn reserve_room(&mut self, now: Time, op: &Op) {
        if let Some((volume, cost)) = cost(op) {
            let of = self.volume_room(volume);
            of.kept = of.kept.and(cost);
            of.used_at = now;
        }
    }

    /// It is struck out: the server never hears of it.
    pub(crate) fn unreserve_room(&mut self, op: &Op) {
        if let Some((volume, cost)) = cost(op) {
            let of = self.volume_room(volume);
            of.kept = of.kept.without(cost);
        }
    }

    /// The server has answered something that was reserved for.
    pub(crate) fn settle_room(&mut self, op: &Op, outcome: &Outcome) {
        let Some((volume, cost)) = cost(op) else {
            return;
        };
        let back = matches!(
            op,
            Op::Write {
                mode: WriteMode::Back { .. },
                ..
            }
        );
        let of = self.volume_room(volume);
        if !back {
            of.kept = of.kept.without(cost);
        }
        match outcome {
            Outcome::Refused(refusal) => {
                // Blocks that were to be written back for a recall cannot be: they are not waited
                // for.
                let kept = matches!(refusal, Refusal::NoSpace | Refusal::Quota | Refusal::Disk);
                if kept && of.recalled.is_some() {
                    of.held = Room::NONE;
                }
            }
            _ => of.held = of.held.without(cost),
        }
    }

    /// Is there room for a write to blocks of a file? If not, it is asked for.
    pub(crate) fn admit_write(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        (offset, end): (u64, u64),
        how: How,
    ) -> Admitted {
        if !self.options.room_ahead || self.options.mutant == Some(Mutant::AnswersWithoutRoom) {
            return Admitted::Here;
        }
        let volume = fid.volume;
        let range = offset / u64::from(BLOCK_BYTES)..end.div_ceil(u64::from(BLOCK_BYTES));
        // Mostly there is room for all of them, whichever are changed already.
        let unused = self.unused_room(volume);
        let need = match blocks(range.end.saturating_sub(range.start)) {
            most if unused.covers(most) => most,
            _ => blocks(self.unchanged(fid, range)),
        };
        if need == Room::NONE || unused.covers(need) {
            self.volume_room(volume).used_at = step.now;
            self.ask_for_room_ahead(step, volume);
            return Admitted::Here;
        }
        if how == How::Paged {
            self.ask_for_room_ahead(step, volume);
            return Admitted::Here;
        }
        if self.reserved(volume).and(need).bytes > MOST_BYTES {
            self.starve(step, ticket);
            return Admitted::Waits;
        }
        let of = self.volume_room(volume);
        let may_ask = of.recalled.is_none() && step.now >= of.short_until;
        if of.asked || may_ask {
            of.parked.push(ticket);
            if !of.asked {
                let bytes = need.bytes.max(of.next.bytes);
                self.ask_for_room(step, volume, (need, Room { bytes, objects: 0 }));
            }
            return Admitted::Waits;
        }
        Admitted::AtServer
    }

    /// How many of these blocks a write to all of them adds to what is to be written back.
    fn unchanged(&self, fid: Fid, range: Range<u64>) -> u64 {
        let counted = |state| matches!(state, BlockState::Dirty(_) | BlockState::Sending(Some(_)));
        let span = self.cache.span(fid, range);
        span.filter(|found| found.is_none_or(|(_, state)| !counted(state)))
            .count() as u64
    }

    /// Asks for more if little is left.
    pub(crate) fn ask_for_room_ahead(&mut self, step: &mut Step<'_>, volume: u32) {
        let names = self.delegation.names_are_made();
        let unused = self.unused_room(volume);
        let room_ahead = self.options.room_ahead;
        let of = self.volume_room(volume);
        let objects = if names { of.low.objects } else { 0 };
        let enough = Room { objects, ..of.low };
        let quiet = of.asked || of.recalled.is_some() || step.now < of.short_until;
        if quiet || !room_ahead || unused.covers(enough) {
            return;
        }
        let want = Room {
            bytes: if unused.bytes < enough.bytes {
                of.next.bytes
            } else {
                0
            },
            objects: if unused.objects < enough.objects {
                of.next.objects
            } else {
                0
            },
        };
        self.ask_for_room(step, volume, (Room::NONE, want));
    }

    /// The same for what a change of names takes.
    pub(crate) fn ask_for_room_of(&mut self, step: &mut Step<'_>, op: &Op) {
        if let Some((volume, _)) = cost(op) {
            self.ask_for_room_ahead(step, volume);
        }
    }

    /// `need`: what somebody waits for.
    fn ask_for_room(&mut self, step: &mut Step<'_>, volume: u32, (need, want): (Room, Room)) {
        let of = self.volume_room(volume);
        of.asked = true;
        let held = of.held;
        let op = Op::Room { volume, held, want };
        let caller = Caller::default();
        let why = Why::Room { volume, need };
        self.request(step, (op, caller, Hold::default()), Vec::new(), why);
    }

    /// Room has come, or none.
    pub(crate) fn on_room(
        &mut self,
        step: &mut Step<'_>,
        (volume, need): (u32, Room),
        op: &Op,
        reply: &Reply,
    ) {
        let counts = reply.grants.iter().all(|grant| self.accept(*grant));
        let given = match reply.outcome {
            Outcome::Room(given) if counts && !reply.grants.is_empty() => given,
            _ => Room::NONE,
        };
        let want = match op {
            Op::Room { want, .. } => *want,
            _ => Room::NONE,
        };
        let of = self.volume_room(volume);
        of.asked = false;
        of.held = of.held.and(given);
        of.used_at = of.used_at.max(step.now);
        // Where there is less than was asked for, it is not asked for again with each change.
        of.next = match given.covers(want) {
            true => of.next.and(of.next).min(MORE),
            false => FIRST,
        };
        let low = |want: u64, given: u64, low: u64, next: u64| match want {
            0 => low,
            want => (if given < want { given } else { next }) / 2,
        };
        of.low = Room {
            bytes: low(want.bytes, given.bytes, of.low.bytes, of.next.bytes),
            objects: low(want.objects, given.objects, of.low.objects, of.next.objects),
        };
        let missed =
            (want.bytes > 0 && given.bytes == 0) || (want.objects > 0 && given.objects == 0);
        let parked = core::mem::take(&mut of.parked);
        if missed || !self.unused_room(volume).covers(need) {
            self.volume_room(volume).short_until = step.now + SHORT_NS;
        }
        for ticket in parked {
            self.start(step, ticket);
        }
    }

    /// The server wants the room back: what it covers leaves first.
    pub(crate) fn on_room_recalled(&mut self, step: &mut Step<'_>, fid: Fid, epoch: Epoch) {
        let volume = fid.volume;
        let node = self.node(fid);
        node.token.void = node.token.void.max(epoch);
        let of = self.volume_room(volume);
        of.recalled = of.recalled.max(Some(epoch));
        self.rooms.recalled = true;
        self.ship(step);
        for fid in self.cache.files_to_clean() {
            if fid.volume == volume {
                self.flush(step, fid);
            }
        }
    }

    /// The end of a step: gives back what was recalled and covers nothing any more.
    pub(crate) fn give_up_room(&mut self, step: &mut Step<'_>) {
        if !self.rooms.recalled {
            return;
        }
        let recalled =
            |(volume, of): (&u32, &VolumeRoom)| of.recalled.map(|epoch| (*volume, epoch));
        let all: Vec<_> = self.rooms.volumes.iter().filter_map(recalled).collect();
        let mut left = false;
        for (volume, epoch) in all {
            let owed = self.owed(volume);
            let keeps = self.options.mutant == Some(Mutant::ReturnsRoomUnwritten);
            let of = self.volume_room(volume);
            of.held = of.held.min(owed);
            if of.held != Room::NONE && !keeps {
                left = true;
                continue;
            }
            (of.held, of.recalled) = (Room::NONE, None);
            of.short_until = step.now + SHORT_NS;
            let parked = core::mem::take(&mut of.parked);
            let fid = Fid::room(volume);
            self.node(fid).token.right = Right::None;
            self.answer_recall(step, fid, epoch, None);
            for ticket in parked {
                self.start(step, ticket);
            }
        }
        self.rooms.recalled = left;
    }

    /// Room that is not used goes back.
    pub(crate) fn tick_room(&mut self, step: &mut Step<'_>) {
        if self.room_due().is_none_or(|due| step.now < due) {
            return;
        }
        let due = |(_, of): &(&u32, &VolumeRoom)| self.is_idle_room(of, step.now);
        let all = self.rooms.volumes.iter().filter(due);
        let all: Vec<u32> = all.map(|(volume, _)| *volume).collect();
        for volume in all {
            let of = self.volume_room(volume);
            of.used_at = step.now;
            if self.reserved(volume) == Room::NONE {
                let of = self.volume_room(volume);
                (of.held, of.next, of.low) = (Room::NONE, FIRST, half(FIRST));
                self.release(step, Fid::room(volume), Right::None);
            }
        }
    }

    fn is_idle_room(&self, of: &VolumeRoom, now: Time) -> bool {
        of.held != Room::NONE && !of.asked && of.recalled.is_none() && now >= of.used_at + IDLE_NS
    }

    /// When room goes back that is not used.
    pub(crate) fn room_due(&self) -> Option<Time> {
        let used = |of: &&VolumeRoom| of.held != Room::NONE && !of.asked && of.recalled.is_none();
        let used = self.rooms.volumes.values().filter(used);
        used.map(|of| of.used_at + IDLE_NS).min()
    }

    /// Room that is spent is not claimed of a restarted server, which would believe that this
    /// client has as much as a client may have.
    pub(crate) fn claim_no_spent_room(&mut self) {
        let spent = self.rooms.volumes.iter();
        let spent = spent.filter(|(_, of)| of.held == Room::NONE);
        for (volume, _) in spent {
            if let Some(node) = self.nodes.get_mut(&Fid::room(*volume)) {
                node.token.right = Right::None;
            }
        }
    }

    /// The server does not know how much this client has.
    pub(crate) fn state_rooms(&mut self, step: &mut Step<'_>) {
        let known = |(_, of): &(&u32, &VolumeRoom)| of.held != Room::NONE && !of.asked;
        let all = self.rooms.volumes.iter().filter(known);
        let all: Vec<u32> = all.map(|(volume, _)| *volume).collect();
        for volume in all {
            self.ask_for_room(step, volume, (Room::NONE, Room::NONE));
        }
    }

    /// Others have got what was not used for so long that its client was away.
    pub(crate) fn lose_room(&mut self, fid: Fid) {
        if fid.is_room()
            && let Some(of) = self.rooms.volumes.get_mut(&fid.volume)
        {
            (of.held, of.recalled) = (Room::NONE, None);
        }
    }

    /// The session is over.
    pub(crate) fn lose_rooms(&mut self) {
        for (_, of) in core::mem::take(&mut self.rooms).volumes {
            self.callers.parked.extend(of.parked);
        }
    }

    /// For people: what it has of all volumes.
    pub(crate) fn all_room(&self) -> Room {
        let volumes = self.rooms.volumes.values();
        volumes.fold(Room::NONE, |sum, of| sum.and(of.held))
    }
}
