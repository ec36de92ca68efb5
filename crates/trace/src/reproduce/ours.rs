//! Our own algorithm beside N-chance forwarding, on all workloads, and what each of its parts is
//! good for; and figure 14, the snooped trace.

use super::lab::{Lab, SUBJECTS, Subject, ms, percent, speed_up};
use super::{Effort, Figure, Plot, Shape, Table, paper};
use crate::access::{Builder, Trace};
use crate::count::{Counts, Level, Prices};
use crate::snoop::Snoop;
use crate::workloads::{BLOCK_BYTES, Workload};
use logic::peers::{Parts, Policy};

const OURS: Subject = Subject::Policy(Policy::Fleet);
const NCHANCE: Subject = Subject::Policy(Policy::NChance);
const OFF: Subject = Subject::Policy(Policy::Off);

/// How much less something is, in percent.
fn less(before: f64, after: f64) -> String {
    format!("{:+.0} %", (after / before - 1.0) * 100.0)
}

pub(super) fn workloads(effort: Effort) -> Option<Figure> {
    let mut table = Table::new(&[
        "trace",
        "algorithm",
        "ms",
        "speed-up",
        "disk reads",
        "local misses",
        "server load",
        "messages",
        "blocks moved",
    ]);
    let mut labels = Vec::new();
    let mut values = Vec::new();
    for workload in Workload::ALL {
        if workload == Workload::Snooped && !effort.long {
            continue;
        }
        let lab = Lab::of(workload, effort.seed);
        let [off, nchance, ours] = [OFF, NCHANCE, OURS].map(|subject| lab.subject(subject));
        for (subject, counts) in [(OFF, &off), (NCHANCE, &nchance), (OURS, &ours)] {
            let times = speed_up(&off, counts, &Prices::PAPER);
            table.rows.push(vec![
                workload.word().to_owned(),
                subject.word().to_owned(),
                format!("{:.2}", ms(counts)),
                format!("{times:.2}"),
                percent(counts.share(Level::Disk)),
                percent(counts.local_misses()),
                counts.load.total().to_string(),
                counts.messages.to_string(),
                counts.moved.to_string(),
            ]);
        }
        table.rows.push(beside(workload, &nchance, &ours));
        labels.push(workload.word().to_owned());
        values.push(ms(&ours) / ms(&nchance) * 100.0);
    }
    Some(Figure {
        id: "ours",
        title: "Our own algorithm beside N-chance forwarding".to_owned(),
        text: Workload::ALL
            .map(|w| format!("`{}`: {}.", w.word(), w.text()))
            .to_vec(),
        table,
        plot: Some(Plot {
            x: "trace".to_owned(),
            y: "time of a read, % of that with N-chance".to_owned(),
            x_by_factors: false,
            shape: Shape::Bars {
                labels,
                parts: vec![("fleet".to_owned(), values)],
            },
        }),
    })
}

fn beside(workload: Workload, nchance: &Counts, ours: &Counts) -> Vec<String> {
    let of = |of: &dyn Fn(&Counts) -> f64| less(of(nchance), of(ours));
    vec![
        workload.word().to_owned(),
        "**fleet to n-chance**".to_owned(),
        of(&ms),
        String::new(),
        of(&|counts| counts.share(Level::Disk)),
        of(&Counts::local_misses),
        of(&|counts| counts.load.total() as f64),
        of(&|counts| counts.messages as f64),
        of(&|counts| counts.moved as f64),
    ]
}

/// Leaves a part out.
type LeaveOut = fn(&mut Parts);

/// Our algorithm with one of its parts left out.
const WITHOUT: [(&str, LeaveOut); 8] = [
    ("all parts", |_| ()),
    ("last copies are dropped, not placed", |parts| {
        parts.placed = false
    }),
    ("the server keeps what was used last", |parts| {
        parts.exclusive = false
    }),
    ("copies are as good as last copies", |parts| {
        (parts.copies_weigh, parts.others_weigh) = (16, 16);
    }),
    ("one weight of copies for all", |parts| {
        parts.others_weigh = parts.copies_weigh
    }),
    ("new blocks are not kept apart", |parts| parts.apart = false),
    ("new blocks go when their reader has no room", |parts| {
        parts.spread = false
    }),
    ("a second use by another client does not count", |parts| {
        parts.again = false
    }),
];

