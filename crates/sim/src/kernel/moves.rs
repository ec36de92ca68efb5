//! rename(2), as `fs/namei.c` and `fs/fuse/dir.c` have it: which locks are held while the daemon is
//! asked, and what is refused without asking it.

use super::change::held;
use super::names::Look;
use super::{Kernel, Pin, Result};
use crate::exec::Guard;
use crate::room::Reply;
use logic::client::{Call, Done};
use std::rc::Rc;
use wire::{Fid, Kind, Name, Op, Refusal};

/// A name in a directory.
type Place<'a> = (&'a Pin, &'a Name);

/// The effect of rename(2), as far as the kernel knows.
pub(crate) enum Renamed {
    /// Both names named this object: nothing.
    Nothing(Fid),
    /// The daemon moved the object with the old name: this one, when the kernel looked it up.
    Moved(Fid),
}

/// The directories are locked: of two, if one is above the other, this is what the path goes
/// through below that.
struct Locked {
    _guards: Vec<Guard>,
    trap: Option<Fid>,
}

impl Kernel {
    /// The directory that a directory is in, as far as this kernel has been told.
    fn above(&self, fid: Fid) -> Option<Fid> {
        self.parents.borrow().get(&fid).copied()
    }

    /// This directory is in that one.
    pub(super) fn is_now_in(&self, fid: Fid, above: Fid) {
        let before = self.parents.borrow_mut().insert(fid, above);
        if let Some(before) = before.filter(|before| *before != above) {
            self.evict_if_unused(before);
        }
    }

    /// On the way up from this directory to that one, the last before it.
    fn below(&self, from: Fid, to: Fid) -> Option<Fid> {
        let mut at = from;
        // Replies of different times may go round in a circle.
        for _ in 0..self.parents.borrow().len() {
            match self.above(at)? {
                above if above == to => return Some(at),
                above => at = above,
            }
        }
        None
    }

    /// A name turns out to mean a directory that this kernel knows in another one: may it come from
    /// there to here (`d_splice_alias`)? Not while something else is being moved, or the other one
    /// is locked: it does not wait for that; nor to below itself.
    pub(super) fn may_come_to(&self, pin: &Pin, dir: Fid) -> bool {
        let inode = &pin.inode;
        let used = inode.pins.get() > 1 || inode.names.get() > 0;
        let elsewhere = |above: &Fid| *above != dir && used && inode.kind == Kind::Directory;
        let Some(above) = self.above(pin.fid()).filter(elsewhere) else {
            return true;
        };
        let free = self
            .inode(above)
            .is_none_or(|above| above.lock.is_free(false));
        let below = pin.fid() == dir || self.below(dir, pin.fid()).is_some();
        !below && free && self.renaming.is_free(true)
    }

    /// Locks both directories, one above the other before that.
    async fn lock_both(&self, from: &Pin, to: &Pin) -> Locked {
        if from.fid() == to.fid() {
            let _guards = vec![self.alone(&from.inode).await];
            return Locked {
                _guards,
                trap: None,
            };
        }
        let renaming = self.renaming.lock(&self.world.sched, true).await;
        let trap = self.below(to.fid(), from.fid());
        let other = self.below(from.fid(), to.fid());
        let from_first = trap.is_some() || (other.is_none() && from.fid() <= to.fid());
        let (first, second) = if from_first { (from, to) } else { (to, from) };
        let first = self.alone(&first.inode).await;
        let second = self.alone(&second.inode).await;
        Locked {
            _guards: vec![second, first, renaming],
            trap: trap.or(other),
        }
    }

    /// Locks what is moved and what has the new name: directories first, and these only if they
    /// come to be in another one, or are replaced.
    async fn lock_moved(
        &self,
        pins: [Option<&Pin>; 2],
        (cross, exchange): (bool, bool),
    ) -> Vec<Guard> {
        let [source, target] = pins;
        let is_dir = |pin: &&Pin| pin.inode.kind == Kind::Directory;
        let mut dirs = Vec::new();
        dirs.extend(source.filter(is_dir).filter(|_| cross));
        dirs.extend(target.filter(is_dir).filter(|_| cross || !exchange));
        let mut files: Vec<&Pin> = pins
            .into_iter()
            .flatten()
            .filter(|pin| !is_dir(pin))
            .collect();
        files.sort_by_key(|pin| pin.fid());
        let mut held = Vec::new();
        for pin in dirs.into_iter().chain(files) {
            held.push(self.alone(&pin.inode).await);
        }
        held
    }

