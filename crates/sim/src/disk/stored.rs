//! The real store on a disk in memory. Here stamps become bytes and bytes become stamps: a unit's
//! bytes are its stamp over and over, so that a unit that is torn, shifted or mixed is noticed.

use super::rot::Rot;
use super::{Change, Closed, Share, Trouble, Troubles, UNIT, Units, Volume};
use crate::rng::Rng;
use std::cell::RefCell;
use store::{Apply, Keep, MemoryDisk, Mutant, Options, Store, StoreError, fsck_memory};
use wire::{
    Attr, Caller, Fid, Kind, MachineId, Name, Op, Origin, Outcome, Refusal, RequestId, RoomOfDisk,
    SessionId, Time, VolumeInfo,
};

/// A unit whose bytes are not one stamp over and over.
const TORN: u64 = u64::MAX;
/// Numbers in a unit.
const STAMPS: usize = UNIT as usize / size_of::<u64>();

/// A store and its disk.
pub(super) struct Stored {
    disk: MemoryDisk,
    options: Options,
    /// A checkpoint is made after so many bytes of changes.
    checkpoint_bytes: u64,
    /// In a cell since listing a directory is an operation.
    store: RefCell<Store>,
    open: bool,
    /// How often it had been opened when its process died.
    boots: u64,
    rot: Rot,
}

fn bytes(units: &[u64]) -> Vec<u8> {
    units
        .iter()
        .flat_map(|unit| unit.to_le_bytes().repeat(STAMPS))
        .collect()
}

fn units(bytes: &[u8]) -> Units {
    let unit = |unit: &[u8]| {
        let first = &unit[..size_of::<u64>().min(unit.len())];
        let whole = unit.len() == UNIT as usize;
        match <[u8; 8]>::try_from(first) {
            Ok(stamp) if whole && unit.chunks(8).all(|stamps| stamps == first) => {
                u64::from_le_bytes(stamp)
            }
            _ => TORN,
        }
    };
    bytes.chunks(UNIT as usize).map(unit).collect()
}

/// A store that stands for none.
fn empty() -> Store {
    Store::in_memory(&Options::default()).expect("a new disk in memory")
}

impl Stored {
    /// `steady`: checkpoints are made here and in no thread of their own, so that what a power
    /// failure leaves, and what may rot, follows from the seed.
    pub(super) fn new(
        rng: &mut Rng,
        (steady, troubles): (bool, Troubles),
        mutant: Option<Mutant>,
    ) -> Self {
        // Room is reserved by the segment: a disk is full, and names are synced, when one ends.
        let (segment, most) = match troubles.any() {
            true => ((4, 12), 4),
            false => ((8, 128), 64),
        };
        let mut options = Options {
            segment_bytes: rng.between(segment.0, segment.1) << 10,
            checkpoint_bytes: rng.between(1, most) << 10,
            checkpoint_ms: rng.between(0, 200),
            inline_bytes: *rng.pick(&[0, 512, 1024, 8192]),
            share_bytes: 1,
            share_from: 1024,
            mutant,
            ..Options::default()
        };
        let mut checkpoint_bytes = 1 << 40; // never
        if steady {
            std::mem::swap(&mut options.checkpoint_bytes, &mut checkpoint_bytes);
            options.checkpoint_ms = 0;
        }
        if troubles.limits.is_some() {
            // As in earnest: a block that is written in part gets no more than a block.
            options.inline_bytes = options.inline_bytes.min(1024);
        }
        let disk = MemoryDisk::new();
        let store = Store::create_in_memory(&disk, &options).expect("a new disk in memory");
        Self {
            disk,
            options,
            checkpoint_bytes,
            store: RefCell::new(store),
            open: true,
            boots: 0,
            rot: Rot::default(),
        }
    }

    fn ask(&self, op: &Op) -> Outcome {
        let caller = &Caller::default();
        let apply = Apply {
            op,
            caller,
            now: 0,
            origin: None,
            data: &[],
            delegated: None,
        };
        self.store.borrow_mut().apply(apply)
    }