pub(super) fn parts(seed: u64) -> Figure {
    let mut table = Table::new(&[
        "trace",
        "left out",
        "ms",
        "change",
        "disk reads",
        "server load",
    ]);
    for workload in [
        Workload::Sprite,
        Workload::Scan,
        Workload::Build,
        Workload::Start,
        Workload::Train,
    ] {
        let lab = Lab::of(workload, seed);
        let mut whole = 0.0;
        for (name, leave_out) in WITHOUT {
            let mut options = OURS.options(lab.size);
            leave_out(&mut options.parts);
            let counts = lab.run(options);
            if name == WITHOUT[0].0 {
                whole = ms(&counts);
            }
            table.rows.push(vec![
                workload.word().to_owned(),
                name.to_owned(),
                format!("{:.2}", ms(&counts)),
                less(whole, ms(&counts)),
                percent(counts.share(Level::Disk)),
                counts.load.total().to_string(),
            ]);
        }
    }
    Figure {
        id: "parts",
        title: "What each part of our own algorithm is good for".to_owned(),
        text: vec!["The same traces, with one part left out or changed.".to_owned()],
        table,
        plot: None,
    }
}

/// The trace that a listener heard, and the share of reads that he did not hear.
fn heard(workload: Workload, seed: u64) -> (Trace, f64) {
    let mut builder = Builder::new(BLOCK_BYTES);
    let mut snoop = Snoop::new(workload.accesses(seed), workload.size().clients);
    for access in &mut snoop {
        builder
            .push(&access)
            .expect("workloads are smaller than the limits");
    }
    let (seen, hidden) = snoop.reads;
    (
        builder.finish(),
        hidden as f64 / (seen + hidden).max(1) as f64,
    )
}

/// A read, where this share of the reads was a local hit that was not heard.
fn with_hidden(counts: &Counts, hidden: f64) -> f64 {
    let local = Prices::PAPER.local_ns as f64;
    hidden * local + (1.0 - hidden) * counts.response_ns(&Prices::PAPER)
}

pub(super) fn snooped(seed: u64) -> Figure {
    let whole = Lab::of(Workload::Snooped, seed);
    let (trace, hidden) = heard(Workload::Snooped, seed);
    let warm = trace.len() / 5;
    let mut heard = Lab {
        trace,
        size: whole.size,
    };
    heard.size.warm = warm;
    let mut table = Table::new(&["algorithm"]);
    let shares = paper::SNOOPED.map(|(share, _)| format!("{:.0} % hidden", share * 100.0));
    table.head.extend(shares);
    table
        .head
        .extend(["paper, 80 % hidden", "the whole trace"].map(str::to_owned));
    let runs = SUBJECTS.map(|subject| (subject, heard.subject(subject), whole.subject(subject)));
    let (_, base_heard, base_whole) = &runs[0];
    let mut parts: Vec<(String, Vec<f64>)> = Vec::new();
    for (subject, counts, all) in &runs {
        let mut row = vec![subject.word().to_owned()];
        for (share, _) in paper::SNOOPED {
            let times = with_hidden(base_heard, share) / with_hidden(counts, share);
            row.push(format!("{times:.2}"));
        }
        row.push(if *subject == NCHANCE { "2.00" } else { "-" }.to_owned());
        row.push(format!("{:.2}", speed_up(base_whole, all, &Prices::PAPER)));
        table.rows.push(row);
    }
    let bar = |counts: &Counts| with_hidden(counts, 0.8) / 1e6;
    let labels = runs
        .iter()
        .map(|(subject, ..)| subject.word().to_owned())
        .collect();
    parts.push((
        "80 % hidden".to_owned(),
        runs.iter().map(|(_, counts, _)| bar(counts)).collect(),
    ));
    Figure {
        id: "figure-14",
        title: "Figure 14: the snooped trace".to_owned(),
        text: vec![
            format!(
                "{} accesses of {} clients were heard, {:.0} % of the reads were hits in small \
                 caches and were not. The paper assumes that 80 % were not (speed-up of N-chance \
                 forwarding 2.00; with 90 %: 1.67, with 70 %: 2.20).",
                heard.trace.len(),
                heard.trace.clients(),
                hidden * 100.0
            ),
            "The last column is what the paper could not have: the same algorithms on the trace \
             with nothing hidden. It shows how far the correction (stack deletion, and questions \
             for attributes as hints of hidden hits) can be trusted."
                .to_owned(),
        ],
        table,
        plot: Some(Plot {
            x: "algorithm".to_owned(),
            y: "ms a read".to_owned(),
            x_by_factors: false,
            shape: Shape::Bars { labels, parts },
        }),
    }
}
