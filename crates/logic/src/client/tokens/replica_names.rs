//! Directories that are taken back from a machine which changes nothing there, as none does in a
//! replica: names in them are only asked for again.
//!
//! A kernel that drops a name drops the pages of the file that it names, if nobody has it open; and
//! the epoch of all names, by which a directory is taken back without its lock, does that in every
//! directory of the mount. So a release of a replica would cost all caches, whatever it changes. A
//! name that has lost its validity is looked up at its next use, and if it names the same object
//! still, that stays as it is.
//!
//! It takes the directory's lock. Where this machine changes nothing, look-ups and listings alone
//! hold that, which are answered before whoever takes the directory back; and no rename has a name
//! in hand that it has looked up before.

use crate::client::Client;
use crate::client::notices::Invalidate;
use wire::{Fid, Time};

impl Client {
    /// All that the kernel keeps of an object which is taken back, for it to drop or to ask for
    /// again.
    pub(crate) fn whole_or_expired(&self, fid: Fid, now: Time) -> Invalidate {
        let what = self.whole(fid, now);
        match (&what, self.nodes.get(&fid)) {
            (Invalidate::Names { dir }, Some(node))
                if !self.session.rights.write && node.kernel.dentries().is_complete() =>
            {
                let names = node.kernel.dentries().names();
                Invalidate::Expire { dir: *dir, names }
            }
            _ => what,
        }
    }
}
