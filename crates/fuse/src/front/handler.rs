//! Each request of the kernel becomes a call of the client whose callback answers it: one line for
//! each opcode. Nothing here waits.
//!
//! A callback that answers owns the `Reply`; should the client be stopped before it has an answer,
//! the callback is dropped and with it the reply, which then answers by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::Client;
use client::front::{Asker, Call, Completion, Done, Lifetime};
use tracing::error;
use wire::{Attr, Caller, Fid, Kind, Name, Op, Refusal, Set};

use super::convert::Opening;
use super::elsewhere::Elsewhere;
use super::keeping::Keeping;
use super::locks::{LockedFiles, Waiters};
use super::nodes::Nodes;
use super::recording::Recording;
use super::{convert, errno};
use crate::abi::{AttrOut, EntryOut, StatxOut};
use crate::groups::Groups;
use crate::notify::{self, Job, Notifier};
use crate::reply::{Delivery, Reply};
use crate::request::{Header, Operation, Request};
use crate::session::Handler;

/// The tree as this mount shows it.
pub(super) struct Tree {
    pub(super) client: Arc<Client>,
    pub(super) nodes: Nodes,
    /// Volumes that other servers have.
    pub(super) elsewhere: Arc<Elsewhere>,
    /// The root has a name for the snapshots of its volume.
    pub(super) shows_snapshots: bool,
    /// The kernel does not announce opens and closes.
    pub(super) silent_opens: bool,
    pub(super) keeping: Keeping,
    /// The kernel can be told to look up all names again. Where it cannot, taking back a name may
    /// wait for a lock that a request holds; so it is given none to keep.
    pub(super) keeps_names: bool,
    /// The kernel can be given pages without asking for them, and drops them when it is told to.
    pub(super) may_give: bool,
    /// The kernel can be told that a close need not be announced before it.
    pub(super) may_skip_flush: bool,
    /// The kernel may ask for times of birth.
    pub(super) tells_birth: bool,
    pub(super) notifier: Notifier,
    /// How many descriptors have been opened.
    pub(super) opened: AtomicU64,
    pub(super) locked: LockedFiles,
    pub(super) waiters: Waiters,
    pub(super) groups: Groups,
    pub(super) recording: Arc<Recording>,
}

/// An object that an answer tells the kernel about. The client counts a reference of the kernel
/// for it, until it is given back.
pub(super) struct Found {
    pub(super) fid: Fid,
    pub(super) attr: Attr,
    pub(super) name_lifetime: Lifetime,
    pub(super) attr_lifetime: Lifetime,
}

/// Answers a refusal.
pub(super) fn refuse(reply: Reply, refusal: Refusal) {
    reply.error(errno::of(refusal));
}

/// Answers what is left when the answers hoped for did not come.
pub(super) fn refuse_done(reply: Reply, done: &Done) {
    match done {
        Done::Refused(refusal) => refuse(reply, *refusal),
        other => {
            error!(answer = ?other, "the client answered what was not asked");
            reply.error(errno::NONSENSE);
        }
    }
}

/// Answers a call that has nothing to say.
pub(super) fn nothing(reply: Reply) -> impl FnOnce(Completion) + Send + 'static {
    move |completion| match completion.done {
        Done::Nothing => {
            reply.ok();
        }
        other => refuse_done(reply, &other),
    }
}

/// Checks a name; a wrong one is refused.
pub(super) fn named(reply: Reply, bytes: &[u8]) -> Option<(Reply, Name)> {
    match Name::new(bytes) {
        Ok(name) => Some((reply, name)),
        Err(error) => {
            refuse(reply, error.into());
            None
        }
    }
}

/// Goes on with a request that was understood; any other is refused.
pub(super) fn checked<T>(reply: Reply, result: Result<T, Refusal>) -> Option<(Reply, T)> {
    match result {
        Ok(value) => Some((reply, value)),
        Err(refusal) => {
            refuse(reply, refusal);
            None
        }
    }
}

