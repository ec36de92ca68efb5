//! The token client: holds tokens, serves from its cache, answers recalls, writes back.
//!
//! Guarantees, whatever the messages and their order:
//! - all that it promises for ever (lifetimes, cached opens, pages) is covered by a right that the
//!   server believes it to have, and the kernel has dropped that before the right is given back;
//! - a changed block stays until the server has it, and leaves before its token does;
//! - every call is answered once; a call that needs no server never waits for one, unless a recall
//!   is being answered or the lease is near its end.

mod api;
mod calls;
mod data;
mod delegation;
mod figures;
mod kernel;
mod lending;
mod locks;
mod memory;
mod mutant;
mod names;
mod node;
mod notices;
mod options;
mod piece;
mod room;
mod session;
mod tokens;
mod watches;

pub use api::{Call, Done, How, Input, Lifetime, Listed, Output, Slot};
pub use figures::{Figures, TokenLine};
pub use lending::{LendingFigures, PeerInput, PeerOutput};
pub use mutant::Mutant;
pub use notices::{Event, Invalidate, Waiting, Waits};
pub use options::{LendLimits, Lends, Options};
pub use piece::Piece;

use crate::Ticket;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use calls::Running;
use data::cache::Cache;
use kernel::Kernel;
use kernel::notify_done::After;
use node::Node;
use session::LinkState;
use session::asked::Sent;
use session::clock::VolumeClock;
use wire::{Attr, Epoch, Fid, Op, Right, SessionId, Time};

/// The client's machine.
#[derive(Clone, Debug)]
pub struct Client {
    options: Options,
    session: session::Session,
    root: Option<Fid>,
    clock: VolumeClock,
    /// Up to there the server had heard the answers to its recalls of what this tells of.
    heard: Epoch,
    /// The latest epoch of any grant that came.
    granted: Epoch,
    /// Boxed: the map has room for more than it holds.
    nodes: BTreeMap<Fid, Box<Node>>,
    forgotten: node::Forgotten,
    callers: calls::Callers,
    asked: session::asked::Asked,
    reassertion: session::reassert::Reassertion,
    kernel: Kernel,
    reclaim: tokens::reclaim::Reclaim,
    inline_budget: data::inline_data::Budget,
    walks: names::dir_prefetch::Walks,
    mounts: names::mount_points::MountPoints,
    /// Directories that are not used here, and are being given up.
    idle_releases: BTreeMap<Fid, tokens::release_idle::IdleRelease>,
    /// Own changes of names of what was there before, of which the server has not said what became.
    naming: u32,
    /// Objects that are being given back, as far as that waits for a moment.
    draining: BTreeSet<Fid>,
    cache: Cache,
    writeback: data::writeback::WriteBack,
    counts: figures::Counts,
    locks: locks::owners::Locks,
    lock_delegation: locks::delegation::DelegatedLocks,
    watches: watches::Watches,
    delegation: delegation::changes::Delegation,
    unstable: session::unstable::Unstable,
    /// The tokens and locks that others have wanted, as far as the server has said it.
    taken: session::away::Taken,
    /// Files of which changed bytes are here and the token is not, and where they were.
    stranded: BTreeMap<Fid, data::stranded::Stranded>,
    write_errors: data::write_errors::WriteErrors,
    places: BTreeMap<Fid, (Fid, Option<wire::Name>)>,
    lending: lending::Lending,
    rooms: room::Rooms,
}

/// The time and the outputs: what every step needs.
pub(crate) struct Step<'a> {
    now: Time,
    out: &'a mut Vec<Output>,
}

impl Step<'_> {
    fn done(&mut self, ticket: Ticket, done: Done) {
        self.out.push(Output::Done { ticket, done });
    }
}

fn cache_of(options: &Options) -> Cache {
    let mut cache = Cache::new(options.slots.max(16), options.least_slots);
    cache.set_dirty_most(options.dirty_slots);
    cache.set_kept_most(options.lend_limits.kept_blocks);
    cache
}

