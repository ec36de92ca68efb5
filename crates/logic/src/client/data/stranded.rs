//! Bytes that were changed here and not written back when their file's token was taken.
//!
//! They stay. The file is claimed once more, when the server has answered all that was under way
//! about it: if its content is of the version that these bytes were made on, nobody has touched it,
//! and everything goes on as if nothing had happened. Else they are *set aside*: a file is made
//! beside the other one, under a name that says host and time, with the content that the file has
//! here; the bytes that this machine never had are as they are at the server now. Calls wait.
//!
//! Guarantees: a stranded byte is written back to the file, or is in the file beside it, or is told
//! as lost, since nothing can be made anywhere; time alone loses none.

use super::cache::BlockState;
use crate::client::api::Output;
use crate::client::mutant::Mutant;
use crate::client::notices::Event;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Caller, Fid, Hold, Name, Op, Outcome, Refusal, Reply, Right, Set};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A file with stranded bytes.
#[derive(Clone, Debug)]
pub(crate) struct Stranded {
    /// The file as it is here; who may use it, as the server says it.
    pub(super) attr: Attr,
    /// It has no lists, so that its mode says who may use it.
    pub(super) bare: bool,
    /// Of which version the server must have it: that of when the token was taken, and not what is
    /// learnt of the file since.
    pub(super) base: u64,
    /// Where it was, as far as is known.
    pub(super) place: (Fid, Option<Name>),
    pub(super) phase: Phase,
    /// Opens count as before; the node is kept for these.
    pub(super) aside: Option<Fid>,
    /// Makes that file one that others may use as they may use the first one.
    pub(super) opens: Option<Set>,
    /// Its owner may make nothing there: root makes it, and gives it to him.
    pub(super) by_root: bool,
}

/// The request that the server was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing yet.
    Waits,
    /// The file.
    Claims,
    /// A file beside it: where, under which name, and the number in it.
    Makes(Fid, Name, u32),
    /// That others may use it as they may use the first one.
    Opens,
    /// That file. All that is not here is in it already, if it is of this version.
    Takes(Option<u64>),
    /// The bytes that are not here, from this one on.
    Copies(u64),
}

impl Stranded {
    pub(super) fn of(attr: Attr, bare: bool) -> Self {
        Self {
            attr,
            bare,
            base: 0,
            place: (Fid::root(0), None),
            phase: Phase::Waits,
            aside: None,
            opens: None,
            by_root: false,
        }
    }
}

impl Client {
    /// The place of a file, as long as it is known, if it has anything to lose.
    pub(crate) fn note_place(&mut self, fid: Fid) {
        if self.cache.changed(fid).count == 0 {
            return;
        }
        let root = Fid::root(fid.volume);
        let parent = self.nodes.get(&fid).and_then(|node| node.parent);
        let names = parent.and_then(|dir| self.nodes.get(&dir));
        let mut names = names.into_iter().flat_map(|node| &node.dir.names);
        let named = names.find(|(_, named)| named.is_some_and(|named| named.fid == fid));
        let name = named.map(|(name, _)| name.clone());
        self.places.insert(fid, (parent.unwrap_or(root), name));
    }

    /// The token is about to go: notes the attributes, the version and the place of a file with
    /// changed bytes.
    pub(crate) fn strand(&mut self, fid: Fid) {
        self.note_place(fid);
        let place = self.places.remove(&fid);
        let Some(node) = self.nodes.get(&fid) else {
            return;
        };
        let (Some(attr), Some(place)) = (node.attr.clone(), place) else {
            return;
        };
        if node.untold.stillborn || self.stranded.contains_key(&fid) {
            return;
        }
        let base = self.reassertion.bases.get(&fid);
        let stranded = Stranded {
            base: base.copied().unwrap_or(node.version),
            place,
            ..Stranded::of(attr, node.has_no_lists())
        };
        self.stranded.insert(fid, stranded);
        self.node(fid).stranded = true;
    }

