//! Large buffers that are used once more.
//!
//! File bytes travel in pieces of up to a mebibyte. Memory that is new to a process costs a page
//! fault for each page when it is touched first, which is more than the copying of what goes into
//! it. So a thread that is done with a large buffer gives it back here, and one that needs a buffer
//! asks here. Guarantees: at most [`KEPT`] buffers are kept, none of them larger than a frame's
//! bulk; [`take`] gives none of the bytes that were in one.

use crate::frame::BULK_BYTES_MAX;
use parking_lot::Mutex;

/// Buffers that wait for their next use.
const KEPT: usize = 8;
/// Smaller ones are the allocator's business, which has them at hand.
const LEAST_BYTES: usize = 128 << 10;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with room for so many bytes.
#[must_use]
pub fn take(bytes: usize) -> Vec<u8> {
    match used(bytes) {
        Some(mut buffer) => {
            buffer.clear();
            buffer
        }
        None => Vec::with_capacity(bytes),
    }
}

/// One of so many bytes at most, if there is one at hand; it holds bytes of its last use, so that
/// memory that is read into need not be made zeros first.
pub(crate) fn used(bytes: usize) -> Option<Vec<u8>> {
    if bytes < LEAST_BYTES {
        return None;
    }
    let mut spare = SPARE.lock();
    // The one used last is in the processor's cache.
    let at = spare.iter().rposition(|kept| kept.capacity() >= bytes)?;
    let mut buffer = spare.remove(at);
    buffer.truncate(bytes);
    Some(buffer)
}

/// Drops the buffers that wait: memory is short.
pub fn clear() {
    let waiting = std::mem::take(&mut *SPARE.lock());
    drop(waiting);
}

/// Gives a buffer back.
pub fn give(buffer: Vec<u8>) {
    if !(LEAST_BYTES..=2 * BULK_BYTES_MAX).contains(&buffer.capacity()) {
        return;
    }
    let mut spare = SPARE.lock();
    if spare.len() < KEPT {
        return spare.push(buffer);
    }
    // The smallest one makes room for a larger one.
    let smallest = spare.iter_mut().min_by_key(|kept| kept.capacity());
    if let Some(kept) = smallest.filter(|kept| kept.capacity() < buffer.capacity()) {
        *kept = buffer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_taken_once_and_empty() {
        // A size that nobody else of this process uses.
        let bytes = BULK_BYTES_MAX + 4097;
        let mut buffer = take(bytes);
        assert!(buffer.is_empty() && buffer.capacity() >= bytes);
        buffer.resize(bytes, 7);
        let place = buffer.as_ptr();
        give(buffer);
        let again = take(bytes);
        assert!(again.is_empty() && again.as_ptr() == place);
        let other = take(bytes);
        assert_ne!(other.as_ptr(), place);
    }

    #[test]
    fn small_buffers_and_too_many_are_not_kept() {
        give(Vec::with_capacity(100));
        (0..2 * KEPT).for_each(|_| give(Vec::with_capacity(LEAST_BYTES)));
        let spare = SPARE.lock();
        assert!(spare.len() <= KEPT);
        assert!(spare.iter().all(|kept| kept.capacity() >= LEAST_BYTES));
    }
}
