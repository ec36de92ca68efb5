//! System calls that change names. The directory is locked from the look-up to the answer.

use super::attrs::Began;
use super::names::Look;
use super::{Handle, Inode, Kernel, PAGE_UNITS, Pin, Result};
use crate::exec::Guard;
use crate::room::Reply;
use crate::wrong::wrong;
use logic::client::{Call, Done, Lifetime};
use std::rc::Rc;
use wire::{Access, Fid, Kind, Make, Name, Op, Refusal};

const _: () = assert!(PAGE_UNITS * crate::disk::UNIT == super::PAGE);

/// How a name is looked up that the caller does not make anew.
pub(super) fn held(again: bool) -> Look {
    if again { Look::Fresh } else { Look::Locked }
}

impl Kernel {
    /// Does a system call once more from its beginning if it is told to begin again, or that its
    /// path is outdated, as Linux does for `ESTALE`: names are looked up whatever is known of them
    /// then. It does so once, whatever for.
    pub(super) async fn walk_again<T>(&self, once: impl AsyncFn(bool) -> Result<T>) -> Result<T> {
        let first = once(false).await;
        if !matches!(first, Err(Refusal::Again | Refusal::Stale)) {
            return first;
        }
        let second = once(true).await;
        if matches!(second, Err(Refusal::Again)) {
            self.world.fail(wrong!("a program is told to begin again"));
        }
        second
    }

    pub(super) async fn alone(&self, inode: &Inode) -> Guard {
        inode.lock.lock(&self.world.sched, true).await
    }

    /// May names change in this directory, which is locked (`may_create`, `may_delete`,
    /// `may_o_create`)? Its attributes are asked for unless they are known (`fuse_permission`).
    pub(super) async fn check_permission(&self, dir: &Pin) -> Result<()> {
        if !dir.inode.valid.get() {
            self.ask_attr(&dir.inode, false).await?;
        }
        Ok(())
    }

    /// open(2) with O_CREAT: the handle, and whether the file was made by this call as far as the
    /// kernel knows.
    pub(crate) async fn create(
        self: &Rc<Self>,
        at: (&Pin, &Name),
        how: (Access, bool),
        (exclusive, mode): (bool, u32),
    ) -> Result<(Handle, bool)> {
        self.walk_again(async |again| {
            let look = held(again || exclusive);
            self.create_once(at, how, (exclusive, mode, look)).await
        })
        .await
    }

    async fn create_once(
        self: &Rc<Self>,
        (dir, name): (&Pin, &Name),
        (access, append): (Access, bool),
        (exclusive, mode, look): (bool, u32, Look),
    ) -> Result<(Handle, bool)> {
        let lock = self.alone(&dir.inode).await;
        if let Some(pin) = self.lookup(dir, name, look).await? {
            drop(lock);
            if exclusive {
                return Err(Refusal::Exists);
            }
            return Ok((self.open(pin, (access, append)).await?, false));
        }
        self.check_permission(dir).await?;
        let epoch = self.epoch.get();
        let number = self.next_handle();
        let (make, open) = (Make::File, Some(access));
        let op = Op::Make {
            dir: dir.fid(),
            name: name.clone(),
            make,
            mode,
            open,
        };
        let mut reply = self.ask(Call::Op(op.clone()), Vec::new()).await;
        let mut made = true;
        while matches!(reply.done, Done::Refused(Refusal::Exists)) && !exclusive {
            made = false;
            let how = (access, append, number);
            reply = self.open_instead((dir.fid(), name), how).await;
            if matches!(reply.done, Done::Absent { .. }) {
                made = true;
                reply = self.ask(Call::Op(op.clone()), Vec::new()).await;
            }
        }
        let pin = self.made(dir, name, &reply, epoch).await?;
        drop(lock);
        let cached = matches!(reply.done, Done::Entry { cached: true, .. });
        self.descriptors.opened(pin.fid(), number);
        Ok((
            Handle {
                pin,
                access,
                append,
                cached,
                number,
            },
            made,
        ))
    }

    /// The daemon's way when the name to be made exists by now: it looks it up and opens it, and
    /// the kernel takes that for the answer to CREATE. If it has gone again, it is made. The
    /// attributes may be outdated when the kernel keeps them, as it does without looking: so they
    /// have no lifetime.
    async fn open_instead(
        &self,
        (dir, name): (Fid, &Name),
        (access, append, handle): (Access, bool, u64),
    ) -> Reply {
        let (world, room) = (&self.world, &self.room);
        let look = Call::Op(Op::Lookup {
            dir,
            name: name.clone(),
        });
        let mut found = room.call(world, look, Vec::new(), false).wait().await;
        let (
            Done::Entry {
                fid,
                attr_lifetime,
                cached,
                ..
            },
            _,
        ) = (&mut found.done, ())
        else {
            return found;
        };
        *attr_lifetime = Lifetime::None;
        let fid = *fid;
        let open = Call::Open {
            fid,
            access,
            append,
            handle,
        };
        let opened = room.call(world, open, Vec::new(), true).wait().await;
        let Done::Opened { cached: may, .. } = opened.done else {
            self.forget(fid, 1);
            return opened;
        };
        *cached = may;
        found
    }

