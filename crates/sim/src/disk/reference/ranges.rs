//! Ranges of files: made zeros, made longer, copied.

use super::{Reference, Result};
use crate::disk::UNIT;
use wire::{Fid, Kind, Op, Outcome, Refusal, Time, WriteMode};

impl Reference {
    pub(super) fn range(&mut self, now: Time, op: &Op) -> Result<Outcome> {
        match op {
            Op::Allocate {
                fid,
                offset,
                len,
                zero,
                keep_size,
            } => self.allocate(now, *fid, (*offset, *len), (*zero, *keep_size)),
            Op::Copy {
                from,
                at,
                to,
                offset,
                len,
            } => self.copy(now, (*from, *at), (*to, *offset), *len),
            _ => Err(Refusal::NotSupported),
        }
    }

    fn allocate(
        &mut self,
        now: Time,
        fid: Fid,
        (offset, len): (u64, u64),
        (zero, keep_size): (bool, bool),
    ) -> Result<Outcome> {
        let object = self.get(fid)?;
        if object.attr.kind != Kind::File {
            return Err(Refusal::Invalid);
        }
        let (size, end) = (object.attr.size, offset + len);
        if zero {
            let range = offset.min(size) / UNIT..end.min(size) / UNIT;
            for unit in range {
                object.units[unit as usize] = 0;
            }
        }
        if !keep_size && end > size {
            object.resize(end);
        }
        object.changed(now);
        let attr = object.attr.clone();
        Ok(Outcome::Written { offset, attr })
    }

    fn copy(
        &mut self,
        now: Time,
        (from, at): (Fid, u64),
        (to, offset): (Fid, u64),
        len: u32,
    ) -> Result<Outcome> {
        let source = self.get(from)?;
        if source.attr.kind != Kind::File {
            return Err(Refusal::Invalid);
        }
        let end = source.attr.size.min(at + u64::from(len));
        let data = source.units[(at.min(end) / UNIT) as usize..(end / UNIT) as usize].to_vec();
        match self.write(now, to, (offset, WriteMode::At), &data)? {
            Outcome::Written { attr, .. } => {
                let len = (data.len() as u64 * UNIT) as u32;
                Ok(Outcome::Copied { len, attr })
            }
            other => Ok(other),
        }
    }
}
