//! Mount points: a look-up goes on to the root of the volume behind one.
//!
//! A name means a mount point as it means any other object, under the token of its directory. The
//! kernel and programs are never told of that object: what they are told is the root of the volume
//! that it leads to, with the attributes that hold there. Where it leads is the same for as long as
//! it exists, so nobody holds a token of it, and the volume's number is kept with the name.
//!
//! Guarantees. A listing asks nothing of a volume behind a name in it. The kernel keeps the name
//! only if the directory's token covers it when the root's attributes are told; it keeps the
//! attributes by the root's own token, like those of any directory. So a mount point that is made,
//! moved or removed elsewhere is dropped like any other name, and the end of a volume is a recall
//! of its root.
//!
//! A volume of another server has a session of its own, and this machine knows nothing of it: the
//! look-up ends with the volume's number (`Done::Elsewhere`). The kernel's
//! answer then comes from two machines, so it keeps that name for no time, and this one need take
//! nothing back.

use crate::Ticket;
use crate::client::api::{Done, Lifetime, Output};
use crate::client::notices::Event;
use crate::client::{Client, Step};
use alloc::collections::BTreeSet;
use wire::{Attr, Fid, Kind, Name, Op, Outcome, Refusal, Right, Time, volume_numbers};

/// The mount points that this client has come by.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountPoints {
    /// Volumes that a mount point leads to, and that were not there: people have been told.
    gone: BTreeSet<u32>,
}

impl Client {
    /// The root that stands behind this name, if that is known under the directory's token.
    pub(crate) fn behind(&self, dir: Fid, name: &Name) -> Option<Fid> {
        let node = self.nodes.get(&dir)?;
        let named = node.dir.names.get(name).copied().flatten()?;
        let known = node.token.right >= Right::Shared && named.leads_to != 0;
        (known && named.kind == Kind::Mount).then(|| Fid::root(named.leads_to))
    }

    /// Has a look-up come to a mount point, as the server says? Then it goes on.
    pub(crate) fn comes_to_mount(
        &mut self,
        step: &mut Step<'_>,
        (ticket, op): (Ticket, &Op),
        (outcome, granted): (&Outcome, &[Fid]),
    ) -> bool {
        let (Op::Lookup { dir, name }, Outcome::Entry(entry)) = (op, outcome) else {
            return false;
        };
        let Some(root) = entry.attr.leads_to() else {
            return false;
        };
        let mount = Some((entry.fid, Kind::Mount));
        self.name_is((*dir, name), mount, entry.dir.clone(), granted);
        let node = self.nodes.get_mut(dir);
        if let Some(Some(Some(named))) = node.map(|node| node.dir.names.get_mut(name)) {
            named.leads_to = root.volume;
        }
        self.cross(step, ticket, root);
        true
    }

    /// A look-up goes on to the root of another volume, or ends where another store has that one.
    pub(crate) fn cross(&mut self, step: &mut Step<'_>, ticket: Ticket, root: Fid) {
        let volume = root.volume;
        let store = volume_numbers::store;
        if self
            .root
            .is_some_and(|own| store(own.volume) != store(volume))
        {
            return self.finish(step, ticket, Done::Elsewhere { volume });
        }
        if let Some(running) = self.callers.calls.get_mut(&ticket) {
            running.crosses = Some(root);
            let caller = running.caller.clone();
            self.start_op(step, ticket, Op::GetAttr { fid: root }, caller);
        }
    }

    /// Another machine's answer hands the kernel the root of a volume that this one shows: it looks
    /// up a mount point in a volume of its own server.
    pub(crate) fn on_handed(&mut self, step: &Step<'_>, root: Fid) {
        let node = self.node(root);
        node.kernel.is_told(step.now);
        node.directory = true;
    }

    /// It has come there: the kernel is handed that directory under the name of the mount point.
    pub(crate) fn crossed(
        &mut self,
        now: Time,
        (dir, name): (Fid, &Name),
        (attr, attr_lifetime): (Attr, Lifetime),
        root: Fid,
    ) -> Done {
        self.mounts.gone.remove(&root.volume);
        let covered = self.behind(dir, name) == Some(root);
        let lasting = covered && self.nodes.get(&dir).is_some_and(|node| node.lasting());
        let node = self.node(root);
        node.kernel.is_told(now);
        node.directory = true;
        node.is_in(dir);
        Done::Entry {
            fid: root,
            attr,
            name_lifetime: Self::lifetime(lasting),
            attr_lifetime,
            cached: false,
        }
    }

    /// A look-up has crossed, and the server has no root of that number: the volume was deleted, or
    /// never was here.
    pub(crate) fn leads_nowhere(
        &mut self,
        step: &mut Step<'_>,
        (ticket, op): (Ticket, &Op),
        refusal: Refusal,
    ) {
        let crosses = self
            .callers
            .calls
            .get(&ticket)
            .and_then(|running| running.crosses);
        if let (Op::GetAttr { fid }, Refusal::Stale) = (op, refusal)
            && crosses == Some(*fid)
            && self.mounts.gone.insert(fid.volume)
        {
            let volume = fid.volume;
            step.out.push(Output::Event(Event::VolumeGone { volume }));
        }
    }
}
