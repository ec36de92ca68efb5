//! The faults of a disk in memory: which call, how, and for how long.

use std::io;

/// A call to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Open a file that exists.
    Open,
    /// Open a file and make it where it does not exist.
    Create,
    /// Remove a file.
    Remove,
    /// Give a file another name.
    Rename,
    /// List the names.
    List,
    /// Put the names on stable storage.
    SyncNames,
    /// Bytes in all and free.
    Space,
    /// Length of a file.
    Length,
    /// Read bytes of a file.
    Read,
    /// Write bytes of a file.
    Write,
    /// Cut a file off, or make it longer.
    Resize,
    /// Reserve room.
    Reserve,
    /// Put a file on stable storage.
    Sync,
    /// Look something up in the committed index, where the disk itself is the index engine.
    Look,
    /// Commit changes of the index, where the disk itself is the index engine.
    Commit,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Open,
        Self::Create,
        Self::Remove,
        Self::Rename,
        Self::List,
        Self::SyncNames,
        Self::Space,
        Self::Length,
        Self::Read,
        Self::Write,
        Self::Resize,
        Self::Reserve,
        Self::Sync,
        Self::Look,
        Self::Commit,
    ];

    /// Can it change what is on the disk?
    pub fn changes(self) -> bool {
        !matches!(
            self,
            Self::Open | Self::List | Self::Space | Self::Length | Self::Read | Self::Look
        )
    }

    /// Can it need room that is not there?
    pub fn needs_room(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Write | Self::Resize | Self::Reserve | Self::Commit
        )
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with an input/output error and does nothing; later calls work.
    Fail,
    /// The call does half of its work and fails; later calls work.
    Half,
    /// The call finds no room and does nothing; later calls work.
    Full,
    /// The sync fails, and the bytes that it should have put on stable storage will never be there,
    /// although they are still read and the next sync does not say so. Other calls: as
    /// [`Fault::Fail`].
    Drop,
    /// The call does half of its work and fails; so does every later call that changes something,
    /// until the crash.
    Die,
}

/// One call, or all from one on, that go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which calls are counted; `None`: all that change something.
    pub verb: Option<Verb>,
    /// Which of them goes wrong, counted from now; 1: the next one.
    pub at: u64,
    /// How.
    pub fault: Fault,
    /// All later ones too, until [`super::MemoryDisk::heal`] or a crash.
    pub lasting: bool,
}

/// How a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Whole,
    /// Half of it, then the error.
    Half,
    /// It fails, and the bytes on their way to stable storage are lost.
    Dropped,
}

pub(super) fn broken() -> io::Error {
    io::Error::other("the disk was told to fail")
}

/// Counts calls and decides how each goes.
#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [u64; Verb::ALL.len()],
    /// Calls that change something.
    pub(super) changing: u64,
    /// The fault to come, and the number of the call in its count.
    planned: Option<(Failure, u64)>,
    dead: bool,
    hits: u64,
    paused: bool,
}

impl Faults {
    pub(super) fn count(&self, verb: Verb) -> u64 {
        self.counts[verb as usize]
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    pub(super) fn plan(&mut self, failure: Failure) {
        let count = failure.verb.map_or(self.changing, |verb| self.count(verb));
        self.planned = Some((failure, count + failure.at));
    }

    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    pub(super) fn heal(&mut self) {
        self.planned = None;
        self.dead = false;
    }

    /// Does the plan concern this call, which has been counted?
    fn strikes(&self, verb: Verb) -> Option<Fault> {
        let (failure, at) = self.planned?;
        let count = match failure.verb {
            Some(of) if of == verb => self.count(verb),
            None if verb.changes() => self.changing,
            _ => return None,
        };
        let now = count == at || failure.lasting && count > at;
        now.then_some(failure.fault)
    }

    pub(super) fn step(&mut self, verb: Verb) -> io::Result<Course> {
        if self.paused {
            return Ok(Course::Whole);
        }
        if self.dead && verb.changes() {
            return Err(broken());
        }
        self.counts[verb as usize] += 1;
        self.changing += u64::from(verb.changes());
        let Some(fault) = self.strikes(verb) else {
            return Ok(Course::Whole);
        };
        self.hits += 1;
        match fault {
            Fault::Fail => Err(broken()),
            Fault::Full => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Fault::Drop => Ok(Course::Dropped),
            Fault::Half => Ok(Course::Half),
            Fault::Die => {
                self.dead = true;
                Ok(Course::Half)
            }
        }
    }

    /// Of a call that does all or nothing.
    pub(super) fn whole_step(&mut self, verb: Verb) -> io::Result<()> {
        match self.step(verb)? {
            Course::Whole => Ok(()),
            Course::Half | Course::Dropped => Err(broken()),
        }
    }
}
