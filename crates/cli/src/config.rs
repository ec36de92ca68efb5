//! Options from the environment and from files, beside those of the command line.
//!
//! Every option that a command has on its command line can stand in `/etc/ariel/*.toml` as well, in
//! a table with the command's name, and in the environment: `--cache-mib 64` of `ariel mount` is
//! `cache-mib = 64` below `[mount]`, and `ARIEL_MOUNT_CACHE_MIB=64`. The command line counts before
//! the environment, the environment before the files, and of several files the one whose name
//! comes last.
//!
//! Guarantees: the table of options is the parser's own, so nothing is said twice; a word in a file
//! that no command knows is an error that names the file; each value is checked by the parser, as
//! if it stood on the command line.

mod file;
mod show;
mod variables;

pub(crate) use show::show;

use crate::args::Args;
use crate::failure::{Failure, NOT_RUN};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use file::Files;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where the files are; the environment may name another directory.
const DIR: &str = "/etc/ariel";
/// The variable that does.
const DIR_VARIABLE: &str = "ARIEL_CONFIG";

/// The commands that start something, which are what files are for.
const STARTING: [&str; 3] = ["serve", "mount", "up"];

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A variable of the environment.
    Environment(String),
    /// A file.
    File(PathBuf),
}

/// A value of an option from outside of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// One for each time that the option is given; a switch that is on has an empty one.
    values: Vec<OsString>,
    source: Source,
}

fn dir() -> PathBuf {
    std::env::var_os(DIR_VARIABLE).map_or_else(|| DIR.into(), PathBuf::from)
}

/// The files that count. That the usual directory is not there says nothing; where somebody has
/// named one, it is there.
fn files(program: &Command) -> Result<Files, Failure> {
    match variables::set(DIR_VARIABLE).map(PathBuf::from) {
        Some(named) if !is_dir(&named) => Err(Failure::new(
            NOT_RUN,
            format_args!(
                "{DIR_VARIABLE}={}: there is no such directory: name one with *.toml in it, or \
                 take the variable away",
                named.display()
            ),
        )),
        _ => Files::read(&dir(), program),
    }
}

/// False of what is known to be none.
fn is_dir(path: &Path) -> bool {
    match path.metadata() {
        Ok(found) => found.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

fn names() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name)
}

fn is_closed(dir: &Path) -> bool {
    let read = std::fs::read_dir(dir);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Words of a command line, with those of the environment and the files behind the command's name.
pub(crate) fn apply(words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let program = Args::command();
    let Some(command) = words.get(1).and_then(|word| called(&program, word)) else {
        return Ok(words);
    };
    let added = match added(&program, command, &words[1..]) {
        Ok(added) => added,
        // A file that the user may not read sets nothing: the options keep their defaults.
        Err(_) if !STARTING.contains(&command.get_name()) && is_closed(&dir()) => return Ok(words),
        // A file that is wrong keeps nobody from looking, or from taking a mount away.
        Err(failure) if !STARTING.contains(&command.get_name()) => {
            let _ = writeln!(std::io::stderr(), "ariel: left out: {failure}");
            return Ok(words);
        }
        Err(failure) => return Err(failure),
    };
    let mut all = words;
    all.splice(2..2, added);
    Ok(all)
}

/// The words that the environment and the files add.
fn added(
    program: &Command,
    command: &Command,
    words: &[OsString],
) -> Result<Vec<OsString>, Failure> {
    variables::check(program, command, names())?;
    let files = files(program)?;
    let given = given(command, words);
    let variable = |name: &str| std::env::var_os(name);
    let mut added = Vec::new();
    for option in options(command).filter(|option| !is_given(&given, option)) {
        if let Some(setting) = setting(command, option, &files, &variable)? {
            added.extend(words_of(option, &setting.values));
        }
    }
    Ok(added)
}

/// The command that a word names, if it is one whose options can be set.
fn called<'a>(program: &'a Command, word: &OsStr) -> Option<&'a Command> {
    let command = program.find_subcommand(word)?;
    // A hidden command is run by the program itself, with all options on its command line.
    (!command.is_hide_set()).then_some(command)
}

/// The options of a command that can be set: all with a long name but for those that are no
/// property of what is started.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let long = arg.get_long();
        let is_setting = long.is_some_and(|name| !["help", "version"].contains(&name));
        is_setting && !arg.is_hide_set()
    })
}

/// The command line, as far as it can be parsed: missing options may come from elsewhere, and
/// errors are reported later.
fn given(command: &Command, words: &[OsString]) -> Option<ArgMatches> {
    let lenient = command
        .clone()
        .no_binary_name(false)
        .ignore_errors(true)
        .mut_args(|arg| match arg.is_positional() {
            // The parser wants those before the last one to be as they are.
            true => arg,
            false => arg.required(false),
        });
    lenient.try_get_matches_from(words).ok()
}

