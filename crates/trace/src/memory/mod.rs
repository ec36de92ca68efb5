//! Chapter 6 of Nelson, and *Virtual Memory vs. The File System*: a file cache of fixed and of
//! variable size against the programs of the same machine. `docs/reproduction/memory.md` is what
//! comes out. The rule that divides the memory is that of `logic::memory`.

mod ecd;
mod ifs;
mod machine;
mod pools;
#[cfg(test)]
mod tests;

use crate::reproduce::{Effort, Figure, Plot, Report, Shape, Table};
use machine::{PAGE, SECOND};
use pools::Division;
use wire::Time;

const MIB: u64 = 1 << 20;
/// Memory of the machines of the ECD benchmark, and of that of the IFS benchmark.
const MEMORIES: [u64; 4] = [10, 12, 14, 16];
const IFS_MEMORY: u64 = 8;
/// Caches of a fixed size, in 64ths of a MiB.
const FIXED: [u64; 5] = [16, 32, 64, 128, 256];
const PENALTIES: [Time; 4] = [0, 60, 240, 960];
const SLEEPS: [Time; 4] = [1, 5, 10, 30];
const PENALTY: Time = 120;

/// Of responses the least, the most and the average; the time of Sort, and by how many % it is
/// slower.
type Responses = ([f64; 3], f64, u32);

/// Table 6-3: sleep; response without a penalty, least, most, average; Sort, and how much slower it
/// is, %; the same with one of 120 s.
const TABLE_6_3: [(Responses, Responses); 4] = [
    (([0.0, 4.7, 0.1], 79.6, 33), ([0.0, 0.4, 0.03], 74.8, 25)),
    (([0.0, 4.5, 0.8], 83.8, 40), ([0.0, 0.1, 0.02], 72.8, 21)),
    (([1.9, 13.3, 5.9], 103.4, 72), ([0.0, 0.1, 0.01], 72.1, 20)),
    (([12.5, 22.0, 15.8], 96.3, 61), ([0.0, 0.1, 0.03], 74.0, 23)),
];
/// Table 6-4: faults from swap, pages out, cache in KiB, least and most; without and with a
/// penalty.
const TABLE_6_4: [([u32; 4], [u32; 4]); 4] = [
    ([173, 456, 152, 784], [1, 4, 64, 178]),
    ([437, 509, 157, 842], [0, 0, 64, 168]),
    ([1605, 1177, 146, 1226], [0, 0, 64, 168]),
    ([1250, 983, 141, 2533], [0, 0, 64, 168]),
];

fn fixed(part: u64) -> Division {
    Division::Fixed((part * MIB / 64 / PAGE) as usize)
}

/// Makes all figures. `begins` learns what comes next.
pub fn memory(effort: Effort, begins: &mut dyn FnMut(&str)) -> Report {
    begins("fixed and variable sizes");
    let mut figures = sizes(effort.seed);
    begins("penalties");
    figures.extend([penalties(effort.seed), negotiation(effort.seed)]);
    begins("an interactive program beside Sort");
    figures.extend([responses(effort.seed), faults(effort.seed)]);
    Report {
        name: "memory",
        title: "The file cache against virtual memory, reproduced".to_owned(),
        text: introduction(),
        figures,
    }
}

