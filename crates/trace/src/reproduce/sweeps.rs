//! Figures 8 to 13: one condition after the other is changed.

use super::lab::{Lab, Subject, mib, ms, percent, speed_up};
use super::{Figure, Plot, Shape, Table};
use crate::count::{Counts, Level, Prices};
use logic::peers::Policy;

/// The subjects of the sweeps over memory and the network.
const COMPARED: [Subject; 7] = [
    Subject::Policy(Policy::Off),
    Subject::Policy(Policy::Direct),
    Subject::Policy(Policy::Greedy),
    Subject::Policy(Policy::Central),
    Subject::Policy(Policy::NChance),
    Subject::Policy(Policy::Fleet),
    Subject::Best,
];

fn lines(x: &str, y: &str, by_factors: bool, lines: Vec<(String, Vec<(f64, f64)>)>) -> Plot {
    Plot {
        x: x.to_owned(),
        y: y.to_owned(),
        x_by_factors: by_factors,
        shape: Shape::Lines(lines),
    }
}

pub(super) fn direct(lab: &Lab) -> Figure {
    let base = lab.subject(Subject::Policy(Policy::Off));
    let mut table = Table::new(&["memory of the idle machine, MiB", "speed-up", "paper"]);
    let mut points = Vec::new();
    for memory in [2, 4, 8, 16, 32, 64, 128] {
        let mut options = Subject::Policy(Policy::Direct).options(lab.size);
        options.away_blocks = mib(memory);
        let times = speed_up(&base, &lab.run(options), &Prices::PAPER);
        let paper = match memory {
            4 => "below 1.01",
            16 => "1.05",
            64 => "about 1.40",
            _ => "-",
        };
        let row = [memory.to_string(), format!("{times:.3}"), paper.to_owned()];
        table.rows.push(row.to_vec());
        points.push((memory as f64, times));
    }
    Figure {
        id: "figure-8",
        title: "Figure 8: direct client cooperation by the memory that a client finds".to_owned(),
        text: Vec::new(),
        table,
        plot: Some(lines(
            "MiB of an idle machine",
            "speed-up",
            true,
            vec![("direct".to_owned(), points)],
        )),
    }
}

/// The times of a read at the disk, and elsewhere, as figures 9 and 10 divide them.
fn divided(counts: &Counts) -> (f64, f64) {
    let disk = (Prices::PAPER.disk_ns + 1_050_000) as f64 / 1e6 * counts.share(Level::Disk);
    (disk, ms(counts) - disk)
}

