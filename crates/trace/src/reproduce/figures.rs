//! Figures 4 to 7: what the algorithms do under the paper's conditions.

use super::lab::{Lab, SUBJECTS, Subject, TODAY, given, ms, percent, speed_up};
use super::{Effort, Figure, Plot, Shape, Table, paper};
use crate::count::{Counts, Level, Prices};
use logic::peers::Policy;

/// The counts of each subject.
pub(super) struct Runs(Vec<(Subject, Counts)>);

impl Runs {
    pub(super) fn of(&self, subject: Subject) -> &Counts {
        let run = self.0.iter().find(|(other, _)| *other == subject);
        &run.expect("all subjects were run").1
    }

    fn base(&self) -> &Counts {
        self.of(Subject::Policy(Policy::Off))
    }

    fn labels(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(subject, _)| subject.word().to_owned())
            .collect()
    }

    /// The parts of a bar for each subject.
    fn parts(&self, of: impl Fn(&Counts, usize) -> f64, names: [&str; 4]) -> Shape {
        let part = |(at, name): (usize, &&str)| {
            let values = self.0.iter().map(|(_, counts)| of(counts, at)).collect();
            ((*name).to_owned(), values)
        };
        Shape::Bars {
            labels: self.labels(),
            parts: names.iter().enumerate().map(part).collect(),
        }
    }
}

fn words(level: usize) -> &'static str {
    Level::ALL[level].word()
}

pub(super) fn runs(lab: &Lab) -> Runs {
    Runs(
        SUBJECTS
            .map(|subject| (subject, lab.subject(subject)))
            .to_vec(),
    )
}

fn of_paper(subject: Subject) -> paper::Result {
    match subject {
        Subject::Policy(policy) => paper::sprite(policy).unwrap_or_default(),
        Subject::Best => paper::BEST,
    }
}

pub(super) fn introduction(lab: &Lab, effort: Effort) -> Vec<String> {
    let (trace, size) = (&lab.trace, lab.size);
    vec![
        "Made by `ariel reproduce cooperative`; do not edit. The paper is Dahlin, Wang, Anderson \
         and Patterson, *Cooperative Caching: Using Remote Client Memory to Improve File System \
         Performance*, 1994. The algorithms are those of `logic::peers`; the traces are made by \
         `crates/trace` from stated parameters ([traces](../traces.md)), since the originals are \
         not public."
            .to_owned(),
        format!(
            "The Sprite trace here: {} accesses of {} clients to {} blocks of 8 KiB in {} files, \
             the first {} to warm the caches; 16 MiB a client, 128 MiB at the server, seed {}. \
             Seven of its parameters were chosen so that six figures of the paper come out: local \
             misses with 16 MiB and with a fifth of that, disk reads without cooperation, and the \
             speed-ups of direct cooperation, greedy forwarding and the best case. All others are \
             predictions.",
            trace.len(),
            trace.clients(),
            trace.blocks(),
            trace.files(),
            size.warm,
            effort.seed
        ),
    ]
}

pub(super) fn response(runs: &Runs) -> Figure {
    let mut table = Table::new(&[
        "algorithm",
        "ms",
        "paper, ms",
        "speed-up",
        "paper",
        "difference",
        TODAY[0].0,
        TODAY[1].0,
    ]);
    for (subject, counts) in &runs.0 {
        let paper = of_paper(*subject);
        let measured = speed_up(runs.base(), counts, &Prices::PAPER);
        let difference = |paper: f64| format!("{:+.1} %", (measured / paper - 1.0) * 100.0);
        let mut row = vec![
            subject.word().to_owned(),
            format!("{:.2}", ms(counts)),
            given(paper.ms, |ms| format!("{ms:.2}")),
            format!("{measured:.2}"),
            given(paper.speed_up, |speed_up| format!("{speed_up:.2}")),
            given(paper.speed_up, difference),
        ];
        for (_, prices) in &TODAY {
            let times = speed_up(runs.base(), counts, prices);
            let us = counts.response_ns(prices) / 1e3;
            row.push(format!("{times:.2} ({us:.0} us)"));
        }
        table.rows.push(row);
    }
    let time = |counts: &Counts, level: usize| {
        let mut alone = counts.clone();
        alone.reads = [0; 4];
        alone.reads[level] = counts.reads[level];
        ms(&alone) * counts.share(Level::ALL[level])
    };
    Figure {
        id: "figure-4",
        title: "Figure 4: time of a read".to_owned(),
        text: vec![
            "`fleet` is ours; `best case` is the paper's unreal one. Of hash-distributed caching \
             and weighted LRU the paper only says which of the others they are like."
                .to_owned(),
            "With today's times a read from the disk costs about 200 times one from another \
             machine, with an SSD twice as much: cooperation is worth most where the server has \
             disks, and with an SSD `central` and `hash` lose most of it to their local misses."
                .to_owned(),
        ],
        table,
        plot: Some(Plot {
            x: "algorithm".to_owned(),
            y: "ms a read".to_owned(),
            x_by_factors: false,
            shape: runs.parts(time, [words(0), words(1), words(2), words(3)]),
        }),
    }
}

