//! Parts of a stream come into the log.

use crate::store::{Apply, Store};
use wire::{Blob, Bounded, Op, Outcome, Refusal, RoomOfDisk, StreamChunk};

impl Store {
    /// The bytes of files lie in the record beside the operation, as those of a write do.
    pub(crate) fn restore(
        &mut self,
        apply: &Apply<'_>,
        promised: Option<RoomOfDisk>,
    ) -> Result<Outcome, Refusal> {
        let Op::Restore {
            volume,
            number,
            after,
            chunk,
        } = apply.op
        else {
            return Err(Refusal::Invalid);
        };
        if !apply.op.within_bounds() {
            return Err(Refusal::Invalid);
        }
        let op = Op::Restore {
            volume: *volume,
            number: *number,
            after: after.clone(),
            chunk: StreamChunk {
                pieces: chunk.pieces.clone(),
                bytes: Blob::default(),
            },
        };
        let (op, data) = (&op, chunk.bytes.0.as_slice());
        self.change(&Apply { op, data, ..*apply }, promised)
    }
}
