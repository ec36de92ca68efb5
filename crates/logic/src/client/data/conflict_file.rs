//! The file beside another one, in which stranded bytes are set aside: it is made, claimed, and
//! filled with what is not here; then the bytes that are here become its content.
//!
//! Guarantees: the file has each byte of the first one, as it is here or else at the server; it
//! is made once, however often others want it and whatever it has to wait for, unless somebody
//! removes it before its bytes have come. The kernel of this machine hears of the new name and of
//! its directory's times.

use super::stranded::Phase;
use crate::aside;
use crate::client::api::Output;
use crate::client::notices::{Event, Invalidate};
use crate::client::{After, Client, Step};
use alloc::format;
use alloc::vec::Vec;
use wire::limits::{BLOCK_BYTES, COPY_BYTES};
use wire::{Caller, Entry, Fid, Grant, Make, Name, Op, Outcome, Refusal, Right, Set};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// So many names are tried for what is set aside, for each moment.
const NUMBERS: u32 = 1000;

impl Client {
    /// Makes a file beside the one that others have changed, or in the root.
    pub(super) fn make_beside(&mut self, step: &mut Step<'_>, fid: Fid, number: u32) {
        let host = self.session.name.clone();
        let at = self.clock.shows(step.now);
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        let (dir, name) = stranded.place.clone();
        let known = name.map(|name| name.as_bytes().to_vec());
        let known = known.unwrap_or_else(|| format!("file-{}", fid.vnode).into_bytes());
        let name = aside::name(&known, &host, at, number);
        let caller = stranded.maker();
        let op = Op::Make {
            dir,
            name: name.clone(),
            make: Make::File,
            mode: u32::from(stranded.mode_at_first()),
            open: None,
        };
        stranded.phase = Phase::Makes(dir, name, number);
        // Its kernel does not know that a name comes.
        self.node(dir).dir.doubtful += 1;
        self.ask_stranded(step, fid, (op, caller));
    }

    /// The server has made a file beside another one, or has refused to.
    pub(super) fn has_made(
        &mut self,
        step: &mut Step<'_>,
        (dir, name): (Fid, &Name),
        (outcome, vouched): (&Outcome, bool),
    ) {
        if let Outcome::Entry(entry) = outcome {
            self.learn(dir, entry.dir.clone(), vouched);
            let what = Invalidate::Inode {
                fid: dir,
                ranges: Vec::new(),
                young: false,
            };
            self.invalidate(step, what, After::Nothing);
        }
        let node = self.node(dir);
        node.dir.doubtful = node.dir.doubtful.saturating_sub(1);
        node.dir.names.remove(name);
        node.not_whole();
        node.renew_listing();
        let name = name.clone();
        let what = Invalidate::Name { dir, name };
        self.invalidate(step, what, After::Nothing);
    }

    pub(super) fn not_made(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (dir, number, outcome): (Fid, u32, &Outcome),
    ) {
        let exists = matches!(outcome, Outcome::Refused(Refusal::Exists));
        if exists && number < NUMBERS {
            return self.make_beside(step, fid, number + 1);
        }
        let root = Some(Fid::root(fid.volume)).filter(|root| *root != dir);
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        if exists {
            // The next scan finds names of another moment.
            stranded.phase = Phase::Waits;
            return;
        }
        match (stranded.by_root, root) {
            (false, _) => stranded.by_root = true,
            // No directory of the volume has more.
            _ if *outcome == Outcome::Refused(Refusal::Quota) => {
                return self.strands_longer(step, fid, Refusal::Quota);
            }
            (true, Some(root)) => (stranded.place.0, stranded.by_root) = (root, false),
            (true, None) => return self.give_up_stranded(step, fid),
        }
        self.make_beside(step, fid, 0);
    }

    /// The file beside it is there, and empty.
    pub(super) fn made_beside(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (made, grants): (&Entry, &[Grant]),
    ) {
        let bare = grants
            .iter()
            .any(|grant| grant.fid == made.fid && grant.bare);
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        stranded.aside = Some(made.fid);
        stranded.opens = Some(stranded.opens_to(&made.attr, bare));
        self.go_on_beside(step, fid);
    }

    /// Goes on with the file beside it, perhaps one of an earlier try, or makes it.
    pub(super) fn go_on_beside(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        let Some(made) = stranded.aside else {
            return self.make_beside(step, fid, 0);
        };
        let Some(set) = stranded.opens.clone().filter(|set| *set != Set::default()) else {
            return self.take_beside(step, fid, None);
        };
        stranded.phase = Phase::Opens;
        let caller = stranded.maker();
        self.ask_stranded(step, fid, (Op::SetAttr { fid: made, set }, caller));
    }

