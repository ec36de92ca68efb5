//! Listings: which attributes go with one, and which holders are told that their objects are
//! listed.
//!
//! Guarantees: attributes that a listing brings are right, and vouched for by a grant of each
//! object in the same answer; of an object that somebody else holds Exclusive it brings none, and
//! asks nobody for them: the holder is told, and nobody waits for it.

use super::conflicts::Need;
use crate::server::table::Waiting;
use crate::server::{Server, Step};
use alloc::vec::Vec;
use wire::{Attr, Fid, Kind, Op, Outcome, Right, What};

impl Server {
    /// Leaves attributes out of a listing that the server cannot vouch for without asking, or that
    /// nobody wants: no tokens go with them. Returns the holders of the first, which are to be
    /// asked.
    pub(crate) fn withhold(&self, waiting: &Waiting, outcome: &mut Outcome) -> Vec<Need> {
        let mut held = Vec::new();
        let Outcome::Dir { entries, .. } = outcome else {
            return held;
        };
        let (session, request) = (waiting.session, &waiting.request);
        if matches!(request.op, Op::ReadDir { .. }) && !request.keeps {
            entries.iter_mut().for_each(|entry| entry.attr = None);
            return held;
        }
        for entry in entries {
            let fid = entry.fid;
            let holders = self
                .files
                .get(&fid)
                .into_iter()
                .flat_map(|f| f.holders.iter());
            let exclusive = holders.filter(|(_, h)| h.right == Right::Exclusive);
            let holder = exclusive.map(|(id, _)| *id).next();
            let other = holder.filter(|id| *id != session && entry.kind != Kind::Directory);
            if let Some(session) = other {
                let what = What::Listed;
                held.push(Need { session, fid, what });
            }
            let doubted = self.doubted(fid, session, Right::Shared);
            if holder.is_some() || doubted || self.changed_by_others(session, fid) {
                entry.attr = None;
            }
        }
        held
    }

    /// Tells their holders that these are listed: a program that lists a directory looks at what it
    /// has listed, and when it does, the holders may have stepped down.
    pub(crate) fn say_listed(&mut self, step: &mut Step<'_>, held: Vec<Need>) {
        for need in held {
            let granted = self.holder(need.session, need.fid);
            let granted = granted.map_or(0, |holder| holder.epoch);
            self.ask(step, need, (granted, step.now), None);
        }
    }
}

/// Puts the size, the room and the times that an Exclusive holder has said into the outcome.
pub(super) fn show_held(waiting: &Waiting, outcome: &mut Outcome) {
    let merge = |fid: &Fid, attr: &mut Attr| {
        if let Some(held) = waiting.attrs.get(fid) {
            (attr.size, attr.mtime) = (held.size, held.mtime);
            attr.used_bytes = held.used_bytes;
            attr.ctime = attr.ctime.max(held.ctime);
        }
    };
    match outcome {
        Outcome::Entry(entry) => merge(&entry.fid, &mut entry.attr),
        Outcome::Attr(attr) => {
            if let Op::GetAttr { fid } = &waiting.request.op {
                merge(fid, attr);
            }
        }
        _ => {}
    }
}
