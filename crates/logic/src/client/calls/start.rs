//! Calls: which are answered from the cache, and which go to the server.

use crate::Ticket;
use crate::client::api::{Call, Done, Lifetime};
use crate::client::kernel::inode_locks::stops_write_back;
use crate::client::mutant::Mutant;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use crate::footprint::Footprint;
use wire::{Access, Caller, Fid, Hold, Name, Op, Refusal, Right};

impl Client {
    /// Begins a call, or begins it again after it had to wait.
    pub(crate) fn start(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let running = self.callers.calls.get(&ticket);
        if self.callers.abandoned.contains_key(&ticket) || running.is_some_and(|r| r.abandoned) {
            return self.finish(step, ticket, Done::Refused(Refusal::Interrupted));
        }
        let Some(running) = running else {
            return;
        };
        let release = matches!(running.call, Call::Release { .. } | Call::Leave)
            || self.gives_up_nothing(&running.call)
            || self.takes_stores(&running.call);
        if (self.session.suspended || self.root.is_none()) && !release {
            return self.callers.parked.push(ticket);
        }
        if let Some(fid) = self.is_stranded(&running.call) {
            return self.node(fid).parked.push(ticket);
        }
        if self.lacks_lock(&running.call) {
            return self.finish(step, ticket, Done::Refused(Refusal::SessionLost));
        }
        let running = running.clone();
        match running.call {
            Call::Op(Op::SetAttr { fid, .. }) if running.set.is_some() => {
                self.start_op(step, ticket, Op::GetAttr { fid }, running.caller);
            }
            Call::Op(op) => self.start_op(step, ticket, op, running.caller),
            Call::Enter { fid } => self.start_op(step, ticket, Op::GetAttr { fid }, running.caller),
            Call::Seek { fid } => self.start_op(step, ticket, Op::GetAttr { fid }, running.caller),
            Call::Open {
                fid,
                access,
                append,
                ..
            } => {
                self.open(step, ticket, (fid, access, append), running.caller);
            }
            Call::Release {
                fid,
                access,
                handle,
            } => {
                self.close(step, ticket, fid, access);
                self.unlock_closed(step, fid, handle);
                self.note_closed(fid, handle);
            }
            Call::Read { .. } => self.read(step, ticket, running),
            Call::Write { .. } => self.write(step, ticket, running),
            Call::List { .. } => self.list(step, ticket, running),
            Call::Sync { fid, handle } => self.sync(step, ticket, (fid, handle)),
            Call::Leave => self.leave(step, ticket),
            call => self.lock_call(step, ticket, call),
        }
    }

    pub(crate) fn start_op(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        mut op: Op,
        caller: Caller,
    ) {
        if self.refuses_call_as_too_new(step, ticket, &op)
            || self.done_without_server(step, (ticket, &caller), &op)
        {
            return;
        }
        match &op {
            Op::Lookup { dir, name } if self.looks_up_here(step, ticket, (*dir, name), &caller) => {
                return;
            }
            Op::GetAttr { fid } => {
                if let Some(done) = self.known_attr(*fid) {
                    if self.waits_for_drop(*fid, ticket) {
                        return;
                    }
                    self.node(*fid).kernel.is_told_attr(step.now);
                    return self.finish(step, ticket, done);
                }
            }
            Op::GetXattr { .. } | Op::ListXattr { .. } => {
                if let Some(done) = self.known_xattr(&op, &caller) {
                    return self.finish(step, ticket, done);
                }
            }
            Op::SetAttr { fid, .. } => {
                let fid = *fid;
                if self.must_wait_to_set(&op) {
                    return self.node(fid).parked.push(ticket);
                }
                if self.must_bring_within(step, ticket, &op) {
                    return;
                }
            }
            Op::Allocate { .. } | Op::Copy { .. } | Op::Find { .. }
                if self.must_bring(step, ticket, &op) =>
            {
                return;
            }
            Op::Rename { .. } if self.must_publish(step, ticket, &op) => return,
            _ => {}
        }
        if op.makes_open().is_some_and(|access| access.write)
            && let Some(dir) = Footprint::new(&op).fids().next()
        {
            self.ask_for_room_ahead(step, dir.volume);
        }
        if self.done_here(step, ticket, &op) || self.must_publish_there(step, ticket, &mut op) {
            return;
        }
        let hold = self.hold_for(&op);
        self.note_sent(&op);
        self.request(
            step,
            (op, caller, hold),
            alloc::vec::Vec::new(),
            Why::Call(ticket),
        );
    }

    /// Does a look-up end, wait, or go on to another volume, without a question for the name?
    fn looks_up_here(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (dir, name): (Fid, &Name),
        caller: &Caller,
    ) -> bool {
        if self.is_barred(step, ticket, dir) {
            return true;
        }
        if let Some(root) = self.behind(dir, name) {
            self.cross(step, ticket, root);
            return true;
        }
        let Some(done) = self.lookup(step, dir, name) else {
            return false;
        };
        let found = match &done {
            Done::Entry { fid, .. } => Some(*fid),
            _ => None,
        };
        self.finish(step, ticket, done);
        if let Some(fid) = found {
            self.walk_used(step, fid, caller);
        }
        true
    }

