//! Runs a body on the kept corpus and on bounded mutations of it, so that the ordinary tests cover
//! what a fuzzer has found before. The same seeds give the same bytes.

use std::fs;
use std::path::Path;

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        (wire::splitmix64(&mut self.0) % end.max(1) as u64) as usize
    }
}

/// The kept inputs of a target.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = fs::read_dir(folder.join(target)).expect("a corpus is kept for each target");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("legible").path())
        .collect();
    paths.sort();
    let read = |path| fs::read(path).expect("legible");
    paths.into_iter().map(read).collect()
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len());
    match random.below(6) {
        0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        3 => bytes.truncate(at),
        4 if !bytes.is_empty() => {
            let piece = bytes[at..(at + 8).min(bytes.len())].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        _ => bytes.insert(at, random.below(256) as u8),
    }
}

/// All kept inputs, then this many mutated ones.
pub fn run_all(target: &str, mutated: u64, body: impl Fn(&[u8])) {
    let kept = kept(target);
    assert!(kept.len() >= 5, "the corpus of {target} is lost");
    kept.iter().for_each(|bytes| body(bytes));
    for seed in 0..mutated {
        let mut random = Random(seed);
        let mut bytes = kept[random.below(kept.len())].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut random, &mut bytes);
        }
        body(&bytes);
    }
}
