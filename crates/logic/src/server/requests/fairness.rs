//! Fairness: requests that nothing stands in the way of wait all the same, so that others come to
//! their turn that would wait for ever behind those that come again and again.
//!
//! A request that is put off may hold a lock in its kernel that another call needs, for which the
//! others wait. So no request is put off for longer than a part of the lease, once in its life.

use super::conflicts::Need;
use super::plan::Plan;
use crate::server::api::Disk;
use crate::server::table::{File, Seq, Waiting};
use crate::server::{Server, Step};
use wire::{Fid, Name, Op, Right, Time, What};

/// Of the lease, the part that a request is put off at most...
const LEASE_PART: Time = 8;
/// ...and the part after which a request is overdue: it goes before later changes of what it shows,
/// and a rename before look-ups of its names.
const OVERDUE_PART: Time = 16;

impl Server {
    /// Must it wait, though nothing is in its way?
    pub(crate) fn put_off(&self, step: &Step<'_>, waiting: &Waiting, plan: &Plan) -> bool {
        waiting.patient_until.is_none_or(|until| step.now < until)
            && (self.outruns(waiting, plan)
                || self.waits_for_overdue(step.now, waiting, plan)
                || self.waits_for_change(step.disk, waiting, plan)
                || self.waits_for_rename(step, waiting)
                || self.waits_for_snapshot(waiting, plan))
    }

    /// Notes until when.
    pub(crate) fn note_put_off(&mut self, now: Time, seq: Seq) {
        let until = now + self.options.lease_ns / LEASE_PART;
        if let Some(waiting) = self.waiting.get_mut(&seq)
            && waiting.patient_until.is_none()
        {
            waiting.patient_until = Some(until);
            self.patient.insert((until, seq));
        }
    }

    /// Those who have been put off for long enough.
    pub(crate) fn tick_put_off(&mut self, step: &mut Step<'_>) {
        while let Some(&(until, seq)) = self.patient.first()
            && until <= step.now
        {
            self.patient.pop_first();
            self.judge(step, seq);
        }
    }

    /// Is it a change on top of one by the same client that has not been confirmed, and that others
    /// wait to see? Programs that change an object again and again on one machine would keep all
    /// others from it: whenever one change is confirmed, there is another that is not.
    fn outruns(&self, waiting: &Waiting, plan: &Plan) -> bool {
        let Some(state) = self.sessions.get(&waiting.session) else {
            return false;
        };
        if state.confirm_asked.is_empty() || !waiting.request.op.changes() {
            return false;
        }
        plan.views.iter().any(|(fid, view)| {
            let unconfirmed = self.files.get(fid).map(|file| &file.unconfirmed);
            unconfirmed.into_iter().flatten().any(|change| {
                change.session == waiting.session
                    && (state.confirm_asked.get(&change.request))
                        .is_some_and(|asked| asked.whole || view.shows(change.name.as_ref()))
            })
        })
    }

    /// Is it a change of what an earlier request shows that has waited for long? That waits until
    /// all changes are confirmed, and where programs of several machines change the object in
    /// turns there is always one that is not. (Not so if one client has not answered for long: that
    /// is what it waits for then.)
    fn waits_for_overdue(&self, now: Time, waiting: &Waiting, plan: &Plan) -> bool {
        if !waiting.request.op.changes() {
            return false;
        }
        plan.views.iter().any(|(fid, _)| {
            let queue = self.files.get(fid).and_then(|file| file.queue.as_ref());
            let whole = queue.into_iter().flat_map(|queue| &queue.whole);
            let earlier = whole.take_while(|seq| **seq < waiting.seq);
            let mut earlier = earlier.filter_map(|seq| self.waiting.get(seq));
            earlier.any(|other| {
                let starves = self.is_overdue(now, other) && !self.is_held_up(now, other);
                starves && other.session != waiting.session
            })
        })
    }

    /// Does it wait for a client that has not answered for long?
    fn is_held_up(&self, now: Time, waiting: &Waiting) -> bool {
        let late = |since: Time| now > since + self.options.lease_ns / LEASE_PART;
        let unconfirmed = self.unconfirmed(waiting.session, &waiting.plan).into_iter();
        let mut asked = unconfirmed.filter_map(|confirm| {
            let state = self.sessions.get(&confirm.session)?;
            state.confirm_asked.get(&confirm.request)
        });
        waiting.asked.values().any(|since| late(*since)) || asked.any(|asked| late(asked.since))
    }

