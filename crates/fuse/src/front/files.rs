//! Requests about open files and their bytes, and about extended attributes.

use std::sync::Arc;

use client::front::{Asker, Call, Completion, Done, How};
use tracing::{debug, error};
use wire::{ACCESS_LIST, Caller, Fid, Op, Refusal, Set, XattrMode, limits};

use super::convert::{self, Opening};
use super::errno;
use super::handler::{Tree, checked, nothing, refuse, refuse_done};
use super::recording::Accessed;
use crate::abi::OpenOut;
use crate::notify::{Job, Kind};
use crate::reply::{Delivery, Reply};
use crate::request::{Header, Open, Read, Setxattr, Write};

/// A `WRITE` on its way.
struct Writing {
    asker: Asker,
    fid: Fid,
    offset: u64,
    how: How,
    /// It is answered when it is on stable storage.
    stable: bool,
    handle: Option<u64>,
    reply: Reply,
}

impl Tree {
    /// (`open.kill_suidgid` comes only with O_TRUNC, and that never comes here: the kernel
    /// truncates by `SETATTR`.)
    pub(super) fn open(self: &Arc<Self>, header: &Header, open: Open, reply: Reply) {
        if self.silent_opens {
            // From now on the kernel announces no open, and caches through every descriptor.
            reply.error(errno::NOT_IMPLEMENTED);
            return;
        }
        let (tree, fid) = (Arc::clone(self), self.fid(header.nodeid));
        let opening = self.opening(open.flags);
        let call = Call::Open {
            fid,
            access: opening.access,
            append: opening.append,
            handle: opening.handle(),
        };
        self.call(
            self.asker(header),
            call,
            move |completion| match completion.done {
                Done::Opened { cached, .. } => {
                    if tree.may_give && !convert::bypasses_pages(open.flags) {
                        tree.give_pages(fid, &completion);
                    }
                    let cached = tree.keeping.caches(cached, opening.access);
                    let flags = tree.open_flags(fid, opening, cached);
                    let open = OpenOut::new(opening.handle(), flags);
                    if reply.open(&open) == Delivery::Unwanted {
                        tree.close(fid, opening);
                    }
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// Gives the kernel pages, so that it need not ask for them. It has the file in use: it is
    /// opening it.
    fn give_pages(&self, fid: Fid, opened: &Completion) {
        if !opened.bytes.is_empty() {
            let slices: Vec<&[u8]> = opened.bytes.slices().collect();
            self.notifier.give(self.nodes.node(fid), &slices);
        }
    }

    /// Gives an open back.
    pub(super) fn close(&self, fid: Fid, opening: Opening) {
        if self.silent_opens {
            return; // It was never counted.
        }
        let access = opening.access;
        self.call(
            convert::ROOT,
            Call::Release {
                fid,
                access,
                handle: opening.handle(),
            },
            |completion| {
                if completion.done != Done::Nothing {
                    // The client has been stopped.
                    debug!(answer = ?completion.done, "a close was not taken");
                }
            },
        );
    }

    /// The descriptor of a request, if descriptors are told apart.
    pub(super) fn descriptor(&self, handle: u64) -> Option<u64> {
        (!self.silent_opens).then_some(handle)
    }

    /// Nobody waits for the answer to a close, so it comes first.
    pub(super) fn release(&self, header: &Header, handle: u64, reply: Reply) {
        reply.ok();
        self.close(self.fid(header.nodeid), Opening::from_handle(handle));
    }

    pub(super) fn read(&self, header: &Header, read: Read, reply: Reply) {
        let len = convert::read_len(read.offset, read.size);
        let Some((reply, len)) = checked(reply, len) else {
            return;
        };
        if len == 0 {
            reply.bytes(&[]);
            return;
        }
        // Pages that are never taken back are no business of the client's: it would have them wait
        // for a token, with the page locked, and an own write that waits for the page.
        let pages = convert::fills_pages(&read, self.silent_opens) && self.keeping.takes_back();
        let (fid, recording) = (self.fid(header.nodeid), Arc::clone(&self.recording));
        let call = Call::Read {
            fid,
            offset: read.offset,
            len,
            pages,
        };
        self.call(
            convert::asker(header),
            call,
            move |completion| match completion.done {
                Done::Read { .. } => {
                    recording.tell(Accessed::Read, fid, (read.offset, completion.bytes.len()));
                    let slices: Vec<&[u8]> = completion.bytes.slices().collect();
                    reply.slices(&slices);
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// Set-id bits go before the bytes come, so that no program is changed while it still has
    /// somebody else's rights; but behind a write whose pages are locked, which may wait for
    /// nobody. The kernel asks for it at each write of an ordinary user, without looking at the
    /// bits; under a token the client knows them, and mostly there are none.
    pub(super) fn write(self: &Arc<Self>, header: &Header, write: &Write<'_>, reply: Reply) {
        let len = convert::write_len(write.offset, write.data.len());
        let Some((reply, _)) = checked(reply, len) else {
            return;
        };
        let writing = Writing {
            asker: convert::asker(header),
            fid: self.fid(header.nodeid),
            offset: write.offset,
            how: convert::how(write, self.silent_opens),
            stable: convert::is_stable(write, self.silent_opens),
            handle: self.descriptor(write.fh),
            reply,
        };
        let (tree, fid, asker) = (Arc::clone(self), writing.fid, writing.asker.clone());
        let none = |(mode, _)| !convert::has_set_id(mode);
        let kill = write.kill_suidgid && !self.client.known_mode_and_links(fid).is_some_and(none);
        match (kill, writing.how) {
            (false, _) => tree.write_bytes(writing, write.data, || ()),
            (true, How::Paged) => self.write_bytes(writing, write.data, move || {
                tree.kill_set_id(asker, fid, move |result| {
                    if let Err(answer) = result {
                        error!(%fid, ?answer, "set-id bits stay on a file that was written");
                    }
                });
            }),
            (true, How::Direct | How::Append) => {
                let data = write.data.to_vec();
                self.kill_set_id(asker, fid, move |result| match result {
                    Ok(()) => tree.write_bytes(writing, &data, || ()),
                    Err(other) => refuse_done(writing.reply, &other),
                });
            }
        }
    }

    fn write_bytes(
        self: &Arc<Self>,
        writing: Writing,
        data: &[u8],
        then: impl FnOnce() + Send + 'static,
    ) {
        let Writing {
            asker,
            fid,
            offset,
            how,
            stable,
            handle,
            reply,
        } = writing;
        let call = Call::Write {
            fid,
            offset,
            len: data.len() as u32,
            how,
        };
        let (tree, waits) = (Arc::clone(self), asker.waits.thread);
        let done = move |completion: Completion| match completion.done {
            Done::Written { len } if stable => tree.sync_written((fid, handle, waits), len, reply),
            Done::Written { len } => {
                reply.written(len);
                then();
            }
            other => refuse_done(reply, &other),
        };
        self.client.call(asker, call, data, Box::new(done));
    }

    /// The kernel still holds the file's lock. The sync does not come from the program: that has
    /// not been answered.
    fn sync_written(&self, (fid, handle, waits): (Fid, Option<u64>, u32), len: u32, reply: Reply) {
        self.call(
            convert::inner(waits),
            Call::Sync { fid, handle },
            move |completion| match completion.done {
                Done::Nothing => {
                    reply.written(len);
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// Takes the set-id bits from a file that has any, and that this caller writes to.
    pub(super) fn kill_set_id(
        self: &Arc<Self>,
        asker: Asker,
        fid: Fid,
        then: impl FnOnce(Result<(), Done>) + Send + 'static,
    ) {
        let tree = Arc::clone(self);
        self.operate(
            convert::ROOT,
            Op::GetAttr { fid },
            move |completion| match completion.done {
                Done::Attr { attr, .. } if convert::has_set_id(attr.mode) => {
                    let mut caller = asker.caller;
                    if convert::groups_count(&caller, &attr) {
                        caller.groups = crate::groups::read(asker.thread);
                    }
                    tree.take_set_id(caller, fid, then);
                }
                Done::Attr { .. } => then(Ok(())),
                other => then(Err(other)),
            },
        );
    }

    /// The kernel keeps the old mode after the write, so it is told to drop it.
    fn take_set_id(
        self: &Arc<Self>,
        caller: Caller,
        fid: Fid,
        then: impl FnOnce(Result<(), Done>) + Send + 'static,
    ) {
        let tree = Arc::clone(self);
        let set = Set {
            kill_set_id: true,
            ..Set::default()
        };
        self.operate(
            caller,
            Op::SetAttr { fid, set },
            move |completion| match completion.done {
                Done::Attr { .. } => {
                    let kind = Kind::Inode {
                        nodeid: tree.nodes.node(fid),
                        ranges: vec![(-1, 0)],
                        young: false,
                    };
                    tree.notifier.submit(Job::new(kind, move |_| then(Ok(()))));
                }
                other => then(Err(other)),
            },
        );
    }

    pub(super) fn get_xattr(&self, header: &Header, name: &[u8], size: u32, reply: Reply) {
        let Some((reply, name)) = checked(reply, xattr_name(name)) else {
            return;
        };
        let fid = self.fid(header.nodeid);
        let op = Op::GetXattr { fid, name };
        self.operate(self.asker(header), op, value(size, reply));
    }

    pub(super) fn list_xattr(&self, header: &Header, size: u32, reply: Reply) {
        let fid = self.fid(header.nodeid);
        let op = Op::ListXattr { fid };
        self.operate(self.asker(header), op, value(size, reply));
    }

    pub(super) fn set_xattr(self: &Arc<Self>, header: &Header, args: &Setxattr<'_>, reply: Reply) {
        let Some((reply, name)) = checked(reply, xattr_name(args.name)) else {
            return;
        };
        let Some((reply, mut mode)) = checked(reply, convert::xattr_mode(args.flags)) else {
            return;
        };
        if args.acl_kill_sgid {
            mode = XattrMode::EndsSetGid;
        }
        if args.value.len() > limits::XATTR_VALUE_BYTES {
            reply.error(errno::VALUE_TOO_BIG);
            return;
        }
        let listed = name == ACCESS_LIST;
        let op = Op::SetXattr {
            fid: self.fid(header.nodeid),
            name,
            value: args.value.to_vec(),
            mode,
        };
        match listed {
            true => self.change_list(header, op, reply),
            false => self.operate(self.asker(header), op, nothing(reply)),
        }
    }

    /// Changes the access list of a directory. The kernel knows nothing of such lists, and would go
    /// by what it was shown of the directory before: so it forgets that before it is answered.
    fn change_list(self: &Arc<Self>, header: &Header, op: Op, reply: Reply) {
        let (tree, nodeid) = (Arc::clone(self), header.nodeid);
        self.operate(self.asker(header), op, move |completion| {
            let kind = Kind::Inode {
                nodeid,
                ranges: vec![(-1, 0)],
                young: false,
            };
            let answer = move |_| nothing(reply)(completion);
            tree.notifier.submit(Job::new(kind, answer));
        });
    }

    pub(super) fn remove_xattr(self: &Arc<Self>, header: &Header, name: &[u8], reply: Reply) {
        if let Some((reply, name)) = checked(reply, xattr_name(name)) {
            let fid = self.fid(header.nodeid);
            // The kernel removes capabilities by itself for any program that changes bytes, and
            // refuses other programs without the right.
            let asker = match name == CAPABILITY {
                true => Asker {
                    caller: convert::ROOT,
                    ..self.asker(header)
                },
                false => self.asker(header),
            };
            // Setting an empty list removes it, and on Linux's own file systems an access list that
            // is not there is removed without an error.
            let done = match LISTS.contains(&name.as_slice()) {
                true => absent_is_removed,
                false => |done| done,
            };
            if name == ACCESS_LIST {
                return self.change_list(header, Op::RemoveXattr { fid, name }, reply);
            }
            let op = Op::RemoveXattr { fid, name };
            self.operate(asker, op, move |mut completion| {
                completion.done = done(completion.done);
                nothing(reply)(completion);
            });
        }
    }
}

/// Checks the name of an extended attribute. Of the system's own there are the access lists.
fn xattr_name(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if name.len() > limits::NAME_BYTES {
        Err(Refusal::OutOfRange)
    } else if name.starts_with(b"system.") && !SYSTEMS.contains(&name) {
        Err(Refusal::NotSupported)
    } else {
        Ok(name.to_vec())
    }
}

fn absent_is_removed(done: Done) -> Done {
    match done {
        Done::Refused(Refusal::NoAttribute) => Done::Nothing,
        other => other,
    }
}

const CAPABILITY: &[u8] = b"security.capability";

/// The access lists, as Linux calls them.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Those of the system's own attributes that there are.
const SYSTEMS: [&[u8]; 3] = [LISTS[0], LISTS[1], ACCESS_LIST];

/// Answers with a value or a list: its size alone if `size` is 0; refused if it has more bytes.
fn value(size: u32, reply: Reply) -> impl FnOnce(Completion) + Send + 'static {
    move |completion| match completion.done {
        Done::Bytes(bytes) if size == 0 => {
            reply.xattr_size(bytes.len() as u32);
        }
        Done::Bytes(bytes) if bytes.len() > size as usize => refuse(reply, Refusal::OutOfRange),
        Done::Bytes(bytes) => {
            reply.bytes(&bytes);
        }
        other => refuse_done(reply, &other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_and_those_of_the_system_are_refused() {
        let long = [b'a'; 256];
        assert_eq!(xattr_name(&long), Err(Refusal::OutOfRange));
        let list = b"system.posix_acl_access";
        assert_eq!(xattr_name(list), Ok(list.to_vec()));
        assert_eq!(xattr_name(b"system.nfs4_acl"), Err(Refusal::NotSupported));
        assert_eq!(xattr_name(b"user.a"), Ok(b"user.a".to_vec()));
        assert_eq!(xattr_name(&long[..255]), Ok(long[..255].to_vec()));
    }
}
