//! The server's disk: the store itself in memory, or a reference model of it.
//!
//! In the simulated world bytes are counted in units of [`UNIT`] bytes, each of which holds one
//! number: 0 for bytes never written, or the stamp of the write that brought them. All offsets and
//! lengths are whole units. Only in front of the real store do stamps become bytes.

mod carried;
mod holder_notes;
mod limits;
mod power;
mod reference;
mod rot;
mod stored;
mod trouble;
mod volume;

use crate::clock::Wall;
use crate::coverage::Rare;
use crate::exec::Sched;
use crate::rng::Rng;
use crate::wrong::Wrong;
pub(crate) use carried::Share;
use holder_notes::HolderNotes;
use logic::server::{Bulk, By, Disk};
pub(crate) use power::Restored;
use reference::Reference;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use stored::Stored;
pub(crate) use trouble::{Trouble, Troubles};
pub(crate) use volume::Closed;
use volume::Volume;
use wire::{
    Attr, Caller, Chosen, Digest, Fid, Limits, MachineId, Name, Op, Origin, Outcome, Place,
    Refusal, RequestId, Right, RoomOfDisk, SessionId, Time, VolumeInfo,
};

/// Bytes of a unit.
pub(crate) const UNIT: u64 = 512;

/// A piece of content, in units.
pub(crate) type Units = Vec<u64>;

/// One change as the disk made it.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// When: see `Sched::moment`.
    pub(crate) moment: u64,
    /// The request that made it.
    pub(crate) origin: Option<Origin>,
    /// Which.
    pub(crate) op: Op,
    /// For a rename: what the two names named before.
    pub(crate) before: (Option<Fid>, Option<Fid>),
    /// Its outcome.
    pub(crate) outcome: Outcome,
    /// For a copy: what was copied.
    pub(crate) copied: Units,
    /// It was answered before.
    pub(crate) delegated: bool,
    /// A power failure has undone it.
    pub(crate) lost: bool,
    /// So has one of the server's machine alone, and it has not been made again.
    pub(crate) undone: bool,
    /// Its place in the disk's order of changes.
    position: u64,
    now: Time,
    /// The written units.
    data: Units,
}

impl Applied {
    /// The units that it has brought to the disk.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> + '_ {
        self.data.iter().chain(&self.copied).copied()
    }
}

/// A change to apply.
struct Change<'a> {
    now: Time,
    op: &'a Op,
    caller: &'a Caller,
    origin: Option<Origin>,
    data: &'a [u64],
    /// It is done already, with these numbers.
    delegated: Option<Chosen>,
    /// Room that it must leave to others; `None`: it has room of its own.
    promised: Option<RoomOfDisk>,
}

/// A disk, the bytes beside messages, and a record of all changes.
pub(crate) struct DiskRoom {
    sched: Rc<Sched>,
    volume: Box<dyn Volume>,
    /// Rare things that happened here, or to a copy of this: see [`Rare`].
    pub(crate) met: Rc<Cell<u128>>,
    bulks: BTreeMap<Bulk, Units>,
    last_bulk: Bulk,
    /// Every change that was applied, oldest first.
    pub(crate) applied: Vec<Applied>,
    /// The volume's state after each power failure.
    pub(crate) restored: Vec<Restored>,
    /// The power has failed, and clients live on.
    pub(crate) powerless: bool,
    /// Up to which place a fsync has been answered.
    stable: u64,
    /// The power will fail: bytes are kept, to know what must be left.
    /// Something was logged since it was written out; and it must be stable before more is said.
    logged: bool,
    firm: bool,
    /// Up to which place changes are with the operating system.
    written: u64,
    /// When the volume wants to be tended.
    tend_at: Option<Time>,
    /// Something is wrong with the disk.
    troubled: bool,
    /// Something that its server need not live through was wrong with it since it was opened.
    shaken: bool,
    wall: Wall,
    /// The earliest and the latest time that the machines' wall clocks have been seen to show.
    pub(crate) walls: Rc<Cell<[Time; 2]>>,
    /// The tokens that clients may hold; and are these all? A power failure loses what was not
    /// synced, and none of these notes is.
    holder_notes: HolderNotes,
    pub(crate) all_held: bool,
    /// How much the volume may have now; and how that was not kept.
    limits: Option<Limits>,
    pub(crate) broken: Rc<RefCell<Option<Wrong>>>,
    /// How many runs of a server have opened it.
    pub(crate) boots: u64,
    /// Where the logs of earlier runs end.
    pub(crate) runs: Vec<Place>,
    /// It was closed in order, here or where it was carried from.
    at_rest: bool,
}

