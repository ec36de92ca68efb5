//! The content of the server's disk: a volume that keeps changes, and may lose them.

use super::{Change, Share, Trouble, Units};
use store::{Keep, MemoryDisk};
use wire::{
    Attr, Fid, MachineId, Name, Origin, Outcome, Refusal, RequestId, RoomOfDisk, SessionId, Time,
    VolumeInfo,
};

/// A volume: two of them follow the same rules.
pub(super) trait Volume {
    fn apply(&mut self, change: Change<'_>) -> Outcome;
    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Units);
    /// The same, whatever is wrong with the disk.
    fn peek(&mut self, fid: Fid, offset: u64, len: u32) -> Units {
        self.read(fid, offset, len).1
    }
    fn answer(&self, origin: Origin) -> Option<Outcome>;
    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Refusal>;
    /// The objects of two names, whatever is wrong with the disk.
    fn before(&self, from: (Fid, &Name), to: (Fid, &Name)) -> (Option<Fid>, Option<Fid>) {
        let named = |(dir, name)| self.lookup(dir, name).ok().flatten();
        (named(from), named(to))
    }
    fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal>;
    /// Is it known that it has no extended attributes?
    fn bare(&self, fid: Fid) -> bool;
    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal>;
    fn orphans(&self) -> Vec<Fid>;
    fn volumes(&self) -> Vec<VolumeInfo>;
    fn room(&self, _volume: u32) -> RoomOfDisk {
        RoomOfDisk::ALL
    }
    fn open_session(&mut self, session: SessionId, machine: MachineId);
    fn note_time(&mut self, shown: Time);
    fn note_away(&mut self, session: SessionId, away: bool);
    /// The sessions of which the last of these notes said so.
    fn away(&self) -> Vec<SessionId>;
    fn close_session(&mut self, session: SessionId);
    fn forget_answers(&mut self, session: SessionId, below: RequestId);
    fn sessions(&self) -> Vec<SessionId>;
    /// The latest time of any change.
    fn newest(&self) -> Time;
    /// Bytes that went into the log so far, where there is one.
    fn logged_bytes(&self) -> u64 {
        0
    }
    fn names(&self, dir: Fid) -> Vec<(Name, Fid)>;
    /// Everything that has a name.
    fn files(&self) -> Vec<(Fid, Attr)>;
    fn write_out(&mut self) -> Result<(), String>;
    /// Does what wants doing though nobody changes anything; when again?
    fn tend(&mut self, _now: Time) -> Option<Time> {
        None
    }
    fn sync(&mut self) -> Result<(), String>;
    /// The process died.
    fn die(&mut self);
    /// Another one takes over, if it is not open: up to which place changes are left.
    fn open(&mut self) -> Result<Option<u64>, Closed>;
    /// Everything is made stable, and left at rest for another server.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// A copy at another server, at rest: it has what came before, and of this one as much as
    /// `share` says. It is stable when it is synced.
    fn carry(&self, before: Option<Box<dyn Volume>>, share: Share) -> Box<dyn Volume>;
    /// The disk, where there is one.
    fn memory(&self) -> Option<MemoryDisk> {
        None
    }
    /// A copy at rest is made stable.
    fn sync_copy(&mut self) {}
    /// The machine lost its power while it was at rest.
    fn power_at_rest(&mut self, _keep: Keep) {}
    /// Something is wrong with the disk from now on; `None`: nothing any more.
    fn trouble(&mut self, trouble: Option<Trouble>);
    /// How many calls went wrong.
    fn failed_calls(&self) -> u64;
    /// The machine lost its power, and came back: up to which place changes are left.
    fn power(&mut self, keep: Keep) -> Result<u64, String>;
    /// The place of the latest record.
    fn position(&self) -> u64;
    /// The place of the latest change.
    fn changed(&self) -> u64 {
        self.position()
    }
    /// Up to which record everything is stable.
    fn stable(&self) -> u64 {
        self.position()
    }
    /// The last record that the runs before this one have left.
    fn left(&self) -> u64 {
        self.position()
    }
    /// A byte rots, so far (parts of a million) into what may rot. Did one?
    fn rot(&mut self, at_ppm: u32) -> bool;
    /// Is any byte rotten?
    fn is_rotten(&self) -> bool;
    /// Rotten bytes become as they were.
    fn mend(&mut self);
    /// The fault of the structure.
    fn check(&mut self) -> Result<(), String>;
}

/// Why a volume could not be opened.
#[derive(Clone, Debug)]
pub(crate) enum Closed {
    /// The disk failed.
    Disk(String),
    /// The content differs from the one before.
    Wrong(String),
}
