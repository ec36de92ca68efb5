//! Requests about names: look up, make, link, remove, move; and the making of a file that is
//! opened at once.

use std::sync::Arc;

use client::front::{Asker, Call, Completion, Done, Lifetime};
use rustix::fs::OFlags;
use wire::{Fid, Kind, Make, Name, Op, Refusal, Set, limits};

use super::convert::{self, Opening, Permission};
use super::errno;
use super::handler::{Found, Tree, checked, named, nothing, refuse, refuse_done};
use super::recording::Accessed;
use crate::abi::{OpenOut, ROOT_ID};
use crate::reply::{Delivery, Reply};
use crate::request::{Create, Header, Rename};

/// A `CREATE` on its way.
struct Creation {
    asker: Asker,
    dir: Fid,
    name: Name,
    opening: Opening,
    /// The file must not exist.
    exclusive: bool,
    /// If it exists, it is emptied...
    truncate: bool,
    /// ...and loses its set-id bits.
    kill_set_id: bool,
    mode: u32,
    /// How often it has existed when it was to be made, and not when it was looked up.
    misses: u32,
    reply: Reply,
}

/// So often a name may come and go while it is to be made or opened.
const MISSES_MAX: u32 = 100;

impl Creation {
    /// The kernel begins again: it looks the name up and finds what is there now.
    fn begin_again(self) {
        self.reply.error(errno::WALK_AGAIN);
    }
}

impl Tree {
    pub(super) fn lookup(self: &Arc<Self>, header: &Header, name: &[u8], reply: Reply) {
        let Some((reply, name)) = named(reply, name) else {
            return;
        };
        let (tree, dir) = (Arc::clone(self), self.fid(header.nodeid));
        let (header, asker) = (*header, self.asker(header));
        let op = Op::Lookup {
            dir,
            name: name.clone(),
        };
        self.operate(asker, op, move |completion| match completion.done {
            Done::Absent { lifetime } => tree.give_absent(&header, (&name, lifetime), reply),
            Done::Elsewhere { volume } => tree.give_elsewhere(&header, volume, reply),
            // It leads into another volume, which another session shows, or none can.
            Done::Entry { fid, .. } if !tree.nodes.admit(fid.volume) => {
                tree.client.forget(fid, 1);
                tree.give_elsewhere(&header, fid.volume, reply);
            }
            Done::Entry { fid, .. } if tree.nodes.node(fid) == ROOT_ID => {
                tree.client.forget(fid, 1);
                reply.error(errno::LOOP);
            }
            done => tree.give_found(reply, done, Lifetime::Forever),
        });
    }

    /// Answers with the object that the client found or made; its attributes may be kept for
    /// `most` at most.
    fn give_found(&self, reply: Reply, done: Done, most: Lifetime) {
        match found(done, most) {
            Ok((found, _)) => self.give(reply, &found),
            Err(other) => refuse_done(reply, &other),
        }
    }

    fn make(
        self: &Arc<Self>,
        header: &Header,
        name: &[u8],
        (make, mode): (Make, u32),
        reply: Reply,
    ) {
        let Some((reply, name)) = named(reply, name) else {
            return;
        };
        let tree = Arc::clone(self);
        let op = Op::Make {
            dir: self.fid(header.nodeid),
            name,
            make,
            mode,
            open: None,
        };
        self.operate(self.asker(header), op, move |completion| {
            tree.give_found(reply, completion.done, Lifetime::Forever);
        });
    }

    pub(super) fn mknod(
        self: &Arc<Self>,
        header: &Header,
        name: &[u8],
        (mode, umask, rdev): (u32, u32, u32),
        reply: Reply,
    ) {
        if let Some((reply, make)) = checked(reply, convert::make(mode, rdev)) {
            self.make(header, name, (make, convert::new_mode(mode, umask)), reply);
        }
    }

    pub(super) fn mkdir(
        self: &Arc<Self>,
        header: &Header,
        name: &[u8],
        (mode, umask): (u32, u32),
        reply: Reply,
    ) {
        let mode = convert::new_mode(mode, umask);
        self.make(header, name, (Make::Directory, mode), reply);
    }

    pub(super) fn symlink(
        self: &Arc<Self>,
        header: &Header,
        (name, target): (&[u8], &[u8]),
        reply: Reply,
    ) {
        const MODE: u32 = 0o777;
        if target.len() > limits::TARGET_BYTES {
            return refuse(reply, Refusal::NameTooLong);
        }
        let make = Make::Symlink(target.to_vec());
        self.make(header, name, (make, MODE), reply);
    }