    /// The file beside it is not there any more: somebody has removed it before its bytes came.
    fn lose_beside(&mut self, step: &mut Step<'_>, fid: Fid, (made, outcome): (Fid, &Outcome)) {
        let node = self.node(made);
        node.pending.asking = node.pending.asking.saturating_sub(1);
        self.retire(step, made);
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        stranded.aside = None;
        let dir = stranded.place.0;
        match outcome {
            Outcome::Refused(Refusal::Stale) => self.make_beside(step, fid, 0),
            _ => self.not_made(step, fid, (dir, 0, outcome)),
        }
    }

    /// The bytes come into it. (If it could not be opened to others, its owner alone may use it.)
    pub(super) fn take_beside(&mut self, step: &mut Step<'_>, fid: Fid, copied: Option<u64>) {
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        let Some(made) = stranded.aside else {
            return;
        };
        stranded.phase = Phase::Takes(copied);
        self.ask_stranded(step, fid, (Op::Claim { fid: made }, Caller::default()));
    }

    /// The file beside it is had, or has got some of the bytes that are not here.
    pub(super) fn go_on_aside(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (exclusive, outcome): (bool, Outcome),
    ) {
        let Some(stranded) = self.stranded.get_mut(&fid) else {
            return;
        };
        let (Some(made), size) = (stranded.aside, stranded.attr.size) else {
            return;
        };
        let claim = (Op::Claim { fid: made }, Caller::default());
        let from = match (&stranded.phase, &outcome) {
            // A snapshot, or somebody else, may take it away during each copy.
            (Phase::Takes(copied), Outcome::Attr(attr)) if exclusive => match copied {
                Some(version) if *version == attr.version => u64::MAX,
                _ => 0,
            },
            (Phase::Takes(_), Outcome::Attr(_)) => return self.ask_stranded(step, fid, claim),
            (Phase::Takes(_), outcome) => return self.lose_beside(step, fid, (made, outcome)),
            (Phase::Copies(at), Outcome::Copied { len, .. }) if *len > 0 => at + u64::from(*len),
            _ => u64::MAX,
        };
        if let Outcome::Attr(attr) | Outcome::Copied { attr, .. } = outcome {
            let removed = attr.nlink == 0;
            let node = self.node(made);
            node.version = attr.version;
            node.has_attr(attr);
            if removed {
                self.release(step, made, Right::None);
                let stale = Outcome::Refused(Refusal::Stale);
                return self.lose_beside(step, fid, (made, &stale));
            }
        }
        if from >= size || self.has_all(fid, size) {
            let node = self.node(made);
            if node.token.right == Right::Exclusive && node.drain.is_none() {
                return self.move_aside(step, fid, made);
            }
            // Somebody has looked at it meanwhile. Blocks that are here may leave before it is had
            // again, unless all has been copied.
            let copied = (from >= size).then_some(node.version);
            return self.take_beside(step, fid, copied);
        }
        if let Some(stranded) = self.stranded.get_mut(&fid) {
            stranded.phase = Phase::Copies(from);
        }
        let op = Op::Copy {
            from: fid,
            at: from,
            to: made,
            offset: from,
            len: (size - from).min(u64::from(COPY_BYTES)) as u32,
        };
        self.ask_stranded(step, fid, (op, Caller::default()));
    }

    /// Are all blocks of the file here?
    fn has_all(&self, fid: Fid, size: u64) -> bool {
        let mut blocks = self.cache.span(fid, 0..size.div_ceil(BLOCK));
        blocks.all(|found| found.is_some_and(|(_, state)| !state.is_filling()))
    }

    /// The bytes of the file that are here become content of the one beside it.
    fn move_aside(&mut self, step: &mut Step<'_>, fid: Fid, made: Fid) {
        let Some(stranded) = self.stranded.remove(&fid) else {
            return;
        };
        self.node(fid).stranded = false;
        let bytes = u64::from(self.cache.changed(fid).count) * BLOCK;
        self.cache.drop_filling(fid);
        self.cache.drop_clean(made, 0);
        // It ends with the last bytes that there are, here or at the server.
        let last = self.cache.blocks(fid, 0).last();
        let reach = last.map_or(0, |(block, ..)| (block + 1) * BLOCK);
        self.cache.move_blocks(fid, made, step.now);
        let now = self.clock.shows(step.now);
        let node = self.node(made);
        node.pending.asking = node.pending.asking.saturating_sub(1);
        if let Some(attr) = node.attr.as_mut() {
            attr.size = attr.size.max(reach.min(stranded.attr.size));
            (attr.mtime, attr.ctime) = (stranded.attr.mtime, now.max(attr.ctime));
        }
        self.count_used(made);
        self.flush(step, made);
        self.counts.conflicts += 1;
        step.out
            .push(Output::Event(Event::Conflict { fid, made, bytes }));
        self.end_stranded(step, fid);
    }
}
