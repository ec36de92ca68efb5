//! Bytes that travel beside messages, by number: the machine moves numbers, never bytes.
//!
//! Guarantees: a number is never reused, zero is never given out, and taken bytes are gone.

use logic::server::Bulk;
use std::collections::HashMap;

/// The bytes that wait for their message, or for their request to be applied.
#[derive(Debug, Default)]
pub(crate) struct Bulks {
    kept: HashMap<Bulk, Vec<u8>>,
    last: Bulk,
}

impl Bulks {
    /// Keeps bytes; zero for none.
    pub(crate) fn keep(&mut self, bytes: Vec<u8>) -> Bulk {
        if bytes.is_empty() {
            return 0;
        }
        self.last += 1;
        self.kept.insert(self.last, bytes);
        self.last
    }

    /// The bytes, which stay; none for zero.
    pub(crate) fn get(&self, bulk: Bulk) -> &[u8] {
        self.kept.get(&bulk).map_or(&[], Vec::as_slice)
    }

    /// Gives the bytes up; none for zero.
    pub(crate) fn take(&mut self, bulk: Bulk) -> Vec<u8> {
        self.kept.remove(&bulk).unwrap_or_default()
    }

    /// Keeps bytes again that were taken, under their number.
    pub(crate) fn put_back(&mut self, bulk: Bulk, bytes: Vec<u8>) {
        if bulk != 0 {
            self.kept.insert(bulk, bytes);
        }
    }

    /// How many are kept, and their bytes.
    pub(crate) fn held(&self) -> (u64, u64) {
        let bytes = self.kept.values().map(|bytes| bytes.len() as u64).sum();
        (self.kept.len() as u64, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_gone_and_its_number_too() {
        let mut bulks = Bulks::default();
        assert_eq!(bulks.keep(Vec::new()), 0);
        let first = bulks.keep(vec![1, 2]);
        assert_eq!(bulks.held(), (1, 2));
        assert_eq!(bulks.take(first), [1, 2]);
        assert!(bulks.take(first).is_empty());
        bulks.put_back(first, vec![1, 2]);
        bulks.put_back(0, vec![4]);
        assert_eq!(bulks.held(), (1, 2));
        assert_eq!(bulks.take(first), [1, 2]);
        assert_ne!(bulks.keep(vec![3]), first);
    }
}
