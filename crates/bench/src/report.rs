//! The figures of a run, for people and for programs.

use crate::measure::{Line, Wish};
use serde::Serialize;
use std::fmt::Write;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name, as for `--only`.
    pub name: &'static str,
    /// The measure, in words.
    pub what: &'static str,
    /// Unit of `local` and `mount`.
    pub unit: &'static str,
    /// Is more of it better?
    pub rises: bool,
    /// The kind of the wishes: `ratio`, `value`, or `value or local`.
    pub wish: &'static str,
    /// The least that it should be; the most, where less is better.
    pub least: f64,
    /// The aim.
    pub aim: f64,
    /// Each round's figure of the local directory; empty: it has none.
    pub local: Vec<f64>,
    /// Each round's figure of the mount.
    pub mount: Vec<f64>,
}

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// How often each measure was taken.
    pub rounds: u32,
    /// The mount is compared with another mount in place of the local directory, which is called
    /// so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<&'static str>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Measures that were not taken, and why.
    pub not_taken: Vec<(String, String)>,
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

impl Figure {
    pub(crate) fn new(line: &Line) -> Self {
        let (wish, least, aim) = match line.wish {
            Wish::Ratio(least, aim) => ("ratio", least, aim),
            Wish::Value(least, aim) => ("value", least, aim),
            Wish::ValueOrLocal(least, aim) => ("value or local", least, aim),
        };
        Self {
            name: line.name,
            what: line.what,
            unit: line.unit.name(),
            rises: line.unit.rises(),
            wish,
            least,
            aim,
            local: Vec::new(),
            mount: Vec::new(),
        }
    }

    /// The ratio of the mount's figure to the local one: the median of the rounds.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        median(&ratios(&self.mount, &self.local))
    }

    /// Does it come up to this wish?
    fn reaches(&self, wish: f64) -> bool {
        let reaches = |figure: f64, wish: f64| match self.rises {
            true => figure >= wish,
            false => figure <= wish,
        };
        let value = median(&self.mount).is_some_and(|value| reaches(value, wish));
        let ratio = |wish| self.ratio().is_some_and(|ratio| reaches(ratio, wish));
        match self.wish {
            "ratio" => ratio(wish),
            "value" => value,
            _ => value || ratio(1.0),
        }
    }

    /// Is it as good as it must be?
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.reaches(self.least)
    }

    fn verdict(&self) -> &'static str {
        match (self.reaches(self.aim), self.is_met()) {
            (true, _) => "aim",
            (false, true) => "ok",
            (false, false) => "BELOW",
        }
    }
}

/// A figure in four digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        big if big >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Report {
    /// Adds the figures of a later round.
    pub fn add(&mut self, round: Report) {
        self.rounds += round.rounds;
        for figure in round.figures {
            match self.figures.iter_mut().find(|it| it.name == figure.name) {
                Some(known) => {
                    known.local.extend(figure.local);
                    known.mount.extend(figure.mount);
                }
                None => self.figures.push(figure),
            }
        }
        self.not_taken = round.not_taken;
    }

    /// The same mount beside another one, of which the same was measured in turn. Each of these
    /// measures should have such a ratio, at least, or of times at most.
    #[must_use]
    pub fn beside(self, other: Report, called: &'static str, wishes: &[(&str, f64)]) -> Report {
        let one = |figure: Figure| {
            let of = other.figures.iter().find(|it| it.name == figure.name)?;
            let (_, wished) = wishes.iter().find(|(name, _)| *name == figure.name)?;
            Some(Figure {
                local: of.mount.clone(),
                wish: "ratio",
                least: *wished,
                aim: *wished,
                ..figure
            })
        };
        Report {
            rounds: self.rounds,
            beside: Some(called),
            figures: self.figures.into_iter().filter_map(one).collect(),
            not_taken: self.not_taken,
        }
    }

    /// Are all figures as good as they must be?
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.not_taken.is_empty() && self.figures.iter().all(Figure::is_met)
    }

    /// Everything, the raw figures with it.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data can be written as JSON")
    }

    /// A table, with the medians.
    #[must_use]
    pub fn text(&self) -> String {
        let other = self.beside.unwrap_or("local");
        let mut out = format!(
            "{:<44} {:>5} {:>10} {:>10} {:>6} {:>15} {:>8} {:>8}\n",
            "", "unit", other, "mount", "ratio", "of the rounds", "least", "aim"
        );
        for figure in &self.figures {
            let cell = |value: Option<f64>| value.map_or("-".to_owned(), short);
            let rounds = spread(figure).unwrap_or_default();
            let _ = writeln!(
                out,
                "{:<44} {:>5} {:>10} {:>10} {:>6} {:>15} {:>8} {:>8}  {}",
                format!("{}: {}", figure.name, figure.what),
                figure.unit,
                cell(median(&figure.local)),
                cell(median(&figure.mount)),
                cell(figure.ratio()),
                rounds,
                wish(figure, figure.least),
                wish(figure, figure.aim),
                figure.verdict()
            );
        }
        for (name, why) in &self.not_taken {
            let _ = writeln!(out, "{name}: not measured: {why}");
        }
        let _ = writeln!(
            out,
            "Medians of {} rounds. Ratios are mount to {other}: of rates (at least), of times \
             (at most).",
            self.rounds
        );
        out
    }
}

