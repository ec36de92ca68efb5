//! Recalls of names: the kernel drops one or two names, and the token stays. Of a name that it was
//! never handed ([`super::dentries`]) only the directory's attributes and listing go, without a
//! lock.
//!
//! It is not enough that the kernel finds the name no more. A rename(2) under way may have looked
//! it up before and hold the object in its hand; if it finds the same object under its new name
//! afterwards, it believes that it was asked to rename a file to itself, and succeeds without
//! asking anybody. It has an object in hand only under the directory's lock. So a name counts as
//! dropped when either
//! - its notification is done, which takes that lock, so that nobody has the name in hand; or
//! - the epoch of all names was raised, which takes no lock, or the kernel keeps none of them for
//!   longer than for once, while one and the same change in that directory was waiting for us all
//!   the time. The kernel does those under the lock, alone, and has made its look-ups before it
//!   sends one: so nobody else has the name in hand, and the object that the change has in hand is
//!   the server's business.
//!
//! Without the second way two machines that change one directory would wait for each other. As it
//! takes more than is asked for, the server is asked first to put that change back
//! ([`super::wound_wait`]). Nobody holds the lock who is not, in the end, in one of the two:
//! look-ups and listings are answered without waiting for a change. In case the kernel holds it for
//! a reason that is not known here, there is an end to the patience, after which all directories
//! are barred ([`super::lookup_barrier`]). It begins when the last look-up was answered: between
//! two look-ups a rename has a name in hand, and one may take as long as the network is silent.
//! There is none near the end of the lease: look-ups wait for the server then, and it may wait for
//! this answer.

use crate::Ticket;
use crate::client::data::read_write::young;
use crate::client::mutant::Mutant;
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Step};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Epoch, Fid, Name, Right, Time};

/// How long the lock of a directory is waited for when nobody who would hold it is known.
pub(crate) const UNKNOWN_HOLDER_WAIT_NS: Time = 400_000_000;
/// How long a call that holds it is waited for which the server was asked to put back.
const RETRY_WAIT_NS: Time = 200_000_000;
/// How long it is waited for, when that is done, to be told that the name is dropped. Nobody else
/// who waits for this machine is to lose patience meanwhile.
const NOTIFY_DONE_WAIT_NS: Time = 100_000_000;
/// How long at most, whatever is looked up meanwhile, and no longer than a quarter of a lease: a
/// look-up may itself wait for a machine that does not answer, and a machine that waits for it
/// would be fenced too.
const NAME_REVOKE_MAX_NS: Time = 30_000_000_000;

