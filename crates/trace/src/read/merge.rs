//! Several traces as one, in the order of their times.

use super::{ReadError, Reader};
use crate::access::Access;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Merges traces; each begins at its own time zero. An error ends it, and so does the sink when it
/// says `false`.
pub fn merge(
    mut readers: Vec<Reader>,
    mut sink: impl FnMut(&Access) -> bool,
) -> Result<(), ReadError> {
    let mut begins = vec![0; readers.len()];
    let mut next: Vec<Option<Access>> = Vec::new();
    let mut order = BinaryHeap::new();
    for (at, reader) in readers.iter_mut().enumerate() {
        let first = reader.next().transpose()?;
        if let Some(access) = &first {
            begins[at] = access.time_us;
            order.push(Reverse((0, at)));
        }
        next.push(first);
    }
    while let Some(Reverse((time_us, at))) = order.pop() {
        if let Some(access) = next[at].take()
            && !sink(&Access { time_us, ..access })
        {
            return Ok(());
        }
        next[at] = readers[at].next().transpose()?;
        if let Some(access) = &next[at] {
            // A time before the first one, in a file out of order, is as good as the first one.
            order.push(Reverse((access.time_us.saturating_sub(begins[at]), at)));
        }
    }
    Ok(())
}