pub(super) fn levels(runs: &Runs) -> Figure {
    let head = ["algorithm", words(0), words(1), words(2), words(3)];
    let mut table = Table::new(&head);
    table
        .head
        .extend(["paper: disk", "paper: local misses"].map(str::to_owned));
    table.head.push("local misses".to_owned());
    for (subject, counts) in &runs.0 {
        let paper = of_paper(*subject);
        let mut row = vec![subject.word().to_owned()];
        row.extend(Level::ALL.map(|level| percent(counts.share(level))));
        row.push(given(paper.disk, percent));
        row.push(given(paper.local_misses, percent));
        row.push(percent(counts.local_misses()));
        table.rows.push(row);
    }
    let share = |counts: &Counts, at: usize| counts.share(Level::ALL[at + 1]) * 100.0;
    let mut shape = runs.parts(
        |counts, at| if at < 3 { share(counts, at) } else { 0.0 },
        [words(1), words(2), words(3), ""],
    );
    if let Shape::Bars { parts, .. } = &mut shape {
        parts.pop();
    }
    Figure {
        id: "figure-5",
        title: "Figure 5: where reads are answered".to_owned(),
        text: Vec::new(),
        table,
        plot: Some(Plot {
            x: "algorithm".to_owned(),
            y: "% of reads (local misses)".to_owned(),
            x_by_factors: false,
            shape,
        }),
    }
}

pub(super) fn load(runs: &Runs) -> Figure {
    let base = runs.base().load.total() as f64;
    let mut table = Table::new(&[
        "algorithm",
        "all",
        "server memory",
        "server disk",
        "forwarded",
        "other",
        "messages of all machines",
        "blocks moved unasked",
    ]);
    let of_base = |units: u64| units as f64 / base * 100.0;
    for (subject, counts) in &runs.0 {
        let load = counts.load;
        let parts = [
            load.total(),
            load.memory,
            load.disk,
            load.forwarded,
            load.other,
        ];
        let mut row = vec![subject.word().to_owned()];
        row.extend(parts.map(|units| format!("{:.0} %", of_base(units))));
        row.push(counts.messages.to_string());
        row.push(counts.moved.to_string());
        table.rows.push(row);
    }
    let part = |counts: &Counts, at: usize| {
        let load = counts.load;
        of_base([load.memory, load.disk, load.forwarded, load.other][at])
    };
    Figure {
        id: "figure-6",
        title: "Figure 6: load of the server, of that without cooperation".to_owned(),
        text: vec![
            "In units of the paper: a message 1, the bytes of a block 2, a transfer of the disk 2. \
             The paper gives no numbers; it says that most algorithms add little and that central \
             coordination adds some. Here the questions of N-chance forwarding (is this the last \
             copy?) and the blocks that the server of central coordination sends out count in \
             full, two and three units each; ours asks nothing."
                .to_owned(),
        ],
        table,
        plot: Some(Plot {
            x: "algorithm".to_owned(),
            y: "% of the load without cooperation".to_owned(),
            x_by_factors: false,
            shape: runs.parts(part, ["memory", "disk", "forwarded", "other"]),
        }),
    }
}

/// Clients with fewer reads say nothing.
const FEW_READS: u64 = 500;

pub(super) fn clients(runs: &Runs) -> Figure {
    let base = runs.base();
    let mut table = Table::new(&[
        "algorithm",
        "worst client",
        "median",
        "best",
        "slower",
        "paper",
    ]);
    let mut curves = Vec::new();
    for (subject, counts) in &runs.0 {
        let words = match subject {
            Subject::Policy(Policy::Off) | Subject::Best => continue,
            Subject::Policy(Policy::Direct) => "a few slower, up to 25 %",
            Subject::Policy(Policy::Central) => "one slower, by 19 %",
            Subject::Policy(Policy::Greedy | Policy::NChance) => "none slower",
            Subject::Policy(_) => "-",
        };
        let reads = |client: usize| counts.by_client[client].iter().sum::<u64>();
        let of = |client: usize| {
            let before = base.client_response_ns(client, &Prices::PAPER);
            before / counts.client_response_ns(client, &Prices::PAPER)
        };
        let busy = (0..counts.by_client.len()).filter(|client| reads(*client) >= FEW_READS);
        let points: Vec<_> = busy
            .map(|client| (reads(client) as f64, of(client)))
            .collect();
        let mut sorted: Vec<f64> = points.iter().map(|(_, times)| *times).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            sorted
                .get((part * sorted.len() as f64) as usize)
                .or(sorted.last())
        };
        let shown = |times: Option<&f64>| times.map_or("-".to_owned(), |t| format!("{t:.2}"));
        let slower = sorted.iter().filter(|times| **times < 0.99).count();
        table.rows.push(vec![
            subject.word().to_owned(),
            shown(sorted.first()),
            shown(at(0.5)),
            shown(sorted.last()),
            format!("{slower} of {}", sorted.len()),
            words.to_owned(),
        ]);
        curves.push((subject.word().to_owned(), points));
    }
    Figure {
        id: "figure-7",
        title: "Figure 7: speed-up of each client".to_owned(),
        text: vec![format!(
            "Clients with at least {FEW_READS} reads; slower: by more than 1 %."
        )],
        table,
        plot: Some(Plot {
            x: "reads of the client".to_owned(),
            y: "speed-up".to_owned(),
            x_by_factors: false,
            shape: Shape::Points(curves),
        }),
    }
}
