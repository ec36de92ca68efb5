//! Calls of programs about files: read, write, append, map, and their attributes.

use super::{BOTH, LOG, Path, Program, READ, REGISTER, WRITE};
use crate::coverage::Rare;
use crate::disk::{UNIT, Units};
use crate::history::{Effect, Seen};
use crate::kernel::{Bytes, Handle, PAGE_UNITS, Result};
use crate::wrong::wrong;
use wire::{Access, Attr, Fid, Refusal, Set};

impl Program {
    /// A handle that may do this.
    pub(super) fn handle(&self, access: Access, letter: Option<u8>) -> Option<usize> {
        let fits = |(handle, known): &(Handle, u8)| {
            handle.may(access) && letter.is_none_or(|letter| letter == *known)
        };
        let usable: Vec<usize> = (0..self.handles.len())
            .filter(|&index| fits(&self.handles[index]))
            .collect();
        if usable.is_empty() {
            return None;
        }
        Some(usable[self.below(usable.len() as u64) as usize])
    }

    /// An offset and a length in units, often of whole pages.
    pub(super) fn span(&self) -> (u64, u64) {
        let most = self.world.plan.units;
        if self.below(3) == 0 {
            let page = self.below(most.div_ceil(PAGE_UNITS));
            return (page * PAGE_UNITS, PAGE_UNITS * (1 + self.below(2)));
        }
        let at = self.below(most);
        (at, 1 + self.below((most - at).min(10)))
    }

    pub(super) async fn read(&self) {
        let Some(index) = self.handle(READ, None) else {
            return;
        };
        let (at, count) = self.span();
        self.read_at(&self.handles[index].0, at, count).await;
    }

    pub(super) async fn read_at(&self, handle: &Handle, at: u64, count: u64) -> Option<bool> {
        let begin = self.moment();
        let result = self.kernel.read(handle, at * UNIT, count * UNIT).await;
        let Bytes {
            units,
            ended,
            doubtful,
            since,
        } = result.ok()?;
        let (fid, unit) = (handle.pin.fid(), at);
        self.saw(
            begin.min(since),
            Seen::Units {
                fid,
                unit,
                values: units,
                ended,
                doubtful,
            },
        );
        Some(ended)
    }

    pub(super) fn stamps(&self, count: u64) -> Units {
        let first = self.moment();
        (0..count).map(|index| first << 8 | index).collect()
    }

    pub(super) async fn write(&self) {
        let Some(index) = self.handle(WRITE, Some(REGISTER)) else {
            return;
        };
        let handle = &self.handles[index].0;
        let (unit, count) = self.span();
        let values = self.stamps(count);
        let fid = handle.pin.fid();
        let change = self.begin(Effect::Write {
            fid,
            unit,
            values: values.clone(),
        });
        let result = self.kernel.write(handle, unit * UNIT, values).await;
        self.written(change, &result, count);
    }

    /// A write through a descriptor with O_DSYNC: the front writes, makes it stable, and answers.
    pub(super) async fn write_stable(&self) {
        let Some(index) = self.handle(WRITE, Some(REGISTER)) else {
            return;
        };
        let handle = &self.handles[index].0;
        let (unit, count) = self.span();
        let values = self.stamps(count);
        let fid = handle.pin.fid();
        let change = self.begin(Effect::Write {
            fid,
            unit,
            values: values.clone(),
        });
        let result = self.kernel.write(handle, unit * UNIT, values).await;
        let written = result.is_ok();
        self.written(change, &result, count);
        let begin = self.moment();
        if written && self.kernel.sync(handle).await.is_ok() {
            let time = (begin, self.moment());
            self.world.history.synced(self.host, fid, time);
            self.world.meet(Rare::StableWrite.bit());
        }
    }

