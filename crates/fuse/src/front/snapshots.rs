//! `.snapshots` in the root of a volume, the mounted one or another one behind a mount point: the
//! directory of its snapshots.
//!
//! No listing has that name, and the server does not know it: it leads there while it is absent in
//! the root. The kernel keeps it for no time, since two answers make it, and asks the cache each
//! time. A program that makes such a name after all has it; but no program that sees the directory
//! there moves anything to it. The snapshots below come from the server, like all else, and are
//! kept.

use std::sync::Arc;

use client::front::{Call, Done, Lifetime};
use wire::{Fid, Name, Op, Refusal, SNAPSHOTS_NAME};

use super::convert;
use super::handler::{Found, Tree, refuse, refuse_done};
use crate::abi::EntryOut;
use crate::reply::Reply;
use crate::request::Header;

impl Tree {
    /// Does this name lead to the snapshots, if nothing else has it?
    fn leads_to_snapshots(&self, nodeid: u64, name: &Name) -> bool {
        let named = self.shows_snapshots && name.as_bytes() == SNAPSHOTS_NAME;
        let dir = self.fid(nodeid);
        named && dir == Fid::root(dir.volume)
    }

    /// Answers a look-up of a name that is absent; the kernel may believe that for so long.
    pub(super) fn give_absent(
        self: &Arc<Self>,
        header: &Header,
        (name, lifetime): (&Name, Lifetime),
        reply: Reply,
    ) {
        if !self.leads_to_snapshots(header.nodeid, name) {
            return self.say_absent(reply, lifetime);
        }
        let (tree, fid) = (
            Arc::clone(self),
            Fid::snapshots(self.fid(header.nodeid).volume),
        );
        let done = move |completion: client::front::Completion| match completion.done {
            Done::Entry {
                fid,
                attr,
                attr_lifetime,
                ..
            } => tree.give(
                reply,
                &Found {
                    fid,
                    attr,
                    name_lifetime: Lifetime::None,
                    attr_lifetime,
                },
            ),
            // Of a snapshot there are none.
            Done::Refused(Refusal::Stale) => tree.say_absent(reply, Lifetime::None),
            other => refuse_done(reply, &other),
        };
        self.call(convert::asker(header), Call::Enter { fid }, done);
    }

    fn say_absent(&self, reply: Reply, lifetime: Lifetime) {
        let lifetime = self.name_lifetime(lifetime);
        if lifetime.is_zero() {
            refuse(reply, Refusal::NotFound);
        } else {
            reply.entry(&EntryOut::absent(lifetime));
        }
    }

    /// Goes on unless one of these names is shown as the directory of snapshots: that stays where
    /// it is.
    pub(super) fn unless_snapshots(
        self: &Arc<Self>,
        header: &Header,
        names: &[(u64, &Name)],
        (reply, then): (Reply, impl FnOnce(&Arc<Self>, Reply) + Send + 'static),
    ) {
        let mut names = names.iter();
        let Some((nodeid, name)) =
            names.find(|(nodeid, name)| self.leads_to_snapshots(*nodeid, name))
        else {
            return then(self, reply);
        };
        let tree = Arc::clone(self);
        let op = Op::Lookup {
            dir: self.fid(*nodeid),
            name: (*name).clone(),
        };
        self.operate(
            convert::inner(header.pid),
            op,
            move |completion| match completion.done {
                Done::Absent { .. } => refuse(reply, Refusal::ReadOnly),
                Done::Entry { fid, .. } => {
                    then(&tree, reply);
                    tree.client.forget(fid, 1);
                }
                other => refuse_done(reply, &other),
            },
        );
    }
}
