//! Notifications: what the kernel is told to drop, and what follows when it has done so.

use crate::Ticket;
use crate::client::api::{Done, Output};
use crate::client::notices::Invalidate;
use crate::client::{Client, Step};
use alloc::collections::BTreeMap;
use wire::{Epoch, Fid, RequestId};

/// The action that follows once the kernel has dropped something.
#[derive(Clone, Debug)]
pub(crate) enum After {
    /// A part of the answer to a recall of names.
    Names(Fid, Epoch),
    /// This directory is barred no more.
    Bar(Fid),
    /// The drain of this object goes on.
    Drain(Fid),
    /// The threads that asked for attributes have taken the answers in: the drain of this object
    /// goes on.
    Settled(Fid),
    /// The answer to this change has been taken in.
    Turn(RequestId),
    /// One of the notifications that make the kernel ask again for what this change touched.
    Look(RequestId),
    /// The name is gone that this change has moved.
    Moved(RequestId, Fid),
    /// A name is gone that this abandoned change is about.
    Doubt(Ticket),
    /// All of them expire.
    DoubtOfAll(Ticket),
    /// The call is answered: one that holds nothing that the notification needs.
    Answer(Ticket, Done),
    /// The call is begun again.
    Begin(Ticket),
    /// A change of this file's size was answered before.
    Cut(Fid),
    /// The call that opens this file for writing is answered, if the kernel was given no more pages
    /// than by then.
    Opened(Ticket, Fid, u64),
    /// This directory is being given up.
    Unused(Fid),
    /// The kernel was asked to let go of what it does not use.
    LetGo,
    /// Nothing.
    Nothing,
}

/// Notifications that are not done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    last_id: u64,
    /// Of each the action that follows; and the object whose pages or attributes go.
    left: BTreeMap<u64, (After, Option<Told>)>,
}

/// A notification about an object's pages or attributes.
#[derive(Clone, Copy, Debug)]
struct Told {
    fid: Fid,
    /// It waits for nobody who asks for the size.
    at_once: bool,
    /// It waits for those who have pages locked.
    pages: bool,
}

impl Notices {
    /// Does this call wait for one, being done?
    pub(crate) fn keep_answer(&self, ticket: Ticket) -> bool {
        let mut afters = self.left.values().map(|(after, _)| after);
        afters.any(|after| match after {
            After::Answer(of, _) | After::Opened(of, ..) => *of == ticket,
            _ => false,
        })
    }

    /// Is the kernel dropping what it knows of this object, since a caller did not wait for its
    /// change? `unlocked`: without waiting for any page.
    pub(crate) fn is_disowned(&self, fid: Fid, unlocked: bool) -> bool {
        let mut left = self.left.values();
        left.any(|(after, told)| {
            let of = told.is_some_and(|told| told.fid == fid && !(unlocked && told.pages));
            matches!(after, After::Moved(..)) && of
        })
    }

    fn insert(&mut self, after: After, told: Option<Told>) -> u64 {
        self.last_id += 1;
        let other = self.left.insert(self.last_id, (after, told));
        assert!(other.is_none(), "two notifications have one number");
        self.last_id
    }
}

impl Client {
    /// Tells the kernel to drop something, and what follows.
    pub(crate) fn invalidate(
        &mut self,
        step: &mut Step<'_>,
        what: Invalidate,
        after: After,
    ) -> u64 {
        assert!(
            !self.stands_before(&what, &after) || self.options.mutant.is_some(),
            "the kernel must drop {what:?} before it is answered what keeps it from that"
        );
        let told = match &what {
            Invalidate::Inode { fid, .. } | Invalidate::Sizes { fid } => Some(Told {
                fid: *fid,
                at_once: drops(&what),
                pages: drops_pages(&what),
            }),
            _ => None,
        };
        if let Some(told) = told
            && let Some(node) = self.nodes.get_mut(&told.fid)
        {
            node.kernel.sizes.noticed(step.now, told.at_once);
            node.kernel.given &= !told.pages;
        }
        let id = self.kernel.notices.insert(after, told);
        step.out.push(Output::Invalidate { id, what });
        id
    }

    /// Does an answer wait for a notification that needs what the kernel holds until that answer?
    fn stands_before(&self, what: &Invalidate, after: &After) -> bool {
        let After::Answer(ticket, _) = after else {
            return false;
        };
        let call = self.callers.calls.get(ticket).map(|running| &running.call);
        call.and_then(|call| self.held(call))
            .is_some_and(|held| held.hinders(what))
    }

    pub(crate) fn on_invalidated(&mut self, step: &mut Step<'_>, id: u64) {
        let Some((after, told)) = self.kernel.notices.left.remove(&id) else {
            return;
        };
        if let Some(told) = told
            && let Some(node) = self.nodes.get_mut(&told.fid)
        {
            node.kernel.sizes.taken_in(step.now, told.at_once);
        }
        match after {
            After::Names(fid, epoch) => self.on_names_dropped(step, (fid, epoch), id),
            After::Bar(dir) => self.on_lock_seen(step, dir, id),
            After::Drain(fid) => self.on_pages_dropped(step, fid, id),
            After::Settled(fid) => self.on_settled(step, fid, id),
            After::Turn(id) => self.on_digested(step, id),
            After::Look(id) => self.on_look(step, id),
            After::Answer(ticket, done) => self.finish(step, ticket, done),
            After::Doubt(ticket) => self.on_doubt(step, ticket, false),
            After::DoubtOfAll(ticket) => self.on_doubt(step, ticket, true),
            After::Begin(ticket) => self.start(step, ticket),
            After::Cut(fid) => self.on_cut(step, fid),
            After::Opened(ticket, fid, paged) => {
                self.on_dropped_for_writer(step, (ticket, fid), paged);
            }
            After::Moved(id, dir) => self.on_moved(step, (id, dir)),
            After::Unused(dir) => self.on_unused_step(step, dir, id),
            After::LetGo => self.on_let_go(step),
            After::Nothing => {}
        }
        if let Some(told) = told {
            self.ask_after_drop(step, told.fid);
        }
    }
}

/// Does this drop pages, without waiting for anybody who asks for the size?
fn drops_pages(what: &Invalidate) -> bool {
    matches!(what, Invalidate::Inode { ranges, .. } if !ranges.is_empty())
}

fn drops(what: &Invalidate) -> bool {
    matches!(what, Invalidate::Inode { .. })
}
