//! `ariel reproduce cooperative`: figures 4 to 14 of the paper on cooperative caching; and the list
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

pub(super) fn cooperative(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let terminal = io::stderr().is_terminal();
    let effort = trace::Effort {
        seed: args.seed,
        long: !args.short,
    };
    let report = trace::cooperative(effort, &mut |what| {
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
    let page = args.out.join("cooperative.md");
    let _ = writeln!(io::stdout(), "written: {}", page.display());
    Ok(ExitCode::SUCCESS)
}
