//! Positions of names: the listing of a directory of which all is known is answered here.
//!
//! The server numbers the names of a directory in the order in which they come, and a listing goes
//! on behind a position. The client to which a directory is delegated numbers the names that it
//! makes in the same way, and sends the numbers when it tells of them ([`wire::Chosen`]). A name
//! that is struck out before it is told of leaves a gap. So a listing that begins here goes on at
//! the server, if the directory has been taken away meanwhile, and the other way round.
//!
//! Guarantees: a listing is answered here only under a lasting token, if no name can be missing
//! ([`Node::whole`]), the position of each is the server's, and the caller may read the directory
//! without doubt. A listing with attributes of which some are not known here is the server's to
//! answer: it has them all at once.

use super::listing::{ListingPart, POSITION};
use crate::Ticket;
use crate::client::api::Call;
use crate::client::mutant::Mutant;
use crate::client::node::{LAST, Node};
use crate::client::{Client, Running, Step};
use alloc::vec::Vec;
use wire::limits::{self, LAST_BITS};
use wire::{Attr, Caller, DirEntry, Fid, Kind, Name, Op, RequestId};

/// Longer listings are the server's to answer: to bring them in order takes a moment each time.
const LISTING_MAX: usize = 16_384;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) fid: Fid,
    pub(crate) kind: Kind,
    /// Of a mount point: the volume whose root stands there; 0: that is not known.
    pub(crate) leads_to: u32,
    /// Where it stands; 0: that is not known.
    pub(crate) position: u64,
}

/// The names of a directory in the order of their positions.
#[derive(Clone, Debug)]
pub(crate) struct CookieOrder {
    /// It is so in this generation of the listing.
    generation: u64,
    names: Vec<(u64, Name)>,
}

impl Node {
    /// A name means this from now on, or nothing. An object that keeps its name keeps its position,
    /// and leads where it led.
    pub(crate) fn set_name(&mut self, name: &Name, means: Option<(Fid, Kind)>) {
        let known = self.dir.names.get(name).copied().flatten();
        let means = means.map(|(fid, kind)| {
            let same = known.filter(|known| known.fid == fid);
            Named {
                fid,
                kind,
                leads_to: same.map_or(0, |known| known.leads_to),
                position: same.map_or(0, |known| known.position),
            }
        });
        self.dir.names.insert(name.clone(), means);
    }

    /// The server says where a name stands.
    pub(crate) fn stands(&mut self, entry: &DirEntry) {
        if let Some(Some(known)) = self.dir.names.get_mut(&entry.name)
            && known.fid == entry.fid
        {
            known.position = entry.position;
        }
    }

    /// A name has been made here, at this position; 0: the server will choose one.
    pub(crate) fn placed(&mut self, name: &Name, position: u64) {
        if let Some(Some(known)) = self.dir.names.get_mut(name) {
            known.position = position;
        }
        self.dir.last = match self.dir.last {
            Some(last) if position != 0 => Some(last.max(position)),
            _ => None,
        };
    }

    /// The position of the next name made here; 0: the server will choose one.
    pub(crate) fn next_position(&self) -> u64 {
        let next = self.dir.last.map_or(0, |last| last + 1);
        if next < limits::POSITIONS { next } else { 0 }
    }

    /// Brings the names in order. False if the position of one is not known.
    fn bring_in_order(&mut self) -> bool {
        let generation = self.dir.generation;
        if self
            .dir
            .order
            .as_ref()
            .is_some_and(|order| order.generation == generation)
        {
            return true;
        }
        self.dir.order = None;
        let present = || {
            self.dir
                .names
                .iter()
                .filter_map(|(name, named)| Some((name, (*named)?)))
        };
        if present().any(|(_, named)| named.position == 0) {
            return false;
        }
        let place = |(name, named): (&Name, Named)| (named.position, name.clone());
        let mut names: Vec<(u64, Name)> = present().map(place).collect();
        names.sort_unstable_by_key(|(position, _)| *position);
        self.dir.order = Some(CookieOrder { generation, names });
        true
    }

