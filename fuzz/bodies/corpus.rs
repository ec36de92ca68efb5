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

/// The kept inputs of a target: a line of hexadecimal digits each, as `fuzz/pack` writes them.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let packed = fs::read_to_string(folder.join(format!("{target}.hex")));
    let packed = packed.expect("a corpus is kept for each target");
    let digits = packed
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    digits
        .filter(|digits| !digits.is_empty())
        .map(|digits| bytes(digits.trim_start_matches('-')))
        .collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(pair).collect()
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
