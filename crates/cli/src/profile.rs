//! `ariel profile`: where the time goes in a mount or a server, by kind of request.
//!
//! Each stage is a table: of a mount, requests of the kernel from when each had come whole to when
//! its answer was given, and requests to the server from sending to the answer; of a server,
//! requests from arrival to answer, and the steps of its machine and store, in which nobody else is
//! served.

use crate::args::ProfileArgs;
use crate::failure::Failure;
use crate::{show, status};
use client::front::Reading;
use fuse::front::Mount;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

/// The stages, with what they are called.
const STAGES: [(&str, &str); 4] = [
    (
        "kernel",
        "asked by the kernel: from the request to the answer",
    ),
    ("server", "asked of the server: from sending to the answer"),
    (
        "clients",
        "asked by clients: from the request to the answer",
    ),
    (
        "steps",
        "steps of machine and store: nobody else is served meanwhile",
    ),
];

/// The columns of durations.
const DURATIONS: [&str; 5] = ["mean_ns", "p50_ns", "p90_ns", "p99_ns", "most_ns"];

pub(crate) fn profile(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    let found = status::ask("profile", &args.target)?;
    if args.json {
        show::print(&format!("{found:#}"));
    } else {
        show::print(&text(&found));
    }
    Ok(ExitCode::SUCCESS)
}

/// The profile of a mount.
pub(crate) fn of_mount(mount: &Mount) -> Value {
    json!({
        "kind": "mount",
        "kernel": stage(&mount.answers()),
        "server": stage(&mount.client().answers()),
    })
}

/// The profile of a server.
pub(crate) fn of_server(server: &server::Server) -> Value {
    let (answers, steps) = server.profile();
    json!({ "kind": "server", "clients": stage(&answers), "steps": stage(&steps) })
}

fn stage(lines: &[(&'static str, Reading)]) -> Value {
    let line = |(kind, reading): &(&'static str, Reading)| {
        let Reading {
            count,
            bytes,
            total_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            most_ns,
        } = *reading;
        let mean_ns = total_ns / count.max(1);
        let value = json!({
            "count": count,
            "bytes": bytes,
            "total_ns": total_ns,
            "mean_ns": mean_ns,
            "p50_ns": p50_ns,
            "p90_ns": p90_ns,
            "p99_ns": p99_ns,
            "most_ns": most_ns,
        });
        ((*kind).to_owned(), value)
    };
    Value::Object(lines.iter().map(line).collect::<Map<_, _>>())
}

/// As tables, what took longest in all first.
fn text(profile: &Value) -> String {
    let mut text = String::new();
    let there = STAGES
        .iter()
        .filter_map(|(name, title)| Some((title, profile[*name].as_object()?)));
    for (title, lines) in there {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{title}");
        let _ = writeln!(
            text,
            "  {:<18} {:>10} {:>10} {:>10}  {:>8} {:>8} {:>8} {:>8} {:>10}",
            "kind", "count", "MB", "total ms", "mean us", "p50", "p90", "p99", "longest"
        );
        let mut lines: Vec<(&String, &Value)> = lines.iter().collect();
        lines.sort_by_key(|(_, line)| std::cmp::Reverse(line["total_ns"].as_u64()));
        for (kind, line) in lines {
            let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
            let _ = write!(
                text,
                "  {kind:<18} {:>10} {:>10.1} {:>10.1} ",
                number("count"),
                number("bytes") / 1e6,
                number("total_ns") / 1e6,
            );
            for (name, width) in DURATIONS.iter().zip([8, 8, 8, 8, 10]) {
                let _ = write!(text, " {:>width$.1}", number(name) / 1e3);
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_longest_in_all_comes_first() {
        let reading = |count, each_ns| Reading {
            count,
            bytes: 2_000_000,
            total_ns: count * each_ns,
            p50_ns: each_ns,
            p90_ns: each_ns,
            p99_ns: each_ns,
            most_ns: each_ns,
        };
        let lines = [("GETATTR", reading(3, 1500)), ("WRITE", reading(1, 9000))];
        let profile = json!({ "kind": "mount", "kernel": stage(&lines) });
        let text = text(&profile);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], STAGES[0].1);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            words,
            [
                "WRITE", "1", "2.0", "0.0", "9.0", "9.0", "9.0", "9.0", "9.0"
            ]
        );
        assert!(lines[3].trim_start().starts_with("GETATTR"), "{text}");
    }
}