impl Client {
    /// A client that is not yet connected. `session` names it to the server, `name` to people.
    pub fn new(options: Options, session: SessionId, name: &[u8]) -> Self {
        Self {
            session: session::Session::new(session, name),
            root: None,
            clock: VolumeClock::default(),
            heard: 0,
            granted: 0,
            nodes: BTreeMap::new(),
            forgotten: node::Forgotten::default(),
            callers: calls::Callers::default(),
            asked: session::asked::Asked::default(),
            reassertion: session::reassert::Reassertion::default(),
            kernel: Kernel::default(),
            reclaim: tokens::reclaim::Reclaim::default(),
            inline_budget: data::inline_data::Budget::new(options.slots.max(16)),
            walks: names::dir_prefetch::Walks::default(),
            mounts: names::mount_points::MountPoints::default(),
            idle_releases: BTreeMap::new(),
            naming: 0,
            draining: BTreeSet::new(),
            cache: cache_of(&options),
            writeback: data::writeback::WriteBack::default(),
            counts: figures::Counts::default(),
            locks: locks::owners::Locks::default(),
            lock_delegation: locks::delegation::DelegatedLocks::default(),
            watches: watches::Watches::default(),
            delegation: delegation::changes::Delegation::default(),
            unstable: session::unstable::Unstable::default(),
            taken: session::away::Taken::default(),
            stranded: BTreeMap::new(),
            write_errors: data::write_errors::WriteErrors::default(),
            places: BTreeMap::new(),
            lending: lending::Lending::default(),
            rooms: room::Rooms::default(),
            options,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        let step = &mut Step { now, out };
        self.cache.set_now(now);
        match input {
            Input::Connected { .. } | Input::Gone if self.session.state == LinkState::Left => {}
            Input::Connected { version } => self.on_connected(step, version),
            Input::Gone => self.session.state = LinkState::Down,
            Input::Message { message, bulk_len } => self.on_message(step, *message, bulk_len),
            Input::Call {
                ticket,
                caller,
                thread,
                waits,
                call,
            } => {
                let repeated = self.kernel_asks(step, (ticket, thread), &call);
                let caller = self.session.rights.squash(caller);
                let running = Running {
                    caller,
                    thread,
                    call,
                    brought: false,
                    replaces: false,
                    cleared: None,
                    set: None,
                    crosses: None,
                    repeated,
                    waits,
                    since: now,
                    signalled: false,
                    abandoned: false,
                    changed: Vec::new(),
                };
                self.callers.calls.insert(ticket, running);
                self.look_later(now);
                // The tick may be late: on a machine that was stopped for a while, for instance.
                self.suspend_if_due(step);
                self.on_file_locked(step, ticket);
                self.start(step, ticket);
                self.kernel_asked(step, ticket);
            }
            Input::Interrupt { ticket } => self.interrupt(step, ticket),
            Input::Abandon { ticket } => self.abandon(step, ticket, wire::Refusal::Interrupted),
            Input::Signalled { number } => self.on_signalled(step, number),
            Input::DropsAtOnce => self.kernel.drops_at_once(),
            Input::Handed { root } => self.on_handed(step, root),
            Input::Forget { fid, count } => self.on_forget(step, fid, count),
            Input::Invalidated { id } => self.on_invalidated(step, id),
            Input::Watch {
                watch,
                fid,
                recursive,
            } => self.on_watch(step, watch, (fid, recursive)),
            Input::Unwatch { watch } => self.on_unwatch(step, watch),
            Input::Memory { slots, objects } => self.on_memory(step, slots, objects),
            Input::Peer(input) => self.on_peer(step, input),
            Input::Tick => self.on_tick(step),
        }
        self.give_up_room(step);
        self.keep_bounds(step);
        self.keep_size(step);
    }

    /// Root of the tree, once the server has said it.
    pub fn root(&self) -> Option<Fid> {
        self.root
    }

    /// Its session; another one after a loss.
    pub fn session(&self) -> SessionId {
        self.session.id
    }

    /// Has it said goodbye? The server ends the connection then.
    pub fn has_left(&self) -> bool {
        self.session.state == LinkState::Left
    }

    /// May it use what it holds? Not before it knows a server, nor near the end of its lease.
    pub fn serves(&self) -> bool {
        self.root.is_some() && !self.session.suspended
    }

    /// How many slots hold a block.
    pub fn used_slots(&self) -> u32 {
        self.cache.used() as u32
    }

    /// The slots that hold nothing: their old bytes are not needed. The next to be used last.
    pub fn free_slots(&self) -> &[Slot] {
        self.cache.free()
    }

    /// An object's mode and how many names it has, if they may be said without asking anybody.
    pub fn known_mode_and_links(&self, fid: Fid) -> Option<(u16, u32)> {
        let node = self.nodes.get(&fid).filter(|_| self.serves())?;
        let attr = node.held()?;
        Some((attr.mode, attr.nlink))
    }

    /// Has this client seen an object lose its last name?
    pub fn has_lost_names(&self, fid: Fid) -> bool {
        let node = self.nodes.get(&fid);
        node.is_some_and(|node| node.unlinked || node.held().is_some_and(|attr| attr.nlink == 0))
    }

    fn node(&mut self, fid: Fid) -> &mut Node {
        let forgotten = &self.forgotten;
        self.nodes
            .entry(fid)
            .or_insert_with(|| Box::new(Node::new(forgotten)))
    }

    fn stamp(&mut self) -> u64 {
        self.asked.last_stamp += 1;
        self.asked.last_stamp
    }

    /// Answers a call.
    fn finish(&mut self, step: &mut Step<'_>, ticket: Ticket, done: Done) {
        let mut running = self.callers.calls.remove(&ticket);
        running = running.or_else(|| self.callers.abandoned.remove(&ticket));
        let Some(running) = running else {
            return;
        };
        self.note_looked(step.now, ticket);
        self.kernel.lets_go(ticket);
        let done = self.refuse_late(step, &running, done);
        let mut done = self.entered(step.now, &running, done);
        if let (Some(attr), Done::Refused(_)) = (&running.set, &done) {
            // Since it was set the object has gone, perhaps with the session.
            let (attr, lifetime) = (Attr::clone(attr), Lifetime::None);
            done = Done::Attr { attr, lifetime };
        }
        if running.abandoned {
            return self.bury_call(step, (ticket, running), done);
        }
        if let (Call::Op(Op::SetAttr { .. }), Done::Attr { lifetime, .. }) =
            (&running.call, &mut done)
        {
            // The kernel takes such an answer over without looking whether it has been told to drop
            // the attributes meanwhile, so it may not keep it.
            *lifetime = Lifetime::None;
        }
        self.kernel_is_told(step, &running, &mut done);
        let refused = matches!(done, Done::Refused(_));
        step.done(ticket, done);
        if let Some((id, unseen)) = self.asked.unfinished.remove(&ticket) {
            self.answered(step, (id, unseen.filter(|_| !refused)), &running);
        }
    }

    fn on_forget(&mut self, step: &mut Step<'_>, fid: Fid, count: u64) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.kernel.forgets(count);
            self.bury_if_unused(step, fid);
            self.retire(step, fid);
        }
    }

    /// Gives up an object that nobody uses any more: the token goes back.
    fn retire(&mut self, step: &mut Step<'_>, fid: Fid) {
        let idle = self.nodes.get(&fid).is_some_and(|node| node.is_idle());
        // The server has yet to hear of its times: they are told with what is kept.
        let touched = self.delegation.touched.contains_key(&fid);
        if Some(fid) == self.root || fid.is_room() || !idle || touched {
            return;
        }
        if self
            .cache
            .blocks(fid, 0)
            .any(|(_, _, state)| is_dirty(state))
        {
            return;
        }
        self.release(step, fid, Right::None);
        self.unforesee(fid);
        if let Some(node) = self.nodes.remove(&fid) {
            self.forgotten.floor = self.forgotten.floor.max(node.token.void);
            self.forgotten.changed = self.forgotten.changed.max(node.marks.changed);
            self.forgotten.recalled = self.forgotten.recalled.max(node.marks.recalled);
        }
        self.cache.drop_clean(fid, 0);
        self.cache.drop_filling(fid);
    }
}

fn is_dirty(state: data::cache::BlockState) -> bool {
    matches!(
        state,
        data::cache::BlockState::Dirty(_) | data::cache::BlockState::Sending(_)
    )
}
