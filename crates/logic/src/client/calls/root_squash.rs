//! Callers for whom this machine may not speak: its root, as a rule.
//!
//! They are nobody at the server, and the kernel, which believes that they are root, has checked
//! nothing for them. So what the client would answer by itself under a token, because the kernel
//! has checked it, is checked here; and what they change is asked for, never predicted: a
//! prediction that the server refuses would cost others what they have done since.

use crate::client::Client;
use wire::{Access, Caller, Fid, NOBODY};

impl Client {
    /// Does the caller stand for somebody whom the server does not believe this machine?
    pub(crate) fn is_nobody(&self, caller: &Caller) -> bool {
        caller.uid == NOBODY && (!self.rights.root || !self.rights.uids.is_empty())
    }

    /// Is an object whose attributes are known under a token closed to this caller?
    pub(crate) fn is_kept_out(&self, fid: Fid, access: Access, caller: &Caller) -> bool {
        if !self.is_nobody(caller) {
            return false;
        }
        let attr = self.nodes.get(&fid).and_then(|node| node.attr.as_ref());
        attr.is_none_or(|attr| {
            let shift = match (attr.uid == caller.uid, attr.gid == caller.gid) {
                (true, _) => 6,
                (false, true) => 3,
                (false, false) => 0,
            };
            let bits = attr.mode >> shift;
            (access.read && bits & 4 == 0) || (access.write && bits & 2 == 0)
        })
    }
}
