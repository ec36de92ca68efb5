//! Extended attributes of the store in memory.

use super::{MemoryDisk, Result};
use wire::{Fid, Op, Outcome, Refusal, Time};

impl MemoryDisk {
    pub(super) fn xattr(&mut self, now: Time, op: &Op) -> Result<Outcome> {
        let of = |fid: &Fid| self.xattrs.get(fid).cloned().unwrap_or_default();
        match op {
            Op::GetXattr { fid, name } => {
                let value = of(fid).remove(name);
                return value.map(Outcome::Value).ok_or(Refusal::NoAttribute);
            }
            Op::ListXattr { fid } => {
                let names = of(fid).into_keys();
                let ended = names.flat_map(|name| [name, vec![0]].concat());
                return Ok(Outcome::Value(ended.collect()));
            }
            _ => {}
        }
        let fid = match op {
            Op::SetXattr {
                fid, name, value, ..
            } => {
                let all = self.xattrs.entry(*fid).or_default();
                all.insert(name.clone(), value.clone());
                *fid
            }
            Op::RemoveXattr { fid, name } => {
                let mut all = of(fid);
                all.remove(name).ok_or(Refusal::NoAttribute)?;
                self.xattrs.insert(*fid, all);
                self.xattrs.retain(|_, all| !all.is_empty());
                *fid
            }
            _ => return Err(Refusal::NotSupported),
        };
        let object = self.change(fid)?;
        object.attr.ctime = object.attr.ctime.max(now);
        Ok(Outcome::Attr(object.attr.clone()))
    }
}