    /// The opens of the object that an operation names.
    fn hold_for(&mut self, op: &Op) -> Hold {
        let stamp = self.stamp();
        match op {
            Op::Make {
                open: Some(access), ..
            }
            | Op::MakeNameless { open: access, .. } => Hold {
                open: true,
                write: access.write,
                stamp,
            },
            Op::SetAttr { fid, .. }
            | Op::Open { fid, .. }
            | Op::Write { fid, .. }
            | Op::Allocate { fid, .. }
            | Op::Copy { to: fid, .. } => self.nodes.get(fid).map_or(
                Hold {
                    stamp,
                    ..Hold::default()
                },
                |n| n.hold(stamp),
            ),
            _ => Hold {
                stamp,
                ..Hold::default()
            },
        }
    }

    /// Counts that an operation is under way where others look at that.
    pub(crate) fn note_sent(&mut self, op: &Op) {
        self.naming += u32::from(changes_links(op));
        for dir in Footprint::new(op).dirs().into_iter().flatten() {
            let node = self.node(dir);
            node.dir.busy += 1;
            node.directory = true;
        }
        match op {
            Op::GetAttr { fid } => self.node(*fid).pending.asking += 1,
            Op::Claim { fid } => self.node(*fid).pending.claiming += 1,
            Op::SetAttr { fid, set } => {
                let node = self.node(*fid);
                node.pending.asking += 1;
                node.pending.timing += u32::from(set.mtime.is_some());
                if set.size.is_some() {
                    node.pending.resizing += 1;
                    node.edits += 1;
                }
            }
            Op::Open { fid, access } => self.node(*fid).opens.opening.push(*access),
            Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } => {
                let node = self.node(*fid);
                node.xattrs_change(op);
                node.pending.labelling += 1;
            }
            Op::Allocate { fid, .. } | Op::Copy { to: fid, .. } => self.note_edit(*fid),
            Op::Write { fid, .. } => {
                let node = self.node(*fid);
                node.pending.remote_writes += 1;
                node.edits += 1;
            }
            _ => {}
        }
    }

    /// The opposite of `note_sent`.
    pub(crate) fn unsend(&mut self, op: &Op) {
        self.naming -= u32::from(changes_links(op));
        for dir in Footprint::new(op).dirs().into_iter().flatten() {
            let node = self.node(dir);
            node.dir.busy = node.dir.busy.saturating_sub(1);
        }
        match op {
            Op::GetAttr { fid } => {
                let node = self.node(*fid);
                node.pending.asking = node.pending.asking.saturating_sub(1);
            }
            Op::Claim { fid } => {
                let node = self.node(*fid);
                node.pending.claiming = node.pending.claiming.saturating_sub(1);
            }
            Op::SetAttr { fid, set } => {
                let node = self.node(*fid);
                node.pending.asking = node.pending.asking.saturating_sub(1);
                let timed = u32::from(set.mtime.is_some());
                node.pending.timing = node.pending.timing.saturating_sub(timed);
                if set.size.is_some() {
                    node.pending.resizing = node.pending.resizing.saturating_sub(1);
                    node.edits += 1;
                }
            }
            Op::Open { fid, access } => self.node(*fid).arrived(*access),
            Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } => {
                let node = self.node(*fid);
                node.pending.labelling = node.pending.labelling.saturating_sub(1);
            }
            Op::Write {
                mode: wire::WriteMode::Back { .. },
                ..
            } => {}
            Op::Write { fid, .. } | Op::Allocate { fid, .. } | Op::Copy { to: fid, .. } => {
                let node = self.node(*fid);
                node.pending.remote_writes = node.pending.remote_writes.saturating_sub(1);
                node.edits += 1;
            }
            _ => {}
        }
    }

    /// A look-up that the cache can answer.
    fn lookup(&mut self, step: &mut Step<'_>, dir: Fid, name: &Name) -> Option<Done> {
        let parent = self.nodes.get(&dir)?;
        if parent.token.right < Right::Shared {
            return None;
        }
        let name_lifetime = Self::lifetime(parent.lasting());
        let named = parent.dir.names.get(name);
        let named = named.map(|named| named.map(|named| named.fid));
        match named.or_else(|| parent.dir.whole.then_some(None))? {
            None => Some(Done::Absent {
                lifetime: name_lifetime,
            }),
            Some(fid) => {
                let node = self.nodes.get_mut(&fid)?;
                let attr = node.tellable()?.clone();
                let attr_lifetime = Self::lifetime(node.attr_lasting());
                node.is_in(dir);
                node.kernel.is_told(step.now);
                Some(Done::Entry {
                    fid,
                    attr,
                    name_lifetime,
                    attr_lifetime,
                    cached: false,
                })
            }
        }
    }

    fn known_attr(&mut self, fid: Fid) -> Option<Done> {
        let node = self.nodes.get(&fid)?;
        if node.pending.resizing > 0 {
            return None;
        }
        let attr = node.tellable()?.clone();
        Some(Done::Attr {
            attr,
            lifetime: Self::lifetime(node.attr_lasting()),
        })
    }

    pub(crate) fn lifetime(lasting: bool) -> Lifetime {
        if lasting {
            Lifetime::Forever
        } else {
            Lifetime::None
        }
    }

    /// Attributes are not changed while a recall is being answered, unless the kernel holds what it
    /// needs to drop pages for that; a size not while blocks are on their way to the server, which
    /// would come back to life behind the new end; nor a time while blocks bring an older one.
    fn must_wait_to_set(&self, op: &Op) -> bool {
        let Op::SetAttr { fid, set } = op else {
            return false;
        };
        let resize = set.size.is_some();
        let behind = self.options.mutant == Some(Mutant::ResizesBehindRecalls);
        let free = stops_write_back(op) && !behind;
        self.nodes.get(fid).is_some_and(|node| {
            let written_back = node.writeback.sending && (resize || set.mtime.is_some());
            let recalled = node.drain.is_some() && !free;
            recalled || written_back || (resize && node.pending.remote_writes > 0)
        })
    }

    fn open(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, access, append): (Fid, Access, bool),
        caller: Caller,
    ) {
        let node = self.node(fid);
        if node.drain.is_some() {
            return node.parked.push(ticket);
        }
        if access.write {
            self.ask_for_room_ahead(step, fid.volume);
        }
        let node = self.node(fid);
        let wanted = if access.write {
            Right::Exclusive
        } else {
            Right::Shared
        };
        if node.token.right >= wanted {
            match self.may_open(fid, access, &caller) {
                None => {}
                Some(Err(refusal)) => return self.finish(step, ticket, Done::Refused(refusal)),
                Some(Ok(())) => {
                    let node = self.node(fid);
                    node.opened(access);
                    let cached = !access.write && !append;
                    node.opens.direct |= !cached;
                    return self.answer_open(step, (ticket, fid, &caller), cached);
                }
            }
        }
        let op = Op::Open { fid, access };
        self.note_sent(&op);
        let hold = self.hold_for(&op);
        self.request(
            step,
            (op, caller, hold),
            alloc::vec::Vec::new(),
            Why::Call(ticket),
        );
    }

    fn close(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid, access: Access) {
        self.finish(step, ticket, Done::Nothing);
        self.shut_opened(step, fid, access);
        self.bury_if_unused(step, fid);
        self.retire(step, fid);
    }

    /// A descriptor that was opened so is open no more.
    pub(crate) fn shut_opened(&mut self, step: &mut Step<'_>, fid: Fid, access: Access) {
        let node = self.node(fid);
        let before = node.hold(0);
        node.closed(access);
        let after = node.hold(0);
        if before != after && node.token.right < Right::Shared {
            self.say_opens(step, fid);
        }
    }

    /// A file whose last name is gone and that is not open here: its dirty blocks need never be
    /// written, and the token goes back, so that the server can remove it.
    pub(crate) fn bury_if_unused(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if node.untold.stillborn {
            return self.bury_stillborn(step, fid);
        }
        let own = node.untold.delegated > 0;
        if own && self.strikes_out(step, fid) {
            return;
        }
        let node = self.node(fid);
        let busy =
            own || node.writeback.sending || node.pending.remote_writes > 0 || node.drain.is_some();
        if !node.unlinked || node.hold(0).open || busy {
            return;
        }
        let private = node.untold.private;
        if private && node.kernel.is_known() {
            return; // a program here may be about to open it: the kernel will let go of it
        }
        let dirty = self
            .cache
            .blocks(fid, 0)
            .any(|(_, _, state)| crate::client::is_dirty(state));
        let looked_for = || {
            let mut asked = self.asked.requests.values().map(|sent| &sent.request.op);
            asked.any(|op| matches!(op, Op::Lookup { .. }))
        };
        if dirty && (!private || looked_for()) {
            // A program elsewhere may be about to open what it has just looked up; or one here what
            // the server found before the removal.
            return self.flush(step, fid);
        }
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        node.attr = None;
        node.writeback.flush = false;
        for (waiter, _) in core::mem::take(&mut node.writeback.syncing) {
            self.finish(step, waiter, Done::Refused(Refusal::Stale));
        }
        let blocks: alloc::vec::Vec<u64> = self.cache.blocks(fid, 0).map(|(b, _, _)| b).collect();
        for block in blocks {
            self.cache.drop_block(fid, block);
        }
        self.release(step, fid, Right::None);
        self.feed_starved(step);
    }
}

/// Does an object that was there before get or lose a name by it?
fn changes_links(op: &Op) -> bool {
    matches!(op, Op::Link { .. } | Op::Unlink { .. } | Op::Rename { .. })
}