impl Tree {
    /// The tree of another session of the same mount.
    pub(super) fn beside(&self, client: Arc<Client>, nodes: Nodes) -> Tree {
        if !self.keeps_names || !self.keeping.takes_back() {
            client.keeps_no_names();
        }
        Tree {
            client,
            nodes,
            elsewhere: Arc::clone(&self.elsewhere),
            notifier: self.notifier.clone(),
            opened: AtomicU64::new(0),
            locked: LockedFiles::default(),
            waiters: Waiters::default(),
            groups: Groups::default(),
            recording: Arc::clone(&self.recording),
            ..*self
        }
    }

    /// A descriptor that is being opened.
    pub(super) fn opening(&self, flags: u32) -> Opening {
        Opening {
            number: 1 + self.opened.fetch_add(1, Ordering::Relaxed),
            ..Opening::of(flags)
        }
    }

    pub(super) fn fid(&self, nodeid: u64) -> Fid {
        self.nodes.fid(nodeid)
    }

    /// Makes a call.
    pub(super) fn call(
        &self,
        asker: impl Into<Asker>,
        call: Call,
        done: impl FnOnce(Completion) + Send + 'static,
    ) {
        self.client.call(asker, call, &[], Box::new(done));
    }

    /// The caller with all groups, for operations that the server compares with the groups of
    /// objects.
    pub(super) fn asker(&self, header: &Header) -> Asker {
        let mut asker = convert::asker(header);
        let Caller { uid, gid, .. } = asker.caller;
        let now_ns = client::front::now_ns();
        asker.caller.groups = self.groups.of(asker.thread, (uid, gid), now_ns);
        asker
    }

    /// Makes a call that is said in full by an operation.
    pub(super) fn operate(
        &self,
        asker: impl Into<Asker>,
        op: Op,
        done: impl FnOnce(Completion) + Send + 'static,
    ) {
        self.call(asker, Call::Op(op), done);
    }

    /// How long the kernel may keep a name.
    pub(super) fn name_lifetime(&self, lifetime: Lifetime) -> Duration {
        if self.keeps_names || !self.keeping.takes_back() {
            self.keeping.lifetime(lifetime)
        } else {
            Duration::ZERO
        }
    }

    /// An object in the kernel's words.
    pub(super) fn entry(&self, found: &Found) -> EntryOut {
        let nodeid = self.nodes.node(found.fid);
        EntryOut::new(
            nodeid,
            u64::from(found.fid.uniq),
            convert::attr(nodeid, &found.attr),
            self.name_lifetime(found.name_lifetime),
            self.keeping.lifetime(found.attr_lifetime),
        )
    }

    /// Answers with an object. If the kernel does not take it, its reference goes back.
    pub(super) fn give(&self, reply: Reply, found: &Found) {
        if reply.entry(&self.entry(found)) == Delivery::Unwanted {
            self.client.forget(found.fid, 1);
        }
    }