    pub(super) fn read_link(&self, header: &Header, reply: Reply) {
        let fid = self.fid(header.nodeid);
        self.operate(
            self.asker(header),
            Op::ReadLink { fid },
            move |completion| match completion.done {
                Done::Bytes(target) => {
                    reply.bytes(&target);
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// The kernel knows the object already and takes its attributes over without comparing them
    /// with what it was told to drop meanwhile, so it must not keep them.
    pub(super) fn link(self: &Arc<Self>, header: &Header, nodeid: u64, name: &[u8], reply: Reply) {
        let Some((reply, name)) = named(reply, name) else {
            return;
        };
        let tree = Arc::clone(self);
        let op = Op::Link {
            fid: self.fid(nodeid),
            dir: self.fid(header.nodeid),
            name,
        };
        self.operate(self.asker(header), op, move |completion| {
            tree.give_found(reply, completion.done, Lifetime::None);
        });
    }

    /// The kernel unlinks no directory, and so never what is shown as one.
    pub(super) fn unlink(&self, header: &Header, name: &[u8], reply: Reply) {
        if let Some((reply, name)) = named(reply, name) {
            let dir = self.fid(header.nodeid);
            let op = Op::Unlink { dir, name };
            self.operate(self.asker(header), op, nothing(reply));
        }
    }

    pub(super) fn rmdir(self: &Arc<Self>, header: &Header, name: &[u8], reply: Reply) {
        if let Some((reply, name)) = named(reply, name) {
            let (dir, asker) = (self.fid(header.nodeid), self.asker(header));
            let names = [(header.nodeid, &name.clone())];
            let remove = move |tree: &Arc<Self>, reply| {
                tree.operate(asker, Op::Rmdir { dir, name }, nothing(reply));
            };
            self.unless_snapshots(header, &names, (reply, remove));
        }
    }

    pub(super) fn rename(self: &Arc<Self>, header: &Header, rename: &Rename<'_>, reply: Reply) {
        let flags = convert::rename_flags(rename.flags);
        let Some((reply, (no_replace, exchange))) = checked(reply, flags) else {
            return;
        };
        let Some((reply, name)) = named(reply, rename.name) else {
            return;
        };
        let Some((reply, new)) = named(reply, rename.new_name) else {
            return;
        };
        let op = Op::Rename {
            from: self.fid(header.nodeid),
            name: name.clone(),
            to: self.fid(rename.new_parent),
            new: new.clone(),
            no_replace,
            exchange,
        };
        let (asker, names) = (
            self.asker(header),
            [(header.nodeid, &name), (rename.new_parent, &new)],
        );
        let done = move |tree: &Arc<Self>, reply| tree.operate(asker, op, nothing(reply));
        self.unless_snapshots(header, &names, (reply, done));
    }

    /// Makes and opens a file. The kernel asks for it only while it believes that there is none.
    pub(super) fn create(self: &Arc<Self>, header: &Header, create: &Create<'_>, reply: Reply) {
        let Some((reply, name)) = named(reply, create.name) else {
            return;
        };
        let has = |flag: OFlags| create.flags & flag.bits() != 0;
        let creation = Creation {
            asker: self.asker(header),
            dir: self.fid(header.nodeid),
            name,
            opening: self.opening(create.flags),
            exclusive: has(OFlags::EXCL),
            truncate: has(OFlags::TRUNC),
            kill_set_id: create.kill_suidgid,
            mode: convert::new_mode(create.mode, create.umask),
            misses: 0,
            reply,
        };
        self.make_or_open(creation);
    }

    fn make_or_open(self: &Arc<Self>, creation: Creation) {
        let op = Op::Make {
            dir: creation.dir,
            name: creation.name.clone(),
            make: Make::File,
            mode: creation.mode,
            open: (!self.silent_opens).then_some(creation.opening.access),
        };
        let tree = Arc::clone(self);
        self.operate(creation.asker.clone(), op, move |completion| {
            match found(completion.done, Lifetime::Forever) {
                Ok((found, cached)) => tree.give_created(creation, &found, cached),
                Err(Done::Refused(Refusal::Exists)) if !creation.exclusive => {
                    tree.open_existing(creation);
                }
                Err(other) => refuse_done(creation.reply, &other),
            }
        });
    }

    /// Somebody else has made the file meanwhile. The kernel believes that this request makes it,
    /// and checks and truncates nothing, so that is done here; an open that cannot be judged here
    /// makes the kernel begin again. (It does so once: a name that comes and goes all the time
    /// could make it give up, so it is left to the kernel only if it must be.)
    fn open_existing(self: &Arc<Self>, mut creation: Creation) {
        let (tree, asker) = (Arc::clone(self), creation.asker.clone());
        let op = Op::Lookup {
            dir: creation.dir,
            name: creation.name.clone(),
        };
        self.operate(asker, op, move |completion| {
            // The kernel may know the file, and takes attributes over unconditionally.
            let found = match found(completion.done, Lifetime::None) {
                Ok((found, _)) => found,
                Err(Done::Absent { .. }) if creation.misses < MISSES_MAX => {
                    creation.misses += 1;
                    return tree.make_or_open(creation);
                }
                Err(Done::Absent { .. }) => return creation.begin_again(),
                Err(other) => return refuse_done(creation.reply, &other),
            };
            let access = creation.opening.access;
            match convert::permission(&creation.asker.caller, &found.attr, access) {
                Permission::Given if found.attr.kind == Kind::File => {
                    return tree.open_found(creation, found);
                }
                Permission::Denied if found.attr.kind == Kind::File => {
                    refuse(creation.reply, Refusal::Denied);
                }
                _ => creation.begin_again(),
            }
            tree.client.forget(found.fid, 1);
        });
    }

    fn open_found(self: &Arc<Self>, creation: Creation, found: Found) {
        if self.silent_opens {
            return self.empty_found(creation, found, true);
        }
        let (tree, asker) = (Arc::clone(self), creation.asker.clone());
        let call = Call::Open {
            fid: found.fid,
            access: creation.opening.access,
            append: creation.opening.append,
            handle: creation.opening.handle(),
        };
        let done = move |completion: Completion| match completion.done {
            Done::Opened { cached, .. } => tree.empty_found(creation, found, cached),
            other => {
                tree.client.forget(found.fid, 1);
                refuse_done(creation.reply, &other);
            }
        };
        self.call(asker, call, done);
    }

    fn empty_found(self: &Arc<Self>, creation: Creation, mut found: Found, cached: bool) {
        if !creation.truncate {
            return self.give_created(creation, &found, cached);
        }
        let (tree, asker) = (Arc::clone(self), creation.asker.clone());
        let fid = found.fid;
        let set = Set {
            size: Some(0),
            kill_set_id: creation.kill_set_id,
            ..Set::default()
        };
        self.operate(
            asker,
            Op::SetAttr { fid, set },
            move |completion| match completion.done {
                Done::Attr { attr, .. } => {
                    found.attr = attr;
                    tree.give_created(creation, &found, cached);
                }
                other => {
                    tree.close(fid, creation.opening);
                    tree.client.forget(fid, 1);
                    refuse_done(creation.reply, &other);
                }
            },
        );
    }

    fn give_created(&self, creation: Creation, found: &Found, cached: bool) {
        self.recording.tell(Accessed::Open, found.fid, (0, 0));
        self.give_opened(creation.reply, (found, creation.opening), cached);
    }

    /// Answers with a file and a handle. If the kernel does not take it, both go back.
    fn give_opened(&self, reply: Reply, (found, opening): (&Found, Opening), cached: bool) {
        let cached = self.keeping.caches(cached, opening.access) || self.silent_opens;
        let open = OpenOut::new(
            opening.handle(),
            self.open_flags(found.fid, opening, cached),
        );
        if reply.create(&self.entry(found), &open) == Delivery::Unwanted {
            self.close(found.fid, opening);
            self.client.forget(found.fid, 1);
        }
    }

    /// Makes a file without a name (O_TMPFILE), which lives while it is open, or gets a name. Where
    /// opens are silent nobody would know that it is open.
    pub(super) fn tmpfile(self: &Arc<Self>, header: &Header, create: &Create<'_>, reply: Reply) {
        if self.silent_opens {
            reply.error(errno::NOT_IMPLEMENTED);
            return;
        }
        let opening = Opening::of(create.flags);
        let op = Op::MakeNameless {
            dir: self.fid(header.nodeid),
            mode: convert::new_mode(create.mode, create.umask),
            open: opening.access,
        };
        let tree = Arc::clone(self);
        self.operate(self.asker(header), op, move |completion| {
            match found(completion.done, Lifetime::Forever) {
                Ok((found, cached)) => tree.give_opened(reply, (&found, opening), cached),
                Err(other) => refuse_done(reply, &other),
            }
        });
    }
}

/// The object of an answer, and whether it was opened to be cached.
fn found(done: Done, most: Lifetime) -> Result<(Found, bool), Done> {
    match done {
        Done::Entry {
            fid,
            attr,
            name_lifetime,
            attr_lifetime,
            cached,
        } => {
            let found = Found {
                fid,
                attr,
                name_lifetime,
                attr_lifetime: if most == Lifetime::None {
                    most
                } else {
                    attr_lifetime
                },
            };
            Ok((found, cached))
        }
        other => Err(other),
    }
}