/// A sweep of one algorithm: its total, and the two parts.
fn one_algorithm(
    head: &str,
    runs: impl Iterator<Item = (f64, Counts, &'static str)>,
) -> (Table, Plot) {
    let mut table = Table::new(&[
        head,
        "ms",
        "disk, ms",
        "other, ms",
        "local misses",
        "disk reads",
    ]);
    table.head.push("paper".to_owned());
    let mut curves = ["total", "disk", "other"].map(|name| (name.to_owned(), Vec::new()));
    for (x, counts, paper) in runs {
        let (disk, other) = divided(&counts);
        let row = [
            x.to_string(),
            format!("{:.2}", disk + other),
            format!("{disk:.2}"),
            format!("{other:.2}"),
            percent(counts.local_misses()),
            percent(counts.share(Level::Disk)),
            paper.to_owned(),
        ];
        table.rows.push(row.to_vec());
        for (curve, y) in curves.iter_mut().zip([disk + other, disk, other]) {
            curve.1.push((x, y));
        }
    }
    let plot = lines(head, "ms a read", false, curves.to_vec());
    (table, plot)
}

pub(super) fn share(lab: &Lab) -> Figure {
    let runs = (0..=10).map(|tenth| {
        let mut options = Subject::Policy(Policy::Central).options(lab.size);
        options.managed_blocks = lab.size.client_blocks * tenth / 10;
        options.own_blocks = lab.size.client_blocks - options.managed_blocks;
        let paper = match tenth {
            0 => "2.75 (no cooperation)",
            4..=7 | 9 => "on the plateau",
            8 => "1.68, on the plateau",
            _ => "-",
        };
        (tenth as f64 * 10.0, lab.run(options), paper)
    });
    let (table, plot) = one_algorithm("centrally managed, %", runs);
    Figure {
        id: "figure-9",
        title: "Figure 9: central coordination by the share that the server manages".to_owned(),
        text: vec!["The paper sees a plateau from 40 % to 90 %.".to_owned()],
        table,
        plot: Some(plot),
    }
}

pub(super) fn chances(lab: &Lab) -> Figure {
    let runs = [0, 1, 2, 3, 5, 8].into_iter().map(|chances| {
        let mut options = Subject::Policy(Policy::NChance).options(lab.size);
        options.chances = chances;
        let paper = match chances {
            0 => "2.24 (greedy)",
            1 => "the largest step",
            2 => "1.59, a small step",
            _ => "little difference",
        };
        (f64::from(chances), lab.run(options), paper)
    });
    let (table, plot) = one_algorithm("chances", runs);
    Figure {
        id: "figure-10",
        title: "Figure 10: N-chance forwarding by the number of chances".to_owned(),
        text: Vec::new(),
        table,
        plot: Some(plot),
    }
}

pub(super) fn client_memory(lab: &Lab) -> Figure {
    let of = |memory: usize, subject: Subject| {
        let mut size = lab.size;
        size.client_blocks = mib(memory);
        lab.run(subject.options(size))
    };
    let (table, curves) = all_algorithms("client cache, MiB", &[4, 8, 16, 32, 64], of);
    Figure {
        id: "figure-11",
        title: "Figure 11: the memory of each client".to_owned(),
        text: vec![
            "The paper: the coordinated algorithms do well where caches are reasonably large, \
             little where they are small; greedy forwarding is fair over the whole range."
                .to_owned(),
        ],
        table,
        plot: Some(lines("MiB of each client", "ms a read", true, curves)),
    }
}

pub(super) fn server_memory(lab: &Lab) -> Figure {
    let of = |memory: usize, subject: Subject| {
        let mut size = lab.size;
        size.server_blocks = mib(memory);
        lab.run(subject.options(size))
    };
    let sizes = [16, 64, 128, 256, 512, 1024];
    let (table, curves) = all_algorithms("server cache, MiB", &sizes, of);
    Figure {
        id: "figure-12",
        title: "Figure 12: the memory of the server".to_owned(),
        text: vec![
            "The paper: more memory at the server helps most where nobody cooperates; when it is \
             as large as that of all clients, cooperation brings nothing, and central coordination \
             is then worse than the base for its local misses."
                .to_owned(),
        ],
        table,
        plot: Some(lines("MiB of the server", "ms a read", true, curves)),
    }
}

type Curves = Vec<(String, Vec<(f64, f64)>)>;

/// The time of a read by algorithm, and by what is changed.
fn all_algorithms(
    head: &str,
    values: &[usize],
    run: impl Fn(usize, Subject) -> Counts,
) -> (Table, Curves) {
    let mut table = Table::new(&[head]);
    table
        .head
        .extend(COMPARED.map(|subject| format!("{}, ms", subject.word())));
    let mut curves = COMPARED
        .map(|subject| (subject.word().to_owned(), Vec::new()))
        .to_vec();
    for value in values {
        let mut row = vec![value.to_string()];
        for (subject, curve) in COMPARED.into_iter().zip(&mut curves) {
            let time = ms(&run(*value, subject));
            row.push(format!("{time:.2}"));
            curve.1.push((*value as f64, time));
        }
        table.rows.push(row);
    }
    (table, curves)
}

/// The times for a block over the network of figure 13, in microseconds.
const NETWORK_US: [u64; 6] = [100, 200, 400, 800, 3000, 10_000];

pub(super) fn network(lab: &Lab) -> Figure {
    let runs = COMPARED.map(|subject| lab.subject(subject));
    let mut table = Table::new(&["request and block, us"]);
    table
        .head
        .extend(COMPARED.map(|subject| format!("{}, ms", subject.word())));
    table
        .head
        .extend(["best speed-up", "paper"].map(str::to_owned));
    let mut curves = COMPARED
        .map(|subject| (subject.word().to_owned(), Vec::new()))
        .to_vec();
    for us in NETWORK_US {
        // As in the paper, half of it is two messages, and half the block.
        let prices = Prices {
            hop_ns: us * 250,
            block_ns: us * 500,
            ..Prices::PAPER
        };
        let mut row = vec![us.to_string()];
        let mut best = 0.0_f64;
        for ((counts, curve), subject) in runs.iter().zip(&mut curves).zip(COMPARED) {
            let time = counts.response_ns(&prices) / 1e6;
            row.push(format!("{time:.2}"));
            curve.1.push((us as f64, time));
            if subject != Subject::Best && subject != Subject::Policy(Policy::Fleet) {
                best = best.max(speed_up(&runs[0], counts, &prices));
            }
        }
        row.push(format!("{best:.2}"));
        let paper = match us {
            800 => "1.73 (figure 4)",
            10_000 => "1.20 (Ethernet)",
            _ => "-",
        };
        row.push(paper.to_owned());
        table.rows.push(row);
    }
    Figure {
        id: "figure-13",
        title: "Figure 13: the speed of the network".to_owned(),
        text: vec!["The best speed-up is that of the paper's algorithms.".to_owned()],
        table,
        plot: Some(lines(
            "us for a request and a block",
            "ms a read",
            true,
            curves,
        )),
    }
}