    /// Names behind a position, in order, and whether that is all of them.
    fn behind(&self, after: u64, max: usize) -> (Vec<DirEntry>, bool) {
        let all = self
            .dir
            .order
            .as_ref()
            .map_or(&[][..], |order| &order.names);
        let from = all.partition_point(|(position, _)| *position <= after);
        let to = all.len().min(from.saturating_add(max));
        let entry = |(position, name): &(u64, Name)| {
            let named = self.dir.names.get(name).copied().flatten()?;
            Some(DirEntry {
                name: name.clone(),
                fid: named.fid,
                kind: named.kind,
                position: *position,
                attr: None,
                ahead: 0,
                bare: false,
            })
        };
        (
            all[from..to].iter().filter_map(entry).collect(),
            to == all.len(),
        )
    }
}

/// May the caller list this directory, whoever looks at that?
fn may_list(node: &Node, attr: &Attr, caller: &Caller) -> bool {
    let both = attr.mode & 0o044 == 0o044;
    caller.uid == 0 || caller.uid == attr.uid || (node.bare && both)
}

impl Client {
    /// A part of a listing has come from the server.
    pub(crate) fn learn_positions(&mut self, (dir, id): (Fid, RequestId), part: &ListingPart) {
        let Some(node) = self.nodes.get_mut(&dir) else {
            return;
        };
        // Names that were changed here meanwhile may have got other positions.
        if part.vouched && node.marks.changed < id {
            node.dir.last = Some(part.last & LAST);
            node.dir.release = (part.last >> LAST_BITS) as u32;
            part.entries.iter().for_each(|entry| node.stands(entry));
        }
    }

    /// The server has made a name, and has chosen where it stands.
    pub(crate) fn numbered_there(&mut self, op: &Op) {
        if let Op::Make { dir, .. } | Op::Link { dir, .. } | Op::Rename { to: dir, .. } = op
            && let Some(node) = self.nodes.get_mut(dir)
        {
            node.dir.last = None;
        }
    }

    /// Answers a call for entries behind a position, if all that it needs is known here.
    pub(crate) fn list_here(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        running: &Running,
    ) -> bool {
        let Call::List {
            dir,
            after,
            max,
            plus,
        } = running.call
        else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(&dir) else {
            return false;
        };
        let allowed = node
            .held()
            .is_some_and(|attr| may_list(node, attr, &running.caller));
        let short = node.dir.names.len() <= LISTING_MAX;
        let whole = node.dir.whole || self.options.mutant == Some(Mutant::ListsKnownNames);
        if !allowed || !short || !whole || !node.lasting() || !node.bring_in_order() {
            return false;
        }
        let last = node.dir.order.as_ref().and_then(|order| order.names.last());
        let last = last.map_or(0, |(position, _)| *position);
        let release = u64::from(node.dir.release);
        let (entries, end) = node.behind(after & POSITION, max as usize);
        // Attributes of an object whose token is being given back must not be told: the kernel
        // would believe them later.
        let known = |entry: &DirEntry| {
            let node = self.nodes.get(&entry.fid);
            node.is_some_and(|node| node.lasting() && node.held().is_some())
        };
        let answers = !plus || entries.iter().all(known);
        let node = self.node(dir);
        node.directory = true;
        if end || !answers {
            node.dir.order = None;
        }
        if !answers {
            return false;
        }
        let part = ListingPart {
            entries,
            end,
            last: last | release << LAST_BITS,
            vouched: true,
        };
        self.answer_listing(step, ticket, part, &|_| true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(mode: u16, bare: bool, uid: u32) -> bool {
        let attr = Attr {
            uid: 7,
            gid: 7,
            ..Attr::new(Kind::Directory, mode, 0)
        };
        let mut node = Node::new(&crate::client::node::Forgotten::default());
        node.bare = bare;
        let caller = Caller {
            uid,
            gid: 7,
            groups: None,
        };
        may_list(&node, &attr, &caller)
    }

    #[test]
    fn who_may_list_without_doubt() {
        for mode in [0o700, 0o711, 0o750, 0o755, 0] {
            // Its owner may have opened it before he took the right from himself.
            assert!(may(mode, false, 0) && may(mode, false, 7), "{mode:o}");
        }
        let others: Vec<bool> = [0o755, 0o775, 0o750, 0o705, 0o711, 0o700]
            .map(|mode| may(mode, true, 8))
            .to_vec();
        assert_eq!(others, [true, true, false, false, false, false]);
        // Only the server knows what an access list says.
        assert!(!may(0o755, false, 8));
    }
}
