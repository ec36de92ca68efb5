//! Notifies the kernel of what the client wants dropped. Each invalidation becomes one or two
//! jobs of the notifier, one after the other, and is reported back when the last one is done; no
//! thread of the caller waits.
//!
//! Until the mount is served the kernel caches nothing, so whatever is to be dropped is dropped.
//! Where the kernel keeps things for a fixed time, it is told nothing and all is reported at once.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use client::Client;
use client::front::{Front, Invalidate, Waiting};
use parking_lot::Mutex;
use tracing::error;

use super::callers::Callers;
use super::keeping::Keeping;
use super::nodes::Nodes;
use crate::memory;
use crate::notify::{Job, Kind, Notifier, Outcome};
use wire::Fid;

/// Offset that means the attributes alone.
const ATTRIBUTES: (i64, i64) = (-1, 0);
/// Offset and length of everything: the length 0 means to the end.
const EVERYTHING: (i64, i64) = (0, 0);

/// Takes the client's invalidations.
pub(super) struct Notices {
    keeping: Keeping,
    /// There as soon as the mount is served.
    link: OnceLock<Arc<Link>>,
    /// Invalidations that came before.
    early: Mutex<Vec<u64>>,
}

struct Link {
    notifier: Notifier,
    /// The client owns the notices.
    client: Weak<Client>,
    callers: Callers,
    nodes: Nodes,
}

impl Notices {
    /// Notices of a mount that keeps things for so long.
    pub(super) fn new(keeping: Keeping) -> Notices {
        Notices {
            keeping,
            link: OnceLock::new(),
            early: Mutex::new(Vec::new()),
        }
    }

    /// From now on the kernel may cache something, under these node ids.
    pub(super) fn connect(
        &self,
        (notifier, nodes): (Notifier, Nodes),
        client: &Arc<Client>,
        interruptible: bool,
    ) {
        let callers = Callers::new(Arc::downgrade(client), interruptible);
        let early = {
            let mut early = self.early.lock();
            let link = Link {
                notifier,
                client: Arc::downgrade(client),
                callers,
                nodes,
            };
            // Called once.
            let _ = self.link.set(Arc::new(link));
            std::mem::take(&mut *early)
        };
        for id in early {
            client.invalidated(id);
        }
    }

    fn link(&self, id: u64) -> Option<Arc<Link>> {
        let mut early = self.early.lock();
        let link = self.link.get().cloned();
        if link.is_none() {
            early.push(id);
        }
        link
    }
}

impl Front for Notices {
    fn invalidate(&self, id: u64, what: Invalidate) {
        if let Some(link) = self.link(id) {
            let young = match what {
                Invalidate::Inode { fid, young, .. } => young.then_some(fid),
                _ => None,
            };
            let jobs = match self.keeping.takes_back() {
                true => jobs(what, link.notifier.has_epoch(), &link.nodes),
                false => VecDeque::new(),
            };
            link.run(id, young, jobs);
        }
    }

    fn outdated(&self, fid: Fid) {
        if let Some(link) = self.link.get()
            && self.keeping.takes_back()
        {
            link.notifier.throw_away(link.nodes.node(fid));
        }
    }

    fn released(&self) {
        memory::give_back();
    }

    fn look(&self, callers: Vec<Waiting>) {
        // Before the mount is served nobody waits.
        if let Some(link) = self.link.get() {
            link.callers.look(callers);
        }
    }

    fn settle(&self) {
        if let Some(link) = self.link.get() {
            link.notifier.settle();
        }
    }
}

impl Link {
    /// Has the jobs done one after the other, and reports. They may be about a young file.
    fn run(self: Arc<Self>, id: u64, young: Option<Fid>, mut jobs: VecDeque<Kind>) {
        let Some(kind) = jobs.pop_front() else {
            if let Some(client) = self.client.upgrade() {
                client.invalidated(id);
            }
            return;
        };
        let (notifier, client) = (self.notifier.clone(), self.client.clone());
        let known = Box::new(move || match (young, client.upgrade()) {
            (Some(fid), Some(client)) => client.has_handed(fid),
            _ => false,
        });
        let done = Box::new(move |outcome: Outcome| {
            if let Outcome::Failed(errno) = outcome {
                // The end of the connection, as a rule; then nothing is cached any more.
                error!(id, %errno, "the kernel was not told to drop something");
            }
            self.run(id, young, jobs);
        });
        notifier.submit(Job { kind, known, done });
    }
}

