//! Rules for each source file: sizes, how it begins, what it may name.

use super::source::{Line, Source, sources};
use super::{no_complaints, shown};
use std::collections::BTreeSet;

const COLUMNS: usize = 100;
const FILE_LINES: usize = 500;
const FILE_LINES_WITH_TESTS: usize = 800;
const FUNCTION_LINES: usize = 70;

/// Complains of each line of which the rule says so.
fn lines(rule: &str, wrong: impl Fn(&Source, &Line) -> bool) {
    let mut complaints = Vec::new();
    for source in sources() {
        for (at, line) in source.lines.iter().enumerate() {
            if wrong(source, line) {
                let text = line.text.trim();
                complaints.push(format!("{}:{}: {text}", shown(&source.path), at + 1));
            }
        }
    }
    no_complaints(rule, complaints);
}

#[test]
fn lines_fit() {
    lines("longer than 100 columns", |_, line| {
        line.text.chars().count() > COLUMNS
    });
    lines("space at the end, or a tab", |_, line| {
        line.text.ends_with(' ') || (line.text.contains('\t') && line.code.contains('\t'))
    });
}

#[test]
fn files_and_functions_fit() {
    let mut complaints = Vec::new();
    for source in sources() {
        let name = shown(&source.path);
        let all = source.lines.len();
        let code = source.lines.iter().filter(|line| !line.is_test).count();
        if all > FILE_LINES_WITH_TESTS {
            complaints.push(format!(
                "{name}: {all} lines, {FILE_LINES_WITH_TESTS} with tests"
            ));
        }
        if code > FILE_LINES && !source.is_test_file() {
            complaints.push(format!(
                "{name}: {code} lines without tests, at most {FILE_LINES}"
            ));
        }
        for function in source.functions() {
            let (line, length) = (function.line, function.length);
            if length > FUNCTION_LINES {
                let what = format!("{name}:{line}: fn {} has {length} lines", function.name);
                complaints.push(format!("{what}, at most {FUNCTION_LINES}"));
            }
        }
    }
    no_complaints("too long", complaints);
}

#[test]
fn each_file_begins_with_what_it_is_for() {
    let mut complaints = Vec::new();
    for source in sources() {
        let first = source.lines.first().map_or("", |line| line.text.as_str());
        if !first.starts_with("//! ") {
            complaints.push(shown(&source.path));
        }
    }
    no_complaints("the first line is no `//!` comment", complaints);
}

/// Crates that the kernel or a C program calls, or that share memory with one.
const KERNEL_BOUNDARY: [&str; 4] = ["fuse", "segment", "preload", "blocks"];

