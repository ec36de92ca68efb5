//! `ariel reproduce cooperative` and `memory`: reports that `trace` makes, as files; and the list
//! of what there is of all papers.

use crate::args::ReproduceArgs;
use crate::failure::{Failure, NOT_RUN};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// The tables and figures of each paper, with what makes them.
pub(super) fn list() -> String {
    let mut text = String::new();
    let mut paper = "";
    for item in &trace::ITEMS {
        if item.paper != paper {
            paper = item.paper;
            text += &format!("{paper}\n");
        }
        let state = item.by.unwrap_or("not yet");
        text += &format!("  {:<11}{:<58}{state}\n", item.name, item.shows);
    }
    text
}

/// Makes a report. `begins` learns what comes next.
type Makes = fn(effort: trace::Effort, begins: &mut dyn FnMut(&str)) -> trace::Report;

/// Makes a report, and writes it.
pub(super) fn report(args: &ReproduceArgs, makes: Makes) -> Result<ExitCode, Failure> {
    let terminal = io::stderr().is_terminal();
    let effort = trace::Effort {
        seed: args.seed,
        long: !args.short,
    };
    let report = makes(effort, &mut |what| {
        if terminal {
            let _ = write!(io::stderr(), "\r{what}\x1b[K");
        }
    });
    if terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let failed = |error| {
        let dir = args.out.display();
        Failure::new(NOT_RUN, format_args!("reproduce: {dir}: {error}"))
    };
    report.write(&args.out).map_err(failed)?;
    let page = args.out.join(format!("{}.md", report.name));
    let _ = writeln!(io::stdout(), "written: {}", page.display());
    Ok(ExitCode::SUCCESS)
}
