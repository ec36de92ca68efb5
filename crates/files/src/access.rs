//! Rights that are looked at here, since the client answers from its cache without asking the
//! server: to search a directory, to list it, to open a file. (A mount's kernel does the same.)

use crate::acl;
use crate::error::{Error, Result};
use crate::tree::Tree;
use client::front::{Call, Done};
use rustix::io::Errno;
use std::path::Path;
use wire::{Attr, Fid, Kind, Op, Refusal};

pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const SEARCH: u16 = 1;

const LIST: &[u8] = b"system.posix_acl_access";

impl Tree {
    /// Refuses a caller who has not all of these rights to an object.
    pub(crate) fn check(&self, path: &Path, (fid, attr): (Fid, &Attr), wanted: u16) -> Result<()> {
        if self.may(fid, attr, wanted) {
            Ok(())
        } else {
            Err(Error::errno(path, Errno::ACCESS))
        }
    }

    fn may(&self, fid: Fid, attr: &Attr, wanted: u16) -> bool {
        let caller = self.caller();
        if caller.uid == 0 {
            // Root may all but execute what nobody may.
            return wanted & SEARCH == 0 || attr.kind == Kind::Directory || attr.mode & 0o111 != 0;
        }
        let mode = u32::from(attr.mode);
        if caller.uid != attr.uid
            && let Some(may) = self.may_by_list(fid, attr, wanted)
        {
            return may;
        }
        let rights = if caller.uid == attr.uid {
            mode >> 6
        } else if acl::is_member(caller, attr.gid) {
            mode >> 3
        } else {
            mode
        };
        rights & u32::from(wanted) == u32::from(wanted)
    }

    /// The answer of the object's access list, if it has one.
    fn may_by_list(&self, fid: Fid, attr: &Attr, wanted: u16) -> Option<bool> {
        let name = LIST.to_vec();
        match self.ask(Call::Op(Op::GetXattr { fid, name }), &[]).done {
            Done::Bytes(value) => Some(acl::allows(&value, attr, self.caller(), wanted)?),
            Done::Refused(Refusal::NoAttribute | Refusal::NotSupported) => None,
            // It is not known what the list says.
            _ => Some(false),
        }
    }
}
