//! The jobs: which notifications are written for each, and what counts as its end.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Inner, Kind, Outcome, count};
use crate::abi;

/// How long an inode whose first reply may still be on its way is waited for: the reply may be one
/// that comes only after this (an open that makes and cuts)...
const YOUNG_WAIT: Duration = Duration::from_millis(50);
/// ...and how often it is tried meanwhile, at first.
const YOUNG_PAUSE: Duration = Duration::from_micros(200);

impl Inner {
    /// Does a job, on a thread that may wait for what it needs.
    pub(super) fn carry_out(&self, kind: Kind, known: &dyn Fn() -> bool) -> Outcome {
        match kind {
            Kind::Entry { parent, name, attr } => self.take_back_entry(parent, &name, attr),
            Kind::Expire { parent, names } => self.expire(parent, &names),
            Kind::Sizes { nodeid } => self.take_back_sizes(nodeid),
            Kind::Turn { nodeid } => self.take_turn(nodeid),
            Kind::Inode {
                nodeid,
                ranges,
                young,
            } => self.take_back_inode(nodeid, &ranges, || young && known()),
            Kind::Grown { nodeid, size } => match self.grown(nodeid, size) {
                Ok(()) | Err(Errno::NOENT) => Outcome::Done,
                Err(errno) => Outcome::Failed(errno),
            },
            Kind::Unused { nodeids } => self.let_go(&nodeids),
            Kind::Epoch => match self.inc_epoch() {
                Ok(()) => Outcome::Epoch,
                Err(errno) => Outcome::Failed(errno),
            },
        }
    }

    /// The name, then what depends on it.
    fn take_back_entry(&self, parent: u64, name: &[u8], attr: bool) -> Outcome {
        let outcome = match self.inval_entry(parent, name, 0) {
            // A name the kernel does not know is not cached.
            Ok(()) | Err(Errno::NOENT) => Outcome::Done,
            Err(_) if self.inc_epoch().is_ok() => Outcome::Epoch,
            Err(errno) => Outcome::Failed(errno),
        };
        match attr.then(|| self.inval_inode(parent, 0, 0)) {
            None | Some(Ok(()) | Err(Errno::NOENT)) => outcome,
            Some(Err(errno)) => Outcome::Failed(errno),
        }
    }

    /// The names stay, and so do mounts on them; a directory that is gone has none.
    fn expire(&self, parent: u64, names: &[Vec<u8>]) -> Outcome {
        for name in names {
            match self.inval_entry(parent, name, abi::notify::EXPIRE_ONLY) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Outcome::Failed(errno),
            }
        }
        match self.inval_inode(parent, 0, 0) {
            Ok(()) | Err(Errno::NOENT) => Outcome::Done,
            Err(errno) => Outcome::Failed(errno),
        }
    }

    /// Drops a name that cannot be: all that the kernel does is to get the lock, also that of a
    /// file, in which it then looks for no name. (So Linux up to 6.18. Later ones look before they
    /// lock; there it is no proof.)
    fn take_turn(&self, nodeid: u64) -> Outcome {
        match self.inval_entry(nodeid, b"/", 0) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Outcome::Done,
            Err(errno) => Outcome::Failed(errno),
        }
    }

    /// In one go: a thread that gets the lock after the first turn has little time to ask before
    /// the attributes are taken back.
    fn take_back_sizes(&self, nodeid: u64) -> Outcome {
        let before = self.take_turn(nodeid);
        match self.inval_inode(nodeid, -1, 0) {
            Ok(()) if before == Outcome::Done => self.take_turn(nodeid),
            Ok(()) => before,
            Err(Errno::NOENT) => Outcome::Done,
            Err(errno) => Outcome::Failed(errno),
        }
    }

    /// Each range in turn. A file the kernel does not know has nothing cached, unless the reply
    /// that tells of it has been written and not yet been digested: it is waited for until it has,
    /// or until the kernel has said that it has forgotten the file. If that does not come all names
    /// are looked up again, which brings fresh attributes with it, but is more than is asked for.
    fn take_back_inode(
        &self,
        nodeid: u64,
        ranges: &[(i64, i64)],
        known: impl Fn() -> bool,
    ) -> Outcome {
        let begin = Instant::now();
        for &(offset, len) in ranges {
            loop {
                match self.inval_inode(nodeid, offset, len) {
                    Ok(()) => {
                        if offset >= 0 {
                            count(&self.counters.pages);
                        }
                        break;
                    }
                    Err(Errno::NOENT) if !known() => break,
                    Err(Errno::NOENT) if begin.elapsed() < YOUNG_WAIT => {
                        count(&self.counters.young_retries);
                        // Nothing tells when the kernel has digested a reply. Most it has at once.
                        std::thread::sleep(YOUNG_PAUSE.max(begin.elapsed() / 8));
                    }
                    Err(Errno::NOENT) => {
                        return if self.inc_epoch().is_ok() {
                            Outcome::Epoch
                        } else {
                            Outcome::Done
                        };
                    }
                    Err(errno) => return Outcome::Failed(errno),
                }
            }
        }
        Outcome::Done
    }
}