    /// rename(2).
    pub(crate) async fn rename(self: &Rc<Self>, from: Place<'_>, to: Place<'_>) -> Result<Renamed> {
        self.walk_again(async |again| self.rename_once(from, to, held(again)).await)
            .await
    }

    async fn rename_once(
        self: &Rc<Self>,
        (from, old): Place<'_>,
        (to, new): Place<'_>,
        look: Look,
    ) -> Result<Renamed> {
        let locked = self.lock_both(from, to).await;
        let source = self.lookup(from, old, look).await?;
        let source = source.ok_or(Refusal::NotFound)?;
        let target = self.lookup(to, new, Look::Fresh).await?;
        if locked.trap == Some(source.fid()) {
            return Err(Refusal::Invalid);
        }
        if let Some(target) = &target {
            if locked.trap == Some(target.fid()) {
                return Err(Refusal::NotEmpty);
            }
            if target.fid() == source.fid() {
                return Ok(Renamed::Nothing(source.fid()));
            }
            if target.inode.kind == Kind::Directory && source.inode.kind != Kind::Directory {
                return Err(Refusal::IsDirectory);
            }
            if target.inode.kind != Kind::Directory && source.inode.kind == Kind::Directory {
                return Err(Refusal::NotDirectory);
            }
        }
        let objects = (&source, target.as_ref());
        self.carry_out((from, old), (to, new), objects, false).await
    }

    /// The same with RENAME_EXCHANGE.
    pub(crate) async fn exchange(
        self: &Rc<Self>,
        from: Place<'_>,
        to: Place<'_>,
    ) -> Result<Renamed> {
        self.walk_again(async |again| self.exchange_once(from, to, held(again)).await)
            .await
    }

    async fn exchange_once(
        self: &Rc<Self>,
        (from, old): Place<'_>,
        (to, new): Place<'_>,
        look: Look,
    ) -> Result<Renamed> {
        let locked = self.lock_both(from, to).await;
        let one = self.lookup(from, old, look).await?;
        let one = one.ok_or(Refusal::NotFound)?;
        let other = self.lookup(to, new, look).await?;
        let other = other.ok_or(Refusal::NotFound)?;
        if [one.fid(), other.fid()].map(Some).contains(&locked.trap) {
            return Err(Refusal::Invalid);
        }
        if one.fid() == other.fid() {
            return Ok(Renamed::Nothing(one.fid()));
        }
        let objects = (&one, Some(&other));
        self.carry_out((from, old), (to, new), objects, true).await
    }

    /// Both names have been looked up: the daemon is asked, and its change is repeated here.
    async fn carry_out(
        &self,
        (from, old): Place<'_>,
        (to, new): Place<'_>,
        (source, target): (&Pin, Option<&Pin>),
        exchange: bool,
    ) -> Result<Renamed> {
        let cross = from.fid() != to.fid();
        self.check_permission(from).await?;
        self.check_permission(to).await?;
        let pins = [Some(source), target];
        let _held = self.lock_moved(pins, (cross, exchange)).await;
        let op = Op::Rename {
            from: from.fid(),
            name: old.clone(),
            to: to.fid(),
            new: new.clone(),
            no_replace: false,
            exchange,
        };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        let keys = [(from.fid(), old.clone()), (to.fid(), new.clone())];
        if !matches!(reply.done, Done::Nothing) {
            return self.not_renamed(&keys, &reply);
        }
        source.inode.valid.set(false);
        self.dir_changed(&from.inode);
        self.dir_changed(&to.inode);
        match target {
            Some(target) if exchange => target.inode.valid.set(false),
            Some(target) => self.unlinked(&target.inode),
            None => {}
        }
        if exchange {
            self.swap_dentries(&keys[0], &keys[1]);
        } else {
            self.move_dentry(&keys[0], &keys[1]);
        }
        Ok(Renamed::Moved(source.fid()))
    }

    fn not_renamed(&self, keys: &[(Fid, Name); 2], reply: &Reply) -> Result<Renamed> {
        if matches!(
            reply.done,
            Done::Refused(Refusal::NotFound | Refusal::Interrupted)
        ) {
            self.drop_dentry(&keys[0]);
            self.drop_dentry(&keys[1]);
        }
        super::refused(&self.world, reply)
    }
}