    fn is_overdue(&self, now: Time, waiting: &Waiting) -> bool {
        let overdue_ns = self.options.lease_ns / OVERDUE_PART;
        waiting.since.is_some_and(|since| now > since + overdue_ns)
    }

    /// Does it show something of a file that an earlier request is about to change, or read what it
    /// is about to write, for which this machine has given up what it had of the file? It would
    /// have to be asked for that once more, and with programs that look again and again on some
    /// machines the change would never come. A client that is asked for something is served first:
    /// also if it is to confirm a change, since the call that made it may have to look at what it
    /// has done before it can return.
    fn waits_for_change(&self, disk: &dyn Disk, waiting: &Waiting, plan: &Plan) -> bool {
        let state = self.sessions.get(&waiting.session);
        let asked = state.is_some_and(|state| !state.confirm_asked.is_empty());
        if asked || waiting.request.op.changes() {
            return false;
        }
        let shown = plan.shows.iter().copied();
        let mut shown = shown.chain(plan.uses.map(|(fid, _)| fid));
        shown.any(|fid| {
            let file = self.files.get(&fid);
            let seqs = file.into_iter().flat_map(File::waiting);
            let earlier = seqs.take_while(|seq| *seq < waiting.seq);
            let mut earlier = earlier.filter_map(|seq| self.waiting.get(&seq));
            earlier.any(|change| self.gave_way(disk, waiting, (change, fid)))
        })
    }

    /// Has the machine of this request given this file up for that change, or its read for that
    /// write, and is nothing of it waited for any more? (A read that came while something is waited
    /// for may hold a page that the kernel must drop first; and a look-up, which holds the lock of
    /// a directory, does not wait for a write.)
    fn gave_way(&self, disk: &dyn Disk, waiting: &Waiting, (change, fid): (&Waiting, Fid)) -> bool {
        if !change.gave_up.contains(&(waiting.session, fid)) {
            return false;
        }
        self.plan(disk, change).is_ok_and(|plan| {
            let all = (fid, Right::None);
            let reads = matches!(waiting.request.op, Op::Read { .. });
            let takes = plan.changes.contains(&all) || (reads && plan.uses == Some(all));
            let owes = |fid: Fid| {
                !self
                    .needs_of(change, &plan, (waiting.session, fid))
                    .is_empty()
            };
            takes && !plan.fids().into_iter().any(owes)
        })
    }

    /// Is it put off until a rename or a removal is done? Each look-up of a name that this takes
    /// away makes it ask the client that looks once more: programs that do so again and again on
    /// some machines would put it off for ever. So a client that has dropped the name is not told
    /// it again while the rename waits only for others that have dropped it once before; nor, once
    /// the rename has waited for long, while it waits for any others. Of all of these the one that
    /// waits longest may do that: two might wait for each other, as a look-up holds the lock that
    /// its machine must have to drop names.
    fn waits_for_rename(&self, step: &Step<'_>, waiting: &Waiting) -> bool {
        let Op::Lookup { dir, name } = &waiting.request.op else {
            return false;
        };
        if !self.files.get(dir).is_some_and(File::waits) {
            return false;
        }
        let moves =
            |other: &&Waiting| matches!(other.request.op, Op::Rename { .. } | Op::Unlink { .. });
        let Some(rename) = self.waiting.values().find(moves) else {
            return false;
        };
        if !rename.moves(*dir, name) || rename.session == waiting.session {
            return false;
        }
        let again = |need: &Need| match &need.what {
            What::Names(names) if need.session != waiting.session && !names.is_empty() => {
                let at = (need.session, need.fid);
                let dropped = |name: &Name| rename.dropped.of(at, name).is_some();
                names.iter().all(dropped)
            }
            _ => false,
        };
        let overdue = self.is_overdue(step.now, rename);
        self.plan(step.disk, rename).is_ok_and(|plan| {
            let (needs, confirms) = self.needs(rename, &plan);
            let others = |need: &Need| need.session != waiting.session;
            let repeated = confirms.is_empty() && needs.iter().all(again);
            !needs.is_empty() && (repeated || (overdue && needs.iter().all(others)))
        })
    }
}