/// A range of bytes as the kernel is told of it: (offset, length).
fn range((from, to): (u64, u64)) -> (i64, i64) {
    let offset = i64::try_from(from).unwrap_or(i64::MAX);
    let len = match to {
        u64::MAX => 0,
        to => i64::try_from(to.saturating_sub(from)).unwrap_or(0),
    };
    (offset, len)
}

/// The notifications to the kernel, in this order.
fn jobs(what: Invalidate, has_epoch: bool, nodes: &Nodes) -> VecDeque<Kind> {
    let node = |fid| nodes.node(fid);
    let listing = |nodeid| Kind::Inode {
        nodeid,
        ranges: vec![EVERYTHING],
        young: false,
    };
    let jobs = match what {
        Invalidate::Inode { fid, ranges, young } => {
            let mut ranges: Vec<(i64, i64)> = ranges
                .into_iter()
                // The kernel takes an empty range for everything behind it.
                .filter(|(from, to)| from < to)
                .map(range)
                .collect();
            if ranges.is_empty() {
                ranges.push(ATTRIBUTES);
            }
            vec![Kind::Inode {
                nodeid: node(fid),
                ranges,
                young,
            }]
        }
        Invalidate::Name { dir, name } if has_epoch => vec![Kind::Entry {
            parent: node(dir),
            name: name.into(),
            attr: true,
        }],
        Invalidate::Sizes { fid } => vec![Kind::Sizes { nodeid: node(fid) }],
        Invalidate::Turn { fid } => vec![Kind::Turn { nodeid: node(fid) }],
        Invalidate::Unused { fids } => vec![Kind::Unused {
            nodeids: fids.into_iter().map(node).collect(),
        }],
        Invalidate::Expire { dir, names } if has_epoch => vec![Kind::Expire {
            parent: node(dir),
            names: names.into_iter().map(Into::into).collect(),
        }],
        Invalidate::Names { dir } if has_epoch => vec![Kind::Epoch, listing(node(dir))],
        // Without epochs the kernel was given no name to keep.
        Invalidate::Name { dir, .. }
        | Invalidate::Names { dir }
        | Invalidate::Expire { dir, .. }
        | Invalidate::Listing { dir } => {
            vec![listing(node(dir))]
        }
    };
    jobs.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wire::Name;

    const DIR: Fid = Fid {
        volume: 1,
        vnode: 5,
        uniq: 1,
    };

    fn nodes() -> Nodes {
        Nodes::of(DIR)
    }

    fn inode(ranges: Vec<(i64, i64)>, young: bool) -> Kind {
        Kind::Inode {
            nodeid: 5,
            ranges,
            young,
        }
    }

    #[test]
    fn ranges_become_offsets_and_lengths() {
        let what = |ranges: Vec<(u64, u64)>| Invalidate::Inode {
            fid: DIR,
            ranges,
            young: true,
        };
        for (ranges, expected) in [
            (vec![], vec![(-1, 0)]),
            (vec![(0, u64::MAX)], vec![(0, 0)]),
            (
                vec![(4096, 8192), (1 << 20, u64::MAX)],
                vec![(4096, 4096), (1 << 20, 0)],
            ),
            (vec![(4096, 4096)], vec![(-1, 0)]),
        ] {
            assert_eq!(jobs(what(ranges), true, &nodes()), [inode(expected, true)]);
        }
    }

    #[test]
    fn names_are_dropped_before_the_listing() {
        let all = jobs(Invalidate::Names { dir: DIR }, true, &nodes());
        assert_eq!(all, [Kind::Epoch, inode(vec![(0, 0)], false)]);
        let what = Invalidate::Name {
            dir: DIR,
            name: Name::new(b"a").unwrap(),
        };
        let entry = Kind::Entry {
            parent: 5,
            name: b"a".to_vec(),
            attr: true,
        };
        assert_eq!(jobs(what.clone(), true, &nodes()), [entry]);
        let expire = Invalidate::Expire {
            dir: DIR,
            names: vec![Name::new(b"a").unwrap(), Name::new(b"b").unwrap()],
        };
        let expired = Kind::Expire {
            parent: 5,
            names: vec![b"a".to_vec(), b"b".to_vec()],
        };
        assert_eq!(jobs(expire.clone(), true, &nodes()), [expired]);
        for what in [
            what,
            Invalidate::Names { dir: DIR },
            expire,
            Invalidate::Listing { dir: DIR },
        ] {
            let without_epoch = jobs(what, false, &nodes());
            assert_eq!(without_epoch, [inode(vec![(0, 0)], false)]);
        }
    }
}