    fn list(&self, dir: Fid) -> Vec<(Name, Fid)> {
        match self.ask(&Op::ReadDir {
            dir,
            after: 0,
            max: 4096,
        }) {
            Outcome::Dir { entries, .. } => entries
                .into_iter()
                .map(|entry| (entry.name, entry.fid))
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl Volume for Stored {
    fn apply(&mut self, change: Change<'_>) -> Outcome {
        let data = bytes(change.data);
        let Change {
            now,
            op,
            caller,
            origin,
            ..
        } = change;
        let apply = Apply {
            op,
            caller,
            now,
            origin,
            data: &data,
            delegated: change.delegated,
        };
        self.store.get_mut().apply_beside(apply, change.promised)
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Units) {
        let mut into = Vec::new();
        let outcome = self.store.get_mut().read(fid, offset, len, &mut into);
        (outcome, units(&into))
    }

    fn peek(&mut self, fid: Fid, offset: u64, len: u32) -> Units {
        let (disk, store) = (&self.disk, self.store.get_mut());
        let mut into = Vec::new();
        // Units shared by a copy may be rotten: nobody has read them.
        let read = || store.read(fid, offset, len, &mut into);
        disk.quietly(|| self.rot.overlook(disk, read));
        units(&into)
    }

    fn answer(&self, origin: Origin) -> Option<Outcome> {
        self.store.borrow().answer(origin)
    }

    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Refusal> {
        self.store.borrow().lookup(dir, name)
    }

    fn before(&self, from: (Fid, &Name), to: (Fid, &Name)) -> (Option<Fid>, Option<Fid>) {
        let named = |(dir, name)| self.lookup(dir, name).ok().flatten();
        self.disk.quietly(|| (named(from), named(to)))
    }

    fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal> {
        self.store.borrow().attr(fid)
    }

    fn bare(&self, fid: Fid) -> bool {
        self.store.borrow().is_bare(fid)
    }

    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal> {
        self.store.borrow().place(fid)
    }

    fn orphans(&self) -> Vec<Fid> {
        self.store.borrow().orphans()
    }

    fn volumes(&self) -> Vec<VolumeInfo> {
        self.store.borrow().volumes()
    }

    fn room(&self, volume: u32) -> RoomOfDisk {
        self.store.borrow().room(volume)
    }

    fn open_session(&mut self, session: SessionId, machine: MachineId) {
        self.store.get_mut().open_session(session, machine);
    }

    fn note_time(&mut self, shown: Time) {
        self.store.get_mut().note_time(shown);
    }

    fn note_away(&mut self, session: SessionId, away: bool) {
        self.store.get_mut().note_away(session, away);
    }

    fn away(&self) -> Vec<SessionId> {
        self.store.borrow().away()
    }

    fn close_session(&mut self, session: SessionId) {
        self.store.get_mut().close_session(session);
    }

    fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        self.store.get_mut().forget_answers(session, below);
    }

    fn sessions(&self) -> Vec<SessionId> {
        self.store.borrow().sessions()
    }

    fn logged_bytes(&self) -> u64 {
        self.store.borrow().stats().appended_bytes
    }

    fn newest(&self) -> Time {
        self.store.borrow().newest()
    }

    fn names(&self, dir: Fid) -> Vec<(Name, Fid)> {
        self.list(dir)
    }

    fn files(&self) -> Vec<(Fid, Attr)> {
        let mut found = Vec::new();
        let mut fids = vec![self.store.borrow().root()];
        while let Some(fid) = fids.pop() {
            let Ok(Some(attr)) = self.attr(fid) else {
                continue;
            };
            if attr.kind == Kind::Directory {
                fids.extend(self.list(fid).into_iter().map(|(_, fid)| fid));
            }
            found.push((fid, attr));
        }
        found
    }

    fn write_out(&mut self) -> Result<(), String> {
        let store = self.store.get_mut();
        let due = store.stats().changed_bytes > self.checkpoint_bytes;
        store.write_out().map_err(|error| error.to_string())?;
        if due {
            // One that fails is made again, and nobody but the log is told.
            if store.checkpoint().is_ok() {
                self.rot.checkpointed(&self.disk);
            }
        }
        Ok(())
    }

    fn tend(&mut self, now: Time) -> Option<Time> {
        self.store.get_mut().tend(now)
    }

    fn sync(&mut self) -> Result<(), String> {
        let synced = self.store.get_mut().sync_handle().sync();
        synced.map_err(|error| error.to_string())?;
        self.rot.synced(&self.disk, self.position());
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.boots = self.store.get_mut().boot();
        self.open = false;
        let closed = self.store.replace(empty()).close();
        closed.map_err(|error| error.to_string())
    }

    fn carry(&self, before: Option<Box<dyn Volume>>, share: Share) -> Box<dyn Volume> {
        let disk = before.and_then(|before| before.memory());
        let disk = disk.unwrap_or_default();
        let files = self.disk.files();
        let last = files.last().map(|(name, _)| name.clone());
        let wants = |name: &str| share == Share::Whole || Some(name) != last.as_deref();
        disk.carry(&self.disk, &wants);
        let boots = match self.open {
            true => self.store.borrow_mut().boot(),
            false => self.boots,
        };
        Box::new(Self {
            disk,
            options: self.options.clone(),
            checkpoint_bytes: self.checkpoint_bytes,
            store: RefCell::new(empty()),
            open: false,
            boots,
            rot: Rot::default(),
        })
    }

    fn memory(&self) -> Option<MemoryDisk> {
        Some(self.disk.clone())
    }

    fn sync_copy(&mut self) {
        self.disk.sync_all();
    }

    fn power_at_rest(&mut self, keep: Keep) {
        self.disk.crash(keep);
    }

    fn die(&mut self) {
        if !self.open {
            return;
        }
        self.boots = self.store.get_mut().boot();
        *self.store.get_mut() = empty();
        self.open = false;
    }

    fn open(&mut self) -> Result<Option<u64>, Closed> {
        if self.open {
            return Ok(None);
        }
        let store = Store::open_in_memory(&self.disk, &self.options);
        let mut store = store.map_err(|error| {
            let what = format!("recovery failed: {error}");
            match error {
                StoreError::NoSpace | StoreError::Io { .. } => Closed::Disk(what),
                _ => Closed::Wrong(what),
            }
        })?;
        // Each opening leaves a record, and so may one that failed behind it.
        let opened = store.boot() - self.boots;
        *self.store.get_mut() = store;
        self.open = true;
        self.rot.opened(&self.disk, self.position());
        Ok(Some(self.position() - opened))
    }

    fn trouble(&mut self, trouble: Option<Trouble>) {
        match trouble {
            None => {
                self.disk.heal();
                self.disk.set_capacity(1 << 40);
            }
            Some(Trouble::Full { spare }) => {
                // The room kept for cleaning is there, or others have taken it too.
                let kept = self.store.get_mut().stats().kept_bytes;
                let kept = if spare > 0 { kept } else { 0 };
                self.disk.leave_room(kept + spare);
            }
            Some(Trouble::Errors(failure)) => self.disk.fail(failure),
        }
    }

    fn failed_calls(&self) -> u64 {
        self.disk.hits()
    }

    fn power(&mut self, keep: Keep) -> Result<u64, String> {
        // The store must have let go of the disk before.
        *self.store.get_mut() = empty();
        self.disk.crash(keep);
        self.disk.set_capacity(1 << 40);
        let failed = |error| format!("recovery failed: {error}");
        let mut opened = Store::open_in_memory(&self.disk, &self.options);
        // Somebody looks after the machine then, and its files are compared byte by byte.
        let rotten = self.is_rotten();
        self.mend();
        if opened.is_err() && rotten {
            opened = Store::open_in_memory(&self.disk, &self.options);
        }
        *self.store.get_mut() = opened.map_err(failed)?;
        self.open = true;
        let kept = self.position() - 1; // the last record is that of the opening
        self.store.get_mut().pass_over_numbers().map_err(failed)?;
        self.rot.opened(&self.disk, self.position());
        Ok(kept)
    }

    fn position(&self) -> u64 {
        self.store.borrow().stats().records
    }

    fn changed(&self) -> u64 {
        self.store.borrow().changed_record()
    }

    fn stable(&self) -> u64 {
        self.store.borrow().stable_record()
    }

    fn left(&self) -> u64 {
        self.store.borrow().left_record()
    }

    fn rot(&mut self, at_ppm: u32) -> bool {
        self.rot.rot(&self.disk, at_ppm)
    }

    fn is_rotten(&self) -> bool {
        self.rot.any()
    }

    fn mend(&mut self) {
        self.rot.mend(&self.disk);
    }

    fn check(&mut self) -> Result<(), String> {
        self.write_out()?;
        let report = fsck_memory(&self.disk.copy()).map_err(|error| error.to_string())?;
        if report.is_clean() {
            Ok(())
        } else {
            Err(report.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_come_back_and_torn_units_are_noticed() {
        let stamps = vec![7, 0, u64::MAX - 1];
        let mut all = bytes(&stamps);
        assert_eq!(units(&all), stamps);
        all[600] ^= 1;
        assert_eq!(units(&all), vec![7, TORN, u64::MAX - 1]);
    }
}
