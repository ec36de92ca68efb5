//! `ariel segment`: looks at the pagers of this user.

use crate::args::{SegmentArgs, SegmentCommand};
use crate::failure::Failure;
use crate::{pager, show};
use segment::{Connection, PAGE, SegmentFigures};
use serde_json::{Value, json};
use std::process::ExitCode;

pub(crate) fn segment(args: &SegmentArgs) -> Result<ExitCode, Failure> {
    match args.what {
        SegmentCommand::List { json } => list(json),
        SegmentCommand::Stat { pager, json } => stat(pager, json),
    }
}

struct Line {
    pager: u32,
    segment: u32,
    process: u32,
    figures: SegmentFigures,
}

fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    for (pager, connection) in pager::running() {
        // A pager that ends meanwhile has no segments.
        for (segment, process) in connection.segments().unwrap_or_default() {
            if let Ok(figures) = connection.figures(segment) {
                lines.push(Line {
                    pager,
                    segment,
                    process,
                    figures,
                });
            }
        }
    }
    lines
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE as u64
}

fn list(as_json: bool) -> Result<ExitCode, Failure> {
    let lines = lines();
    if as_json {
        let all: Vec<Value> = lines.iter().map(as_value).collect();
        show::print(&format!("{:#}", Value::from(all)));
        return Ok(ExitCode::SUCCESS);
    }
    let head =
        "   pager  segment  process      size MiB  local MiB  dirty MiB  far MiB  shared MiB";
    let mut text = head.to_owned();
    for line in &lines {
        let SegmentFigures {
            pages,
            frames,
            dirty,
            stored,
            shared,
            ..
        } = line.figures;
        let [size, local, dirty, far, shared] =
            [pages, frames, dirty, stored, shared].map(|pages| bytes(pages) >> 20);
        let (pager, segment, process) = (line.pager, line.segment, line.process);
        text += &format!(
            "\n{pager:8} {segment:8} {process:8} {size:13} {local:10} {dirty:10} {far:8} \
             {shared:11}"
        );
    }
    show::print(&text);
    Ok(ExitCode::SUCCESS)
}

fn as_value(line: &Line) -> Value {
    let figures = line.figures;
    json!({
        "pager": line.pager,
        "segment": line.segment,
        "process": line.process,
        "bytes": bytes(figures.pages),
        "local_bytes": bytes(figures.frames),
        "limit_bytes": figures.limit.map(bytes),
        "dirty_bytes": bytes(figures.dirty),
        "far_bytes": bytes(figures.stored),
        "shared_bytes": bytes(figures.shared),
    })
}

fn stat(number: u32, as_json: bool) -> Result<ExitCode, Failure> {
    let running = pager::running();
    let found = running.iter().find(|(pager, _)| *pager == number);
    let counters = found.map(|(_, connection)| Connection::counters(connection));
    let Some(Ok(counters)) = counters else {
        let text = "no pager of this user has this number: `ariel segment list` shows them";
        return Err(Failure::of("segment", format_args!("{number}: {text}")));
    };
    if as_json {
        let pairs = counters.iter();
        let pairs = pairs.map(|(name, count)| (name.replace([' ', '-'], "_"), json!(count)));
        let all = Value::Object(pairs.collect());
        show::print(&format!("{all:#}"));
    } else {
        let line = |(name, count): &(&str, u64)| format!("{count:14} {name}");
        let lines: Vec<String> = counters.iter().map(line).collect();
        show::print(&lines.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}
