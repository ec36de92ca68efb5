//! Bytes before the name that depends on them.
//!
//! A program that replaces a file writes another one and renames it over the first. Were the name
//! told before the bytes, and the machine lost then, an empty file would be left in the place of
//! the old one. So at such a rename the file's dirty blocks leave, and the server does the rename
//! behind the write-back: the caller waits for neither, unless the file is longer than one batch.
//! Only blocks that were dirty at the rename count; a disk that is full delays no name. A file that
//! is replaced before the server has heard of it is no old content: a temporary file over another
//! one costs nothing.
//!
//! A rename to a name that nothing has needs no bytes. That the name is free is known here only
//! until another machine makes something of it, which may be before the server does the rename. So
//! such a rename asks the server to replace nothing; when it is refused for that, the bytes are
//! sent, and the server is asked once more.
//!
//! Nothing waits in a circle: a write-back waits for nobody, and stands behind nothing but
//! delegated changes, which do not either.

use super::cache::BlockState;
use crate::Ticket;
use crate::client::api::Call;
use crate::client::mutant::Mutant;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::{Fid, Name, Op, RequestId};

impl Client {
    /// Must this rename wait until bytes of what it puts in the place of something else have been
    /// written back? Blocks that can go with it are sent ahead of it.
    pub(crate) fn must_publish(&mut self, step: &mut Step<'_>, ticket: Ticket, op: &Op) -> bool {
        let Op::Rename {
            to,
            new,
            no_replace,
            exchange,
            ..
        } = op
        else {
            return false;
        };
        let broken = self.options.mutant == Some(Mutant::RenamesBeforeBytes);
        let free = self.is_new(*to, new) && !self.replaces(ticket);
        if (*no_replace && !*exchange) || free || self.cache.dirty() == 0 || broken {
            return false;
        }
        self.must_bring_bytes(step, ticket, op)
    }

    /// The same of a rename for which the server is asked, and which may replace something by then.
    /// One that is not to replace anything is changed so that it does not.
    pub(crate) fn must_publish_there(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        op: &mut Op,
    ) -> bool {
        let broken = self.options.mutant == Some(Mutant::RenamesBeforeBytes);
        let Op::Rename {
            from,
            name,
            to,
            new,
            no_replace,
            exchange,
        } = &*op
        else {
            return false;
        };
        let sure = *no_replace || *exchange || self.replaces(ticket);
        if sure || broken || self.cache.dirty() == 0 || !self.is_new(*to, new) {
            return false;
        }
        if !self.is_free(*to, new) {
            return self.must_bring_bytes(step, ticket, op);
        }
        let dirty = !self.dirty_under((*from, name)).is_empty();
        if let Op::Rename { no_replace, .. } = op {
            *no_replace = dirty;
        }
        false
    }

    /// A rename was refused since something has the new name, which is more than its caller has
    /// asked for: it is asked for again, behind the bytes. False: the caller is told.
    pub(crate) fn replaces_after_all(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        op: &Op,
    ) -> bool {
        let Some(running) = self.callers.calls.get_mut(&ticket) else {
            return false;
        };
        let asked = matches!(&running.call, Call::Op(asked) if asked == op);
        if asked || running.replaces || !matches!(op, Op::Rename { .. }) {
            return false;
        }
        running.replaces = true;
        self.asked.unfinished.remove(&ticket);
        self.start(step, ticket);
        true
    }

    /// Is it known that this rename replaces something, whatever else is known of the name?
    fn replaces(&self, ticket: Ticket) -> bool {
        let running = self.callers.calls.get(&ticket);
        running.is_some_and(|running| running.replaces)
    }

