//! Extended attributes.

use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::Done;
use rustix::io::Errno;
use std::path::Path;
use wire::{Fid, Op, XattrMode, limits};

impl Tree {
    /// The names of an object's extended attributes. Symbolic links are not followed.
    ///
    /// # Errors
    /// As llistxattr(2).
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        let (fid, _object) = self.named(path)?;
        match self.operate(path, Op::ListXattr { fid })? {
            Done::Bytes(list) => {
                let names = list.split(|byte| *byte == 0);
                let names = names.filter(|name| !name.is_empty());
                Ok(names.map(<[u8]>::to_vec).collect())
            }
            _ => Err(nonsense(path)),
        }
    }

    /// The value of an extended attribute; `None`: the object has none of this name.
    ///
    /// # Errors
    /// As lgetxattr(2).
    pub fn xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let (fid, _object) = self.named(path)?;
        let name = name.to_vec();
        match self.operate(path, Op::GetXattr { fid, name }) {
            Ok(Done::Bytes(value)) => Ok(Some(value)),
            Ok(_) => Err(nonsense(path)),
            Err(Error::Refused { errno, .. }) if errno == Errno::NODATA => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As lsetxattr(2).
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &[u8], value: &[u8]) -> Result<()> {
        let path = path.as_ref();
        if name.is_empty() || name.len() > limits::NAME_BYTES {
            return Err(Error::errno(path, Errno::RANGE));
        }
        if value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Error::errno(path, Errno::TOOBIG));
        }
        let (fid, _object) = self.named(path)?;
        let op = Op::SetXattr {
            fid,
            name: name.to_vec(),
            value: value.to_vec(),
            mode: XattrMode::Any,
        };
        self.operate(path, op).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As lremovexattr(2).
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let (fid, _object) = self.named(path)?;
        let name = name.to_vec();
        self.operate(path, Op::RemoveXattr { fid, name }).map(drop)
    }

    fn named(&self, path: &Path) -> Result<(Fid, std::sync::Arc<crate::object::Object>)> {
        let found = self.find(path, false)?;
        Ok((found.object.fid(), found.object))
    }
}