    /// The session is over, and with it what was under way: whether the server has taken a batch
    /// that it has not answered is never known.
    pub(crate) fn strand_for_good(&mut self, fid: Fid) {
        let unknown = self
            .nodes
            .get(&fid)
            .is_some_and(|node| node.writeback.sending);
        self.strand(fid);
        if let Some(stranded) = self.stranded.get_mut(&fid) {
            stranded.phase = Phase::Waits;
            if unknown {
                stranded.base = u64::MAX;
            }
        }
        for (_, slot, state) in self.cache.blocks(fid, 0).collect::<Vec<_>>() {
            if let BlockState::Sending(again) = state {
                self.cache.set(slot, BlockState::Dirty(again.unwrap_or(0)));
            }
        }
    }

    /// A write-back that was under way when the token was taken has been done.
    pub(crate) fn rebase(&mut self, fid: Fid, version: u64) {
        if let Some(stranded) = self.stranded.get_mut(&fid) {
            stranded.base = version;
        }
    }

    /// A batch was refused since the token is not held.
    pub(crate) fn on_batch_stranded(
        &mut self,
        step: &mut Step<'_>,
        (fid, first, count): (Fid, u64, u32),
    ) {
        for block in first..first + u64::from(count) {
            if let Some((slot, BlockState::Sending(again))) = self.cache.find(fid, block) {
                let since = again.unwrap_or(step.now);
                self.cache.set(slot, BlockState::Dirty(since));
            }
        }
        let node = self.node(fid);
        (node.writeback.sending, node.writeback.flush) = (false, false);
        if node.token.right > Right::None {
            // The server does not believe that.
            self.lose_stores(step, |of| of == fid);
            self.lose_token(step, fid);
        } else {
            self.strand(fid);
        }
        self.next_cleaner(step);
        self.go_on_draining(step, fid);
        self.resolve(step, fid);
    }

    /// Goes on with all that is stranded, as far as it can.
    pub(crate) fn resolve_all(&mut self, step: &mut Step<'_>) {
        let all: Vec<Fid> = self.stranded.keys().copied().collect();
        for fid in all {
            self.resolve(step, fid);
        }
    }

    /// Claims a file of which something is stranded, unless something about it is under way.
    pub(crate) fn resolve(&mut self, step: &mut Step<'_>, fid: Fid) {
        let ready = self.root.is_some() && self.reassertion.parts.is_empty();
        let node = self.nodes.get(&fid);
        let busy = node.is_some_and(|node| {
            node.writeback.sending || node.untold.delegated > 0 || node.untold.unborn != 0
        });
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        if busy || !ready || stranded.phase != Phase::Waits {
            return;
        }
        stranded.phase = Phase::Claims;
        self.ask_stranded(step, fid, (Op::Claim { fid }, Caller::default()));
    }

    pub(super) fn ask_stranded(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (op, caller): (Op, Caller),
    ) {
        let asked = (op, caller, Hold::default());
        self.request(step, asked, Vec::new(), Why::Stranded(fid));
    }

    /// The session is over while something was asked for.
    pub(crate) fn wait_stranded(&mut self, fid: Fid) {
        if let Some(stranded) = self.stranded.get_mut(&fid) {
            stranded.phase = Phase::Waits;
        }
    }

