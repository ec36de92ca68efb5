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
        &self.session.rights
    }

    /// Does the caller stand for somebody whom the server does not believe this machine?
    pub(crate) fn is_nobody(&self, caller: &Caller) -> bool {
        let squashed = !self.session.rights.root || !self.session.rights.uids.is_empty();
        (caller.uid == NOBODY && squashed) || self.has_lapsed(caller)
    }

    /// Has the user proved himself, and too long ago?
    fn has_lapsed(&self, caller: &Caller) -> bool {
        let user = self.session.rights.proven(caller.uid);
        user.is_some_and(|user| user.expired)
    }

    /// May this caller open an object under a token that is here? `None`: the server alone can say.
    pub(crate) fn may_open(
        &self,
        fid: Fid,
        access: Access,
        caller: &Caller,
    ) -> Option<Result<(), Refusal>> {
        if self.has_lapsed(caller) {
            return Some(Err(Refusal::Expired));
        }
        if !self.is_nobody(caller) {
            return Some(Ok(()));
        }
        // A user who has not logged in may list and read, and change nothing.
        if !self.session.rights.trusted && access.write {
            return Some(Err(Refusal::Denied));
        }
        let allowed = self.allows(fid, access, caller)?;
        Some(if allowed {
            Ok(())
        } else {
            Err(Refusal::Denied)
        })
    }

    /// Does the mode of an object allow it? `None`: its attributes are not here, though the token
    /// is, since an own change has made the last ones wrong; or it may have a list.
    fn allows(&self, fid: Fid, access: Access, caller: &Caller) -> Option<bool> {
        let node = self.nodes.get(&fid)?;
        let attr = node.attr.as_ref()?;
        let class = match attr.uid == caller.uid {
            true => 6,
            false if !node.has_no_lists() => return None,
            false if attr.gid == caller.gid => 3,
            false => 0,
        };
        let bits = attr.mode >> class;
        Some((!access.read || bits & 4 != 0) && (!access.write || bits & 2 != 0))
    }
}
