//! Objects and the names that lead to them, for the part of the objects that it is the turn of.

use super::Walk;
use crate::key::{self, Parts};
use crate::value::{Object, Placed};
use std::collections::{HashMap, HashSet};
use wire::{Fid, Kind};

/// The knowledge about an object.
#[derive(Debug, Default)]
struct Of {
    /// Names that lead here.
    names: u32,
    /// One of them.
    home: (u64, u64),
    /// Its own record.
    says: Option<Says>,
}

#[derive(Debug)]
struct Says {
    kind: Kind,
    nlink: u32,
    home: (u64, u64),
}

/// The objects of a round.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<u64, Of>);

impl Names {
    /// This name, of a directory at a position, leads to the object.
    pub(super) fn name(&mut self, vnode: u64, home: (u64, u64)) {
        let of = self.0.entry(vnode).or_default();
        if of.names == 0 {
            of.home = home;
        }
        of.names += 1;
    }

    /// The object exists.
    pub(super) fn object(&mut self, vnode: u64, object: &Object) {
        self.0.entry(vnode).or_default().says = Some(Says {
            kind: object.attr.kind,
            nlink: object.attr.nlink,
            home: (object.parent, object.home),
        });
    }
}

/// Directories of views that are known to be below the root.
pub(super) type Good = HashSet<(u32, u64)>;

/// So many of them are kept in mind.
const GOOD_MAX: usize = 1 << 20;
/// No directory lies deeper.
const DEPTH_MAX: usize = 1 << 16;

impl Walk<'_> {
    /// Is it the turn of this object?
    pub(super) fn is_of_round(&self, vnode: u64) -> bool {
        vnode % self.rounds == self.round
    }

    /// A further name of an object.
    pub(super) fn link(&mut self, parts: Parts<'_>) -> Option<()> {
        let (dir, position) = parts.spot()?;
        self.seen(parts.vnode);
        if !self.is_first() {
            return Some(());
        }
        let key = key::position(dir, position);
        let placed: Option<Option<Placed>> = self.known(self.index().get_as(&key));
        let is_it = |placed: Placed| placed.fid.vnode == parts.vnode;
        if placed.is_some_and(|placed| !placed.is_some_and(is_it)) {
            self.object_damage(parts.vnode, "one of its names is elsewhere than noted");
        }
        Some(())
    }

    /// Compares the objects of the round with their names.
    pub(super) fn compare_names(&mut self) {
        let root = Fid::root(self.volume).vnode;
        let mut good = Good::new();
        for (vnode, of) in std::mem::take(&mut self.names).0 {
            // Of a name of nothing it has been told.
            let Some(says) = of.says else {
                continue;
            };
            if says.kind != Kind::Directory {
                if says.nlink != of.names {
                    self.suspect(vnode);
                    self.object_damage(vnode, "it has another number of names than it says");
                }
                continue;
            }
            let names = u32::from(says.nlink > 0 && vnode != root);
            if of.names != names || (names == 1 && of.home != says.home) {
                self.suspect(vnode);
            }
            if of.names != names {
                self.object_damage(vnode, "it has another number of names than one");
            } else if names == 1 && of.home != says.home {
                self.object_damage(vnode, "it does not know its parent");
            }
            if says.nlink > 0 && !self.reaches((vnode, says.home.0), &mut good) {
                self.object_damage(vnode, "the directory cannot be reached from the root");
            }
        }
    }

    /// Does a directory, which says that it is in this one, lie below the root? If something on the
    /// way cannot be read, that is told where it is met.
    pub(super) fn reaches(&mut self, (vnode, parent): (u64, u64), good: &mut Good) -> bool {
        let (root, volume) = (Fid::root(self.volume).vnode, self.volume);
        let mut path = vec![(volume, vnode)];
        let mut at = if vnode == root { root } else { parent };
        while at != root && !good.contains(&(volume, at)) {
            if path.len() >= DEPTH_MAX {
                return false;
            }
            path.push((volume, at));
            match self.known(self.index().object(self.fid(at))) {
                None => return true,
                Some(Some(dir)) if dir.attr.kind == Kind::Directory && dir.attr.nlink > 0 => {
                    at = dir.parent;
                }
                // Its name leads to nothing, as has been told.
                Some(_) => return true,
            }
        }
        if good.len() + path.len() > GOOD_MAX {
            good.clear();
        }
        good.extend(path);
        true
    }
}