    /// An answer about what is stranded.
    pub(crate) fn on_stranded(&mut self, step: &mut Step<'_>, fid: Fid, op: &Op, reply: Reply) {
        let (mut exclusive, mut granted) = (false, Vec::new());
        let bare = reply
            .grants
            .iter()
            .any(|grant| grant.fid == fid && grant.bare);
        for grant in &reply.grants {
            if self.accept_claimed(*grant) {
                exclusive |= grant.right == Right::Exclusive;
                granted.push(grant.fid);
            }
        }
        if let Op::Make { dir, name, .. } = op {
            self.has_made(step, (*dir, name), (&reply.outcome, granted.contains(dir)));
        }
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        let any = self.options.mutant == Some(Mutant::ResumesAnyVersion);
        // Elsewhere there may be room for a file, but not for its bytes.
        let makes = matches!(stranded.phase, Phase::Makes(..));
        if let Outcome::Refused(refusal) = reply.outcome
            && (is_for_now(refusal) || (refusal == Refusal::Quota && !makes))
        {
            return self.strands_longer(step, fid, refusal);
        }
        match (stranded.phase.clone(), reply.outcome) {
            (Phase::Claims, Outcome::Attr(attr)) if any || attr.version == stranded.base => {
                match exclusive {
                    true => self.resume(step, fid, attr),
                    // Somebody else has wanted it meanwhile, and perhaps only looks.
                    false => self.ask_stranded(step, fid, (Op::Claim { fid }, Caller::default())),
                }
            }
            (Phase::Claims, outcome) => {
                if let Outcome::Attr(attr) = outcome {
                    stranded.is_now(&attr, bare);
                }
                self.release(step, fid, Right::None);
                self.void(fid);
                self.go_on_beside(step, fid);
            }
            (Phase::Makes(dir, _, number), Outcome::Entry(entry))
                if !stranded.may_keep(&entry.attr) =>
            {
                let denied = Outcome::Refused(Refusal::Denied);
                self.not_made(step, fid, (dir, number, &denied));
            }
            (Phase::Makes(dir, ..), Outcome::Entry(entry)) => {
                let node = self.node(entry.fid);
                // An open keeps a node in the table; this is as good.
                (node.pending.asking, node.parent) = (node.pending.asking + 1, Some(dir));
                self.made_beside(step, fid, (&entry, &reply.grants));
            }
            (Phase::Makes(dir, _, number), outcome) => {
                self.not_made(step, fid, (dir, number, &outcome));
            }
            (Phase::Opens, _) => {
                stranded.opens = None;
                self.take_beside(step, fid, None);
            }
            (Phase::Takes(_) | Phase::Copies(_), outcome) => {
                self.go_on_aside(step, fid, (exclusive, outcome));
            }
            (Phase::Waits, _) => {}
        }
    }

    /// Nobody has touched the file: all goes on.
    fn resume(&mut self, step: &mut Step<'_>, fid: Fid, mut attr: Attr) {
        let Some(Stranded { attr: own, .. }) = self.stranded.remove(&fid) else {
            return;
        };
        // Not if the server had taken the last batch, and its answer was lost.
        let changed = self.cache.changed(fid).count > 0;
        let node = self.node(fid);
        node.stranded = false;
        (node.version, node.stored) = (attr.version, (attr.used_bytes, attr.size));
        if changed {
            (attr.size, attr.mtime) = (own.size, own.mtime);
            // With these bytes it is shown with another time than with what others have set of it
            // meanwhile, and than this machine has shown.
            attr.ctime = attr.ctime.max(own.ctime).saturating_add(1);
        }
        node.attr = Some(attr);
        self.counts.resumed += 1;
        self.count_used(fid);
        self.flush(step, fid);
        self.unpark(step, fid);
        self.go_on_syncing(step, fid);
    }

    /// The next scan tries it again.
    pub(super) fn strands_longer(&mut self, step: &mut Step<'_>, fid: Fid, refusal: Refusal) {
        self.wait_stranded(fid);
        let event = Event::WriteBackRefused { fid, refusal };
        step.out.push(Output::Event(event));
    }

    /// There is nowhere that anything could be made.
    pub(super) fn give_up_stranded(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.stranded.remove(&fid);
        self.node(fid).stranded = false;
        let mut bytes = 0;
        for (block, _, state) in self.cache.blocks(fid, 0).collect::<Vec<_>>() {
            if crate::client::is_dirty(state) {
                bytes += BLOCK;
                self.cache.drop_block(fid, block);
            }
        }
        step.out.push(Output::Event(Event::DataLost { fid, bytes }));
        self.end_stranded(step, fid);
    }

    /// The stranded bytes are not in the file: programs that sync it are told.
    pub(super) fn end_stranded(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.fail_writes(step, fid, Refusal::SessionLost);
        self.unpark(step, fid);
        self.feed_starved(step);
        self.retire(step, fid);
        self.leave_if_clean(step);
    }
}

/// May it be done later? There will be room, or the user logs in again.
fn is_for_now(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NoSpace | Refusal::Disk | Refusal::Again | Refusal::Expired
    )
}
