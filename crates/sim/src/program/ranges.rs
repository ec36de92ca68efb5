//! Calls of programs about ranges of files: make them zeros, lengthen files, copy within the
//! server.

use super::{Program, READ, REGISTER, WRITE};
use crate::disk::UNIT;
use crate::history::Effect;
use crate::kernel::Range;

impl Program {
    /// fallocate(2): a hole, zeros up to behind the end, or room behind the end.
    pub(super) async fn zero(&self) {
        let Some(index) = self.handle(WRITE, Some(REGISTER)) else {
            return;
        };
        let handle = &self.handles[index].0;
        let (unit, count) = self.span();
        let (zero, keep_size) = (self.below(4) > 0, self.below(2) == 0);
        let fid = handle.pin.fid();
        let change = self.begin(Effect::Zero {
            fid,
            units: (unit, if zero { unit + count } else { unit }),
            end: if keep_size { 0 } else { unit + count },
        });
        let range = Range {
            offset: unit * UNIT,
            len: count * UNIT,
        };
        let result = self.kernel.allocate(handle, range, (zero, keep_size)).await;
        self.end(change, &result);
    }

    /// copy_file_range(2), between two files or within one.
    pub(super) async fn copy(&self) {
        let source = self.handle(READ, Some(REGISTER));
        let target = self.handle(WRITE, Some(REGISTER));
        let (Some(source), Some(target)) = (source, target) else {
            return;
        };
        let (source, target) = (&self.handles[source].0, &self.handles[target].0);
        let (at, count) = self.span();
        let unit = self.span().0;
        let (from, to) = (source.pin.fid(), target.pin.fid());
        if from == to && at < unit + count && unit < at + count {
            return; // the kernel refuses that
        }
        let change = self.begin(Effect::Copy {
            from: (from, at),
            to: (to, unit),
            count,
        });
        let range = Range {
            offset: at * UNIT,
            len: count * UNIT,
        };
        let result = self
            .kernel
            .copy((source, range), (target, unit * UNIT))
            .await;
        self.end(change, &result);
    }
}
