//! `ariel profile`: programs' calls are found in it, on both sides, and add up.

use crate::harness::process::text;
use crate::harness::{Cell, ariel, real_system, run};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn profile(target: &str) -> Value {
    let output = run(&mut ariel(&["profile", "--json", target]));
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(line: &Value, name: &str) -> u64 {
    let number = line[name].as_u64();
    number.unwrap_or_else(|| panic!("{name} of {line}"))
}

/// The durations of one kind are in order, and their sum lies between what they say.
fn assert_sound(stage: &str, kind: &str, line: &Value) {
    let [count, total, most] = ["count", "total_ns", "most_ns"].map(|name| number(line, name));
    let quantiles = ["p50_ns", "p90_ns", "p99_ns", "most_ns"].map(|name| number(line, name));
    assert!(quantiles.is_sorted(), "{stage} {kind}: {line}");
    assert!(
        count > 0 && most <= total && total <= count * most,
        "{stage} {kind}: {line}"
    );
}

#[test]
fn a_profile_tells_where_the_time_went_in_mount_and_server() {
    if !real_system("profile") {
        return;
    }
    let Some(cell) = Cell::start("profile") else {
        return;
    };
    let mount = cell.mount();
    let point = mount.path().to_str().unwrap().to_owned();
    let before = profile(&point);
    let file = mount.join("file");
    for round in 0..50u8 {
        fs::write(&file, vec![round; 10_000]).unwrap();
    }
    fs::File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(&file).unwrap(), vec![49; 10_000]);
    let after = profile(&point);
    let grown = |stage: &str, kind: &str, name: &str| {
        let of = |profile: &Value| profile[stage][kind][name].as_u64().unwrap_or(0);
        of(&after) - of(&before)
    };
    assert_eq!(after["kind"], "mount");
    assert_eq!(grown("kernel", "WRITE", "count"), 50);
    let written = grown("kernel", "WRITE", "bytes");
    assert!((500_000..550_000).contains(&written), "{written}");
    assert_eq!(grown("kernel", "FSYNC", "count"), 1);
    assert!(grown("server", "Sync", "count") == 1 && grown("server", "Write", "count") >= 1);
    // The fsync waits for the disk at the server.
    let (here, there) = (
        grown("kernel", "FSYNC", "total_ns"),
        grown("server", "Sync", "total_ns"),
    );
    assert!(here >= there && there > 0, "{here} {there}");

    let server = profile(cell.addr());
    assert_eq!(server["kind"], "server");
    let answered = number(&server["clients"]["Sync"], "total_ns");
    assert!(0 < answered && answered <= number(&after["server"]["Sync"], "total_ns"));
    let bytes = number(&server["clients"]["Write"], "bytes");
    assert!(
        (10_000..500_000).contains(&bytes),
        "{bytes} of what was overwritten left"
    );
    for (profile, stages) in [
        (&after, ["kernel", "server"]),
        (&server, ["clients", "steps"]),
    ] {
        for stage in stages {
            for (kind, line) in profile[stage].as_object().unwrap() {
                assert_sound(stage, kind, line);
            }
        }
    }
    as_text(&point, "WRITE");
    as_text(cell.addr(), "Sync");
}

fn as_text(target: &str, kind: &str) {
    let output = run(&mut ariel(&[Path::new("profile"), Path::new(target)]));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with(kind));
    let words = line.map(|line| line.split_whitespace().count());
    assert_eq!(words, Some(9), "{said}");
}
