//! Which pages are whose, against a table of all pages.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

#[path = "../src/runs.rs"]
mod runs;

use runs::Runs;

const FIRST: usize = 1000;
const PAGES: usize = 64;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The runs, and the table that they are judged by.
struct Both {
    runs: Runs,
    /// The first page of the run that each page is in.
    owner: [Option<usize>; PAGES],
    random: Random,
}

impl Both {
    fn is_free(&self, from: usize, to: usize) -> bool {
        to <= PAGES && self.owner[from..to].iter().all(Option::is_none)
    }

    fn take(&mut self) {
        let (count, align) = (1 + self.random.below(9), 1 << self.random.below(4));
        let fits = |first: &usize| {
            let from = first - FIRST;
            first.is_multiple_of(align) && self.is_free(from, from + count)
        };
        let expected = (FIRST..FIRST + PAGES).find(fits);
        assert_eq!(self.runs.take(count, align), expected);
        if let Some(first) = expected {
            self.owner[first - FIRST..first - FIRST + count].fill(Some(first));
        }
    }

    fn give(&mut self) {
        let page = self.random.below(PAGES);
        let count = 1 + self.random.below(PAGES - page);
        // The program gives back only its own pages, a run or a part of one.
        if self.owner[page..page + count].iter().any(Option::is_none) {
            return;
        }
        self.runs.leave(FIRST + page, count);
        self.runs.give(FIRST + page, count);
        self.owner[page..page + count].fill(None);
        // The rest behind it is a run of its own.
        let behind = page + count;
        for owner in &mut self.owner[behind..] {
            match owner {
                Some(first) if *first < FIRST + behind => *first = FIRST + behind,
                _ => break,
            }
        }
    }

    fn look_and_extend(&mut self) {
        let page = self.random.below(PAGES);
        let Some(first) = self.owner[page] else {
            assert_eq!(self.runs.of(FIRST + page), None);
            return;
        };
        let mine = self.owner.iter().filter(|owner| **owner == Some(first));
        let now = mine.count();
        assert_eq!(self.runs.of(FIRST + page), Some((first, now)));
        let end = first - FIRST + now;
        let more = 1 + self.random.below(4);
        let can = self.is_free(end, end + more);
        assert_eq!(self.runs.extend(first, now + more), can);
        if can {
            self.owner[end..end + more].fill(Some(first));
        }
    }
}

#[test]
fn runs_do_not_overlap_and_all_pages_come_back() {
    for seed in 1..200 {
        let mut both = Both {
            runs: Runs::new(),
            owner: [None; PAGES],
            random: Random(seed),
        };
        both.runs.add(FIRST, PAGES);
        println!("seed {seed}");
        for _ in 0..400 {
            match both.random.below(3) {
                0 => both.take(),
                1 => both.give(),
                _ => both.look_and_extend(),
            }
        }
        for page in (0..PAGES).filter(|page| both.owner[*page].is_some()) {
            both.runs.leave(FIRST + page, 1);
            both.runs.give(FIRST + page, 1);
        }
        assert_eq!(both.runs.take(PAGES, 1), Some(FIRST), "pages are lost");
    }
}
