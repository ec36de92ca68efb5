//! Whether what the processes report is what the files say, on both mounts.

use super::worker::{FILES, LOCKS, RECORDS, TOKENS};
use super::{LONGEST_MS, WORKERS, seconds};
use crate::harness::record::{LEN, Record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub fn judge(reports: &[Value], roots: [&Path; 2]) {
    for root in roots {
        numbers(reports, root, "tokens", "token", TOKENS);
        numbers(reports, root, "locks", "count", LOCKS);
        records(reports, root);
        left_over(root);
    }
    let steps: Vec<u64> = reports
        .iter()
        .map(|r| r["steps"].as_u64().unwrap())
        .collect();
    let longest = longest(reports);
    println!("steps of each process: {steps:?}\nlongest calls in us: {longest:?}");
    assert!(
        steps.iter().all(|n| *n > 0),
        "a process did not get one step done: {steps:?}"
    );
    let limit_ms = limit_ms(steps.iter().sum());
    for (kind, us) in longest {
        assert!(
            us <= limit_ms * 1_000,
            "a {kind} took {us} us; {limit_ms} ms is promised"
        );
    }
}

/// How long a call may take: on a machine that is kept from running itself, as virtual ones are, so
/// many times what a step takes there on the average, since a call that waits longer is starved.
fn limit_ms(steps: u64) -> u64 {
    const STEPS: u64 = 30;
    let average_ms = seconds() * 1_000 * u64::from(WORKERS) / steps;
    LONGEST_MS.max(STEPS * average_ms)
}

/// The number in each file is the sum of what was added to it.
fn numbers(reports: &[Value], root: &Path, key: &str, prefix: &str, count: u32) {
    let mut all = 0;
    for n in 0..count {
        let sum: u64 = reports
            .iter()
            .map(|r| r[key][n as usize].as_u64().unwrap())
            .sum();
        let text = fs::read_to_string(root.join(format!("names/{prefix}-{n}"))).unwrap();
        assert_eq!(
            text,
            sum.to_string(),
            "{}: {prefix}-{n} against the sum",
            root.display()
        );
        all += sum;
    }
    assert!(all > 0, "nobody ever got one of the {key}");
}

/// Each record is the last that its owner wrote.
fn records(reports: &[Value], root: &Path) {
    let mut expected = BTreeMap::new();
    for entry in reports
        .iter()
        .flat_map(|r| r["records"].as_array().unwrap())
    {
        let number = |i: usize| entry[i].as_u64().unwrap() as u32;
        expected.insert((number(0), number(1)), number(2));
    }
    for n in 0..FILES {
        let bytes = fs::read(root.join(format!("pages/file-{n}"))).unwrap();
        assert_eq!(
            bytes.len(),
            RECORDS as usize * LEN,
            "{}: size of file {n}",
            root.display()
        );
        for (r, chunk) in (0..).zip(bytes.chunks(LEN)) {
            let counter = expected.get(&(n, r)).copied().unwrap_or(0);
            let last = Record {
                writer: r % WORKERS,
                counter,
            };
            assert_eq!(Record::decode(chunk), Some(last), "file {n}, record {r}");
        }
    }
}

/// No name is left but those that belong there.
fn left_over(root: &Path) {
    for entry in fs::read_dir(root.join("names")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let passing =
            ["lock-", "new-"].iter().any(|p| name.starts_with(p)) || name.contains("-of-");
        assert!(
            !passing,
            "{name} was removed and is still listed in {}",
            root.display()
        );
    }
}

fn longest(reports: &[Value]) -> BTreeMap<String, u64> {
    let mut longest = BTreeMap::new();
    for (kind, us) in reports
        .iter()
        .flat_map(|r| r["longest_us"].as_object().unwrap())
    {
        let entry: &mut u64 = longest.entry(kind.clone()).or_default();
        *entry = us.as_u64().unwrap().max(*entry);
    }
    longest
}
