//! Which names the kernel was handed, so that a recall of others need not wait for it.
//!
//! To drop a name the kernel must get the directory's lock, which may be held by a change that
//! itself waits for another machine (see [`super::name_revoke`]). But nobody here has ever asked
//! for most of the names that are made elsewhere in a directory that several machines use: scratch
//! files, objects of a build. So the names that answers have told of are noted; a name that none
//! has told of, and that no look-up is asking for, the kernel can neither keep nor have in hand.
//!
//! A name is noted until the kernel has dropped it, or has itself taken it away: others are told of
//! that change only when the answer has been taken in ([`super::reply_ack`]). That a name is absent
//! is noted only if the kernel may believe it for longer than for this once: an absent name cannot
//! be in the way of a rename.
//!
//! Where machines fight for the same names that is no help: one of the changes is put back
//! ([`super::wound_wait`]), or the epoch of all names is raised, which takes away far more than is
//! asked for, and for a moment hides directories that are in use (see `docs/kernels.md`). So it
//! happens rarely: for a while the kernel is told each name of that directory for this once only
//! (but by listings). Then a change that holds the lock is enough: nothing is kept, and nobody has
//! anything in hand.

use crate::client::api::{Call, Done, Lifetime};
use crate::client::mutant::Mutant;
use crate::client::{Client, Running};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Fid, Name, Op, Time};

/// Names that are noted of one directory: of more it is taken that any name may be known.
const DENTRIES_MAX: usize = 16_384;

/// For how long after a fight names are told for once only.
const ONE_USE_NAMES_NS: Time = 10_000_000_000;

/// A name that the kernel was handed.
#[derive(Clone, Copy, Debug)]
struct Dentry {
    /// The stamp of the last time.
    stamp: u64,
    /// The object that it names; `None`: none, or that is not noted.
    fid: Option<Fid>,
    /// It may believe it until it is told otherwise.
    lasting: bool,
}

/// The names of one directory that the kernel was handed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dentries {
    names: BTreeMap<Name, Dentry>,
    /// There were too many to note.
    any: bool,
    /// Until then names are told for once only.
    wary: Time,
    /// When a name was noted last.
    told: Time,
}

impl Dentries {
    /// Is there one more to remember?
    fn note(&mut self, name: &Name, known: Dentry) -> bool {
        if self.any {
            return false;
        }
        if let Some(last) = self.names.get_mut(name) {
            (last.stamp, last.fid) = (known.stamp, known.fid);
            last.lasting |= known.lasting;
            return false;
        }
        if self.names.len() == DENTRIES_MAX {
            self.overflow();
            return false;
        }
        self.names.insert(name.clone(), known).is_none()
    }

    /// The name has been dropped, and an entry handed before this stamp is gone.
    pub(crate) fn dropped(&mut self, name: &Name, stamp: u64) {
        if self.names.get(name).is_some_and(|last| last.stamp < stamp) {
            self.names.remove(name);
        }
    }

    /// The kernel believes nothing that it was told before this stamp, but may have it in hand.
    pub(crate) fn expired(&mut self, stamp: u64) {
        let told = self.names.values_mut().filter(|last| last.stamp < stamp);
        told.for_each(|known| known.lasting = false);
    }

    /// There is no room to note names: any may be known.
    pub(crate) fn overflow(&mut self) {
        self.any |= !self.names.is_empty();
        self.names = BTreeMap::new();
    }

    /// May the kernel believe it until it is told otherwise?
    pub(crate) fn lasts(&self, name: &Name) -> bool {
        self.any || self.names.get(name).is_some_and(|known| known.lasting)
    }

    /// When the kernel was told a name last that is noted.
    pub(crate) fn told(&self) -> Time {
        self.told
    }

    /// How many names are noted.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Are all names noted that the kernel may know?
    pub(crate) fn is_complete(&self) -> bool {
        !self.any
    }

    /// The names that are noted.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.names.keys().cloned().collect()
    }

    /// Two machines want the same names.
    pub(crate) fn be_wary(&mut self, now: Time) {
        self.wary = now + ONE_USE_NAMES_NS;
    }
}

