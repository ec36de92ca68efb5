//! `ariel reproduce`: the experiments of the papers, on this machine, beside the papers' figures.
//!
//! Nelson, chapter 7. *Raw* (table 7-1): a segment is forked and the child deleted, by size, kind
//! and whether its pages are in frames or in the backing store. *Programs* (tables 7-3 and 7-4):
//! programs that fork run as under `ariel run`, and the pager counts what their forks share and
//! copy.

mod cooperative;

use crate::args::{Experiment, ReproduceArgs};
use crate::failure::Failure;
use crate::{log, run, show};
use segment::{Connection, Fork, LocalStore, PAGE, Pager, PagerOptions, Segment};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// KiB of a segment; the paper's figures in ms: COW-COR in memory and on backing store, copy at the
/// fork in memory and on backing store.
const TABLE_7_1: [(u64, Option<[f64; 4]>); 9] = [
    (0, Some([22.8, 22.8, 22.5, 22.4])),
    (64, Some([24.7, 24.0, 59.7, 171.7])),
    (128, Some([25.8, 24.3, 79.6, 265.0])),
    (256, Some([28.0, 24.6, 119.4, 457.6])),
    (512, Some([32.3, 25.3, 199.0, 850.8])),
    (1024, Some([41.1, 26.8, 358.6, 1635.1])),
    (2048, Some([58.7, 29.7, 677.2, 3209.0])),
    (32 << 10, None),
    (256 << 10, None),
];
/// The kinds that are measured raw.
const KINDS: [(Fork, &str); 4] = [
    (Fork::CowCor, "COW-COR"),
    (Fork::OnWrite, "copy-on-write"),
    (Fork::OnReference, "copy-on-reference"),
    (Fork::Copy, "copy at fork"),
];
/// The columns of each kind: fork and deletion, and the fork alone.
const PLACES: [&str; 4] = [
    "resident",
    "resident, fork alone",
    "stored",
    "stored, fork alone",
];
/// Each figure is the median of so many.
const ROUNDS: usize = 9;
/// Tables 7-3 and 7-4, in %: COW faults, COR faults, part of all faults, copies saved, COR pages
/// modified, faults of pure copy-on-write.
const PAPER: [(&str, [u32; 6]); 4] = [
    ("Andrew", [1, 71, 26, 28, 93, 67]),
    ("ECD", [5, 72, 15, 22, 81, 63]),
    ("User-A", [8, 63, 30, 28, 79, 58]),
    ("User-B", [6, 66, 23, 27, 90, 65]),
];

/// Programs that fork with data: workers that read a table and write results; a server that saves
/// its table from a child while it changes it; children that end at once.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "workers",
        "import os
t = bytearray(16 << 20)
for i in range(0, len(t), 4096): t[i] = 1
for w in range(4):
    if os.fork() == 0:
        part = len(t) // 4
        for i in range(w * part, (w + 1) * part, 4096): t[i] += t[i] + 1
        os._exit(0)
for w in range(4): os.wait()",
    ),
    (
        "snapshot",
        "import os
t = bytearray(16 << 20)
for i in range(0, len(t), 4096): t[i] = 1
if os.fork() == 0:
    with open('/dev/null', 'wb') as f: f.write(t)
    os._exit(0)
for i in range(0, len(t) // 4, 4096): t[i] = 2
os.wait()",
    ),
    (
        "ends at once",
        "import os
t = bytearray(16 << 20)
for i in range(0, len(t), 4096): t[i] = 1
for n in range(4):
    if os.fork() == 0: os._exit(0)
    os.wait()
    t[n] = 3",
    ),
];

