//! The changes sent to watching programs are those of the disk, in its order, and none is left out
//! unless they were told so.
//!
//! The tree is built once more from the disk's record of changes, and says for each change which
//! programs must be told, and under which name. The messages must fit that from some moment on
//! between the question and its answer, and after each time that something was missed from some
//! moment on before that was told. How far it may have come is kept as a set of places, as when a
//! pattern is searched for.

use super::Case;
use crate::disk::Applied;
use crate::watcher::{News, Watcher};
use crate::wrong::{Wrong, wrong};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Change, Deed, Fid, Name, Op, Outcome, Path, Set};

/// A change that somebody is to be told.
#[derive(Debug)]
struct Due {
    moment: u64,
    deed: Deed,
    fid: Fid,
    /// Under one of these names.
    paths: Vec<Path>,
    /// Perhaps not: one of the object's names is where he does not look.
    perhaps: bool,
}

/// The tree, as far as there are names.
struct Tree {
    names: BTreeMap<(Fid, Name), Fid>,
    /// Objects that have had two names.
    linked: BTreeSet<Fid>,
}

impl Tree {
    fn names_of(&self, fid: Fid) -> impl Iterator<Item = &(Fid, Name)> {
        let named = self.names.iter().filter(move |(_, named)| **named == fid);
        named.map(|(name, _)| name)
    }

    /// A name as the watching program sees it; `None`: not at all.
    fn seen(&self, watcher: &Watcher, (dir, name): (Fid, &Name)) -> Option<Vec<u8>> {
        let (mut path, mut at) = (name.as_bytes().to_vec(), dir);
        while at != watcher.fid {
            let (above, name) = self.names_of(at).next()?;
            if !watcher.recursive {
                return None;
            }
            path.splice(..0, name.as_bytes().iter().copied().chain([b'/']));
            at = *above;
        }
        Some(path)
    }

    fn enter(&mut self, (dir, name): (Fid, &Name), fid: Fid) {
        if self.names_of(fid).next().is_some() {
            self.linked.insert(fid);
        }
        self.names.insert((dir, name.clone()), fid);
    }
}

/// All that he is to be told, and the moment before which he may be told the first of it.
struct Expected<'a> {
    watcher: &'a Watcher,
    tree: Tree,
    due: Vec<Due>,
}

impl Expected<'_> {
    fn push(&mut self, moment: u64, (deed, fid): (Deed, Fid), path: Vec<u8>) {
        self.due.push(Due {
            moment,
            deed,
            fid,
            paths: vec![Some(path)],
            perhaps: false,
        });
    }

    fn name(&mut self, moment: u64, (dir, name): (Fid, &Name), (deed, fid): (Deed, Fid)) {
        if let Some(path) = self.tree.seen(self.watcher, (dir, name)) {
            self.push(moment, (deed, fid), path);
        }
    }

    fn itself(&mut self, moment: u64, deed: Deed, fid: Fid) {
        if self.watcher.fid == fid {
            self.push(moment, (deed, fid), Vec::new());
        }
    }

    /// Something is done to an object, under whichever of its names.
    fn object(&mut self, moment: u64, deed: Deed, fid: Fid) {
        if self.watcher.fid == fid {
            return self.push(moment, (deed, fid), Vec::new());
        }
        let all: Vec<Option<Vec<u8>>> = self
            .tree
            .names_of(fid)
            .map(|(dir, name)| self.tree.seen(self.watcher, (*dir, name)))
            .collect();
        let linked = self.tree.linked.contains(&fid) && !all.is_empty();
        let perhaps = all.iter().any(Option::is_none);
        let mut paths: Vec<Path> = all.into_iter().flatten().map(Some).collect();
        paths.extend(linked.then_some(None));
        if !paths.is_empty() {
            self.due.push(Due {
                moment,
                deed,
                fid,
                paths,
                perhaps: perhaps || linked,
            });
        }
    }

    fn apply(&mut self, applied: &Applied) {
        let moment = applied.moment;
        match (&applied.op, &applied.outcome) {
            (_, Outcome::Refused(_)) => {}
            (Op::Make { dir, name, .. } | Op::Link { dir, name, .. }, Outcome::Entry(entry)) => {
                self.tree.enter((*dir, name), entry.fid);
                self.name(moment, (*dir, name), (Deed::Made, entry.fid));
            }
            (Op::Unlink { dir, name } | Op::Rmdir { dir, name }, Outcome::Removed { fid, .. }) => {
                self.name(moment, (*dir, name), (Deed::Removed, *fid));
                self.itself(moment, Deed::Removed, *fid);
                self.tree.names.remove(&(*dir, name.clone()));
            }
            (Op::Rename { .. }, _) => self.rename(applied),
            (Op::SetAttr { fid, set }, _) => {
                for deed in deeds_of(set) {
                    self.object(moment, deed, *fid);
                }
            }
            (Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. }, _) => {
                self.object(moment, Deed::Attributes, *fid);
            }
            (Op::Write { fid, .. } | Op::Allocate { fid, .. } | Op::Copy { to: fid, .. }, _) => {
                self.object(moment, Deed::Written, *fid)
            }
            _ => {}
        }
    }

    /// The object of a name has gone from where the program looks, and another one has come there.
    fn replaced(&mut self, moment: u64, path: Vec<u8>, [gone, come]: [Option<Fid>; 2]) {
        for (deed, fid) in [(Deed::Removed, gone), (Deed::Made, come)] {
            if let Some(fid) = fid {
                self.push(moment, (deed, fid), path.clone());
            }
        }
    }

    fn rename(&mut self, applied: &Applied) {
        let (
            Op::Rename {
                from,
                name,
                to,
                new,
                exchange,
                ..
            },
            (Some(fid), victim),
        ) = (&applied.op, applied.before)
        else {
            return;
        };
        if victim == Some(fid) {
            return;
        }
        let moment = applied.moment;
        let old_path = self.tree.seen(self.watcher, (*from, name));
        let new_path = self.tree.seen(self.watcher, (*to, new));
        let back = victim.filter(|_| *exchange);
        match (old_path, new_path) {
            (Some(path), Some(to)) => {
                let to = Some(to);
                let deed = match exchange {
                    true => Deed::Exchanged { with: to },
                    false => Deed::Moved { to },
                };
                self.push(moment, (deed, fid), path);
            }
            (Some(path), None) => self.replaced(moment, path, [Some(fid), back]),
            (None, Some(path)) => self.replaced(moment, path, [victim, Some(fid)]),
            (None, None) => {}
        }
        let to_itself = Deed::Moved {
            to: Some(Vec::new()),
        };
        self.itself(moment, to_itself.clone(), fid);
        if let Some(victim) = victim {
            let deed = if *exchange { to_itself } else { Deed::Removed };
            self.itself(moment, deed, victim);
        }
        self.tree.names.remove(&(*from, name.clone()));
        if let Some(back) = back {
            self.tree.names.remove(&(*to, new.clone()));
            self.tree.enter((*from, name), back);
        }
        self.tree.enter((*to, new), fid);
    }
}

