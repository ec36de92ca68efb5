//! The verdict, for people and as JSON.

use crate::history::{Action, Operation, shown};
use crate::judge::{Judge, Violation};
use crate::kind::Kind;
use crate::plan::Options;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// Mounts, by their letters.
    pub mounts: Vec<String>,
    /// Workers in all.
    pub processes: u32,
    /// When it began.
    pub began_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Crashes.
    pub kills: u64,
    /// Operations.
    pub operations: u64,
    /// Objects with a history.
    pub objects: u64,
    /// Operations that may or may not have happened.
    pub unknown: u64,
    /// Torn reads.
    pub torn: u64,
    /// Objects with too many possibilities.
    pub undecided: u64,
    /// The answers that no order explains.
    pub violations: Vec<Violation>,
    /// Operations that were not tried, since the tree cannot do them.
    pub not_tried: Vec<String>,
    /// Other faults: workers that did not answer, and those that the caller adds.
    pub faults: Vec<String>,
    /// The caller's remarks on things that are right.
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(options: &Options, began_ns: u64) -> Report {
        let shown = |mount: &PathBuf| mount.display().to_string();
        Report {
            seed: options.seed,
            mounts: options.mounts.iter().map(shown).collect(),
            processes: options.processes * options.mounts.len() as u32,
            began_ns,
            took_ns: 0,
            rounds: 0,
            kills: 0,
            operations: 0,
            objects: 0,
            unknown: 0,
            torn: 0,
            undecided: 0,
            violations: Vec::new(),
            not_tried: Vec::new(),
            faults: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn count(&mut self, judge: &Judge) {
        self.operations = judge.operations();
        self.objects = judge.objects();
        self.unknown = judge.unknown();
        self.torn = judge.torn();
        self.undecided = judge.undecided();
    }

    /// Is all well?
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.faults.is_empty()
    }

    fn line(&self, operation: &Operation, action: &str, mark: bool) -> String {
        let ms = |ns: u64| ns.saturating_sub(self.began_ns) as f64 / 1e6;
        let end = if operation.known {
            format!("{:.3}", ms(operation.end_ns))
        } else {
            "?".to_owned()
        };
        let (begin, process) = (ms(operation.begin_ns), operation.process);
        format!(
            "  {} {begin:>12.3} .. {end:>12} ms  mount {} p{process:<3} {}",
            if mark { '>' } else { ' ' },
            letter(operation.mount),
            action
        )
    }

    fn violation(&self, violation: &Violation) -> String {
        let mut text = format!("VIOLATION, {}: {}", violation.kind, violation.object);
        if let Some((from, to)) = violation.words {
            let _ = write!(text, ", words {from} to {}", to - 1);
        }
        text.push('\n');
        let failed = &violation.operations[violation.index];
        if violation.kind == Kind::WrongAnswer {
            let _ = writeln!(
                text,
                "{}",
                self.line(failed, &failed.action.to_string(), true)
            );
            text.push_str("  No file system may answer so, whatever went before.\n");
            return text;
        }
        // Of a log the records are told that matter, not how many there are.
        let state = !matches!(failed.action, Action::ReadLog(_) | Action::Append(_));
        if state {
            let _ = writeln!(text, "  Before: {}", either(&violation.before));
        }
        for (at, operation) in violation.operations.iter().enumerate() {
            let action = action(operation, violation);
            let line = self.line(operation, &action, at == violation.index);
            let _ = writeln!(text, "{line}");
        }
        text.push_str("  No order of these explains the line with `>`");
        if state {
            let possible = either(&violation.possible);
            let _ = write!(text, ": then it could only be: {possible}");
        }
        text.push_str(".\n");
        if violation.left_out > 0 {
            let _ = writeln!(
                text,
                "  With or without {} other changes meanwhile.",
                violation.left_out
            );
        }
        if !violation.origins.is_empty() {
            text.push_str("  The operations that brought these values, before:\n");
            for operation in &violation.origins {
                let action = operation.action.to_string();
                let _ = writeln!(text, "{}", self.line(operation, &action, false));
            }
        }
        text
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (at, mount) in self.mounts.iter().enumerate() {
            let _ = writeln!(text, "mount {}: {mount}", letter(at as u32));
        }
        for violation in &self.violations {
            text.push_str(&self.violation(violation));
        }
        for fault in &self.faults {
            let _ = writeln!(text, "VIOLATION: {fault}");
        }
        let _ = writeln!(
            text,
            "{} operations on {} objects by {} processes in {:.1} s, {} rounds, seed {}",
            self.operations,
            self.objects,
            self.processes,
            self.took_ns as f64 / 1e9,
            self.rounds,
            self.seed
        );
        let counts = [
            (self.kills, "kills"),
            (self.unknown, "operations that may or may not have happened"),
            (
                self.torn,
                "reads torn by concurrent writes (judged piece by piece)",
            ),
            (self.undecided, "objects given up: too many possible orders"),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            let _ = writeln!(text, "{count} {what}");
        }
        if !self.not_tried.is_empty() {
            let list = self.not_tried.join(", ");
            let _ = writeln!(text, "not tried, since the tree cannot: {list}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        let verdict = match (self.is_clean(), self.undecided) {
            (false, _) => "NOT linearizable",
            (true, 0) => "linearizable: every answer is one that a single machine could give",
            (true, _) => "no violation found, but not everything could be judged",
        };
        let _ = writeln!(text, "{verdict}");
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let operation = |operation: &Operation, action: String| {
            json!({
                "mount": letter(operation.mount).to_string(),
                "process": operation.process,
                "begin_ns": operation.begin_ns.saturating_sub(self.began_ns),
                "end_ns": operation.known.then(|| operation.end_ns.saturating_sub(self.began_ns)),
                "action": action,
            })
        };
        let violation = |violation: &Violation| {
            let needed = |one: &Operation| operation(one, action(one, violation));
            let origin = |one: &Operation| operation(one, one.action.to_string());
            json!({
                "kind": violation.kind.to_string(),
                "object": violation.object.to_string(),
                "words": violation.words,
                "before": violation.before,
                "operations": violation.operations.iter().map(needed).collect::<Vec<_>>(),
                "left_out": violation.left_out,
                "unexplained": violation.index,
                "possible": violation.possible,
                "origins": violation.origins.iter().map(origin).collect::<Vec<_>>(),
            })
        };
        json!({
            "linearizable": self.is_clean(),
            "seed": self.seed,
            "mounts": self.mounts,
            "processes": self.processes,
            "took_ns": self.took_ns,
            "rounds": self.rounds,
            "kills": self.kills,
            "operations": self.operations,
            "objects": self.objects,
            "unknown": self.unknown,
            "torn": self.torn,
            "undecided": self.undecided,
            "violations": self.violations.iter().map(violation).collect::<Vec<_>>(),
            "not_tried": self.not_tried,
            "faults": self.faults,
            "notes": self.notes,
        })
    }
}

/// A call and its outcome. Of a list of records only those whose appends are shown are left: it is
/// said which of these it has, and which it lacks.
fn action(operation: &Operation, violation: &Violation) -> String {
    let Action::ReadLog(list) = &operation.action else {
        return operation.action.to_string();
    };
    let appended = |one: &Operation| match one.action {
        Action::Append(value) => Some(value),
        _ => None,
    };
    let told = |has: bool| -> Vec<String> {
        let all = violation.operations.iter().filter_map(appended);
        let these = all.filter(|value| list.contains(value) == has);
        these.map(shown).collect()
    };
    let strange: Vec<String> = list.iter().copied().map(shown).collect();
    let (has, lacks) = (told(true), told(false));
    match (has.len() == list.len(), has.is_empty(), lacks.is_empty()) {
        (true, true, false) => format!("read log: without {}", lacks.join(" ")),
        (true, false, false) => {
            format!(
                "read log: with {}, without {}",
                strange.join(" "),
                lacks.join(" ")
            )
        }
        _ => format!("read log: with {}", strange.join(" ")),
    }
}

/// States of which one must have been.
fn either(states: &[String]) -> String {
    const TOLD: usize = 4;
    let mut told = states[..states.len().min(TOLD)].join(", or ");
    if states.len() > TOLD {
        let _ = write!(told, ", or one of {} more", states.len() - TOLD);
    }
    told
}

/// A mount's name: A, B, ...; after Z they begin again.
fn letter(mount: u32) -> char {
    char::from(b'A' + (mount % 26) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Object;

    fn log(time: (u64, u64), action: Action) -> Operation {
        Operation {
            object: Object::Log { round: 0, file: 0 },
            mount: 0,
            process: 0,
            opened_ns: 0,
            begin_ns: time.0,
            end_ns: time.1,
            known: true,
            action,
        }
    }

    fn told(list: &[u64]) -> String {
        let append = |at, value| log((at, at + 1), Action::Append(value));
        let read = log((9, 10), Action::ReadLog(list.to_vec()));
        let found = Judge::new(false).round(vec![append(1, 101), append(3, 102), read]);
        let [violation] = found.as_slice() else {
            return format!("{found:?}");
        };
        let read = violation.operations.last();
        read.map_or_else(String::new, |read| action(read, violation))
    }

    #[test]
    fn of_a_log_it_is_told_what_it_lacks() {
        let one = shown(101);
        assert_eq!(told(&[101]), format!("read log: without {}", shown(102)));
        assert_eq!(
            told(&[102, 101]),
            format!("read log: with {} {one}", shown(102))
        );
    }
}