impl DiskRoom {
    /// A new disk: one in four is the real store, and each whose power will fail, or that will be
    /// in trouble.
    pub(crate) fn new(
        sched: &Rc<Sched>,
        rng: &mut Rng,
        (power_fails, troubles): (bool, Troubles),
        mutant: Option<store::Mutant>,
        wall: Wall,
    ) -> Self {
        let limited = troubles.limits.is_some();
        let stored = rng.chance(250) || power_fails || limited || troubles.any();
        let steady = power_fails || troubles.rot;
        let volume: Box<dyn Volume> = if stored {
            Box::new(Stored::new(rng, (steady, troubles), mutant))
        } else {
            Box::new(Reference::new())
        };
        let (bulks, applied) = (BTreeMap::new(), Vec::new());
        let mut room = Self {
            sched: Rc::clone(sched),
            volume,
            met: Rc::new(Cell::new(if stored { Rare::Stored.bit() } else { 0 })),
            bulks,
            last_bulk: 0,
            applied,
            restored: Vec::new(),
            powerless: false,
            stable: 0,
            logged: false,
            firm: false,
            written: 0,
            tend_at: None,
            troubled: false,
            shaken: false,
            wall,
            walls: Rc::new(Cell::new([Time::MAX, 0])),
            holder_notes: HolderNotes::default(),
            all_held: true,
            limits: None,
            broken: Rc::default(),
            boots: 0,
            runs: Vec::new(),
            at_rest: false,
        };
        room.limit(troubles.limits);
        room
    }

    fn meet(&self, rare: Rare) {
        self.met.set(self.met.get() | rare.bit());
    }

    /// Holds the units beside a message.
    pub(crate) fn hold(&mut self, units: Units) -> Bulk {
        if units.is_empty() {
            return 0;
        }
        self.last_bulk += 1;
        self.bulks.insert(self.last_bulk, units);
        self.last_bulk
    }

    /// The units held under a number, which is forgotten.
    pub(crate) fn release(&mut self, bulk: Bulk) -> Units {
        self.bulks.remove(&bulk).unwrap_or_default()
    }

    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        self.bulks.len()
    }

    /// The process died: changes that were only in its memory are gone.
    pub(crate) fn die(&mut self) {
        self.bulks.clear();
        if !self.at_rest {
            self.volume.die();
        }
    }

    /// Another process takes over. Nothing is missing of what the last one had handed to the
    /// operating system; no message depended on records that it could not write.
    pub(crate) fn open(&mut self) -> Result<(), Closed> {
        self.wall.start();
        self.at_rest = false;
        let mut opened = self.volume.open();
        if matches!(opened, Err(Closed::Wrong(_))) && self.volume.is_rotten() {
            self.meet(Rare::RotRefused);
            self.volume.mend();
            opened = self.volume.open();
        }
        let Some(kept) = opened? else {
            return Ok(());
        };
        self.meet(Rare::Recovered);
        if kept < self.written {
            let written = self.written;
            let what = format!("{written} records were written out, and {kept} are left");
            return Err(Closed::Wrong(what));
        }
        self.applied
            .retain(|change| change.lost || change.undone || change.position <= kept);
        self.written = self.volume.position();
        self.logged = false;
        self.shaken = self.troubled;
        Ok(())
    }

    /// When the volume wants to be tended.
    pub(crate) fn tend_at(&self) -> Option<Time> {
        self.tend_at
    }

    /// Tends it, if that is due.
    pub(crate) fn tend(&mut self, now: Time) {
        if self.tend_at.is_some_and(|due| due <= now) {
            self.tend_at = self.volume.tend(now);
        }
    }

    /// Makes what was written out stable.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        self.volume.sync()
    }

    pub(crate) fn away(&self) -> Vec<SessionId> {
        self.volume.away()
    }

    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.volume.sessions()
    }

    /// Everything that has a name.
    pub(crate) fn files(&self) -> Vec<(Fid, Attr)> {
        self.volume.files()
    }

    /// The names in a directory.
    pub(crate) fn names(&self, dir: Fid) -> Vec<((Fid, Name), Fid)> {
        self.volume
            .names(dir)
            .into_iter()
            .map(|(name, fid)| ((dir, name), fid))
            .collect()
    }

    /// Checks the structure of the volume.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.volume.check()
    }

    /// The content of a file.
    pub(crate) fn content(&mut self, fid: Fid) -> Units {
        let attr = self.attr(fid).ok().flatten();
        let size = attr.map_or(0, |attr| attr.size);
        self.volume.read(fid, 0, size as u32).1
    }
}

impl Disk for DiskRoom {
    fn wall(&self) -> Time {
        let shown = self.wall.shows(self.sched.now());
        let [first, last] = self.walls.get();
        self.walls.set([first.min(shown), last.max(shown)]);
        shown
    }