fn is_given(given: &Option<ArgMatches>, option: &Arg) -> bool {
    let id = option.get_id().as_str();
    let source = given.as_ref().and_then(|given| given.value_source(id));
    source == Some(ValueSource::CommandLine)
}

/// The name of the variable that sets an option of a command.
fn variable_name(command: &Command, option: &Arg) -> String {
    let long = option.get_long().unwrap_or_default();
    let words = ["ariel", command.get_name(), long].join("_");
    words.replace('-', "_").to_uppercase()
}

/// The value of an option in the environment, or else in the files.
fn setting(
    command: &Command,
    option: &Arg,
    files: &Files,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<Setting>, Failure> {
    let name = variable_name(command, option);
    if let Some(value) = variable(&name) {
        return Ok(Some(Setting {
            values: of_variable(option, &name, value)?,
            source: Source::Environment(name),
        }));
    }
    files.setting(command, option)
}

/// A variable's value. A switch is on or off; an option that can be given several times has one
/// value there.
fn of_variable(option: &Arg, name: &str, value: OsString) -> Result<Vec<OsString>, Failure> {
    if !is_switch(option) {
        return Ok(vec![value]);
    }
    match value.to_str() {
        Some("1" | "true" | "yes" | "on") => Ok(vec![OsString::new()]),
        Some("" | "0" | "false" | "no" | "off") => Ok(Vec::new()),
        _ => Err(Failure::new(
            NOT_RUN,
            format_args!("{name}={}: write true or false", value.to_string_lossy()),
        )),
    }
}

fn is_switch(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

/// An option as it stands on a command line.
fn words_of(option: &Arg, values: &[OsString]) -> Vec<OsString> {
    let name = format!("--{}", option.get_long().unwrap_or_default());
    let word = |value: &OsString| {
        let mut word = OsString::from(&name);
        if !is_switch(option) {
            word.push("=");
            word.push(value);
        }
        word
    };
    values.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn program() -> Command {
        Args::command()
    }

    fn option<'a>(command: &'a Command, long: &str) -> &'a Arg {
        options(command)
            .find(|option| option.get_long() == Some(long))
            .unwrap()
    }

    #[test]
    fn the_command_line_is_known_though_it_is_not_whole() {
        let program = program();
        let serve = called(&program, OsStr::new("serve")).unwrap();
        let words: Vec<OsString> = ["serve", "--listen", "127.0.0.1:1"].map(Into::into).into();
        let given = given(serve, &words);
        assert!(is_given(&given, option(serve, "listen")));
        assert!(!is_given(&given, option(serve, "data")), "it is missing");
        assert!(!is_given(&given, option(serve, "daemon")));
        let mount = called(&program, OsStr::new("mount")).unwrap();
        let words: Vec<OsString> = ["mount", "127.0.0.1:1", "/m", "-f"].map(Into::into).into();
        let given = super::given(mount, &words);
        assert!(is_given(&given, option(mount, "foreground")));
        let default = option(mount, "cache-mib");
        assert!(!is_given(&given, default), "a default is not given");
    }

    #[test]
    fn a_variable_counts_before_a_file() {
        let program = program();
        let mount = called(&program, OsStr::new("mount")).unwrap();
        let cache = option(mount, "cache-mib");
        let name = variable_name(mount, cache);
        assert_eq!(name, "ARIEL_MOUNT_CACHE_MIB");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.toml"), "[mount]\ncache-mib = 7\n").unwrap();
        let files = Files::read(dir.path(), &program).unwrap();
        let none = |_: &str| None;
        let found = setting(mount, cache, &files, &none).unwrap().unwrap();
        assert_eq!(words_of(cache, &found.values), ["--cache-mib=7"]);
        let some = |asked: &str| (asked == name).then(|| "9".into());
        let found = setting(mount, cache, &files, &some).unwrap().unwrap();
        assert_eq!(words_of(cache, &found.values), ["--cache-mib=9"]);
        assert_eq!(found.source, Source::Environment(name.clone()));
    }

    #[test]
    fn a_switch_is_on_or_off() {
        let program = program();
        let mount = called(&program, OsStr::new("mount")).unwrap();
        let trusted = option(mount, "trusted");
        let on = of_variable(trusted, "V", "yes".into()).unwrap();
        assert_eq!(words_of(trusted, &on), ["--trusted"]);
        assert!(of_variable(trusted, "V", "0".into()).unwrap().is_empty());
        assert!(of_variable(trusted, "V", "2".into()).is_err());
    }
}