impl Client {
    /// A call is answered: which names does the kernel know by it, and for how long?
    pub(crate) fn note_handed(&mut self, now: Time, running: &Running, done: &mut Done) {
        self.say_once(now, &running.call, done);
        let lasting = lasts(done);
        match (&running.call, &*done) {
            (
                Call::Op(Op::Lookup { dir, name }),
                Done::Absent {
                    lifetime: Lifetime::Forever,
                },
            ) => self.hand(now, (*dir, name), (None, lasting)),
            (
                Call::Op(
                    Op::Lookup { dir, name }
                    | Op::Make { dir, name, .. }
                    | Op::Link { dir, name, .. },
                ),
                Done::Entry { fid, .. },
            ) => self.hand(now, (*dir, name), (Some(*fid), lasting)),
            (
                Call::Op(
                    Op::Unlink { dir, name } | Op::Rmdir { dir, name } | Op::Unmount { dir, name },
                ),
                Done::Nothing,
            ) => self.take_away(*dir, name),
            (
                Call::Op(Op::Rename {
                    from,
                    name,
                    to,
                    new,
                    exchange,
                    no_replace,
                }),
                Done::Nothing,
            ) => {
                // It keeps its lifetime.
                let handed = |dir, name| (self.handed(dir, name), self.lasts(dir, name));
                let (moved, other) = (handed(*from, name), handed(*to, new));
                // A root behind a mount point is where the kernel moves it.
                for (dir, handed) in [(*to, moved.0), (*from, other.0.filter(|_| *exchange))] {
                    if let Some(node) = handed.and_then(|fid| self.nodes.get_mut(&fid)) {
                        node.is_in(dir);
                    }
                }
                if *exchange && !*no_replace {
                    self.hand(now, (*from, name), other);
                } else {
                    self.take_away(*from, name);
                }
                self.take_away(*to, new);
                if self.options.mutant != Some(Mutant::ForgetsRenamed) {
                    self.hand(now, (*to, new), moved);
                }
            }
            (Call::List { dir, .. }, Done::Listing { entries, .. })
                if self.options.mutant != Some(Mutant::ForgetsListed) =>
            {
                for entry in entries.iter().filter(|entry| entry.known.is_some()) {
                    self.hand(now, (*dir, &entry.name), (Some(entry.fid), true));
                }
            }
            _ => {}
        }
    }

    /// A name of a directory for which there is a fight is told for this once.
    fn say_once(&self, now: Time, call: &Call, done: &mut Done) {
        let (
            Call::Op(Op::Lookup { dir, .. } | Op::Make { dir, .. } | Op::Link { dir, .. }),
            Done::Entry {
                name_lifetime: lifetime,
                ..
            }
            | Done::Absent { lifetime },
        ) = (call, done)
        else {
            return;
        };
        let node = self.nodes.get(dir);
        if node.is_some_and(|node| now < node.kernel.dentries.wary) {
            *lifetime = Lifetime::None;
        }
    }

    fn hand(&mut self, now: Time, (dir, name): (Fid, &Name), (fid, lasting): (Option<Fid>, bool)) {
        let stamp = self.asked.last_stamp;
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.kernel.dentries.told = now;
            let known = Dentry {
                stamp,
                fid,
                lasting,
            };
            let more = node.kernel.dentries.note(name, known);
            if more {
                self.count_handed();
            }
        }
    }

    /// The object that this name means, as the kernel was told last.
    pub(crate) fn handed(&self, dir: Fid, name: &Name) -> Option<Fid> {
        self.nodes.get(&dir)?.kernel.dentries.names.get(name)?.fid
    }

    /// May the kernel have an object under this name?
    pub(crate) fn may_know(&self, dir: Fid, name: &Name) -> bool {
        let node = self.nodes.get(&dir);
        let overflowed = node.is_some_and(|node| !node.kernel.dentries.is_complete());
        overflowed || self.handed(dir, name).is_some()
    }

    /// May the kernel believe this name until it is told otherwise?
    pub(crate) fn lasts(&self, dir: Fid, name: &Name) -> bool {
        let node = self.nodes.get(&dir);
        node.is_some_and(|node| node.kernel.dentries.lasts(name))
    }

    fn take_away(&mut self, dir: Fid, name: &Name) {
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.kernel.dentries.names.remove(name);
        }
    }

    /// May the kernel know this name, or have it in hand?
    pub(crate) fn may_be_known(&self, dir: Fid, name: &Name) -> bool {
        let Some(node) = self.nodes.get(&dir) else {
            return false;
        };
        if node.kernel.dentries.any || node.kernel.dentries.names.contains_key(name) {
            return true;
        }
        if self.options.mutant == Some(Mutant::ForgetsLookups) {
            return false;
        }
        let asks = |running: &Running| {
            let Call::Op(Op::Lookup {
                dir: at,
                name: asked,
            }) = &running.call
            else {
                return false;
            };
            *at == dir && asked == name
        };
        self.callers.calls.values().any(asks)
    }
}

/// May the kernel keep the name that this answer tells?
fn lasts(done: &Done) -> bool {
    let (Done::Entry {
        name_lifetime: lifetime,
        ..
    }
    | Done::Absent { lifetime }) = done
    else {
        return false;
    };
    *lifetime == Lifetime::Forever
}
