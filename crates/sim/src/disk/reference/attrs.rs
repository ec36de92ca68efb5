//! Attributes that are set on the reference disk, and extended ones.

use super::{Reference, Result};
use wire::{Fid, Filesystem, Kind, Op, Outcome, Refusal, Set, SetTime, Time, XattrMode};

impl Reference {
    pub(super) fn statfs(&self) -> Outcome {
        let files = self.objects.len() as u64;
        Outcome::Filesystem(Filesystem {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            files,
            free_files: 1 << 30,
        })
    }

    pub(super) fn set_attr(&mut self, now: Time, fid: Fid, set: &Set) -> Result<Outcome> {
        let object = self.get(fid)?;
        if let Some(size) = set.size {
            if object.attr.kind != Kind::File {
                return Err(Refusal::IsDirectory);
            }
            object.resize(size);
            object.changed(now);
        }
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        let attr = &mut object.attr;
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = attr.ctime.max(now);
        Ok(Outcome::Attr(attr.clone()))
    }

    pub(super) fn xattr(&mut self, now: Time, op: &Op) -> Result<Outcome> {
        let (Op::GetXattr { fid, .. }
        | Op::ListXattr { fid }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. }) = op
        else {
            return Err(Refusal::NotSupported);
        };
        let object = self.get(*fid)?;
        let all = &mut object.xattrs;
        match op {
            Op::GetXattr { name, .. } => {
                let value = all.get(name).ok_or(Refusal::NoAttribute)?;
                return Ok(Outcome::Value(value.clone()));
            }
            Op::ListXattr { .. } => {
                let names = all.keys().flat_map(|name| [name, &[0][..]].concat());
                return Ok(Outcome::Value(names.collect()));
            }
            Op::SetXattr {
                name, value, mode, ..
            } => {
                let there = all.contains_key(name);
                match mode {
                    XattrMode::Create if there => return Err(Refusal::Exists),
                    XattrMode::Replace if !there => return Err(Refusal::NoAttribute),
                    _ => all.insert(name.clone(), value.clone()),
                };
            }
            Op::RemoveXattr { name, .. } => {
                all.remove(name).ok_or(Refusal::NoAttribute)?;
            }
            _ => {}
        }
        object.attr.ctime = object.attr.ctime.max(now);
        Ok(Outcome::Attr(object.attr.clone()))
    }
}
