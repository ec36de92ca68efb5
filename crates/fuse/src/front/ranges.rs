//! Requests about ranges of files that the server does by itself: fallocate, copies, holes.
//!
//! The kernel does not say whether set-id bits are to go, as it does with a write, and relies on it
//! that they do: they go before the bytes change, unless root asks.

use std::sync::Arc;

use client::front::{Asker, Completion, Done};
use wire::{Op, Refusal, limits};

use super::convert;
use super::handler::{Tree, checked, nothing, refuse, refuse_done};
use crate::abi::{CopyFileRangeIn, FallocateIn, Opcode};
use crate::reply::Reply;
use crate::request::Header;

impl Tree {
    pub(super) fn allocate(self: &Arc<Self>, header: &Header, args: &FallocateIn, reply: Reply) {
        let Some((reply, (zero, keep_size))) = checked(reply, convert::allocate_mode(args.mode))
        else {
            return;
        };
        let end = args.offset.checked_add(args.length);
        if end.is_none_or(|end| end > limits::FILE_BYTES) {
            return refuse(reply, Refusal::TooLarge);
        }
        let op = Op::Allocate {
            fid: self.fid(header.nodeid),
            offset: args.offset,
            len: args.length,
            zero,
            keep_size,
        };
        self.edit(convert::asker(header), op, reply, |reply, completion| {
            nothing(reply)(completion);
        });
    }

    /// Copies a part: programs go on where it ends, as with any short write.
    pub(super) fn copy(self: &Arc<Self>, header: &Header, args: &CopyFileRangeIn, reply: Reply) {
        let behind = |offset: u64| limits::FILE_BYTES.saturating_sub(offset);
        let len = args.len.min(u64::from(limits::COPY_BYTES));
        if behind(args.off_out) == 0 && len > 0 {
            return refuse(reply, Refusal::TooLarge);
        }
        let len = len.min(behind(args.off_in)).min(behind(args.off_out));
        let op = Op::Copy {
            from: self.fid(header.nodeid),
            at: args.off_in,
            to: self.fid(args.nodeid_out),
            offset: args.off_out,
            len: len as u32,
        };
        let long = header.opcode == Opcode::COPY_FILE_RANGE_64;
        self.edit(
            convert::asker(header),
            op,
            reply,
            move |reply, completion| match completion.done {
                Done::Written { len } if long => {
                    reply.copied(u64::from(len));
                }
                Done::Written { len } => {
                    reply.written(len);
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// Does an operation that changes bytes of a file, behind the end of its set-id bits.
    fn edit(
        self: &Arc<Self>,
        asker: Asker,
        op: Op,
        reply: Reply,
        done: impl FnOnce(Reply, Completion) + Send + 'static,
    ) {
        let root = asker.caller.uid == convert::ROOT.uid;
        let Some(fid) = op.edits().filter(|_| !root) else {
            return self.operate(asker, op, move |completion| done(reply, completion));
        };
        let tree = Arc::clone(self);
        self.kill_set_id(asker.clone(), fid, move |result| match result {
            Ok(()) => tree.operate(asker, op, move |completion| done(reply, completion)),
            Err(other) => refuse_done(reply, &other),
        });
    }

    /// lseek(2) to the next hole, or to what is in none. (Other seeks are the kernel's own.)
    pub(super) fn find(&self, header: &Header, offset: u64, whence: u32, reply: Reply) {
        let Some((reply, hole)) = checked(reply, convert::finds_hole(whence)) else {
            return;
        };
        let fid = self.fid(header.nodeid);
        let op = Op::Find { fid, offset, hole };
        self.operate(
            convert::asker(header),
            op,
            move |completion| match completion.done {
                Done::Position(at) => {
                    reply.position(at);
                }
                other => refuse_done(reply, &other),
            },
        );
    }
}
