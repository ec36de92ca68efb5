//! Walks through directories: the objects that they come to next are asked for before they do.
//!
//! A program that looks up, or reads from the beginning, one object of a directory after the other,
//! mostly goes on with the others. So when this client has had to ask the server for some of them
//! in a moment, it asks for the first entries of the directory with attributes, tokens and the
//! bytes of small files (`Prefetch`), and for those behind them while the ones that came are being
//! used. An entry that comes is kept in the client's table until the kernel asks: as a name and
//! attributes under their tokens, and as blocks. Nothing is told to the kernel unasked.
//!
//! Entries that come in vain are bounded. Of a directory, as many may come as are used twice over,
//! and a few more; of all, as many as credit allows, which is lost by each entry that comes, and
//! earned by each that is used, or had to be asked for. Entries that are not used within a while
//! are given back, the oldest first where there are too many of them. A directory that others
//! change is left alone for a while.

use crate::client::data::inline_data::{self, Brought};
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use wire::{Caller, DirEntry, Fid, Hold, Op, Outcome, Reply, Request, RequestId, Time};

/// Entries that may come in vain: of all directories; and of one, beside those for each that is
/// used.
const UNUSED_MAX: u32 = 2048;
const UNUSED_MAX_PER_DIR: u32 = 256;
/// Entries that may come in vain for each that is used.
const UNUSED_PER_USED: u32 = 2;
/// After so many files whose pages the kernel had, a program walks over what is here already: the
/// objects that had to be asked for before tell nothing of the next ones.
const PASSED_MAX: u32 = 16;
/// For so many entries counts an answer without any that was not known.
const EMPTY_REPLY_COST: u32 = 8;
/// Most objects that are kept without the kernel knowing them, and how long.
const PREFETCHED_MAX: usize = 4096;
const PREFETCHED_NS: Time = 30_000_000_000;
/// Most directories that are walked through at a time.
const WALKS_MAX: usize = 256;

/// A walk through one directory.
#[derive(Clone, Debug, Default)]
struct Walk {
    /// The position behind which it is asked for more, and whether nothing is behind it.
    next: u64,
    over: bool,
    /// A question is on its way.
    asked: bool,
    /// Objects that had to be asked for since the last such question.
    misses: u32,
    /// Files that were opened since the last of them, whose pages the kernel may have.
    passed: u32,
    /// When the last step was made.
    last: Time,
    /// Others change the directory: until then nothing is asked for.
    barred: Time,
    /// Entries that came, that were used, and that may still be.
    came: u32,
    used: u32,
    left: u32,
}

/// All walks.
#[derive(Clone, Debug)]
pub(crate) struct Walks {
    dirs: BTreeMap<Fid, Walk>,
    /// The entries that came, oldest first, and when.
    kept: VecDeque<(Fid, Time)>,
    credit: u32,
    /// When something that had come was used last.
    paid: Option<Time>,
}

impl Default for Walks {
    fn default() -> Self {
        Self {
            dirs: BTreeMap::new(),
            kept: VecDeque::new(),
            credit: UNUSED_MAX,
            paid: None,
        }
    }
}

impl Walks {
    /// Has somebody used just now what came ahead? Then he does so in the next directory too.
    pub(crate) fn pay(&self, now: Time, pause_ns: Time) -> bool {
        self.paid.is_some_and(|paid| now < paid + pause_ns)
    }

    fn earn(&mut self, entries: u32) {
        self.credit = UNUSED_MAX.min(self.credit + entries);
    }

    /// The walk through this directory, which makes a step.
    fn step(&mut self, (now, pause_ns): (Time, Time), dir: Fid) -> &mut Walk {
        if self.dirs.len() >= WALKS_MAX && !self.dirs.contains_key(&dir) {
            let goes_on = |walk: &Walk| walk.asked || now < walk.last + pause_ns;
            self.dirs.retain(|_, walk| goes_on(walk));
            if self.dirs.len() >= WALKS_MAX {
                self.dirs.retain(|_, walk| walk.asked);
            }
        }
        let walk = self.dirs.entry(dir).or_default();
        if now >= walk.last + pause_ns && !walk.asked {
            let (barred, left) = (walk.barred, walk.left);
            *walk = Walk {
                barred,
                left,
                ..Walk::default()
            };
        }
        walk.last = now;
        walk
    }
}

impl Client {
    /// The server had to be asked for an object that has a name in this directory.
    pub(crate) fn walk_missed(&mut self, step: &mut Step<'_>, dir: Fid, caller: &Caller) {
        if self.options.walk_entries == 0 {
            return;
        }
        let patience = match self.walks.pay(step.now, self.options.walk_pause_ns) {
            true => 1,
            false => self.options.walk_misses,
        };
        self.walks.earn(1);
        let walk = self.walks.step((step.now, self.options.walk_pause_ns), dir);
        if core::mem::take(&mut walk.passed) > PASSED_MAX {
            walk.misses = 0;
        }
        walk.misses += 1;
        if walk.misses >= patience {
            self.prefetch(step, dir, caller);
        }
    }

