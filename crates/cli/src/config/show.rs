//! `ariel config show`: every option of a command, its value, and where the value comes from.

use super::{
    Files, STARTING, Setting, Source, called, dir, files, is_switch, options, setting,
    variable_name, variables,
};
use crate::args::{Args, ConfigArgs};
use crate::failure::{Failure, NOT_RUN};
use crate::show::print;
use clap::{Arg, Command, CommandFactory};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// One option.
struct Line {
    name: String,
    value: Option<String>,
    source: String,
}

pub(crate) fn show(args: &ConfigArgs) -> Result<std::process::ExitCode, Failure> {
    let program = Args::command();
    let files = files(&program)?;
    let names: Vec<&str> = match &args.command {
        Some(name) => vec![name],
        None => STARTING.to_vec(),
    };
    let mut text = String::new();
    let mut found = Map::new();
    for name in names {
        let Some(command) = called(&program, name.as_ref()) else {
            let what = format_args!("config: `ariel {name}` is no command: see `ariel --help`");
            return Err(Failure::new(NOT_RUN, what));
        };
        variables::check(&program, command, super::names())?;
        let lines = lines(command, &files)?;
        found.insert(name.to_owned(), as_json(&lines));
        as_text(&mut text, name, &lines);
    }
    if args.json {
        let files: Vec<String> = files
            .paths()
            .map(|path| path.display().to_string())
            .collect();
        let all = json!({ "dir": dir().display().to_string(), "files": files, "options": found });
        print(&format!("{all:#}"));
    } else {
        print(&text);
    }
    Ok(std::process::ExitCode::SUCCESS)
}

fn lines(command: &Command, files: &Files) -> Result<Vec<Line>, Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let line = |option: &Arg| {
        let set = setting(command, option, files, &variable)?;
        Ok(line(command, option, set))
    };
    options(command).map(line).collect()
}

fn line(command: &Command, option: &Arg, set: Option<Setting>) -> Line {
    let name = option.get_long().unwrap_or_default().to_owned();
    let Some(set) = set else {
        let default = option.get_default_values();
        let default: Vec<_> = default.iter().map(|one| one.to_string_lossy()).collect();
        let value = match is_switch(option) {
            true => Some("false".to_owned()),
            false => (!default.is_empty()).then(|| default.join(" ")),
        };
        let variable = variable_name(command, option);
        let source = match value {
            Some(_) => "default".to_owned(),
            None => format!("not set ({variable})"),
        };
        return Line {
            name,
            value,
            source,
        };
    };
    let value = match is_switch(option) {
        true => (!set.values.is_empty()).to_string(),
        false => {
            let values: Vec<_> = set.values.iter().map(|one| one.to_string_lossy()).collect();
            values.join(" ")
        }
    };
    let source = match set.source {
        Source::Environment(name) => format!("environment {name}"),
        Source::File(path) => path.display().to_string(),
    };
    Line {
        name,
        value: Some(value),
        source,
    }
}

fn as_json(lines: &[Line]) -> Value {
    let entry = |line: &Line| {
        let shown = json!({ "value": line.value, "source": line.source });
        (line.name.clone(), shown)
    };
    Value::Object(lines.iter().map(entry).collect())
}

fn as_text(text: &mut String, name: &str, lines: &[Line]) {
    if !text.is_empty() {
        text.push('\n');
    }
    let width = |of: &dyn Fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let names = width(&|line| line.name.len());
    let values = width(&|line| line.value.as_deref().map_or(1, str::len)).min(40);
    let _ = writeln!(text, "[{name}]");
    for line in lines {
        let value = line.value.as_deref().unwrap_or("-");
        let _ = writeln!(
            text,
            "{:names$}  {value:values$}  {}",
            line.name, line.source
        );
    }
}
