//! A bound on the nodes that the client keeps, however many names a tree has.
//!
//! A kernel keeps what it knows of objects while it has memory, and says when it lets go of one;
//! for so long this client keeps a node and a token of it, and the server a holder. So when there
//! are more nodes than [`crate::client::Options::objects`], the kernel is asked to let go of some
//! that nobody uses: those that come next in a round through all of them. It has not said which
//! ones are used most; but it is about to use an object that it was told of a moment ago.
//!
//! Names that are known to be absent, or to name what is not known any more, hold nothing: they are
//! forgotten when there are more than twice as many names as objects may be. So it is with the
//! names that the kernel was handed, those of the largest directories first.

use crate::client::names::dir_cookies::Named;
use crate::client::node::Node;
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Step};
use alloc::vec::Vec;
use core::ops::Bound;
use wire::{Fid, Time};

/// How many nodes are looked at before the kernel is asked, and how many it is asked for.
const SCANNED_MAX: usize = 2048;
const FORGET_MAX: usize = 512;
/// An object that it was told of less than this ago is left alone.
const RECENT_REPLY_NS: Time = 100_000_000;
/// It is not asked for so long when there was nothing to ask for; when it was asked in vain twice
/// as long each time, up to the longest: some kernels do not know the question.
const LEAST_PAUSE_NS: Time = 1_000_000;
const LONGEST_PAUSE_NS: Time = 1_000_000_000;

/// Where the round stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaim {
    /// The last one looked at.
    last: Option<Fid>,
    /// The kernel has been asked, when there were so many nodes; it has not answered.
    asked: Option<usize>,
    /// It is not asked again before this.
    next: Time,
    /// For how long it was not asked after the last time, which was in vain; else 0.
    pause: Time,
    /// At most so many names are known: how many were when they were counted last, and how many
    /// have been learned since.
    names: usize,
    /// The same of the names that the kernel was handed.
    handed: usize,
}

impl Client {
    /// After each call and message: are there too many nodes or names?
    pub(crate) fn keep_bounds(&mut self, step: &mut Step<'_>) {
        let most = self.options.objects;
        if self.nodes.len() > most && self.reclaim.asked.is_none() && step.now >= self.reclaim.next
        {
            self.ask_to_let_go(step);
        }
        if self.reclaim.names > most.saturating_mul(2) {
            self.forget_names();
        }
        if self.reclaim.handed > most.saturating_mul(2) {
            self.forget_handed();
        }
    }

    /// A name was learned.
    pub(crate) fn count_name(&mut self) {
        self.reclaim.names += 1;
    }

    /// The kernel was handed a name.
    pub(crate) fn count_handed(&mut self) {
        self.reclaim.handed += 1;
    }

    fn ask_to_let_go(&mut self, step: &mut Step<'_>) {
        let after = self.reclaim.last.map_or(Bound::Unbounded, Bound::Excluded);
        let young = step.now.saturating_sub(RECENT_REPLY_NS);
        let root = self.root;
        let unused = |(fid, node): &(&Fid, &Node)| {
            Some(**fid) != root
                && node.kernel.is_known()
                && node.kernel.told_at() <= young
                && !node.hold(0).open
        };
        let mut last = None;
        let nodes = self
            .nodes
            .range((after, Bound::Unbounded))
            .take(SCANNED_MAX);
        let seen = nodes.map(|(fid, node)| {
            last = Some(*fid);
            (fid, &**node)
        });
        let fids: Vec<Fid> = seen
            .filter(unused)
            .map(|(fid, _)| *fid)
            .take(FORGET_MAX)
            .collect();
        // At the end the round begins again.
        self.reclaim.last = last;
        if fids.is_empty() {
            self.reclaim.next = step.now + LEAST_PAUSE_NS;
            return;
        }
        self.reclaim.asked = Some(self.nodes.len());
        self.invalidate(step, Invalidate::Unused { fids }, After::LetGo);
    }

    /// The kernel has let go of what it does not use; the last news of that may be on its way.
    pub(crate) fn on_let_go(&mut self, step: &mut Step<'_>) {
        let before = self.reclaim.asked.take().unwrap_or(0);
        self.reclaim.pause = if self.nodes.len() >= before {
            (self.reclaim.pause * 2).clamp(LEAST_PAUSE_NS, LONGEST_PAUSE_NS)
        } else {
            0
        };
        self.reclaim.next = step.now + self.reclaim.pause;
    }

    /// When the kernel is to be asked again.
    pub(crate) fn bounds_due(&self) -> Option<Time> {
        let over = self.nodes.len() > self.options.objects && self.reclaim.asked.is_none();
        over.then_some(self.reclaim.next)
    }

    fn forget_names(&mut self) {
        let named = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.dir.names.is_empty());
        let dirs: Vec<Fid> = named.map(|(dir, _)| *dir).collect();
        let mut left = 0;
        for dir in dirs {
            let mut names = core::mem::take(&mut self.node(dir).dir.names);
            let here = |named: &Named| self.nodes.contains_key(&named.fid);
            let known = |named: &Option<Named>| named.as_ref().is_none_or(here);
            let whole = self.nodes.get(&dir).is_some_and(|node| node.dir.whole);
            let whole = whole && names.values().all(known);
            names.retain(|_, named| named.as_ref().is_some_and(here));
            left += names.len();
            let node = self.node(dir);
            let last = node.dir.last.filter(|_| whole);
            node.not_whole();
            (node.dir.names, node.dir.whole, node.dir.last) = (names, whole, last);
        }
        if left > self.options.objects / 2 * 3 {
            // Many names of the same objects.
            for node in self.nodes.values_mut() {
                node.dir.names.clear();
                node.not_whole();
            }
            left = 0;
        }
        self.reclaim.names = left;
    }

    /// If there are too many indeed, those of the largest directories go: of these the kernel may
    /// know any name from now on.
    fn forget_handed(&mut self) {
        let counts = self
            .nodes
            .iter()
            .map(|(fid, node)| (node.kernel.dentries().len(), *fid));
        let mut counts: Vec<(usize, Fid)> = counts.filter(|(len, _)| *len > 0).collect();
        let mut left: usize = counts.iter().map(|(len, _)| len).sum();
        if left > self.options.objects {
            counts.sort_unstable();
            while left > self.options.objects / 2
                && let Some((len, dir)) = counts.pop()
            {
                self.node(dir).kernel.overflow_dentries();
                left -= len;
            }
        }
        self.reclaim.handed = left;
    }
}