    /// A store through a shared mapping. It counts at once, though nobody is told of it.
    pub(super) async fn store(&self) {
        let Some(index) = self.handle(BOTH, Some(REGISTER)) else {
            return;
        };
        let handle = &self.handles[index].0;
        let unit = self.below(self.world.plan.units);
        let value = self.stamps(1)[0];
        let fid = handle.pin.fid();
        let change = self.begin(Effect::Store { fid, unit, value });
        let stored = self.kernel.store_into(handle, unit, value).await;
        let result = match stored {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::Invalid),
            Err(refusal) => Err(refusal),
        };
        self.end(change, &result);
    }

    pub(super) fn written(&self, change: usize, result: &Result<u64>, count: u64) {
        if result.as_ref().is_ok_and(|&written| written != count) {
            self.world
                .fail(wrong!("{count} units were written as {result:?}"));
        }
        self.end(change, result);
    }

    pub(super) async fn append(&self) {
        let Some(index) = self.handle(WRITE, Some(LOG)) else {
            return;
        };
        let handle = &self.handles[index].0;
        let count = 1 + self.below(3);
        let values = self.stamps(count);
        let fid = handle.pin.fid();
        let change = self.begin(Effect::Append {
            fid,
            values: values.clone(),
        });
        let result = self.kernel.write(handle, 0, values).await;
        self.written(change, &result, count);
    }

    pub(super) fn saw_attr(&self, begin: u64, fid: Fid, attr: &Attr) {
        // The sizes of directories are not judged.
        let is_file = attr.kind == wire::Kind::File;
        let units = if is_file { attr.size / UNIT } else { 0 };
        self.saw(
            begin,
            Seen::Attr {
                fid,
                units,
                used: attr.used_bytes,
                mode: attr.mode,
                times: [attr.mtime, attr.ctime],
                born: attr.btime,
            },
        );
    }

    pub(super) async fn stat(&self, path: &Path) {
        let Some(pin) = self.find(path).await else {
            return;
        };
        let begin = self.moment();
        if let Ok((attr, since)) = self.kernel.getattr(&pin).await {
            self.saw_attr(begin.min(since), pin.fid(), &attr);
        }
    }

    pub(super) async fn fstat(&self) {
        let Some(index) = self.handle(Access::default(), None) else {
            return;
        };
        let pin = &self.handles[index].0.pin;
        let begin = self.moment();
        if let Ok((attr, since)) = self.kernel.getattr(pin).await {
            self.saw_attr(begin.min(since), pin.fid(), &attr);
        }
    }

    pub(super) async fn truncate(&self) {
        let path = self.path(REGISTER);
        let Some(pin) = self.find(&path).await else {
            return;
        };
        let units = self.below(self.world.plan.units + 1);
        let change = self.begin(Effect::Size {
            fid: pin.fid(),
            units,
        });
        let set = Set {
            size: Some(units * UNIT),
            ..Set::default()
        };
        let result = self.kernel.setattr(&pin, set).await;
        self.end(change, &result);
    }

    pub(super) async fn chmod(&self, path: &Path, least: u16) {
        let Some(pin) = self.find(path).await else {
            return;
        };
        let mode = least + self.below(64) as u16;
        let change = self.begin(Effect::Mode {
            fid: pin.fid(),
            mode,
        });
        let set = Set {
            mode: Some(mode),
            ..Set::default()
        };
        let result = self.kernel.setattr(&pin, set).await;
        self.end(change, &result);
    }

    pub(super) async fn sync(&self) {
        let Some(index) = self.handle(Access::default(), None) else {
            return;
        };
        let handle = &self.handles[index].0;
        let begin = self.moment();
        if self.kernel.sync(handle).await.is_ok() {
            let time = (begin, self.moment());
            self.world.history.synced(self.host, handle.pin.fid(), time);
        }
    }

    pub(super) async fn load(&self) {
        let Some(index) = self.handle(READ, None) else {
            return;
        };
        let handle = &self.handles[index].0;
        let page = self.below(self.world.plan.units.div_ceil(PAGE_UNITS));
        let begin = self.moment();
        if let Ok(Some((values, since))) = self.kernel.load(handle, page).await {
            let (fid, unit) = (handle.pin.fid(), page * PAGE_UNITS);
            // The last page beyond the end is zeros, which say nothing about the end.
            let known = self.handles[index].1 == REGISTER;
            if known {
                self.saw(
                    begin.min(since),
                    Seen::Units {
                        fid,
                        unit,
                        values,
                        ended: false,
                        doubtful: false,
                    },
                );
            }
        }
    }
}