fn deeds_of(set: &Set) -> Vec<Deed> {
    let mut deeds = Vec::new();
    if set.size.is_some() {
        deeds.push(Deed::Written);
    }
    let owner = set.uid.is_some() || set.gid.is_some();
    let times = set.atime.is_some() || set.mtime.is_some();
    if set.size.is_none() || set.mode.is_some() || owner || times || set.kill_set_id {
        deeds.push(Deed::Attributes);
    }
    deeds
}

impl Due {
    fn fits(&self, change: &Change) -> bool {
        (&self.deed, self.fid) == (&change.deed, change.fid) && self.paths.contains(&change.path)
    }
}

/// How many of what he is to be told he may have been told.
struct Places<'a> {
    due: &'a [Due],
    at: BTreeSet<usize>,
}

impl Places<'_> {
    /// The first that was done at this moment or later.
    fn since(&self, moment: u64) -> usize {
        self.due.partition_point(|due| due.moment < moment)
    }

    /// Changes that need not be told may have been left out.
    fn skip(&mut self) {
        for place in 0..self.due.len() {
            if self.at.contains(&place) && self.due[place].perhaps {
                self.at.insert(place + 1);
            }
        }
    }

    fn take(&mut self, change: &Change) {
        let mut next = BTreeSet::new();
        for &place in &self.at {
            // Of bytes it may be told before they have come to the disk.
            if change.deed == Deed::Written {
                next.insert(place);
            }
            for (at, due) in self.due.iter().enumerate().skip(place) {
                if due.fits(change) {
                    next.insert(at + 1);
                } else if !due.perhaps {
                    break;
                }
                // The same again and again may have been told once, but not names.
                if !matches!(change.deed, Deed::Written | Deed::Attributes) {
                    break;
                }
            }
        }
        self.at = next;
        self.skip();
    }

    fn miss(&mut self, moment: u64) {
        let first = self.at.first().copied().unwrap_or(0);
        self.at.extend(first..=self.since(moment));
        self.skip();
    }
}

/// Judges all of them; those on these machines must have been told all that was done before this
/// moment.
pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    // Changes that a power failure has undone are told as missed, and the tree of before is not
    // known here.
    if case.powerless || case.applied.iter().any(|applied| applied.lost) {
        return Ok(());
    }
    for watcher in case.watchers {
        judge_one(case, watcher)?;
    }
    Ok(())
}

fn judge_one(case: &Case<'_>, watcher: &Watcher) -> Result<(), Wrong> {
    let Some(begun) = watcher.begun else {
        return Ok(());
    };
    let tree = Tree {
        names: BTreeMap::new(),
        linked: BTreeSet::new(),
    };
    let mut expected = Expected {
        watcher,
        tree,
        due: Vec::new(),
    };
    case.applied
        .iter()
        .for_each(|applied| expected.apply(applied));
    let due = expected.due;
    let mut places = Places {
        due: &due,
        at: BTreeSet::new(),
    };
    let (from, to) = (places.since(watcher.asked), places.since(begun));
    places.at.extend(from..=to);
    places.skip();
    let mut ended = false;
    for (index, news) in watcher.news.iter().enumerate() {
        let before: Vec<usize> = places.at.iter().copied().collect();
        match news {
            News::Missed { moment } => places.miss(*moment),
            News::Change(change) => places.take(change),
            News::End => ended = true,
        }
        if places.at.is_empty() {
            let due: Vec<String> = before
                .iter()
                .map(|at| format!("{:?}", due.get(*at)))
                .collect();
            return Err(wrong!(
                "h{} watches {} and is told something wrong, as number {index}, {news:?}; due: {}",
                watcher.host,
                watcher.fid,
                due.join(" or ")
            ));
        }
    }
    let Some(told) = case.told.filter(|(hosts, _)| hosts.contains(&watcher.host)) else {
        return Ok(());
    };
    let last = places.at.last().copied().unwrap_or(0);
    if !ended && last < places.since(told.1) {
        return Err(wrong!(
            "h{} watches {} and was never told {:?}",
            watcher.host,
            watcher.fid,
            due[last]
        ));
    }
    Ok(())
}
