//! When the server's machine loses its power: what must be left of the disk.
//!
//! Guarantees: the failure leaves what the first so many changes make of an empty volume, as the
//! reference disk makes them, and nothing that a fsync had answered for is missing.

use super::reference::Reference;
use super::{Applied, Change, DiskRoom, Units, Volume};
use crate::coverage::Rare;
use crate::kernel::{LABEL, label_of};
use crate::wrong::{Wrong, wrong};
use std::collections::BTreeMap;
use store::Keep;
use wire::{Attr, Caller, Fid, Kind, Name, Outcome};

/// Files with their mode and content, names, and extended attributes.
type Tree = (
    BTreeMap<Fid, (Kind, u16, u32, Units)>,
    BTreeMap<(Fid, Name), Fid>,
    BTreeMap<Fid, u64>,
);

/// The volume's state when the power had come back.
pub(crate) struct Restored {
    /// When it failed, and a moment by which it was back; nobody looked in between.
    pub(crate) when: (u64, u64),
    /// Modes and contents; of directories nothing.
    pub(crate) files: BTreeMap<Fid, (u16, Units)>,
    pub(crate) names: BTreeMap<(Fid, Name), Fid>,
    /// An extended attribute of each file and directory; 0: there is none.
    pub(crate) labels: BTreeMap<Fid, u64>,
}

impl DiskRoom {
    /// A place up to which changes will be stable once a sync that begins now has ended.
    pub(crate) fn position(&self) -> u64 {
        self.volume.position()
    }

    /// A fsync is answered: changes up to this place may not be lost any more.
    pub(crate) fn answered(&mut self, position: u64) {
        self.stable = self.stable.max(position);
    }

    /// Hands what was applied to the operating system.
    pub(crate) fn write_out(&mut self) -> Result<(), String> {
        let written = self.write_changes();
        self.holder_notes.end_step(written.is_ok());
        written
    }

    fn write_changes(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.logged) {
            return Ok(());
        }
        self.volume.write_out()?;
        self.written = self.volume.position();
        self.tend_at = self.tend_at.or(Some(0));
        if std::mem::take(&mut self.firm) {
            self.volume.sync()?;
        }
        Ok(())
    }

    /// The power fails and comes back.
    /// `alone`: clients live on, and ask again for what is undone.
    pub(crate) fn power(&mut self, keep: Keep, alone: bool) -> Result<(), Wrong> {
        let begin = self.sched.moment();
        self.bulks.clear();
        self.holder_notes.lose();
        self.all_held = false;
        let kept = self
            .volume
            .power(keep)
            .map_err(|e| Wrong::new("recovery failed", e))?;
        if kept < self.stable {
            let stable = self.stable;
            return Err(wrong!(
                "fsync was answered for {stable} records, and {kept} are left"
            ));
        }
        (self.written, self.logged) = (self.volume.position(), false);
        (self.troubled, self.shaken) = (false, false);
        for change in self.applied.iter_mut().filter(|change| !change.undone) {
            match alone {
                true => change.undone = !change.lost && change.position > kept,
                false => change.lost |= change.position > kept,
            }
        }
        if self.applied.iter().any(|change| change.undone) {
            self.meet(Rare::Undone);
        }
        let left = tree(&mut *self.volume);
        let expected = tree(&mut self.replayed());
        if left != expected {
            return Err(wrong!(
                "what is left is not what {kept} records make:\n{left:?}\n{expected:?}"
            ));
        }
        if alone {
            self.powerless = true;
            return Ok(());
        }
        let (files, names, labels) = left;
        let plain = |(fid, (_, mode, _, units))| (fid, (mode, units));
        self.restored.push(Restored {
            when: (begin, self.sched.moment()),
            files: files.into_iter().map(plain).collect(),
            names,
            labels,
        });
        Ok(())
    }

    /// A change is applied that was applied before, and undone by a power failure. If it is made
    /// again as it was, nothing happens now. Else it happens now, and not then.
    pub(super) fn made_again(&mut self, made: &Applied, again: bool) -> bool {
        let origin = made.origin;
        let undone =
            |change: &Applied| change.undone && origin.is_some() && change.origin == origin;
        let Some(at) = self.applied.iter().position(undone) else {
            return false;
        };
        let change = &mut self.applied[at];
        if !again || !is_same(&change.outcome, &made.outcome) {
            self.applied.remove(at);
            return false;
        }
        (change.undone, change.position, change.now) = (false, made.position, made.now);
        change.outcome = made.outcome.clone();
        self.meet(Rare::MadeAgain);
        true
    }

    /// The volume that the remaining changes make of an empty one.
    fn replayed(&self) -> Reference {
        let mut volume = Reference::new();
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_));
        for change in self
            .applied
            .iter()
            .filter(|a| !a.lost && !a.undone && !refused(&a.outcome))
        {
            if let (wire::Op::Make { .. } | wire::Op::MakeNameless { .. }, Outcome::Entry(entry)) =
                (&change.op, &change.outcome)
            {
                volume.next_is(entry.fid);
            }
            volume.apply(Change {
                now: change.now,
                op: &change.op,
                caller: &Caller::default(),
                origin: None,
                data: &change.data,
                delegated: None,
                promised: None,
            });
        }
        volume
    }
}

/// Have these made the same object, or written at the same place?
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Refused(one), Outcome::Refused(other)) => one == other,
        (Outcome::Refused(_), _) | (_, Outcome::Refused(_)) => false,
        (Outcome::Entry(one), Outcome::Entry(other)) => one.fid == other.fid,
        (Outcome::Written { offset, .. }, Outcome::Written { offset: other, .. }) => {
            offset == other
        }
        (Outcome::Removed { fid, .. }, Outcome::Removed { fid: other, .. })
        | (Outcome::Renamed { fid, .. }, Outcome::Renamed { fid: other, .. }) => fid == other,
        _ => true,
    }
}

fn tree(volume: &mut dyn Volume) -> Tree {
    let mut tree = Tree::default();
    for (fid, attr) in volume.files() {
        let Attr {
            kind, mode, nlink, ..
        } = attr;
        let units = match kind {
            Kind::File => volume.read(fid, 0, attr.size as u32).1,
            _ => Units::new(),
        };
        tree.0.insert(fid, (kind, mode, nlink, units));
        tree.2.insert(fid, label(volume, fid));
        if kind == Kind::Directory {
            let names = volume.names(fid).into_iter();
            tree.1
                .extend(names.map(|(name, named)| ((fid, name), named)));
        }
    }
    tree
}

/// The one extended attribute that programs set.
fn label(volume: &mut dyn Volume, fid: Fid) -> u64 {
    let name = LABEL.to_vec();
    let outcome = volume.apply(Change {
        now: 0,
        op: &wire::Op::GetXattr { fid, name },
        caller: &Caller::default(),
        origin: None,
        data: &[],
        delegated: None,
        promised: None,
    });
    match outcome {
        Outcome::Value(value) => label_of(&value),
        _ => 0,
    }
}
