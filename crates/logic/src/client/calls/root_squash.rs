//! Callers for whom this machine may not speak: its root, as a rule.
//!
//! They are nobody at the server, and the kernel, which believes that they are root, has checked
//! nothing for them. So calls that the client would answer by itself under a token, because the
//! kernel has checked them, are checked here; and changes of theirs are asked for, never predicted:
//! a prediction that the server refuses would cost others what they have done since.

use crate::client::Client;
use wire::{Access, Caller, Fid, NOBODY, Refusal, Rights};

impl Client {
    /// The rights of the machine, as the server has said last.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Does the caller stand for somebody whom the server does not believe this machine?
    pub(crate) fn is_nobody(&self, caller: &Caller) -> bool {
        let squashed = !self.rights.root || !self.rights.uids.is_empty();
        (caller.uid == NOBODY && squashed) || self.has_lapsed(caller)
    }

    /// Has the user proved himself, and too long ago?
    fn has_lapsed(&self, caller: &Caller) -> bool {
        let user = self.rights.proven(caller.uid);
        user.is_some_and(|user| user.expired)
    }

    /// Is an object whose attributes are known under a token closed to this caller? Then why.
    pub(crate) fn keeps_out(&self, fid: Fid, access: Access, caller: &Caller) -> Option<Refusal> {
        if self.has_lapsed(caller) {
            return Some(Refusal::Expired);
        }
        if !self.is_nobody(caller) {
            return None;
        }
        // A user who has not logged in may list and read, and change nothing.
        let looks = self.rights.trusted || !access.write;
        (!looks || self.is_closed(fid, access, caller)).then_some(Refusal::Denied)
    }

    fn is_closed(&self, fid: Fid, access: Access, caller: &Caller) -> bool {
        let node = self.nodes.get(&fid);
        let Some((node, attr)) = node.and_then(|node| Some((node, node.attr.as_ref()?))) else {
            return true;
        };
        // With a list, the group's bits are its mask: the most that anybody has.
        let member = attr.gid == caller.gid && node.has_no_lists();
        let bits = match (attr.uid == caller.uid, member) {
            (true, _) => attr.mode >> 6,
            (false, true) => attr.mode >> 3,
            (false, false) => attr.mode,
        };
        (access.read && bits & 4 == 0) || (access.write && bits & 2 == 0)
    }
}