/// The ratio of each round. Two figures that are zero are the same.
fn ratios(mount: &[f64], local: &[f64]) -> Vec<f64> {
    let pairs = mount.iter().zip(local);
    let ratio = |(mount, local): (&f64, &f64)| match (*mount, *local) {
        (0.0, 0.0) => 1.0,
        (mount, local) => mount / local,
    };
    pairs.map(ratio).collect()
}

/// The smallest and the largest ratio.
fn spread(figure: &Figure) -> Option<String> {
    let ratios = ratios(&figure.mount, &figure.local);
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    Some(format!("{}..{}", short(least), short(most)))
}

/// A wish, with an `x` where it is one about the ratio.
fn wish(figure: &Figure, wish: f64) -> String {
    match figure.wish {
        "ratio" => format!("{}x", short(wish)),
        _ => short(wish),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Unit;

    fn figure(unit: Unit, wish: Wish, local: &[f64], mount: &[f64]) -> Figure {
        let line = Line {
            name: "x",
            what: "something",
            unit,
            wish,
        };
        Figure {
            local: local.to_vec(),
            mount: mount.to_vec(),
            ..Figure::new(&line)
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        // A round in which the whole machine was slow has the ratio of the others.
        let of = figure(
            Unit::PerSecond,
            Wish::Ratio(0.5, 0.9),
            &[100.0, 10.0, 100.0],
            &[60.0, 6.0, 90.0],
        );
        assert_eq!(of.ratio(), Some(0.6));
        assert_eq!(of.verdict(), "ok");
    }

    #[test]
    fn two_figures_of_zero_are_the_same() {
        let wish = Wish::Ratio(1.1, 1.0);
        let of = figure(Unit::Seconds, wish, &[0.0, 2.0, 0.0], &[0.0, 4.0, 0.0]);
        assert_eq!((of.ratio(), of.verdict()), (Some(1.0), "aim"));
    }

    #[test]
    fn less_time_is_better_and_more_rate() {
        let wish = Wish::Ratio(1.4, 1.1);
        let time = |mount| figure(Unit::Seconds, wish, &[10.0], &[mount]).verdict();
        assert_eq!((time(10.0), time(13.0), time(15.0)), ("aim", "ok", "BELOW"));
        let wish = Wish::Value(300.0, 400.0);
        let rate = |mount| figure(Unit::Megabytes, wish, &[], &[mount]).verdict();
        assert_eq!(
            (rate(500.0), rate(300.0), rate(1.0)),
            ("aim", "ok", "BELOW")
        );
    }

    #[test]
    fn a_slow_disk_excuses_a_mount_that_is_as_fast() {
        let wish = Wish::ValueOrLocal(1000.0, 1000.0);
        let of = |local, mount| figure(Unit::Megabytes, wish, &[local], &[mount]).is_met();
        assert!(of(2000.0, 1500.0) && of(200.0, 210.0) && !of(2000.0, 900.0));
    }

    #[test]
    fn two_mounts_are_compared_by_the_rounds_of_both() {
        let round = |rate: f64, time: f64| Report {
            rounds: 1,
            figures: vec![
                figure(Unit::PerSecond, Wish::Value(1.0, 2.0), &[500.0], &[rate]),
                Figure {
                    name: "y",
                    ..figure(Unit::Seconds, Wish::Value(1.0, 2.0), &[], &[time])
                },
            ],
            ..Report::default()
        };
        let (mut sealed, mut plain) = (round(70.0, 1.0), round(100.0, 1.0));
        sealed.add(round(8.0, 11.0));
        plain.add(round(10.0, 10.0));
        let report = sealed.beside(plain, "plain", &[("x", 0.74), ("y", 1.03)]);
        assert_eq!((report.rounds, report.figures.len()), (2, 2));
        assert_eq!(report.figures[0].local, [100.0, 10.0]);
        assert!(report.figures[0].is_met(), "a ratio of 0.75 as the median");
        assert!(
            !report.figures[1].is_met(),
            "{:?}",
            report.figures[1].ratio()
        );
        assert!(report.text().contains("mount to plain"));
    }

    #[test]
    fn what_was_not_measured_is_told_and_not_met() {
        let report = Report {
            not_taken: vec![("andrew".to_owned(), "it needs a C project".to_owned())],
            ..Report::default()
        };
        assert!(!report.is_met());
        assert!(
            report
                .text()
                .contains("andrew: not measured: it needs a C project")
        );
    }
}