/// A recall of names that is being answered.
#[derive(Clone, Debug)]
struct NameRevoke {
    /// From before the kernel was told. A look-up since then may be from after the kernel dropped
    /// the name, although it came here before the kernel's report.
    stamp: u64,
    /// Notifications that are not done, and of which names.
    left: BTreeMap<u64, Option<Name>>,
    /// The epoch is being raised: by which notification, since which stamp, and during which call.
    /// No stamp: it need not be, as nothing is kept.
    raising: Option<(u64, Option<u64>, Option<Ticket>)>,
    /// The call that holds the lock while it, or one before it, is put back; until when this is
    /// waited for.
    put_back: Option<(Ticket, Time)>,
    /// Since when: some day the epoch is raised whoever holds the lock.
    since: Time,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameRevokes {
    left: BTreeMap<(Fid, Epoch), NameRevoke>,
    /// When a look-up was answered last meanwhile.
    last_lookup: Time,
}

impl NameRevokes {
    /// The session is over: none is answered. The kernel is told to drop everything all the same.
    pub(crate) fn lose(&mut self) {
        self.left.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

impl Client {
    pub(crate) fn drop_names(
        &mut self,
        step: &mut Step<'_>,
        dir: Fid,
        epoch: Epoch,
        names: Vec<Name>,
    ) {
        let keeps = self.options.mutant == Some(Mutant::KeepsNames);
        let node = self.node(dir);
        if !keeps {
            for name in &names {
                node.dir.names.remove(name);
            }
            node.attr = None;
            node.forget_xattrs();
            node.not_whole();
        }
        node.renew_listing();
        // An answer about it may be on its way to a kernel that does not know it yet.
        let young = young(node.kernel.told_at(), step.now);
        if self.kernel.revokes.left.contains_key(&(dir, epoch)) {
            return; // repeated
        }
        if keeps {
            return self.answer_recall(step, dir, epoch, None);
        }
        let (stamp, mut left) = (self.stamp(), BTreeMap::new());
        let known = names
            .into_iter()
            .filter(|name| self.may_be_known(dir, name));
        let mut known: Vec<Option<Name>> = known.map(Some).collect();
        if known.is_empty() {
            known.push(None);
        }
        for name in known {
            let what = match name.clone() {
                Some(name) => Invalidate::Name { dir, name },
                None if young => Invalidate::Inode {
                    fid: dir,
                    ranges: vec![(0, u64::MAX)],
                    young,
                },
                None => Invalidate::Listing { dir },
            };
            left.insert(self.invalidate(step, what, After::Names(dir, epoch)), name);
        }
        let dropping = NameRevoke {
            stamp,
            left,
            raising: None,
            put_back: None,
            since: step.now,
        };
        self.kernel.revokes.left.insert((dir, epoch), dropping);
        self.raise_epoch(step, (dir, epoch));
    }

    /// Raises the epoch if a change is known that holds the directory's lock.
    fn raise_epoch(&mut self, step: &mut Step<'_>, at: (Fid, Epoch)) {
        let Some(dropping) = self.kernel.revokes.left.get(&at) else {
            return;
        };
        let witness = self.kernel.holders.changer(at.0);
        // Nobody is told a name of a barred directory: a name is in hand there in vain.
        let due = self.session.suspended
            || self.kernel.barriers.holds(at.0)
            || step.now >= self.patience_ends(dropping.since);
        let waits = dropping.left.values().any(Option::is_some);
        if !waits || dropping.raising.is_some() || (witness.is_none() && !due) {
            return;
        }
        let nothing_kept = witness.is_some() && self.is_nothing_kept(step.now, at);
        if let Some(ticket) = witness.filter(|_| !nothing_kept && !due)
            && self.is_put_back(step, at, ticket)
        {
            return;
        }
        let (dir, stamp) = (at.0, self.stamp());
        let (what, stamp) = match nothing_kept {
            true => (Invalidate::Listing { dir }, None),
            false => (Invalidate::Names { dir }, Some(stamp)),
        };
        let id = self.invalidate(step, what, After::Names(at.0, at.1));
        if let Some(dropping) = self.kernel.revokes.left.get_mut(&at) {
            dropping.raising = Some((id, stamp, witness));
        }
    }

    /// Will the call that holds the lock let go of it soon? Not if the server leaves it as it is
    /// and it waits for somebody else, nor if the message to the server is lost. Or has the name
    /// been dropped already, which is only not said yet? It may have been if another call was put
    /// back before this one: the thread that drops names was waiting for its lock.
    fn is_put_back(&mut self, step: &mut Step<'_>, at: (Fid, Epoch), ticket: Ticket) -> bool {
        let asked = (self.kernel.revokes.left.get(&at)).and_then(|dropping| dropping.put_back);
        if let Some((_, until)) = asked.filter(|(asked, _)| *asked == ticket) {
            return step.now < until;
        }
        let waits_ns = match self.put_back(step, ticket) {
            true => Some(RETRY_WAIT_NS),
            false => asked.map(|_| NOTIFY_DONE_WAIT_NS),
        };
        if let Some(dropping) = self.kernel.revokes.left.get_mut(&at) {
            dropping.put_back = waits_ns.map(|waits_ns| (ticket, step.now + waits_ns));
        }
        waits_ns.is_some()
    }

    /// A call has come: if it locks a directory whose names are to be dropped, these need not wait
    /// for that lock, or it is put back.
    pub(crate) fn on_locked(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let holders = &self.kernel.holders;
        let at: Vec<(Fid, Epoch)> = self
            .kernel
            .revokes
            .left
            .keys()
            .filter(|(dir, _)| holders.is_changed_by(*dir, ticket))
            .copied()
            .collect();
        for at in at {
            self.raise_epoch(step, at);
        }
    }

    pub(crate) fn on_names_dropped(&mut self, step: &mut Step<'_>, at: (Fid, Epoch), id: u64) {
        let Some(dropping) = self.kernel.revokes.left.get_mut(&at) else {
            return; // answered already
        };
        let dropped = dropping.left.remove(&id).flatten();
        let locked = dropped.is_some() || !dropping.left.is_empty();
        let stamp = dropping.stamp;
        let mut over = dropping.left.is_empty();
        if let Some((_, raised, during)) = dropping.raising.take_if(|raising| raising.0 == id)
            && !over
        {
            if let (Some(raised), Some(node)) = (raised, self.nodes.get_mut(&at.0)) {
                node.kernel.dentries.expired(raised);
            }
            // Unanswered until now: the lock was held by this call when the epoch was raised.
            over = during.is_none_or(|ticket| self.kernel.holders.contains(ticket));
            if during.is_none() && !self.kernel.barriers.holds(at.0) {
                // A rename holds the locks of two directories, and may look up its other name next.
                self.bar_directories(step);
            }
        }
        if let (Some(name), Some(node)) = (dropped, self.nodes.get_mut(&at.0)) {
            node.kernel.dentries.dropped(&name, stamp);
        }
        if !over {
            return self.raise_epoch(step, at);
        }
        self.kernel.revokes.left.remove(&at);
        let (dir, epoch) = at;
        if let Some(node) = self.nodes.get(&dir) {
            // Without the lock it is not known what else is in hand.
            let least = if locked {
                Right::None
            } else {
                Right::Transient
            };
            let right = node.token.right.max(least);
            self.say_returned(step, (dir, epoch), stamp, (right, None));
            if self.root.is_some() {
                self.retire(step, dir);
            }
        } else {
            self.answer_unknown(step, dir, epoch);
        }
    }

    /// Two machines want the same names. Does the kernel keep none of those that are to be dropped?
    fn is_nothing_kept(&mut self, now: Time, (dir, epoch): (Fid, Epoch)) -> bool {
        let Some(node) = self.nodes.get_mut(&dir) else {
            return false;
        };
        node.kernel.dentries.be_wary(now);
        let left = self.kernel.revokes.left.get(&(dir, epoch));
        let mut names = left
            .into_iter()
            .flat_map(|left| left.left.values().flatten());
        !names.any(|name| node.kernel.dentries.lasts(name))
    }

    pub(crate) fn tick_names(&mut self, step: &mut Step<'_>) {
        let all: Vec<(Fid, Epoch)> = self.kernel.revokes.left.keys().copied().collect();
        for at in all {
            self.raise_epoch(step, at);
        }
    }

    pub(crate) fn names_due(&self) -> Option<Time> {
        let locked = |dropping: &NameRevoke| dropping.left.values().any(Option::is_some);
        let waits = |dropping: &&NameRevoke| dropping.raising.is_none() && locked(dropping);
        let waiting = || self.kernel.revokes.left.values().filter(waits);
        let since = waiting().map(|dropping| dropping.since).min()?;
        let asked = waiting().filter_map(|dropping| dropping.put_back);
        let asked = asked.filter(|(ticket, _)| self.kernel.holders.contains(*ticket));
        let asked = asked.map(|(_, until)| until).min();
        let patient = self.patience_ends(since);
        Some(asked.map_or(patient, |asked| asked.min(patient)))
    }

    /// When the lock has been waited for too long: nobody has looked anything up for a while.
    fn patience_ends(&self, since: Time) -> Time {
        let latest =
            since + UNKNOWN_HOLDER_WAIT_NS.max(NAME_REVOKE_MAX_NS.min(self.session.lease_ns / 4));
        if self.kernel.holders.look() {
            return latest;
        }
        (since.max(self.kernel.revokes.last_lookup) + UNKNOWN_HOLDER_WAIT_NS).min(latest)
    }

    /// A call is answered: a rename that has looked up one name may look up the other one now.
    pub(crate) fn note_looked(&mut self, now: Time, ticket: Ticket) {
        if !self.kernel.revokes.left.is_empty() && self.kernel.holders.looks(ticket) {
            self.kernel.revokes.last_lookup = now;
        }
    }
}
