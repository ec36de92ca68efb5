//! Bytes that the kernel is given when a file is opened, without being asked for them.
//!
//! Of a short file whose bytes are all here the kernel gets its pages along with the answer to the
//! open: it need not ask for them, nor for the attributes once more, which it does after each read
//! of its own: two of the five requests of reading a small file, with its close. They are covered
//! by the token as those of a read are, and dropped with them.
//!
//! The kernel locks the pages that it is given, and a page that it is reading stays locked until
//! that read is answered, perhaps by the thread that gives: so pages are given only at the open of
//! a file that nobody else here has open. For the same reason no write of this machine is under
//! way.

use crate::Ticket;
use crate::client::api::Done;
use crate::client::piece::Piece;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::{Caller, Fid};

impl Client {
    /// Answers an open.
    pub(crate) fn answer_open(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid, caller): (Ticket, Fid, &Caller),
        cached: bool,
    ) {
        let bytes = match cached {
            true => {
                self.walk_passed(fid);
                self.give_at_open(step, fid, caller)
            }
            false => {
                // A descriptor that bypasses the pages makes the kernel drop them.
                self.node(fid).kernel.given = false;
                Vec::new()
            }
        };
        self.note_opened(fid, ticket);
        self.finish(step, ticket, Done::Opened { cached, bytes });
    }

    /// A program has just opened a file through the page cache: the bytes that the kernel is given,
    /// from the first one to the file's end, or none.
    fn give_at_open(&mut self, step: &mut Step<'_>, fid: Fid, caller: &Caller) -> Vec<Piece> {
        let most = u64::from(self.options.open_bytes);
        let Some(node) = self.nodes.get(&fid) else {
            return Vec::new();
        };
        let Some(attr) = node.held().filter(|_| node.lasting()) else {
            return Vec::new();
        };
        let size = attr.size;
        let first =
            node.opens.reads == 1 && node.opens.writes == 0 && node.opens.opening.is_empty();
        let alone = first && node.kernel.reading.is_empty() && self.serves();
        let still = node.quiet() && !node.may_cut(step.now, size);
        if size == 0 || size > most || !alone || !still || node.kernel.given {
            return Vec::new();
        }
        let Some(pieces) = self.gather(fid, (0, size), true) else {
            return Vec::new();
        };
        let last = self.asked.last_request;
        let node = self.node(fid);
        (node.kernel.pages, node.kernel.given) = (true, true);
        node.gave_all(step.now, (size, last));
        self.read_ahead_pays(fid);
        self.walk_used(step, fid, caller);
        pieces
    }
}