    /// Must a rename wait until the bytes of what it moves, or exchanges, are written back?
    fn must_bring_bytes(&mut self, step: &mut Step<'_>, ticket: Ticket, op: &Op) -> bool {
        let Op::Rename {
            from,
            name,
            to,
            new,
            exchange,
            ..
        } = op
        else {
            return false;
        };
        let mut files = self.dirty_under((*from, name));
        if *exchange && !op.leaves_whiteout() {
            files.extend(self.dirty_under((*to, new)));
        }
        let waits: Vec<Fid> = files
            .into_iter()
            .filter(|fid| !self.goes_ahead(step, *fid))
            .collect();
        let Some(running) = self.callers.calls.get_mut(&ticket) else {
            return false;
        };
        let (Some(&fid), false) = (waits.first(), running.brought) else {
            return false;
        };
        // Of several files the others have been sent as far as they can be; once is enough.
        running.brought = waits.len() == 1;
        self.node(fid).writeback.syncing.push((ticket, step.now));
        true
    }

    /// Is it known that there is no such name, or of nothing that the server has heard of?
    fn is_new(&self, dir: Fid, name: &Name) -> bool {
        let node = self.nodes.get(&dir).filter(|node| node.lasting());
        match node.and_then(|node| node.dir.names.get(name)) {
            Some(Some(named)) => self.is_untold(named.fid),
            _ => self.is_free(dir, name),
        }
    }

    /// Is it known that there is no such name?
    fn is_free(&self, dir: Fid, name: &Name) -> bool {
        let node = self.nodes.get(&dir).filter(|node| node.lasting());
        node.is_some_and(|node| {
            node.dir
                .names
                .get(name)
                .map_or(node.dir.whole, Option::is_none)
        })
    }

    /// Has the server not been told that this was made?
    fn is_untold(&self, fid: Fid) -> bool {
        let unborn = self.nodes.get(&fid).map_or(0, |node| node.untold.unborn);
        self.asked
            .requests
            .get(&unborn)
            .is_some_and(|sent| sent.kept)
    }

    /// The file of this name, if something of it is dirty; of a name that is not known all files
    /// that may have it.
    fn dirty_under(&self, (dir, name): (Fid, &Name)) -> Vec<Fid> {
        let node = self.nodes.get(&dir);
        let named = node.and_then(|node| node.dir.names.get(name));
        match named {
            Some(Some(named)) if self.cache.changed(named.fid).count > 0 => [named.fid].into(),
            Some(_) => Vec::new(),
            None => {
                let of_dir = |fid: &Fid| {
                    let node = self.nodes.get(fid);
                    node.is_some_and(|node| node.parent == Some(dir) || node.kernel.is_elsewhere())
                };
                self.cache.changed_files().filter(of_dir).collect()
            }
        }
    }

    /// Is all that is dirty of the file on its way to the server, so that requests sent from now on
    /// can be done behind it?
    fn goes_ahead(&mut self, step: &mut Step<'_>, fid: Fid) -> bool {
        // A change is told behind changes that are older than it: those that are kept go first.
        if !self.delegation.kept.is_empty() && self.cache.changed(fid).count > 0 {
            self.ship(step);
        }
        self.flush(step, fid);
        let sent =
            |(_, _, state)| !matches!(state, BlockState::Dirty(_) | BlockState::Sending(Some(_)));
        if !self.cache.changed_blocks(fid).all(sent) {
            return false;
        }
        if self.cache.changed(fid).count == 0 {
            return true;
        }
        let batch = self.node(fid).writeback.batch;
        let last = self.delegation.last_unanswered(&self.asked.requests);
        // A change that was told since then, or the write-back of another file, may be done later.
        if !self.is_done_behind(batch, last) {
            return false;
        }
        self.delegation.last = batch;
        true
    }

    /// Is this request, or one that it comes after, that one? 0: there is none to come after.
    /// Requests that have been answered are not known here any more.
    fn is_done_behind(&self, mut id: RequestId, last: RequestId) -> bool {
        while last != 0 && id > last {
            let Some(sent) = self.asked.requests.get(&id) else {
                return false;
            };
            id = sent.request.after;
        }
        last == 0 || id == last
    }
}
