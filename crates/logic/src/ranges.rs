//! A map from ranges of numbers to values: which bytes of a file are locked, and how.
//!
//! Guarantees: parts never overlap; neighbours that touch and have equal values are one part, so
//! that the number of parts depends on what is mapped and not on how it came about. Ranges include
//! both ends, since the last byte that can be locked is the last number there is.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A range of numbers: the first and the last.
pub type Span = (u64, u64);

/// All numbers.
pub const EVERYTHING: Span = (0, u64::MAX);

/// Maps ranges to values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<T> {
    /// By their first number: their last, and the value.
    parts: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self {
            parts: BTreeMap::new(),
        }
    }
}

impl<T: Copy + Eq> Ranges<T> {
    /// How many parts there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Is nothing mapped?
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// All parts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Span, T)> + '_ {
        let parts = self.parts.iter();
        parts.map(|(&first, &(last, value))| ((first, last), value))
    }

    /// The parts that have a number in common with the span, whole, in order.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, T)> + '_ {
        let before = self.parts.range(..span.0).next_back();
        let before = before.filter(move |(_, (last, _))| *last >= span.0);
        let parts = before.into_iter().chain(self.parts.range(span.0..=span.1));
        parts.map(|(&first, &(last, value))| ((first, last), value))
    }

    /// Maps the whole span to this; `None`: to nothing.
    pub fn set(&mut self, span: Span, value: Option<T>) {
        self.update(span, |_| value);
    }

    /// Maps each number of the span to what follows from what it was mapped to.
    pub fn update(&mut self, span: Span, mut follows: impl FnMut(Option<T>) -> Option<T>) {
        assert!(span.0 <= span.1, "a range ends where it begins, or later");
        let met: Vec<(Span, T)> = self.overlapping(span).collect();
        let mut new = Vec::with_capacity(2 * met.len() + 1);
        let mut next = Some(span.0);
        for &((first, last), value) in &met {
            self.parts.remove(&first);
            if first < span.0 {
                new.push(((first, span.0 - 1), Some(value)));
            }
            let from = first.max(span.0);
            if let Some(gap) = next.filter(|next| *next < from) {
                new.push(((gap, from - 1), follows(None)));
            }
            new.push(((from, last.min(span.1)), follows(Some(value))));
            if last > span.1 {
                new.push(((span.1 + 1, last), Some(value)));
            }
            next = last.checked_add(1);
        }
        if let Some(gap) = next.filter(|next| *next <= span.1) {
            new.push(((gap, span.1), follows(None)));
        }
        for (part, value) in new {
            if let Some(value) = value {
                self.join(part, value);
            }
        }
        self.join_next(span.1);
    }

    /// Enters a part behind or between others, as part of the one before it if they are alike.
    fn join(&mut self, (first, last): Span, value: T) {
        let before = self.parts.range_mut(..first).next_back();
        assert!(first <= last, "a part ends where it begins, or later");
        assert!(
            before.as_ref().is_none_or(|(_, known)| known.0 < first),
            "parts do not overlap"
        );
        match before {
            Some((_, known)) if known.1 == value && first.checked_sub(1) == Some(known.0) => {
                known.0 = last;
            }
            _ => {
                self.parts.insert(first, (last, value));
            }
        }
    }

    /// Makes the part that ends here, or holds this number, one with the next if they are alike.
    fn join_next(&mut self, number: u64) {
        let Some((&first, &(last, value))) = self.parts.range(..=number).next_back() else {
            return;
        };
        let Some(next) = last.checked_add(1) else {
            return;
        };
        let Some(&(end, other)) = self.parts.get(&next) else {
            return;
        };
        if other == value {
            self.parts.remove(&next);
            self.parts.insert(first, (end, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Numbers that the naive model has: the first ones, and as many at the end.
    const CELLS: u64 = 12;

    /// A cell of the model stands for one number, the one in the middle for all that are between.
    fn number(cell: u64) -> Span {
        match cell {
            cell if cell < CELLS => (cell, cell),
            CELLS => (CELLS, u64::MAX - CELLS),
            cell => {
                let end = u64::MAX - (2 * CELLS - cell);
                (end, end)
            }
        }
    }

    fn naive_parts(cells: &[Option<u8>]) -> Vec<(Span, u8)> {
        let mut parts: Vec<(Span, u8)> = vec![];
        for (cell, value) in (0..).zip(cells) {
            let Some(value) = *value else { continue };
            let (first, last) = number(cell);
            match parts.last_mut() {
                Some(part) if part.1 == value && part.0.1 + 1 == first => part.0.1 = last,
                _ => parts.push(((first, last), value)),
            }
        }
        parts
    }

    /// Random updates do to the map what they do to a plain array of cells, and the map is always
    /// in its one shortest form.
    #[test]
    fn it_is_what_an_array_would_be() {
        for seed in 0..2_000 {
            let mut state = seed;
            let mut draw = |below: u64| wire::splitmix64(&mut state) % below;
            let mut map = Ranges::<u8>::default();
            let mut cells = vec![None; 2 * CELLS as usize + 1];
            for _ in 0..40 {
                let (one, other) = (draw(2 * CELLS + 1), draw(2 * CELLS + 1));
                let (from, to) = (one.min(other), one.max(other));
                let span = (number(from).0, number(to).1);
                let (new, least) = (draw(4) as u8, draw(3) as u8);
                let follows = |old: Option<u8>| match (new, old) {
                    (0, _) => None,
                    (3, Some(old)) => Some(old.max(least)),
                    (3, None) => None,
                    (value, _) => Some(value),
                };
                map.update(span, follows);
                for cell in &mut cells[from as usize..=to as usize] {
                    *cell = follows(*cell);
                }
                let parts: Vec<(Span, u8)> = map.iter().collect();
                assert_eq!(parts, naive_parts(&cells), "seed {seed}");
                let met: Vec<(Span, u8)> = map.overlapping(span).collect();
                let meets = |part: &&(Span, u8)| part.0.0 <= span.1 && part.0.1 >= span.0;
                let naive: Vec<(Span, u8)> = parts.iter().filter(meets).copied().collect();
                assert_eq!(met, naive, "seed {seed}");
            }
        }
    }

    #[test]
    fn everything_can_be_mapped_and_taken_again() {
        let mut map = Ranges::default();
        map.set(EVERYTHING, Some(1));
        assert_eq!(map.len(), 1);
        map.set((u64::MAX, u64::MAX), None);
        map.set((0, 0), None);
        assert_eq!(map.iter().collect::<Vec<_>>(), [((1, u64::MAX - 1), 1)]);
        map.set(EVERYTHING, None);
        assert!(map.is_empty());
    }
}
