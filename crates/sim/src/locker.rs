//! Programs that lock, and the board on which they note what they have: a judge of advisory locks.
//!
//! A locker is a process with two open files: it locks bytes as a process, bytes as an open file,
//! and a whole file, waiting or not, and is interrupted now and then. The locked files have no
//! bytes and are never opened: only the locks are judged. It notes a lock when it is told that it
//! has it, and crosses it out before it asks for less; so whenever two notes exclude each other,
//! two have had at one moment what only one may have. When the server fences a session, what its
//! machine has is crossed out. That every wait ends is judged as of any call.

use crate::disk::Units;
use crate::room::Room;
use crate::world::World;
use crate::wrong::wrong;
use logic::client::{Call, Done};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{Access, Fid, Lock, LockMode, LockOwner, LockWait, Refusal};

/// Bytes of a file that are locked or not.
const CELLS: usize = 10;
const FILES: u64 = 2;
/// Between two things that a locker does, at most.
const PAUSE_NS: u64 = 4_000_000;
/// Locks are those of files far away from the ones that exist.
const FIRST_VNODE: u64 = 1 << 40;

type Cells = [Option<LockMode>; CELLS];

/// The locks of each owner, as the programs have noted them.
#[derive(Default)]
pub(crate) struct Board(RefCell<BTreeMap<(u64, LockOwner), (u32, Cells)>>);

impl Board {
    /// Notes that an owner of this machine has cells of a file now; whose note excludes that?
    fn note(
        &self,
        host: u32,
        key: (u64, LockOwner),
        cells: &[usize],
        mode: LockMode,
    ) -> Option<u32> {
        let mut notes = self.0.borrow_mut();
        let own = notes.entry(key).or_insert((host, [None; CELLS]));
        cells.iter().for_each(|&cell| own.1[cell] = Some(mode));
        let others = notes.iter().filter(|((file, owner), _)| {
            (*file, owner.is_whole()) == (key.0, key.1.is_whole()) && *owner != key.1
        });
        let excludes = |other: LockMode| mode.max(other) == LockMode::Exclusive;
        let mut others = others.map(|(_, (host, other))| (*host, other));
        let found =
            others.find(|(_, other)| cells.iter().any(|&cell| other[cell].is_some_and(excludes)));
        found.map(|(host, _)| host)
    }

    /// Crosses out what is above this.
    fn lower(&self, key: (u64, LockOwner), cells: &[usize], most: Option<LockMode>) {
        if let Some((_, own)) = self.0.borrow_mut().get_mut(&key) {
            for &cell in cells {
                own[cell] = own[cell].min(most);
            }
        }
    }

    /// Does any of these have anything?
    fn has(&self, owners: &[LockOwner]) -> bool {
        let notes = self.0.borrow();
        let mut own = notes
            .iter()
            .filter(|((_, owner), _)| owners.contains(owner));
        own.any(|(_, (_, cells))| cells.iter().any(Option::is_some))
    }

    /// A machine has nothing any more.
    pub(crate) fn wipe(&self, host: u32) {
        self.0.borrow_mut().retain(|_, (of, _)| *of != host);
    }

    /// A machine has nothing of this file any more; what it has of others it keeps.
    pub(crate) fn take(&self, host: u32, fid: Fid) {
        let taken = |file: u64| Locker::fid(file) == fid;
        let mut notes = self.0.borrow_mut();
        notes.retain(|(file, _), (of, _)| *of != host || !taken(*file));
    }
}

/// One of these programs.
pub(crate) struct Locker {
    world: Rc<World>,
    room: Rc<Room>,
    process: LockOwner,
    bytes: LockOwner,
    whole: LockOwner,
    /// Of the two open files.
    handles: [u64; 2],
}