    fn apply(&mut self, now: Time, op: &Op, by: By<'_>, bulk: Bulk) -> Outcome {
        let data = self.bulks.get(&bulk).cloned().unwrap_or_default();
        let before = match op {
            Op::Rename {
                from,
                name,
                to,
                new,
                ..
            } => self.volume.before((*from, name), (*to, new)),
            _ => (None, None),
        };
        self.logged |= op.changes();
        let By {
            caller,
            origin,
            delegated,
            again,
            promised,
        } = by;
        let logged = self.volume.logged_bytes();
        let outcome = self.volume.apply(Change {
            now,
            op,
            caller,
            origin,
            data: &data,
            delegated,
            promised,
        });
        self.check_limits((op, &outcome), (delegated.is_some(), promised));
        // The cleaner may have added records of its own, before that of the change or behind it.
        let position = self.volume.changed();
        self.let_go(bulk, &outcome);
        if matches!(op, Op::Reap { .. }) {
            self.meet(Rare::Reaped);
        }
        let copied = match (op, &outcome) {
            (&Op::Copy { to, offset, .. }, &Outcome::Copied { len, .. }) => {
                let more = self.volume.logged_bytes() - logged;
                if (1..u64::from(len)).contains(&more) {
                    self.meet(Rare::Shared);
                }
                self.volume.peek(to, offset, len)
            }
            _ => Units::new(),
        };
        if op.changes() {
            let moment = self.sched.moment();
            let (op, outcome) = (op.clone(), outcome.clone());
            let made = Applied {
                moment,
                origin,
                op,
                before,
                outcome,
                copied,
                delegated: delegated.is_some(),
                lost: false,
                undone: false,
                position,
                now,
                data,
            };
            if !self.made_again(&made, again) {
                self.applied.push(made);
            }
        }
        outcome
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Bulk) {
        let (outcome, units) = self.volume.read(fid, offset, len);
        self.note_refused(&outcome);
        (outcome, self.hold(units))
    }

    fn digests(&self, bulk: Bulk) -> Vec<Digest> {
        let units = self.bulks.get(&bulk);
        units.map_or_else(Vec::new, |units| crate::lending::digests(units))
    }

    fn read_whole(&mut self, files: &[(Fid, u32)]) -> (Vec<u32>, Bulk) {
        let (mut all, mut lens) = (Units::new(), Vec::new());
        for (fid, size) in files {
            let (outcome, units) = self.volume.read(*fid, 0, *size);
            self.note_refused(&outcome);
            let whole = Outcome::Read {
                len: *size,
                size: u64::from(*size),
            };
            lens.push(if outcome == whole { *size } else { 0 });
            all.extend(units.into_iter().filter(|_| outcome == whole));
        }
        (lens, self.hold(all))
    }

    fn answer(&self, origin: Origin) -> Option<Outcome> {
        let answer = self.volume.answer(origin);
        if answer.is_some() {
            self.meet(Rare::RepliedFromStore);
        }
        answer
    }

    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Refusal> {
        self.volume.lookup(dir, name)
    }

    fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal> {
        self.volume.attr(fid)
    }

    fn bare(&self, fid: Fid) -> bool {
        self.volume.bare(fid)
    }

    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal> {
        self.volume.place(fid)
    }

    fn orphans(&self) -> Vec<Fid> {
        self.volume.orphans()
    }

    fn volumes(&self) -> Vec<VolumeInfo> {
        self.volume.volumes()
    }

    fn room(&self, volume: u32) -> RoomOfDisk {
        self.volume.room(volume)
    }

    fn open_session(&mut self, session: SessionId, machine: MachineId) {
        self.logged = true;
        self.volume.open_session(session, machine);
    }

    fn note_time(&mut self, shown: Time) {
        self.logged = true;
        self.volume.note_time(shown);
    }

    fn newest(&self) -> Time {
        self.volume.newest()
    }

    fn note_held(&mut self, at: (SessionId, Fid), most: Right, less: bool) {
        self.holder_notes.note(at, most, less);
    }

    fn note_away(&mut self, session: SessionId, away: bool) {
        self.logged = true;
        self.volume.note_away(session, away);
    }

    fn close_session(&mut self, session: SessionId) {
        self.logged = true;
        self.volume.close_session(session);
    }

    fn logged(&self) -> u64 {
        self.volume.changed()
    }

    fn stable(&self) -> u64 {
        self.volume.stable()
    }

    fn make_firm(&mut self) {
        (self.logged, self.firm) = (true, true);
    }

    fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        self.volume.forget_answers(session, below);
    }
}
