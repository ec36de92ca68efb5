//! Extended attributes that are known here.
//!
//! Either all that an object has are known or none. They are known while the server says that there
//! are none (`bare`) and only this client sets any: then it sets them here, and the server hears of
//! that later, as of any delegated change. An attribute that means more than its value (access
//! lists, which are a mode too and are inherited; capabilities, which end when the content changes)
//! is always set by the server, and from then on nothing is known.

use crate::Ticket;
use crate::client::api::Done;
use crate::client::delegation::local_apply::Prediction;
use crate::client::mutant::Mutant;
use crate::client::node::Node;
use crate::client::{Client, Step};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Attr, Caller, Chosen, Fid, Kind, Op, Outcome, Refusal, Time, XattrMode};

/// More of one object are not kept here: bytes of names and values.
const KNOWN_BYTES: usize = 4096;
const STICKY: u16 = 0o1000;

/// Values by their names, in the order in which they are listed.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A change of one attribute: its new value, or its removal.
struct Edit<'a> {
    fid: Fid,
    name: &'a [u8],
    value: Option<(&'a [u8], XattrMode)>,
}

impl<'a> Edit<'a> {
    fn of(op: &'a Op) -> Option<Self> {
        match op {
            Op::SetXattr {
                fid,
                name,
                value,
                mode,
            } => Some(Self {
                fid: *fid,
                name,
                value: Some((value, *mode)),
            }),
            Op::RemoveXattr { fid, name } => Some(Self {
                fid: *fid,
                name,
                value: None,
            }),
            _ => None,
        }
    }
}

impl Node {
    /// The server says that it has none. If it is changing one, others here may have been shown
    /// what comes after that.
    pub(crate) fn has_no_xattrs(&mut self) {
        if !self.bare && self.pending.labelling == 0 {
            (self.bare, self.xattrs) = (true, None);
        }
    }

    /// Is it certain that its mode alone says who may use it?
    pub(crate) fn has_no_lists(&self) -> bool {
        self.bare && self.names_of_xattrs().next().is_none()
    }

    /// Its extended attributes are not known.
    pub(crate) fn forget_xattrs(&mut self) {
        (self.bare, self.xattrs) = (false, None);
        self.privileges.may_be_set();
    }

    /// One is set or removed by the server: all that is known of them is over, but that there are
    /// none.
    pub(crate) fn xattrs_change(&mut self, op: &Op) {
        let removes = matches!(op, Op::RemoveXattr { .. });
        if !removes || self.xattrs.is_some() {
            self.forget_xattrs();
        }
    }

    fn xattr(&self, name: &[u8]) -> Option<&Vec<u8>> {
        self.xattrs.as_ref()?.get(name)
    }

    fn names_of_xattrs(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.xattrs.iter().flat_map(|all| all.keys())
    }

    /// Is there room here for this one?
    fn fits(&self, name: &[u8], value: &[u8]) -> bool {
        let all = self.xattrs.iter().flat_map(|all| all.iter());
        let known: usize = all.map(|(name, value)| name.len() + value.len() + 1).sum();
        known + name.len() + value.len() < KNOWN_BYTES
    }
}

impl Client {
    /// Predicts a change of an extended attribute.
    pub(crate) fn predict_xattr(
        &mut self,
        now: Time,
        op: &Op,
        caller: &Caller,
    ) -> Option<Prediction> {
        let edit = Edit::of(op)?;
        let node: &Node = self.nodes.get(&edit.fid)?;
        let mut attr = node.sole()?.clone();
        let usable = node.bare && node.quiet() && !node.writeback.sending && self.counts(&attr);
        if !usable || !may_change(&attr, edit.name, caller) {
            return None;
        }
        let there = node.xattr(edit.name).is_some();
        let done = match edit.value {
            None => there,
            Some((value, mode)) => {
                let made = match mode {
                    XattrMode::Any => true,
                    XattrMode::Create => !there,
                    XattrMode::Replace => there,
                    XattrMode::EndsSetGid => false,
                };
                made && node.fits(edit.name, value)
            }
        };
        if !done {
            return None;
        }
        let at = self.clock.shows_after(now, attr.ctime);
        attr.ctime = at;
        Some(Prediction {
            outcome: Outcome::Attr(attr.clone()),
            after: vec![(edit.fid, attr)],
            chosen: Chosen::default(),
            at,
            relies_on: Vec::new(),
        })
    }

    /// It is so from now on.
    pub(crate) fn answer_xattr(&mut self, step: &mut Step<'_>, ticket: Ticket, op: &Op) {
        let forgets = self.options.mutant == Some(Mutant::ForgetsXattrs);
        if let Some(edit) = Edit::of(op).filter(|_| !forgets) {
            let node = self.node(edit.fid);
            let all = node.xattrs.get_or_insert_with(Box::default);
            match edit.value {
                Some((value, _)) => all.insert(edit.name.to_vec(), value.to_vec()),
                None => all.remove(edit.name),
            };
            if all.is_empty() {
                node.xattrs = None;
            }
        }
        self.finish(step, ticket, Done::Nothing);
    }

    /// The answer about the extended attributes of an object, as far as they are known.
    pub(crate) fn known_xattr(&self, op: &Op, caller: &Caller) -> Option<Done> {
        let (Op::GetXattr { fid, .. } | Op::ListXattr { fid }) = op else {
            return None;
        };
        let node = self.nodes.get(fid)?;
        if !node.bare || !node.lasting() {
            return None;
        }
        let Op::GetXattr { name, .. } = op else {
            let shown = |name: &&Vec<u8>| caller.uid == 0 || !name.starts_with(b"trusted.");
            let names = node.names_of_xattrs().filter(shown);
            let ended = names.flat_map(|name| name.iter().copied().chain([0]));
            return Some(Done::Bytes(ended.collect()));
        };
        may_see(node, name, caller).then(|| {
            let value = node.xattr(name).cloned();
            value.map_or(Done::Refused(Refusal::NoAttribute), Done::Bytes)
        })
    }
}

/// Is it known that the caller may see this attribute? Kernels ask for some on their own account.
fn may_see(node: &Node, name: &[u8], caller: &Caller) -> bool {
    if name.starts_with(b"user.") {
        let held = node.held();
        return held.is_some_and(|attr| has_space(attr) && allows(attr, 0o4, caller));
    }
    let spaces: [&[u8]; 2] = [b"security.", b"system.posix_acl_"];
    spaces.iter().any(|space| name.starts_with(space))
        || (name.starts_with(b"trusted.") && caller.uid == 0)
}

/// May the caller set and remove this attribute, and means it nothing to the server?
fn may_change(attr: &Attr, name: &[u8], caller: &Caller) -> bool {
    if name.starts_with(b"user.") {
        let sticky = attr.kind == Kind::Directory && attr.mode & STICKY != 0;
        let owner = caller.uid == 0 || caller.uid == attr.uid;
        return has_space(attr) && (owner || !sticky) && allows(attr, 0o2, caller);
    }
    let root = caller.uid == 0;
    let means = name == b"security.capability";
    root && !means && (name.starts_with(b"trusted.") || name.starts_with(b"security."))
}

/// Only files and directories have attributes of users.
fn has_space(attr: &Attr) -> bool {
    matches!(attr.kind, Kind::File | Kind::Directory)
}

/// May the caller do this, whatever his groups are? There is no access list: that would be one.
fn allows(attr: &Attr, bit: u16, caller: &Caller) -> bool {
    let allows = |shift: u16| (attr.mode >> shift) & bit != 0;
    match caller.uid {
        0 => true,
        uid if uid == attr.uid => allows(6),
        _ => allows(3) && allows(0),
    }
}