fn introduction() -> Vec<String> {
    [
        "Made by `ariel reproduce memory`; do not edit. The papers are Nelson, *Physical Memory \
         Management in a Network Operating System*, 1988, chapter 6, and the same author's \
         *Virtual Memory vs. The File System*.",
        "A diskless Sun-3 is simulated: pages of 8 KiB, 1.3 MB of kernel, a page from or to the \
         server in 14 ms, of which the processor is busy for 4 ms more. The bytes of the ECD \
         benchmark (edit, compile, link, debug, twice) and all of the IFS benchmark are those of \
         the papers. Not in the papers, and chosen: how long each phase computes (20, 30, 50, 60 \
         s), that a program uses a half to 60 % of its pages at a time, from the first to the \
         last, and 1.5 MB for the window system. So the shapes are to be compared, and the \
         ratios, more than the seconds. Ages of pages are exact here; Sprite knew them from a \
         clock. The rule that says whose page goes is the one by which a mount's cache may \
         take what the kernel keeps for programs (`logic::memory::may_take`).",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn division_words(division: Division) -> String {
    match division {
        Division::Fixed(pages) => {
            let kib = (pages as u64 * PAGE) >> 10;
            format!("{:.2} MiB", kib as f64 / 1024.0)
        }
        Division::Varies(0) => "variable".to_owned(),
        Division::Varies(penalty) => format!("variable, penalty {} s", penalty / SECOND),
    }
}

fn plot(y: &str, lines: Vec<Line>) -> Option<Plot> {
    Some(Plot {
        x: "memory, MiB".to_owned(),
        y: y.to_owned(),
        x_by_factors: false,
        shape: Shape::Lines(lines),
    })
}

/// A line of a plot: its name, and points.
type Line = (String, Vec<(f64, f64)>);

/// Elapsed times and traffic by the size of memory, and of the cache.
fn sizes(seed: u64) -> Vec<Figure> {
    let divisions: Vec<Division> = FIXED
        .into_iter()
        .map(fixed)
        .chain([0, logic::memory::PENALTY_NS].map(Division::Varies))
        .collect();
    let names: Vec<String> = divisions
        .iter()
        .map(|division| division_words(*division))
        .collect();
    let mut head = vec!["memory, MiB"];
    head.extend(names.iter().map(String::as_str));
    let mut traffic = Table::new(&head);
    head.push("variable against the best fixed size");
    head.push("the same with the usual penalty");
    let mut elapsed = Table::new(&head);
    let mut lines: Vec<Line> = names.iter().map(|name| (name.clone(), vec![])).collect();
    let mut moved = lines.clone();
    for memory in MEMORIES {
        let runs: Vec<ecd::Run> = divisions
            .iter()
            .map(|division| ecd::run(memory * MIB, *division, seed))
            .collect();
        let (of_fixed_size, variable) = runs.split_at(FIXED.len());
        let best = of_fixed_size.iter().map(|run| run.elapsed);
        let best = best.reduce(f64::min);
        let best = best.expect("there are some");
        let mut row = vec![memory.to_string()];
        row.extend(runs.iter().map(|run| format!("{:.0} s", run.elapsed)));
        let against = |run: &ecd::Run| format!("{:+.1} %", (run.elapsed / best - 1.0) * 100.0);
        row.extend(variable.iter().map(against));
        elapsed.rows.push(row);
        let mut row = vec![memory.to_string()];
        let words = |run: &ecd::Run| format!("{:.0} + {:.0}", run.paged(), run.filed());
        row.extend(runs.iter().map(words));
        traffic.rows.push(row);
        for (at, run) in runs.iter().enumerate() {
            lines[at].1.push((memory as f64, run.elapsed));
            moved[at].1.push((memory as f64, run.paged() + run.filed()));
        }
    }
    vec![
        Figure {
            id: "figure-6-3",
            title: "Figure 6-3: ECD, time by memory and size of the cache".to_owned(),
            text: vec![
                "The paper: the smaller a cache of fixed size the better, since virtual memory \
                 needs its pages more; variable size is as good as the best fixed one or better."
                    .to_owned(),
            ],
            table: elapsed,
            plot: plot("seconds", lines),
        },
        Figure {
            id: "figure-6-4",
            title: "Figures 6-2 and 6-4: ECD, MiB moved for programs + for files".to_owned(),
            text: vec![
                "The paper: as a fixed cache grows, traffic of files falls a little, and that of \
                 virtual memory rises much more."
                    .to_owned(),
            ],
            table: traffic,
            plot: plot("MiB", moved),
        },
    ]
}

fn penalties(seed: u64) -> Figure {
    let head = [
        "memory, MiB",
        "penalty, s",
        "time, s",
        "MiB for programs",
        "MiB for files",
    ];
    let mut table = Table::new(&head);
    let mut lines = Vec::new();
    for penalty in PENALTIES {
        let mut points = Vec::new();
        for memory in MEMORIES {
            let run = ecd::run(memory * MIB, Division::Varies(penalty * SECOND), seed);
            points.push((memory as f64, run.elapsed));
            table.rows.push(vec![
                memory.to_string(),
                penalty.to_string(),
                format!("{:.0}", run.elapsed),
                format!("{:.1}", run.paged()),
                format!("{:.1}", run.filed()),
            ]);
        }
        lines.push((format!("{penalty} s"), points));
    }
    Figure {
        id: "figure-6-5",
        title: "Figures 6-5 and 6-6: ECD by penalty".to_owned(),
        text: vec![
            "The paper: the penalty changes the time little; what virtual memory gains the file \
             system loses."
                .to_owned(),
        ],
        table,
        plot: Some(Plot {
            x: "memory, MiB".to_owned(),
            y: "seconds".to_owned(),
            x_by_factors: false,
            shape: Shape::Lines(lines),
        }),
    }
}

fn negotiation(seed: u64) -> Figure {
    let mut table = Table::new(&[
        "memory, MiB",
        "least cache, MiB",
        "most",
        "files asked programs",
        "got",
        "programs asked files",
        "got",
    ]);
    for memory in MEMORIES {
        let counts = ecd::run(memory * MIB, Division::Varies(0), seed).counts;
        let mib = |pages: usize| format!("{:.2}", (pages as u64 * PAGE) as f64 / MIB as f64);
        table.rows.push(vec![
            memory.to_string(),
            mib(counts.least),
            mib(counts.most),
            counts.files_asked.to_string(),
            counts.files_got.to_string(),
            counts.programs_asked.to_string(),
            counts.programs_got.to_string(),
        ]);
    }
    Figure {
        id: "table-6-2",
        title: "Table 6-2: ECD, how the pools negotiate".to_owned(),
        text: vec![
            "The paper: from 0.25 MB up to over half of the memory; files get little of what they \
             ask for, and programs the more the more memory there is."
                .to_owned(),
        ],
        table,
        plot: None,
    }
}

fn ifs_run(penalty: Time, sleep: Time, seed: u64) -> ifs::Run {
    let division = Division::Varies(penalty * SECOND);
    ifs::run(IFS_MEMORY * MIB, division, sleep * SECOND, false, seed)
}

/// Sort alone on the machine, s.
fn sort_alone(seed: u64) -> f64 {
    ifs::run(IFS_MEMORY * MIB, Division::Varies(0), SECOND, true, seed).sort
}

fn responses(seed: u64) -> Figure {
    let mut table = Table::new(&[
        "sleep, s",
        "penalty, s",
        "response, s: least, most, average",
        "paper",
        "Sort, s",
        "slower",
        "paper",
    ]);
    let alone = sort_alone(seed);
    let mut lines = [0, PENALTY].map(|penalty| (format!("penalty {penalty} s"), Vec::new()));
    for (at, sleep) in SLEEPS.into_iter().enumerate() {
        let papers: [Responses; 2] = TABLE_6_3[at].into();
        for (side, penalty) in [0, PENALTY].into_iter().enumerate() {
            let run = ifs_run(penalty, sleep, seed);
            let ([least, most, average], sort, slower) = papers[side];
            table.rows.push(vec![
                sleep.to_string(),
                penalty.to_string(),
                format!(
                    "{:.2}, {:.2}, {:.2}",
                    run.least(),
                    run.most(),
                    run.average()
                ),
                format!("{least}, {most}, {average}"),
                format!("{:.1}", run.sort),
                format!("{:.0} %", (run.sort / alone - 1.0) * 100.0),
                format!("{sort} s, {slower} %"),
            ]);
            lines[side].1.push((sleep as f64, run.average()));
        }
    }
    Figure {
        id: "table-6-3",
        title: "Table 6-3: IFS, response times and Sort".to_owned(),
        text: vec![
            format!(
                "Sort alone takes {alone:.1} s here, 60 s in the paper. The average response, by \
                 how long the program sleeps, is plotted."
            ),
            "The differences, and their causes: with exact ages the program's pages form a queue \
             in the order of their use. When Sort has taken the first, each page that is fetched \
             pushes out the one that is used next, so that all are fetched, however few Sort \
             wanted: the response is the same from 5 s on. Sprite's clock knew the order of its \
             passes only, and spared some. Half of the pages are fetched, the changed ones: the \
             others are zeros, which cost nothing here. Sort loses less, since a fault costs the \
             processor 4 ms here, as against what a Sun-3 needed."
                .to_owned(),
        ],
        table,
        plot: Some(Plot {
            x: "seconds of sleep".to_owned(),
            y: "seconds until it has answered".to_owned(),
            x_by_factors: true,
            shape: Shape::Lines(lines.to_vec()),
        }),
    }
}

fn faults(seed: u64) -> Figure {
    let mut table = Table::new(&[
        "sleep, s",
        "penalty, s",
        "pages from swap",
        "pages out",
        "cache, KiB: least, most",
        "paper: from swap, out, cache",
    ]);
    for (at, sleep) in SLEEPS.into_iter().enumerate() {
        let papers = [TABLE_6_4[at].0, TABLE_6_4[at].1];
        for (side, penalty) in [0, PENALTY].into_iter().enumerate() {
            let counts = ifs_run(penalty, sleep, seed).counts;
            let kib = |pages: usize| (pages as u64 * PAGE) >> 10;
            let [swap, out, least, most] = papers[side];
            table.rows.push(vec![
                sleep.to_string(),
                penalty.to_string(),
                counts.swap_ins.to_string(),
                counts.page_outs.to_string(),
                format!("{}, {}", kib(counts.least), kib(counts.most)),
                format!("{swap}, {out}, {least} to {most}"),
            ]);
        }
    }
    Figure {
        id: "table-6-4",
        title: "Table 6-4: IFS, pages and the size of the cache".to_owned(),
        text: Vec::new(),
        table,
        plot: None,
    }
}