    /// `through_handle`: the kernel is about to read to the end of the file, or to seek from there,
    /// and goes by the size that it knows. It throws this answer away if anything happened to the
    /// file since it asked: an own write was answered, another answer taken in, a notification
    /// came. (The size that it then goes by may be one that nobody ever saw: after a write with
    /// O_APPEND it adds the length to the size that it knew, whatever was appended elsewhere.) So
    /// it is told of the size first in a way that it never throws away.
    fn getattr(&self, header: &Header, through_handle: bool, reply: Reply) {
        let (nodeid, keeping) = (header.nodeid, self.keeping);
        let fid = self.fid(nodeid);
        let notifier = self.notifier.clone();
        let call = if through_handle {
            Call::Seek { fid }
        } else {
            Call::Op(Op::GetAttr { fid })
        };
        self.call(
            convert::asker(header),
            call,
            move |completion| match completion.done {
                Done::Attr { attr, lifetime } => {
                    let grown = through_handle && attr.kind == Kind::File && attr.size > 0;
                    let size = attr.size;
                    let attr = convert::attr(nodeid, &attr);
                    let lifetime = keeping.lifetime(lifetime);
                    let answer = move || {
                        reply.attr(&AttrOut::new(attr, lifetime));
                    };
                    if !grown {
                        return answer();
                    }
                    let kind = notify::Kind::Grown { nodeid, size };
                    notifier.submit(Job::new(kind, move |_| answer()));
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// As `getattr`, with the time of birth. The kernel asks so for programs alone, never before it
    /// reads to the end of a file.
    fn statx(&self, header: &Header, reply: Reply) {
        let (nodeid, keeping) = (header.nodeid, self.keeping);
        let fid = self.fid(nodeid);
        let done = move |completion: Completion| match completion.done {
            Done::Attr { attr, lifetime } => {
                let lifetime = keeping.lifetime(lifetime);
                reply.statx(&StatxOut::new(convert::statx(nodeid, &attr), lifetime));
            }
            other => refuse_done(reply, &other),
        };
        self.operate(convert::asker(header), Op::GetAttr { fid }, done);
    }

    fn setattr(self: &Arc<Self>, header: &Header, args: &crate::abi::SetattrIn, reply: Reply) {
        let fid = self.fid(header.nodeid);
        let Some((reply, mut set)) = checked(reply, convert::set(args)) else {
            return;
        };
        let (mut asker, program) = (convert::set_asker(header, args), convert::asker(header));
        let none = |(mode, _)| !convert::has_set_id(mode);
        let own = asker == program;
        if own {
            asker = self.asker(header);
        }
        // Whether the set-group-id bit goes depends on the program's groups.
        if own || !set.kill_set_id || self.client.known_mode_and_links(fid).is_some_and(none) {
            return self.set(asker, (fid, set), reply);
        }
        set.kill_set_id = false;
        let tree = Arc::clone(self);
        self.kill_set_id(program, fid, move |result| match result {
            Ok(()) => tree.set(asker, (fid, set), reply),
            Err(other) => refuse_done(reply, &other),
        });
    }

    fn set(&self, asker: Asker, (fid, set): (Fid, Set), reply: Reply) {
        let nodeid = self.nodes.node(fid);
        self.operate(
            asker,
            Op::SetAttr { fid, set },
            move |completion| match completion.done {
                // The kernel takes these attributes over without comparing them with what it was
                // told to drop meanwhile, so they may be outdated: it must not keep them.
                Done::Attr { attr, .. } => {
                    let attr = convert::attr(nodeid, &attr);
                    reply.attr(&AttrOut::new(attr, Duration::ZERO));
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    fn statfs(&self, header: &Header, reply: Reply) {
        let volume = self.fid(header.nodeid).volume;
        self.operate(
            convert::asker(header),
            Op::StatVolume { volume },
            move |completion| match completion.done {
                Done::Filesystem(numbers) => {
                    reply.statfs(&convert::statfs(&numbers));
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    fn sync(&self, header: &Header, handle: Option<u64>, reply: Reply) {
        let fid = self.fid(header.nodeid);
        let call = Call::Sync { fid, handle };
        self.call(convert::asker(header), call, nothing(reply));
    }
}

/// The handler of the mount's requests: each is served by the tree of its session.
pub(super) struct Translator(pub(super) Arc<Tree>);

impl Handler for Translator {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let (main, elsewhere) = (&self.0, &self.0.elsewhere);
        match request.operation {
            Operation::Forget(items) | Operation::BatchForget(items) => {
                for (nodeid, count) in items.iter() {
                    self.forget(nodeid, count);
                }
                return;
            }
            Operation::Interrupt { unique } => {
                drop(reply);
                main.interrupt(unique);
                elsewhere
                    .trees()
                    .iter()
                    .for_each(|tree| tree.interrupt(unique));
                return;
            }
            _ => {}
        }
        let nodeid = request.header.nodeid;
        let other = request.operation.other_node();
        if other.is_some_and(|other| !elsewhere.slots().in_one_session(nodeid, other)) {
            return refuse(reply, Refusal::CrossVolume);
        }
        match elsewhere.slots().other_session(nodeid) {
            None => Self::serve(main, request, reply),
            Some(session) => match elsewhere.tree(session) {
                Some(tree) => Self::serve(&tree, request, reply),
                None => elsewhere.serve_later(session, &request, reply),
            },
        }
    }
}

impl Translator {
    /// The kernel forgets. The root of a session was never counted.
    fn forget(&self, nodeid: u64, count: u64) {
        let (main, elsewhere) = (&self.0, &self.0.elsewhere);
        let Some(session) = elsewhere.slots().other_session(nodeid) else {
            main.record_forget(main.fid(nodeid));
            return main.client.forget(main.fid(nodeid), count);
        };
        let fid = main.fid(nodeid);
        if fid != Fid::root(session)
            && let Some(tree) = elsewhere.tree(session)
        {
            tree.record_forget(fid);
            tree.client.forget(fid, count);
        }
    }

    /// Has a tree serve a request.
    pub(super) fn serve(tree: &Arc<Tree>, request: Request<'_>, reply: Reply) {
        let header = &request.header;
        if tree.recording.is_on() {
            tree.record(header, &request.operation);
        }
        match request.operation {
            Operation::Lookup { name } => tree.lookup(header, name, reply),
            Operation::Getattr { fh } => tree.getattr(header, fh.is_some(), reply),
            Operation::Statx(_) if tree.tells_birth => tree.statx(header, reply),
            Operation::Setattr(args) => tree.setattr(header, &args, reply),
            Operation::Readlink => tree.read_link(header, reply),
            Operation::Symlink { name, target } => tree.symlink(header, (name, target), reply),
            Operation::Mknod {
                name,
                mode,
                rdev,
                umask,
            } => tree.mknod(header, name, (mode, umask, rdev), reply),
            Operation::Mkdir { name, mode, umask } => {
                tree.mkdir(header, name, (mode, umask), reply);
            }
            Operation::Tmpfile(create) => tree.tmpfile(header, &create, reply),
            Operation::Unlink { name } => tree.unlink(header, name, reply),
            Operation::Rmdir { name } => tree.rmdir(header, name, reply),
            Operation::Rename(rename) => tree.rename(header, &rename, reply),
            Operation::Link { nodeid, name } => tree.link(header, nodeid, name, reply),
            Operation::Create(create) => tree.create(header, &create, reply),
            Operation::Open(open) => tree.open(header, open, reply),
            Operation::Read(read) => tree.read(header, read, reply),
            Operation::Write(write) => tree.write(header, &write, reply),
            Operation::Release(release) => tree.release(header, release.fh, reply),
            Operation::Fsync { fh, .. } => tree.sync(header, tree.descriptor(fh), reply),
            Operation::Fsyncdir { .. } => tree.sync(header, None, reply),
            Operation::Fallocate(args) => tree.allocate(header, &args, reply),
            Operation::CopyFileRange(args) | Operation::CopyFileRange64(args) => {
                tree.copy(header, &args, reply);
            }
            Operation::Lseek { offset, whence, .. } => tree.find(header, offset, whence, reply),
            Operation::Statfs => tree.statfs(header, reply),
            Operation::Setxattr(args) => tree.set_xattr(header, &args, reply),
            Operation::Getxattr { name, size } => tree.get_xattr(header, name, size, reply),
            Operation::Listxattr { size } => tree.list_xattr(header, size, reply),
            Operation::Removexattr { name } => tree.remove_xattr(header, name, reply),
            Operation::Readdir(read) => tree.list(header, read, false, reply),
            Operation::Readdirplus(read) => tree.list(header, read, true, reply),
            Operation::Flush { lock_owner, .. } => tree.flush(header, lock_owner, reply),
            Operation::Getlk(lk) => tree.test_lock(header, &lk, reply),
            Operation::Setlk(lk) => tree.set_lock(header, &lk, false, reply),
            Operation::Setlkw(lk) => tree.set_lock(header, &lk, true, reply),
            Operation::Destroy => {
                reply.ok();
            }
            Operation::Ioctl(..) => {
                reply.error(errno::NO_SUCH_IOCTL);
            }
            other => decline(&other, reply),
        }
    }
}

/// Leaves an operation to the kernel. The kernel takes "not implemented" once and for all: it then
/// lists directories without opening them and caches the listing, checks permissions itself, seeks
/// by the file's size, copies by reading and writing, and tells programs that space cannot be
/// reserved.
fn decline(operation: &Operation<'_>, reply: Reply) {
    tracing::trace!(?operation, "left to the kernel");
    reply.error(errno::NOT_IMPLEMENTED);
}
