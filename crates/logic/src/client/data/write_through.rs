//! Writes that the server does: of files without an Exclusive token, and where there is no room to
//! answer them here.

use crate::Ticket;
use crate::client::api::{Call, How};
use crate::client::piece::Piece;
use crate::client::room::Admitted;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use alloc::vec;
use wire::{Attr, Caller, Fid, Op, WriteMode};

impl Client {
    /// May a write be answered here? Else it waits, or the server does it.
    pub(crate) fn is_admitted(
        &mut self,
        step: &mut Step<'_>,
        (ticket, caller): (Ticket, &Caller),
        (fid, offset, len): (Fid, u64, u32),
        (end, how): (u64, How),
    ) -> bool {
        match self.admit_write(step, (ticket, fid), (offset, end), how) {
            Admitted::Here => return true,
            Admitted::AtServer if !self.must_bring_all(step, ticket, fid) => {
                self.write_at_server(step, (ticket, caller.clone()), (fid, offset, len), how);
            }
            Admitted::Waits | Admitted::AtServer => {}
        }
        false
    }

    /// The server does it, or refuses it.
    pub(crate) fn write_at_server(
        &mut self,
        step: &mut Step<'_>,
        (ticket, caller): (Ticket, Caller),
        (fid, offset, len): (Fid, u64, u32),
        how: How,
    ) {
        let mode = match how {
            How::Direct => WriteMode::At,
            How::Append => WriteMode::Append,
            How::Paged => WriteMode::Lazy,
        };
        let node = self.node(fid);
        node.pending.remote_writes += 1;
        node.edits += 1;
        let hold = node.hold(0);
        let stamp = self.stamp();
        let op = Op::Write {
            fid,
            offset,
            len,
            mode,
        };
        let hold = wire::Hold { stamp, ..hold };
        self.request(
            step,
            (op, caller, hold),
            vec![Piece::Call { ticket }],
            Why::Call(ticket),
        );
    }

    /// The server has applied a write of a call.
    pub(crate) fn on_written(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        offset: u64,
        (attr, vouched): (Attr, bool),
    ) {
        let Some(Call::Write { len, how, .. }) = self.callers.calls.get(&ticket).map(|r| &r.call)
        else {
            return;
        };
        let (len, how) = (*len, *how);
        self.keep_edited(fid, (attr, vouched));
        let end = offset + u64::from(len);
        self.answer_write(step, (ticket, fid), (offset, end), how);
        self.unpark(step, fid);
    }
}