    /// open(2) with O_TMPFILE. The directory is not locked.
    pub(crate) async fn create_nameless(
        self: &Rc<Self>,
        dir: &Pin,
        access: Access,
        mode: u32,
    ) -> Result<Handle> {
        let op = Op::MakeNameless {
            dir: dir.fid(),
            mode,
            open: access,
        };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        let Done::Entry {
            fid,
            attr,
            attr_lifetime,
            ..
        } = &reply.done
        else {
            return super::refused(&self.world, &reply);
        };
        let pin = self.iget(*fid, (attr, *attr_lifetime), Began::ANYWAY).await;
        let number = self.next_handle();
        self.descriptors.opened(pin.fid(), number);
        Ok(Handle {
            pin,
            access,
            append: false,
            cached: false,
            number,
        })
    }

    /// mkdir(2).
    pub(crate) async fn mkdir(self: &Rc<Self>, dir: &Pin, name: &Name, mode: u32) -> Result<Fid> {
        self.walk_again(async |_| self.mkdir_once(dir, name, mode).await)
            .await
    }

    async fn mkdir_once(self: &Rc<Self>, dir: &Pin, name: &Name, mode: u32) -> Result<Fid> {
        let _lock = self.alone(&dir.inode).await;
        if self.lookup(dir, name, Look::Fresh).await?.is_some() {
            return Err(Refusal::Exists);
        }
        self.check_permission(dir).await?;
        let epoch = self.epoch.get();
        let make = Make::Directory;
        let op = Op::Make {
            dir: dir.fid(),
            name: name.clone(),
            make,
            mode,
            open: None,
        };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        Ok(self.made(dir, name, &reply, epoch).await?.fid())
    }

    /// link(2).
    pub(crate) async fn link(self: &Rc<Self>, pin: &Pin, dir: &Pin, name: &Name) -> Result<Fid> {
        self.walk_again(async |_| self.link_once(pin, dir, name).await)
            .await
    }

    async fn link_once(self: &Rc<Self>, pin: &Pin, dir: &Pin, name: &Name) -> Result<Fid> {
        let _lock = self.alone(&dir.inode).await;
        if self.lookup(dir, name, Look::Fresh).await?.is_some() {
            return Err(Refusal::Exists);
        }
        self.check_permission(dir).await?;
        if pin.inode.kind == Kind::Directory {
            return Err(Refusal::NotPermitted);
        }
        let _object = self.alone(&pin.inode).await;
        let epoch = self.epoch.get();
        let op = Op::Link {
            fid: pin.fid(),
            dir: dir.fid(),
            name: name.clone(),
        };
        let mut reply = self.ask(Call::Op(op), Vec::new()).await;
        if let Done::Entry { attr_lifetime, .. } = &mut reply.done {
            // As the front does: the kernel would keep them whatever happened meanwhile.
            *attr_lifetime = Lifetime::None;
        }
        let made = self.made(dir, name, &reply, epoch).await?;
        pin.inode.valid.set(false);
        Ok(made.fid())
    }

    /// unlink(2) and rmdir(2): what the kernel believes that it removed.
    pub(crate) async fn remove(
        self: &Rc<Self>,
        dir: &Pin,
        name: &Name,
        as_dir: bool,
    ) -> Result<Fid> {
        self.walk_again(async |again| self.remove_once(dir, name, (as_dir, held(again))).await)
            .await
    }

    async fn remove_once(
        self: &Rc<Self>,
        dir: &Pin,
        name: &Name,
        (as_dir, look): (bool, Look),
    ) -> Result<Fid> {
        let _lock = self.alone(&dir.inode).await;
        let found = self.lookup(dir, name, look).await?;
        let pin = found.ok_or(Refusal::NotFound)?;
        self.check_permission(dir).await?;
        if (pin.inode.kind == Kind::Directory) != as_dir {
            return Err(if as_dir {
                Refusal::NotDirectory
            } else {
                Refusal::IsDirectory
            });
        }
        let _object = self.alone(&pin.inode).await;
        let key = (dir.fid(), name.clone());
        let (parent, name) = key.clone();
        let op = if as_dir {
            Op::Rmdir { dir: parent, name }
        } else {
            Op::Unlink { dir: parent, name }
        };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        match &reply.done {
            Done::Nothing => {
                self.dir_changed(&dir.inode);
                self.unlinked(&pin.inode);
                self.drop_dentry(&key);
                Ok(pin.fid())
            }
            Done::Refused(Refusal::NotFound | Refusal::Interrupted) => {
                self.drop_dentry(&key);
                super::refused(&self.world, &reply)
            }
            _ => super::refused(&self.world, &reply),
        }
    }

    pub(super) fn unlinked(&self, inode: &Inode) {
        self.touch(inode);
        inode.valid.set(false);
    }
}