#[test]
fn unsafe_is_for_the_kernel_boundary_only() {
    let mut complaints = Vec::new();
    for source in sources() {
        let (of, below) = (source.crate_name().unwrap(), source.below_crate().unwrap());
        let of_kernel = KERNEL_BOUNDARY.contains(&of);
        let in_tests = below.starts_with("tests/") && below.matches('/').count() == 1;
        let entry = below == "src/lib.rs" || below == "src/main.rs" || in_tests;
        let entry = entry || (below.starts_with("tests/") && below.ends_with("/main.rs"));
        let forbids = |line: &Line| line.code.trim() == "#![forbid(unsafe_code)]";
        if entry && !of_kernel && !source.lines.iter().any(forbids) {
            complaints.push(format!(
                "{}: no #![forbid(unsafe_code)]",
                shown(&source.path)
            ));
        }
        for (at, line) in source.lines.iter().enumerate() {
            let words: Vec<&str> = line.code.split(|c: char| !is_word(c)).collect();
            if words.contains(&"unsafe") && !of_kernel {
                complaints.push(format!("{}:{}: unsafe", shown(&source.path), at + 1));
            }
        }
    }
    no_complaints(
        "unsafe belongs into the crates at the kernel's boundary",
        complaints,
    );
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Crates whose sources may not look at a clock or at randomness, but for one file each of `net`.
/// `cli` is the program's edge: it sets limits for people's commands.
fn is_pure(source: &Source) -> bool {
    source.crate_name().is_some_and(|name| name != "cli") && !source.is_test_file()
}

fn is(source: &Source, of: &str, below: &str) -> bool {
    source.crate_name() == Some(of) && source.below_crate() == Some(below)
}

#[test]
fn one_file_reads_the_clock() {
    let words = [
        "Instant::now",
        "SystemTime::now",
        "UNIX_EPOCH",
        "clock_gettime",
    ];
    lines(
        "the clock is read in net/src/clock.rs only",
        |source, line| {
            let reads = words.iter().any(|word| line.code.contains(word));
            let clock = is(source, "net", "src/clock.rs");
            // How long the kernel keeps a notification or a mount is no decision of the file
            // system's, and fuse may not use net: it measures its own waits for the kernel.
            let below = source.below_crate().unwrap();
            let notify = below == "src/notify.rs" || below.starts_with("src/notify/");
            let table = below == "src/mount/table.rs";
            let waits = source.crate_name() == Some("fuse") && (notify || table);
            // The times of files that the library gives to programs count from 1970 on; it still
            // may not read the clock.
            let times = is(source, "files", "src/attrs.rs") && !line.code.contains("now");
            reads && !line.is_test && is_pure(source) && !clock && !waits && !times
        },
    );
}

#[test]
fn only_a_server_asks_for_the_time_of_day() {
    lines(
        "the time of day is asked for by the server alone: clients go by what it says",
        |source, line| {
            let reads = line.code.contains("wall_ns");
            let server = source.crate_name() == Some("server");
            // Until when certificates count is a time of day; no client's file goes by it.
            let cell = source.crate_name() == Some("cell");
            let clock = is(source, "net", "src/clock.rs");
            reads && is_pure(source) && !server && !cell && !clock
        },
    );
}

#[test]
fn one_file_reads_randomness() {
    let words = [
        "getrandom",
        "/dev/urandom",
        "RandomState",
        "thread_rng",
        "rand::",
    ];
    lines(
        "randomness is read in net/src/entropy.rs only",
        |source, line| {
            // Strings are blanked in `code`; the device's name would be in one.
            let device = line.text.contains(words[1]) && !line.text.trim().starts_with("//");
            let reads = device || words.iter().any(|word| line.code.contains(word));
            reads && !line.is_test && is_pure(source) && !is(source, "net", "src/entropy.rs")
        },
    );
}

#[test]
fn error_numbers_have_one_file_for_each_front() {
    // Only names that cannot be anything else; `Errno` itself is what system calls return, and the
    // crates that make system calls may look at it.
    let names = [
        "ENOENT",
        "EEXIST",
        "ENOTEMPTY",
        "EISDIR",
        "ENOTDIR",
        "ESTALE",
        "ENAMETOOLONG",
    ];
    lines(
        "error numbers are chosen in fuse/src/**/errno.rs only",
        |source, line| {
            let below = source.below_crate().unwrap();
            let pure = ["wire", "logic", "server", "client", "sim"];
            let judged = source.crate_name().is_some_and(|name| pure.contains(&name));
            let named = line
                .code
                .split(|c| !is_word(c))
                .any(|word| names.contains(&word));
            named
                && judged
                && !line.is_test
                && !source.is_test_file()
                && !below.ends_with("errno.rs")
        },
    );
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled in parts, so that this file does not complain of itself.
    let later = [
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("TO", "DO"),
    ];
    let has_later = |text: &str| {
        text.split(|c| !is_word(c))
            .any(|word| later.contains(&word))
    };
    lines("marks of what is missing", |_, line| has_later(&line.text));
    let macros = [
        concat!("to", "do!"),
        concat!("unimpl", "emented!"),
        concat!("db", "g!"),
    ];
    lines("stubs", |_, line| {
        macros.iter().any(|word| line.code.contains(word))
    });
    let ignored = concat!("#[ign", "ore");
    lines("tests that nobody runs", |_, line| {
        line.code.contains(ignored)
    });
}

/// The modules that a line declares, and those that it names by the path of their file.
fn modules(line: &Line) -> Vec<&str> {
    let declared = line.code.split("mod ").skip(1).filter_map(|rest| {
        let end = rest.find(|c| !is_word(c))?;
        let (name, after) = rest.split_at(end);
        (after.trim_end() == ";" || after.starts_with(" {")).then_some(name)
    });
    let before = line.text.split(".rs\"");
    let paths = before.map(|path| path.rsplit(['/', '"']).next().unwrap());
    let paths = paths.take(line.text.matches(".rs\"").count());
    declared.chain(paths).collect()
}

#[test]
fn every_file_belongs_to_its_crate() {
    // A module that is in no `mod` is never compiled, and rots.
    let all = sources();
    let of_crate = |source: &'static Source| {
        let lines = source.lines.iter().flat_map(modules);
        lines.map(|name| (source.crate_name(), name))
    };
    let known: BTreeSet<_> = all.iter().flat_map(of_crate).collect();
    let mut complaints = Vec::new();
    for source in all {
        let below = source.below_crate().unwrap();
        let entry = ["src/lib.rs", "src/main.rs", "build.rs"].contains(&below);
        let direct = !below.starts_with("src/") && below.matches('/').count() == 1;
        let name = match below.strip_suffix("/mod.rs") {
            Some(folder) => folder.rsplit('/').next().unwrap(),
            None => below.rsplit('/').next().unwrap().trim_end_matches(".rs"),
        };
        if entry || direct || name == "main" {
            continue;
        }
        if !known.contains(&(source.crate_name(), name)) {
            complaints.push(shown(&source.path));
        }
    }
    no_complaints("no `mod` names this file", complaints);
}

#[test]
fn modules_of_a_line_are_found() {
    let text =
        "pub(crate) mod one;\nmod two {\n#[path = \"../x/three.rs\"]\nmod four\n// mod five;\n";
    let source = Source::parse(std::path::Path::new("x.rs"), text);
    let found: Vec<&str> = source.lines.iter().flat_map(modules).collect();
    assert_eq!(found, ["one", "two", "three"]);
}
