//! A list: whom it names, what it says of them, and how it is kept.

use crate::members::is_group;
use crate::rights::Rights;
use alloc::vec::Vec;
use wire::{Attr, Caller, Kind};

/// Entries of a list at most.
pub const ENTRIES_MAX: usize = 256;
const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 8;

/// The people whom an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Everybody.
    Anyone,
    /// A user.
    User(u32),
    /// A group: of the cell, or of machines.
    Group(u32),
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// It takes rights that other entries give.
    pub negative: bool,
    /// The people whom it names.
    pub who: Who,
    /// Which rights.
    pub rights: Rights,
}

/// A list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(Vec<Entry>);

impl List {
    /// From entries in any order; `None`: one is named twice, or it cannot be kept.
    ///
    /// An entry that takes rights from a group of machines is none: a kernel adds up what such
    /// groups have, and cannot take anything from a sum.
    #[must_use]
    pub fn new(mut entries: Vec<Entry>) -> Option<Self> {
        entries.retain(|entry| entry.rights != Rights::NONE);
        entries.sort_unstable();
        let place = |entry: &Entry| (entry.negative, entry.who);
        let twice = entries
            .windows(2)
            .any(|two| place(&two[0]) == place(&two[1]));
        let exact = |entry: &Entry| match entry.who {
            Who::Group(gid) => !entry.negative || is_group(gid),
            _ => true,
        };
        let fits = entries.len() <= ENTRIES_MAX && !twice && entries.iter().all(exact);
        fits.then_some(Self(entries))
    }

    /// Its entries: first those that give rights, then those that take them.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.0.iter()
    }

    /// The list with another entry in the place of what it says of this one; without rights none.
    #[must_use]
    pub fn with(&self, entry: Entry) -> Option<Self> {
        let place = |of: &Entry| (of.negative, of.who);
        let others = self.0.iter().filter(|of| place(of) != place(&entry));
        Self::new(others.copied().chain([entry]).collect())
    }

    /// From the attribute's value; `None`: not a list.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (version, bytes) = value.split_first()?;
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if *version != VERSION || !rest.is_empty() || entries.len() > ENTRIES_MAX {
            return None;
        }
        let one = |e: &[u8; ENTRY_BYTES]| {
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            let who = match (e[0], id) {
                (0, 0) => Who::Anyone,
                (1, uid) => Who::User(uid),
                (2, gid) => Who::Group(gid),
                _ => return None,
            };
            let negative = match (e[1], e[3]) {
                (0, 0) => false,
                (1, 0) => true,
                _ => return None,
            };
            let rights = Rights::from_byte(e[2]).filter(|rights| *rights != Rights::NONE)?;
            Some(Entry {
                negative,
                who,
                rights,
            })
        };
        Self::new(entries.iter().map(one).collect::<Option<_>>()?)
    }

    /// The attribute's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(1 + ENTRY_BYTES * self.0.len());
        value.push(VERSION);
        for entry in &self.0 {
            let (kind, id) = match entry.who {
                Who::Anyone => (0, 0),
                Who::User(uid) => (1, uid),
                Who::Group(gid) => (2, gid),
            };
            value.extend([kind, u8::from(entry.negative), entry.rights.byte(), 0]);
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The sum of the entries that fit.
    pub(crate) fn sum(&self, negative: bool, fits: impl Fn(Who) -> bool) -> Rights {
        let own = self.0.iter().filter(|e| e.negative == negative);
        let own = own.filter(|entry| fits(entry.who));
        own.fold(Rights::NONE, |sum, entry| sum | entry.rights)
    }

    /// Does it name this caller: by his number, or by a group of the cell?
    fn names(&self, caller: &Caller, who: Who) -> bool {
        match who {
            Who::Anyone => false,
            Who::User(uid) => uid == caller.uid,
            Who::Group(gid) => is_group(gid) && is_member(caller, gid),
        }
    }

    /// The rights of a caller to an object that the list governs.
    ///
    /// Entries for him, for his groups of the cell and for everybody add up, and what negative ones
    /// say goes off. If none of them names him, those for his machine's groups count in their
    /// place; and the owner of an object whom none names has what its mode says. The owner of the
    /// directory may change its list.
    #[must_use]
    pub fn rights(&self, caller: &Caller, object: &Attr) -> Rights {
        if caller.uid == 0 {
            return Rights::ALL;
        }
        let own = caller.uid == object.uid;
        let named = self.0.iter().any(|entry| self.names(caller, entry.who));
        let given = match (named, own) {
            (true, _) => self.sum(false, |who| self.names(caller, who)),
            (false, true) => Rights::ALL,
            (false, false) => self.sum(false, |who| match who {
                Who::Group(gid) => !is_group(gid) && is_member(caller, gid),
                _ => false,
            }),
        };
        let to_all = self.sum(false, |who| who == Who::Anyone);
        let taken = self.sum(true, |who| who == Who::Anyone || self.names(caller, who));
        let rights = (given | to_all) & !taken;
        let directory = object.kind == Kind::Directory;
        match (own && directory, own && !named) {
            (true, _) => rights | Rights::ADMINISTER,
            // His file says nothing of who may change the list of its directory.
            (false, true) => rights & !Rights::ADMINISTER,
            (false, false) => rights,
        }
    }

    /// The mode bits that a caller has to an object that the list governs: 4 reads, 2 writes, 1
    /// executes or searches. Of the mode of a file its owner's bits count, for everybody.
    #[must_use]
    pub fn bits(&self, caller: &Caller, object: &Attr) -> u16 {
        bits_of(self.rights(caller, object), object)
    }
}

/// The mode bits that these rights mean for an object.
pub(crate) fn bits_of(rights: Rights, object: &Attr) -> u16 {
    match object.kind {
        Kind::Directory => rights.of_directory(),
        _ => rights.of_file() & cap(object),
    }
}

/// The most that anybody has of an object, whatever a list says.
pub(crate) fn cap(object: &Attr) -> u16 {
    match object.kind {
        Kind::Directory => 7,
        _ => (object.mode >> 6) & 7,
    }
}

fn is_member(caller: &Caller, gid: u32) -> bool {
    let more = caller.groups.as_ref();
    caller.gid == gid || more.is_some_and(|groups| groups.contains(&gid))
}