impl Locker {
    pub(crate) fn new(world: &Rc<World>, room: &Rc<Room>, number: u32) -> Self {
        let first = u64::from(room.host) << 16 | u64::from(number) << 8;
        Self {
            world: Rc::clone(world),
            room: Rc::clone(room),
            process: LockOwner::Bytes(first),
            bytes: LockOwner::Bytes(first + 1),
            whole: LockOwner::Whole(first + 2),
            handles: [first + 1, first + 2],
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.world.rng.borrow_mut().below(bound)
    }

    pub(crate) async fn run(&self, operations: u32) {
        for _ in 0..operations {
            let pause = self.below(PAUSE_NS);
            self.world.sched.sleep(pause).await;
            match self.below(10) {
                0..6 => self.lock().await,
                6 | 7 => self.unlock_some().await,
                8 => self.close_process().await,
                _ => self.close_file(self.handles[self.below(2) as usize]).await,
            }
        }
        self.close_process().await;
        for handle in self.handles {
            self.close_file(handle).await;
        }
    }

    /// Asks the daemon as the kernel does, and is interrupted after this time if it has to wait.
    async fn ask(&self, call: Call, interrupted: Option<(u64, bool)>) -> Done {
        let world = &self.world;
        let delay = world.plan.kernel_delay(&mut world.rng.borrow_mut());
        world.sched.sleep(delay).await;
        let said = format!("{call:?}");
        let call_number = world.history.call(self.room.host, said, world.sched.now());
        let reply = self.room.call(world, call, Units::new(), true);
        if let Some(after) = interrupted {
            let (after, ends) = after;
            self.room.signal_later(world, after, ends);
        }
        let done = reply.wait().await.done;
        world.history.forgotten(call_number);
        done
    }

    fn fid(file: u64) -> Fid {
        Fid {
            vnode: FIRST_VNODE + file,
            ..Fid::root(1)
        }
    }

    fn range(&self, owner: LockOwner) -> (Vec<usize>, u64, u64) {
        if owner.is_whole() {
            return ((0..CELLS).collect(), 0, u64::MAX);
        }
        let first = self.below(CELLS as u64);
        let last = (first + self.below(5)).min(CELLS as u64 - 1);
        ((first as usize..=last as usize).collect(), first, last)
    }

    fn handle_of(&self, owner: LockOwner) -> u64 {
        match owner {
            LockOwner::Whole(_) => self.handles[1],
            _ if owner == self.bytes => self.handles[0],
            LockOwner::Bytes(_) => 0,
        }
    }

    /// May it wait without waiting for ever? A wait as a process is refused then; a program that
    /// waits as an open file must have nothing that others may be waiting for.
    fn may_wait(&self, owner: LockOwner) -> bool {
        let board = &self.world.board;
        let files = [self.bytes, self.whole];
        !board.has(&files) && (owner == self.process || !board.has(&[self.process]))
    }

    async fn lock(&self) {
        let world = &self.world;
        let owner = match self.below(4) {
            0 => self.bytes,
            1 => self.whole,
            _ => self.process,
        };
        let file = self.below(FILES);
        let (cells, first, last) = self.range(owner);
        let mode = match self.below(2) {
            0 => LockMode::Shared,
            _ => LockMode::Exclusive,
        };
        let wait = match self.below(3) {
            0 => LockWait::Never,
            _ if !self.may_wait(owner) => LockWait::Never,
            _ if owner == self.process => LockWait::UnlessDeadlocked,
            _ => LockWait::Always,
        };
        let waits = wait != LockWait::Never;
        let kills = world.plan.signals.0 > 0;
        let interrupted = (waits && self.below(4) == 0)
            .then(|| (self.below(3 * PAUSE_NS), kills && self.below(2) == 0));
        let key = (file, owner);
        // A lock that becomes weaker is given up; one of a whole file in any case. Of a process
        // that is killed nothing is left.
        let killed = interrupted.is_some_and(|(_, ends)| ends);
        let most = (!owner.is_whole() && !killed).then_some(mode);
        let had = world.board.has(&[self.process]);
        world.board.lower(key, &cells, most);
        let lock = Lock {
            owner,
            mode,
            first,
            last,
            pid: self.room.host,
        };
        let call = Call::Lock {
            fid: Self::fid(file),
            lock,
            wait,
            handle: self.handle_of(owner),
        };
        let lost = world.history.losses.borrow().len();
        match self.ask(call, interrupted).await {
            Done::Nothing => {
                world
                    .trace(|| format!("h{} has locked {first}..={last} of {file}", self.room.host));
                if let Some(other) = world.board.note(self.room.host, key, &cells, mode) {
                    let host = self.room.host;
                    world.fail(wrong!(
                        "h{host} and h{other} have locked the same, {mode:?}"
                    ));
                }
            }
            Done::Refused(Refusal::Locked) if !waits => {}
            Done::Refused(Refusal::Interrupted) if killed => self.close_all().await,
            Done::Refused(Refusal::Interrupted) if interrupted.is_some() => {}
            Done::Refused(Refusal::Deadlock)
                if had || lost < world.history.losses.borrow().len() =>
            {
                self.close_process().await;
            }
            Done::Refused(Refusal::SessionLost) => self.close_all().await,
            other => world.fail(wrong!("a request for a lock is answered with {other:?}")),
        }
    }

    /// The end of a process.
    async fn close_all(&self) {
        self.close_process().await;
        self.close_file(self.handles[0]).await;
        self.close_file(self.handles[1]).await;
    }

    async fn unlock(
        &self,
        file: u64,
        owner: LockOwner,
        (cells, first, last): (Vec<usize>, u64, u64),
    ) {
        self.world.board.lower((file, owner), &cells, None);
        let call = Call::Unlock {
            fid: Self::fid(file),
            owner,
            first,
            last,
        };
        let done = self.ask(call, None).await;
        if done != Done::Nothing {
            self.world
                .fail(wrong!("to unlock is answered with {done:?}"));
        }
    }

    async fn unlock_some(&self) {
        let owner = [self.process, self.process, self.bytes, self.whole][self.below(4) as usize];
        let range = self.range(owner);
        self.unlock(self.below(FILES), owner, range).await;
    }

    /// The process closes a descriptor of each file.
    async fn close_process(&self) {
        for file in 0..FILES {
            let all = ((0..CELLS).collect(), 0, u64::MAX);
            self.unlock(file, self.process, all).await;
        }
    }

    /// The last descriptor of an open file is closed. Nobody waits for that.
    async fn close_file(&self, handle: u64) {
        let owner = if handle == self.handles[0] {
            self.bytes
        } else {
            self.whole
        };
        let cells: Vec<usize> = (0..CELLS).collect();
        for file in 0..FILES {
            self.world.board.lower((file, owner), &cells, None);
            let call = Call::Release {
                fid: Self::fid(file),
                access: Access::default(),
                handle,
            };
            self.ask(call, None).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_of_one_file_are_taken_and_no_others() {
        let board = Board::default();
        let [silent, other] = [LockOwner::Bytes(1), LockOwner::Bytes(2)];
        let locks = |host, file, owner| board.note(host, (file, owner), &[3], LockMode::Exclusive);
        for file in 0..FILES {
            assert_eq!(locks(1, file, silent), None);
        }
        board.take(1, Locker::fid(0));
        assert_eq!(locks(2, 0, other), None);
        assert_eq!(locks(2, 1, other), Some(1));
    }
}
