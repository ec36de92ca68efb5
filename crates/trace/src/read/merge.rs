//! Several traces as one, in the order of their times.

use super::{ReadError, Reader};
use crate::access::Access;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Merges traces. Each begins with its first access; only if all of them say when they were
/// recorded, they begin as they did then. An error ends it, and so does the sink when it says
/// `false`.
pub fn merge(
    mut readers: Vec<Reader>,
    mut sink: impl FnMut(&Access) -> bool,
) -> Result<(), ReadError> {
    let recorded: Option<Vec<u32>> = readers.iter().map(|reader| reader.begins_s).collect();
    let mut begins = vec![0; readers.len()];
    let mut next: Vec<Option<Access>> = Vec::new();
    let mut order = BinaryHeap::new();
    for (at, reader) in readers.iter_mut().enumerate() {
        let first = reader.next().transpose()?;
        if let Some(access) = &first {
            begins[at] = access.time_us;
        }
        next.push(first);
    }
    let late_us = late_us(recorded.as_deref(), &next);
    for (at, access) in next.iter().enumerate() {
        if access.is_some() {
            order.push(Reverse((late_us[at], at)));
        }
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
            let since_us = access.time_us.saturating_sub(begins[at]);
            order.push(Reverse((since_us.saturating_add(late_us[at]), at)));
        }
    }
    Ok(())
}

/// How much later than the earliest trace each one begins: not at all, if one does not say when it
/// was recorded.
fn late_us(recorded: Option<&[u32]>, first: &[Option<Access>]) -> Vec<u64> {
    let Some(recorded) = recorded else {
        return vec![0; first.len()];
    };
    let begins = recorded.iter().zip(first).map(|(begins_s, access)| {
        let first_us = access.as_ref().map_or(0, |access| access.time_us);
        (u64::from(*begins_s) * 1_000_000).saturating_add(first_us)
    });
    let begins: Vec<u64> = begins.collect();
    let earliest = begins.iter().min().copied().unwrap_or(0);
    begins.iter().map(|begin| begin - earliest).collect()
}
