//! The names of objects that are received. A directory may be told of a name before the object is,
//! or after it: so a name counts among the further ones until it is known to be the noted one.

use super::Restore;
use crate::apply::links::{self, Spot};
use crate::key::{self, Key};
use crate::value::{Named, Object, Placed};
use wire::{Kind, Refusal};

impl Restore<'_, '_> {
    /// The name that is noted with an object is this one, whether or not its directory has been
    /// told of it yet; the one that was noted counts among the others, if it is still there.
    pub(super) fn note_name(
        &mut self,
        (vnode, object): (u64, &mut Object),
        (parent, home): (u64, u64),
    ) -> Result<(), Refusal> {
        let old = (self.fid(object.parent), object.home);
        let new = (self.fid(parent), home);
        (object.parent, object.home) = (parent, home);
        if old == new || object.attr.kind == Kind::Directory {
            return Ok(());
        }
        let fid = self.fid(vnode);
        let placed: Option<Placed> = self.decoded(&key::position(old.0, old.1))?;
        if placed.is_some_and(|placed| placed.fid.vnode == vnode) {
            self.txn.put(key::link(fid, old), Vec::new());
        }
        self.drop_key(key::link(fid, new))
    }

    /// Removes what may be there.
    pub(super) fn drop_key(&mut self, key: Key) -> Result<(), Refusal> {
        if self.get(&key)?.is_some() {
            self.txn.remove(key);
        }
        Ok(())
    }

    /// A name that is not noted with its object is one of the further ones.
    pub(super) fn add_name(&mut self, child: &Named, at: Spot) -> Result<(), Refusal> {
        let noted = self.now(child.fid.vnode)?;
        let noted = noted.is_some_and(|object| links::is_noted(&object, at));
        if !noted && child.kind != Kind::Directory {
            self.txn.put(key::link(child.fid, at), Vec::new());
        }
        Ok(())
    }
}
