//! The footprint of an operation: names in directories, and one object or two by their numbers.
//!
//! It is computed here and nowhere else, from the operation alone: the objects that its names named
//! are known only to the store and to the clients that cache them (see the server's `Plan`, which
//! is made of both).

use wire::{Fid, Name, Op};

/// A name in a directory, or all of its names.
pub(crate) type Place<'a> = (Fid, Option<&'a Name>);

/// The effect of an operation on the object whose number it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// It looks at it, or opens it, or asks about its locks.
    Looks,
    /// It makes a file without a name beside it.
    MakesBeside,
    /// It changes its attributes, its extended ones too.
    SetsAttr,
    /// It gives it a name.
    Links,
    /// It changes its bytes.
    Writes,
}

/// The names and objects that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint<'a> {
    /// Names that it looks at or changes.
    pub(crate) places: [Option<Place<'a>>; 2],
    /// It changes what they name.
    pub(crate) changes_names: bool,
    /// The object whose number it gives.
    pub(crate) object: Option<Fid>,
    pub(crate) deed: Deed,
    /// One more, whose bytes it reads.
    pub(crate) source: Option<Fid>,
}

impl<'a> Footprint<'a> {
    const NONE: Self = Self {
        places: [None, None],
        changes_names: false,
        object: None,
        deed: Deed::Looks,
        source: None,
    };

    fn at(dir: Fid, name: Option<&'a Name>) -> Self {
        Self {
            places: [Some((dir, name)), None],
            ..Self::NONE
        }
    }

    fn of(object: Fid, deed: Deed) -> Self {
        Self {
            object: Some(object),
            deed,
            ..Self::NONE
        }
    }

    fn changing(self) -> Self {
        Self {
            changes_names: true,
            ..self
        }
    }

    /// The footprint of an operation.
    pub(crate) fn new(op: &'a Op) -> Self {
        match op {
            Op::Lookup { dir, name } => Self::at(*dir, Some(name)),
            Op::ReadDir { dir, .. } | Op::Prefetch { dir, .. } => Self::at(*dir, None),
            Op::Make { dir, name, .. }
            | Op::Unlink { dir, name }
            | Op::Rmdir { dir, name }
            | Op::Unmount { dir, name } => Self::at(*dir, Some(name)).changing(),
            Op::Link { fid, dir, name } => Self {
                object: Some(*fid),
                deed: Deed::Links,
                ..Self::at(*dir, Some(name)).changing()
            },
            Op::Rename {
                from,
                name,
                to,
                new,
                ..
            } => Self {
                places: [Some((*from, Some(name))), Some((*to, Some(new)))],
                ..Self::NONE.changing()
            },
            Op::MakeNameless { dir, .. } => Self::of(*dir, Deed::MakesBeside),
            Op::SetAttr { fid, .. } | Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } => {
                Self::of(*fid, Deed::SetsAttr)
            }
            Op::Write { fid, .. } | Op::Allocate { fid, .. } => Self::of(*fid, Deed::Writes),
            Op::Copy { from, to, .. } => Self {
                source: Some(*from),
                ..Self::of(*to, Deed::Writes)
            },
            Op::GetAttr { fid }
            | Op::Claim { fid }
            | Op::ReadLink { fid }
            | Op::Open { fid, .. }
            | Op::Read { fid, .. }
            | Op::Sync { fid }
            | Op::GetXattr { fid, .. }
            | Op::ListXattr { fid }
            | Op::Reap { fid }
            | Op::Lock { fid, .. }
            | Op::Unlock { fid, .. }
            | Op::TestLock { fid, .. }
            | Op::Find { fid, .. } => Self::of(*fid, Deed::Looks),
            // The locks of a file are told however things stand with the file.
            Op::GiveLocks { .. }
            | Op::StopWaiting { .. }
            | Op::StatFs
            | Op::StatVolume { .. }
            | Op::Reserve { .. }
            | Op::Room { .. }
            | Op::Volume(_)
            | Op::Volumes
            | Op::Dump { .. }
            | Op::Restore { .. } => Self::NONE,
        }
    }

    /// The directories whose names it is about.
    pub(crate) fn dirs(&self) -> [Option<Fid>; 2] {
        self.places.map(|place| place.map(|(dir, _)| dir))
    }

    /// The names that it changes.
    pub(crate) fn changed_names(&self) -> impl Iterator<Item = (Fid, &'a Name)> + use<'a> {
        let places = self.places.into_iter().flatten();
        let named = places.filter_map(|(dir, name)| Some((dir, name?)));
        named.take(if self.changes_names { 2 } else { 0 })
    }

    /// All that it gives the numbers of.
    pub(crate) fn fids(&self) -> impl Iterator<Item = Fid> + use<> {
        let [first, second] = self.dirs();
        [self.source, self.object, first, second]
            .into_iter()
            .flatten()
    }

    /// May it leave something changed of an object that it names by its number, besides names?
    pub(crate) fn holds_on_to(&self) -> Option<Fid> {
        let beside = self.object.filter(|_| self.deed == Deed::MakesBeside);
        self.changed_object().or(beside)
    }

    /// Does it change the object whose number it gives?
    pub(crate) fn changed_object(&self) -> Option<Fid> {
        let changes = matches!(self.deed, Deed::SetsAttr | Deed::Links | Deed::Writes);
        self.object.filter(|_| changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid {
        volume: 1,
        vnode: 1,
        uniq: 1,
    };
    const FILE: Fid = Fid { vnode: 2, ..DIR };

    #[test]
    fn a_link_changes_a_name_and_its_object() {
        let name = Name::new(b"x").unwrap();
        let link = Op::Link {
            fid: FILE,
            dir: DIR,
            name: name.clone(),
        };
        let link = Footprint::new(&link);
        assert!(link.changed_names().eq([(DIR, &name)]));
        assert_eq!(link.changed_object(), Some(FILE));
        assert_eq!(link.dirs(), [Some(DIR), None]);
        assert!(link.fids().eq([FILE, DIR]));
    }

    #[test]
    fn a_look_up_changes_nothing() {
        let name = Name::new(b"x").unwrap();
        let lookup = Op::Lookup { dir: DIR, name };
        let lookup = Footprint::new(&lookup);
        assert_eq!(lookup.changed_names().count(), 0);
        assert!(lookup.fids().eq([DIR]) && lookup.changed_object().is_none());
    }
}
