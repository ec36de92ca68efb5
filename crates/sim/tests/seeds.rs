//! The ordinary run: 20,000 worlds, each with sizes, delays, faults and programs of its own, and
//! none in which a program is shown what it would not be shown on one machine.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{Failure, Only, Rare, Report, RunOptions, Summary, run_seed, run_traced};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const SEEDS: u64 = 20_000;

/// Worlds beyond those. Each failed once by a fault of the machines, of the model or of the judge.
const FAILED_ONCE: [u64; 80] = [
    30_026_851,
    30_036_152,
    30_148_937,
    30_205_483,
    50_123_543,
    50_130_396,
    50_141_569,
    50_146_142,
    50_154_560,
    50_162_603,
    50_172_580,
    50_195_905,
    50_222_799,
    60_005_243,
    60_019_398,
    80_000_256,
    80_001_281,
    80_005_467,
    100_023_930,
    110_032_195,
    121_048_248,
    121_076_294,
    122_056_211,
    122_175_960,
    122_190_371,
    122_519_531,
    122_595_653,
    123_186_964,
    123_739_220,
    123_793_279,
    127_006_553,
    127_101_490,
    127_175_144,
    128_191_408,
    128_420_146,
    128_516_943,
    131_161_531,
    132_289_859,
    132_436_061,
    132_483_381,
    132_838_613,
    132_977_308,
    133_136_094,
    133_565_977,
    134_149_952,
    134_238_782,
    136_165_190,
    137_178_335,
    138_046_706,
    138_192_779,
    138_217_878,
    138_342_690,
    138_391_804,
    139_149_956,
    141_601_030,
    142_178_778,
    143_357_968,
    143_364_013,
    143_405_001,
    144_454_038,
    145_188_284,
    146_038_173,
    148_002_973,
    149_445_813,
    149_476_047,
    149_742_233,
    149_935_984,
    151_008_295,
    152_392_430,
    154_039_187,
    156_086_950,
    157_127_462,
    160_419_464,
    161_010_666,
    163_292_380,
    163_303_897,
    166_107_457,
    166_131_597,
    166_496_787,
    167_554_004,
];

/// The same of worlds in which all that is drawn while they run is drawn differently, or in which
/// something else fails besides: as `ariel sim --seed N --only PART` has it.
const FAILED_IN_PART: [(u64, &str); 14] = [
    (50_130_396, "also=vanish:90"),
    (60_005_243, "salt=145"),
    (80_005_467, "salt=3132"),
    (122_190_371, "also=kill:45"),
    (123_793_279, "salt=130"),
    (123_793_279, "salt=145"),
    (123_793_279, "salt=151"),
    (128_420_146, "also=vanish:82"),
    (144_454_038, "salt=1044"),
    (149_476_047, "salt=24"),
    (149_476_047, "salt=548"),
    (149_742_233, "salt=532"),
    (157_127_462, "also=kill:85"),
    (157_127_462, "also=vanish:69"),
];
/// As often each world that failed once runs with other draws.
const SALTS: u32 = 2;

/// The result of [`run_traced`].
type Traced = (Result<Report, Failure>, Vec<String>);

/// Runs seeds as long as there are any; what they came to, and which failed.
fn work(next: &AtomicU64) -> (Summary, Vec<String>) {
    let (mut summary, mut failures) = (Summary::default(), Vec::new());
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > SEEDS {
            return (summary, failures);
        }
        let outcome = run_seed(seed, &RunOptions::default());
        summary.add(&outcome);
        if let Err(failure) = outcome {
            failures.push(format!("seed {seed}: {}", failure.what));
        }
    }
}

#[test]
fn twenty_thousand_worlds_show_nothing_wrong() {
    let next = AtomicU64::new(1);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (mut all, mut failures) = (Summary::default(), Vec::new());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&next))).collect();
        for thread in threads {
            let (summary, failed) = thread.join().unwrap();
            all.merge(&summary);
            failures.extend(failed);
        }
    });
    assert!(
        failures.is_empty(),
        "{} seeds failed; see one again with `ariel sim --seed N --trace`:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert_eq!(all.seeds, SEEDS);
    let judged = all.all.values;
    assert!(judged > 50 * SEEDS, "only {judged} values were judged");
    let never = |(rare, count): (Rare, u64)| (count == 0).then(|| rare.text());
    let never: Vec<&str> = all.rarities().filter_map(never).collect();
    assert!(never.is_empty(), "what never happened: {never:?}");
}

#[test]
fn worlds_that_failed_once_show_nothing_wrong() {
    for seed in FAILED_ONCE {
        if let Err(failure) = run_seed(seed, &RunOptions::default()) {
            panic!("seed {seed}: {}", failure.what);
        }
    }
}

/// A fault that is rare in all worlds is less so in those like one that failed.
#[test]
fn worlds_like_those_that_failed_once_show_nothing_wrong() {
    let others = FAILED_ONCE
        .into_iter()
        .flat_map(|seed| (1..=SALTS).map(move |salt| (seed, Only::salt(salt))));
    let parts = FAILED_IN_PART.map(|(seed, part)| (seed, part.parse().unwrap()));
    for (seed, only) in others.chain(parts) {
        let part = only.to_string();
        let options = RunOptions {
            only,
            ..RunOptions::default()
        };
        if let Err(failure) = run_seed(seed, &options) {
            panic!("seed {seed} --only {part}: {}", failure.what);
        }
    }
}

/// The outcome and the trace of each seed.
fn traces(seeds: impl Iterator<Item = u64>) -> BTreeMap<u64, Traced> {
    let options = RunOptions {
        trace: true,
        ..RunOptions::default()
    };
    seeds
        .map(|seed| (seed, run_traced(seed, &options)))
        .collect()
}

#[test]
fn a_seed_replays_exactly_on_any_thread_and_after_any_other_seed() {
    let there = thread::spawn(|| traces(1..=200));
    let back = thread::spawn(|| traces((1..=200).rev()));
    let (there, back) = (there.join().unwrap(), back.join().unwrap());
    assert_eq!(there.len(), 200);
    for (seed, (outcome, lines)) in &there {
        let (again, other) = &back[seed];
        assert!(lines.len() > 100, "seed {seed} did next to nothing");
        assert_eq!(outcome, again, "seed {seed}");
        // Not `assert_eq`: the difference would be a book.
        assert!(lines == other, "seed {seed} was traced differently");
    }
}

#[test]
fn the_trace_changes_nothing() {
    for seed in 10..20 {
        let quiet = run_seed(seed, &RunOptions::default());
        let loud = run_seed(
            seed,
            &RunOptions {
                trace: true,
                ..RunOptions::default()
            },
        );
        assert_eq!(quiet.map_err(|f| f.what), loud.map_err(|f| f.what));
    }
}