pub(crate) fn reproduce(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    log::to_stderr("warn");
    if args.list {
        show::print(cooperative::list().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    if args.experiment == Some(Experiment::Cooperative) {
        return cooperative::report(args, trace::cooperative);
    }
    if args.experiment == Some(Experiment::Memory) {
        return cooperative::report(args, trace::memory);
    }
    let failed = |error: segment::Error| Failure::of("reproduce", error);
    let raw = raw(&args.local).map_err(failed)?;
    let programs = PROGRAMS.iter().map(|program| measure(&args.local, program));
    let programs: Vec<Value> = programs.collect::<Result<_, _>>()?;
    let found = json!({ "raw_ms": raw, "programs": programs });
    if args.json {
        show::print(&format!("{found:#}"));
    } else {
        show::print(&text(&found));
    }
    Ok(ExitCode::SUCCESS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Table 7-1.
fn raw(dir: &Path) -> Result<Vec<Value>, segment::Error> {
    let pager = Pager::start(LocalStore::new(dir), u32::MAX)?;
    let connection = Connection::of(&pager)?;
    let mut lines = Vec::new();
    for (kib, paper) in TABLE_7_1 {
        let bytes = (kib << 10).max(PAGE as u64);
        let mut line = json!({ "kib": kib });
        for (kind, name) in KINDS {
            for stored in [false, true] {
                let mut parent = connection.make(bytes, 0)?;
                for page in parent.bytes_mut()[..(kib << 10) as usize].chunks_mut(PAGE) {
                    page[0] = 1;
                }
                let (mut took, mut forked) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    if stored {
                        push_out(&mut parent)?;
                    }
                    let begin = Instant::now();
                    let child = parent.fork(kind, 0)?;
                    forked.push(begin.elapsed().as_secs_f64() * 1e3);
                    drop(child);
                    took.push(begin.elapsed().as_secs_f64() * 1e3);
                    if !stored {
                        // The next fork finds the pages as a running program would leave them.
                        parent
                            .bytes_mut()
                            .chunks_mut(PAGE)
                            .for_each(|page| page[1] = 1);
                    }
                }
                let place = if stored { "stored" } else { "resident" };
                line[name][place] = json!(median(took));
                line[name][format!("{place}, fork alone")] = json!(median(forked));
            }
        }
        if let Some(paper) = paper {
            line["paper"] = json!(paper);
        }
        lines.push(line);
    }
    Ok(lines)
}

/// All pages but the last few go to the backing store: the limit is lowered until they have.
fn push_out(segment: &mut Segment) -> Result<(), segment::Error> {
    const FEW: u64 = 16;
    segment.set_limit(FEW)?;
    // The limit is looked at with every input; each of these is one. Bounded: every second read
    // gives up a page at least.
    for _ in 0..10_000 {
        if segment.figures()?.frames <= FEW {
            break;
        }
        std::thread::yield_now();
        segment.set_limit(FEW)?;
    }
    segment.set_limit(0)
}

/// A line of tables 7-3 and 7-4.
fn measure(dir: &Path, (name, script): &(&str, &str)) -> Result<Value, Failure> {
    let failed = |error: segment::Error| Failure::of("reproduce", error);
    let options = PagerOptions {
        count_writes: true,
        ..PagerOptions::default()
    };
    let pager = Pager::start_with(LocalStore::new(dir), options).map_err(failed)?;
    let path = crate::runtime::dir()?.join(format!("reproduce-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    pager.listen(&path).map_err(failed)?;
    let status = Command::new("python3")
        .args(["-c", script])
        .env("LD_PRELOAD", run::library("reproduce")?)
        .env("ARIEL_PAGER", &path)
        .stdin(Stdio::null())
        .status();
    let _ = std::fs::remove_file(&path);
    let status =
        status.map_err(|error| Failure::of("reproduce", format_args!("python3: {error}")))?;
    if !status.success() {
        let text = format_args!("the program {name} ended with {status}");
        return Err(Failure::of("reproduce", text));
    }
    pager.wait_unused();
    let counters = Connection::of(&pager).and_then(|connection| connection.counters());
    let counters = counters.map_err(failed)?;
    let of = |wanted: &str| {
        let found = counters.iter().find(|(name, _)| *name == wanted);
        found.map_or(0, |(_, count)| *count)
    };
    let (cow, cor) = (of("marked copy-on-write"), of("marked copy-on-reference"));
    let (gave, took) = (of("copy-on-write faults"), of("copy-on-reference faults"));
    let written = of("copied and written");
    let percent = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    // As the paper counts: a fault of a master copies as one of a slave does.
    let row = [
        percent(gave, cow),
        percent(took, cor),
        percent(gave + took, of("faults")),
        100_u64.saturating_sub(percent(of("copies"), cor)),
        percent(written, took),
        percent(gave, cow) + percent(written, cor),
    ];
    Ok(json!({ "name": name, "cow_pages": cow, "cor_pages": cor, "percent": row }))
}

fn text(found: &Value) -> String {
    let mut text = String::from(
        "Fork and deletion, ms (median of 9); in brackets: Nelson, table 7-1 (fork, exit and wait \
         of a process on a Sun-3/75)\n     KiB",
    );
    for (_, name) in KINDS {
        text += &format!("  {name:>40}");
    }
    text += "\n        ";
    for _ in KINDS {
        text += "    resident    (fork)     stored    (fork)";
    }
    for line in found["raw_ms"].as_array().into_iter().flatten() {
        text += &format!("\n{:8}", line["kib"].as_u64().unwrap_or(0));
        for (_, name) in KINDS {
            for place in PLACES {
                text += &format!(" {:10.3}", line[name][place].as_f64().unwrap_or(0.0));
            }
        }
        if let Some(paper) = line["paper"].as_array() {
            let paper: Vec<String> = paper.iter().map(Value::to_string).collect();
            text += &format!("  [{}]", paper.join(" "));
        }
    }
    text += "\n\nProgram          COW pages  COR pages  COW %  COR %  of all %  saved %  \
             COR written %  pure COW %";
    let row = |name: &str, pages: [String; 2], row: &[u64]| {
        let mut line = format!("\n{name:15} {:>10} {:>10}", pages[0], pages[1]);
        for (value, width) in row.iter().zip([7, 7, 10, 9, 15, 12]) {
            line += &format!("{value:>width$}");
        }
        line
    };
    for program in found["programs"].as_array().into_iter().flatten() {
        let numbers = program["percent"].as_array().into_iter().flatten();
        let numbers: Vec<u64> = numbers.filter_map(Value::as_u64).collect();
        let pages = [&program["cow_pages"], &program["cor_pages"]].map(Value::to_string);
        text += &row(program["name"].as_str().unwrap_or(""), pages, &numbers);
    }
    for (name, figures) in PAPER {
        let name = format!("[{name}]");
        text += &row(
            &name,
            [String::new(), String::new()],
            &figures.map(u64::from),
        );
    }
    text
}