    /// The same, of a file whose directory may be known.
    pub(crate) fn walk_missed_file(&mut self, step: &mut Step<'_>, fid: Fid, caller: &Caller) {
        if let Some(dir) = self.nodes.get(&fid).and_then(|node| node.parent) {
            self.walk_missed(step, dir, caller);
        }
    }

    /// A file is opened: it may be one of which nothing need come.
    pub(crate) fn walk_passed(&mut self, fid: Fid) {
        let node = self.nodes.get(&fid).filter(|node| node.kernel.has_pages());
        let dir = node.and_then(|node| node.parent);
        if let Some(walk) = dir.and_then(|dir| self.walks.dirs.get_mut(&dir)) {
            walk.passed += 1;
        }
    }

    /// An object is used: it may be one that came ahead.
    pub(crate) fn walk_used(&mut self, step: &mut Step<'_>, fid: Fid, caller: &Caller) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if !core::mem::take(&mut node.foreseen) {
            return;
        }
        let Some(dir) = node.parent else {
            return;
        };
        // Every path leads through directories: the entries of the next one are not wanted for
        // that.
        let passed = node.directory;
        self.walks.earn(UNUSED_PER_USED);
        if !passed {
            self.walks.paid = Some(step.now);
        }
        let walk = self.walks.step((step.now, self.options.walk_pause_ns), dir);
        walk.left = walk.left.saturating_sub(1);
        walk.used += 1;
        if walk.left <= self.options.walk_entries / 2 {
            self.prefetch(step, dir, caller);
        }
    }

    /// Asks for what follows in a directory, if that may be.
    fn prefetch(&mut self, step: &mut Step<'_>, dir: Fid, caller: &Caller) {
        let max = self.options.walk_entries;
        let room = self.nodes.len() + max as usize <= self.options.objects;
        let lasting = self.nodes.get(&dir).is_some_and(|node| node.lasting());
        let Some(walk) = self.walks.dirs.get_mut(&dir) else {
            return;
        };
        let pays = walk.came
            <= walk
                .used
                .saturating_mul(UNUSED_PER_USED)
                .saturating_add(UNUSED_MAX_PER_DIR);
        let free = !walk.asked && !walk.over && step.now >= walk.barred;
        if !room || !lasting || !pays || !free || self.walks.credit < max {
            return;
        }
        (walk.asked, walk.misses) = (true, 0);
        let op = Op::Prefetch {
            dir,
            after: walk.next,
            max,
        };
        self.note_sent(&op);
        let by = (op, caller.clone(), Hold::default());
        self.request(step, by, Vec::new(), Why::Walk);
    }

    /// The next entries of a directory have come, or could not.
    pub(crate) fn on_prefetched(
        &mut self,
        step: &mut Step<'_>,
        request: &Request,
        reply: Reply,
        bytes: u32,
    ) {
        self.unsend(&request.op);
        if let Op::Prefetch { dir, .. } = request.op {
            self.take_prefetched(step, (dir, request.id), &request.caller, (reply, bytes));
            self.retire(step, dir);
        }
    }

    fn take_prefetched(
        &mut self,
        step: &mut Step<'_>,
        (dir, id): (Fid, RequestId),
        caller: &Caller,
        (reply, bytes): (Reply, u32),
    ) {
        let Some(walk) = self.walks.dirs.get_mut(&dir) else {
            return;
        };
        walk.asked = false;
        let Reply {
            outcome, grants, ..
        } = reply;
        let (entries, end, attr) = match outcome {
            Outcome::Dir {
                entries, end, dir, ..
            } => (entries, end, dir),
            Outcome::Refused(_) => {
                walk.over = true;
                return;
            }
            // Others change it just now.
            _ => {
                walk.barred = step.now + self.options.walk_pause_ns;
                return;
            }
        };
        let of_dir = grants.iter().find(|grant| grant.fid == dir);
        let doubtful = self
            .nodes
            .get(&dir)
            .is_some_and(|node| node.dir.doubtful > 0);
        if !of_dir.is_some_and(|grant| self.vouches(*grant, id)) || doubtful {
            return self.bar_walk(step.now, dir);
        }
        self.learn(dir, attr, true);
        let mut granted = Vec::with_capacity(grants.len());
        for grant in grants.into_iter().filter(|grant| grant.fid != dir) {
            if self.vouches(grant, id) {
                granted.push(grant.fid);
            } else {
                self.retire(step, grant.fid);
            }
        }
        granted.sort_unstable();
        if let Some(walk) = self.walks.dirs.get_mut(&dir) {
            walk.next = entries.last().map_or(walk.next, |last| last.position);
            walk.over = end || entries.is_empty();
        }
        let mut brought = inline_data::listed(&entries, bytes).into_iter().peekable();
        let mut news = false;
        for entry in entries {
            let brought = brought.next_if(|brought| brought.fid == entry.fid);
            if granted.binary_search(&entry.fid).is_ok() {
                news |= self.foresee(step, dir, entry, brought);
            }
        }
        self.give_back_unused(step);
        if !news {
            // All of it is here already: the walk is further on. It is not looked for for ever.
            self.walks.credit = self.walks.credit.saturating_sub(EMPTY_REPLY_COST);
            self.walks.dirs.entry(dir).or_default().came += EMPTY_REPLY_COST;
            self.prefetch(step, dir, caller);
        }
    }

    /// An entry has come that a grant vouches for. Is it news?
    fn foresee(
        &mut self,
        step: &mut Step<'_>,
        dir: Fid,
        entry: DirEntry,
        brought: Option<Brought>,
    ) -> bool {
        let Some(attr) = entry.attr.clone() else {
            return false;
        };
        let fid = entry.fid;
        self.learn(fid, attr, true);
        let node = self.node(fid);
        if !node.lasting() || node.attr.is_none() {
            self.retire(step, fid);
            return false;
        }
        let unknown = !node.kernel.is_known() && !node.foreseen;
        if entry.bare {
            node.has_no_xattrs();
        }
        node.is_in(dir);
        node.directory |= entry.kind == wire::Kind::Directory;
        let node = self.node(dir);
        node.set_name(&entry.name, Some((fid, entry.kind)));
        node.stands(&entry);
        self.count_name();
        let filled = brought.is_some_and(|brought| self.bytes_came(step, brought));
        (unknown || filled) && self.keep_foreseen(step.now, dir, fid)
    }

    /// It is kept until it is used, though the kernel may not know it. False if it was before.
    fn keep_foreseen(&mut self, now: Time, dir: Fid, fid: Fid) -> bool {
        let node = self.node(fid);
        if core::mem::replace(&mut node.foreseen, true) {
            return false;
        }
        self.walks.kept.push_back((fid, now));
        self.walks.credit = self.walks.credit.saturating_sub(1);
        let walk = self.walks.dirs.entry(dir).or_default();
        walk.came += 1;
        walk.left += 1;
        true
    }

    /// Files of a listing that the kernel was told of have come with their bytes.
    pub(crate) fn listed_bytes(
        &mut self,
        step: &mut Step<'_>,
        (dir, after): (Fid, u64),
        brought: Vec<Brought>,
        (reach, over): (u64, bool),
    ) {
        if brought.is_empty() {
            return;
        }
        let walk = (self.walks).step((step.now, self.options.walk_pause_ns), dir);
        if walk.next == after {
            (walk.next, walk.over) = (reach, over);
        }
        for brought in brought {
            if self.bytes_came(step, brought) {
                self.keep_foreseen(step.now, dir, brought.fid);
            }
        }
        self.give_back_unused(step);
    }

    /// Entries that were not used for long, or are too many, are given back.
    pub(crate) fn give_back_unused(&mut self, step: &mut Step<'_>) {
        let most = PREFETCHED_MAX.min(self.options.objects / 4);
        while let Some(&(fid, since)) = self.walks.kept.front() {
            let unused = self.nodes.get(&fid).is_some_and(|node| node.foreseen);
            let old = step.now >= since + PREFETCHED_NS;
            if unused && !old && self.walks.kept.len() <= most {
                break;
            }
            self.walks.kept.pop_front();
            if unused {
                self.unforesee(fid);
                self.retire(step, fid);
            }
        }
    }

    /// It is not kept any more for a program that might use it.
    pub(crate) fn unforesee(&mut self, fid: Fid) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if core::mem::take(&mut node.foreseen)
            && let Some(dir) = node.parent
            && let Some(walk) = self.walks.dirs.get_mut(&dir)
        {
            walk.left = walk.left.saturating_sub(1);
        }
    }

    /// Others change this, or names in it: no walk looks ahead there for a while.
    pub(crate) fn bar_walks(&mut self, now: Time, fid: Fid) {
        self.bar_walk(now, fid);
        let node = self.nodes.get(&fid).filter(|node| node.foreseen);
        if let Some(dir) = node.and_then(|node| node.parent) {
            self.bar_walk(now, dir);
            self.unforesee(fid);
        }
    }

    fn bar_walk(&mut self, now: Time, dir: Fid) {
        if let Some(walk) = self.walks.dirs.get_mut(&dir) {
            walk.barred = now + self.options.walk_pause_ns;
        }
    }

    /// The session is over, and all that was known with it.
    pub(crate) fn lose_walks(&mut self, step: &mut Step<'_>) {
        for (fid, _) in core::mem::take(&mut self.walks).kept {
            self.unforesee(fid);
            self.retire(step, fid);
        }
    }
}
