//! The files of a configuration directory.
//!
//! Guarantees: files are read in the order of their names, and the last one that has a word counts;
//! a table, a word or a type that no command knows is an error that names the file and what could
//! stand there.

use super::{Setting, Source, called, is_switch, options};
use crate::failure::{Failure, NOT_RUN};
use clap::{Arg, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The files' content: path and tables, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Files(Vec<(PathBuf, Table)>);

fn refused(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(NOT_RUN, format_args!("{}: {what}", path.display()))
}

impl Files {
    /// Reads all `*.toml` in a directory. One that is not there has none.
    pub(super) fn read(dir: &Path, program: &Command) -> Result<Files, Failure> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Files::default());
            }
            Err(error) => return Err(refused(dir, error)),
        };
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths
            .collect::<std::io::Result<Vec<PathBuf>>>()
            .map_err(|error| refused(dir, error))?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        paths.sort();
        let mut files = Files::default();
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(|error| refused(&path, error))?;
            let tables: Table = text
                .parse()
                .map_err(|error: toml::de::Error| refused(&path, error))?;
            check(&path, &tables, program)?;
            files.0.push((path, tables));
        }
        Ok(files)
    }

    /// The paths of all files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }

    /// The files' value of an option of a command.
    pub(super) fn setting(
        &self,
        command: &Command,
        option: &Arg,
    ) -> Result<Option<Setting>, Failure> {
        let long = option.get_long().unwrap_or_default();
        let found = self.0.iter().rev().find_map(|(path, tables)| {
            let value = tables.get(command.get_name())?.get(long)?;
            Some((path, value))
        });
        let Some((path, value)) = found else {
            return Ok(None);
        };
        Ok(Some(Setting {
            values: values(path, option, value)?,
            source: Source::File(path.clone()),
        }))
    }
}

/// Does some command know each word of a file?
fn check(path: &Path, tables: &Table, program: &Command) -> Result<(), Failure> {
    for (name, table) in tables {
        let Some(command) = called(program, name.as_ref()) else {
            let commands = program.get_subcommands().filter(|one| !one.is_hide_set());
            let commands: Vec<&str> = commands.map(Command::get_name).collect();
            let known = commands.join(", ");
            return Err(refused(
                path,
                format_args!("[{name}] is no command; there are {known}"),
            ));
        };
        let Some(table) = table.as_table() else {
            return Err(refused(
                path,
                format_args!("options stand below the name of a command: [mount], {name} = ..."),
            ));
        };
        for word in table.keys() {
            let mut known = options(command).filter_map(Arg::get_long);
            if !known.any(|long| long == word) {
                let known: Vec<&str> = options(command).filter_map(Arg::get_long).collect();
                return Err(refused(
                    path,
                    format_args!(
                        "`ariel {name}` has no option {word}; it has {}",
                        known.join(", ")
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// A value as it stands on a command line, once for each time that the option is given.
fn values(path: &Path, option: &Arg, value: &Value) -> Result<Vec<OsString>, Failure> {
    let long = option.get_long().unwrap_or_default();
    match value {
        Value::Boolean(on) if is_switch(option) => Ok(match on {
            true => vec![OsString::new()],
            false => Vec::new(),
        }),
        _ if is_switch(option) => Err(refused(
            path,
            format_args!("{long} = {value}: write true or false"),
        )),
        Value::Array(list) => {
            let mut all = Vec::new();
            for one in list {
                all.extend(values(path, option, one)?);
            }
            Ok(all)
        }
        Value::String(text) => Ok(vec![text.into()]),
        Value::Integer(number) => Ok(vec![number.to_string().into()]),
        Value::Float(number) => Ok(vec![number.to_string().into()]),
        _ => Err(refused(
            path,
            format_args!("{long} = {value}: write a text, a number or a list of them"),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    fn read(files: &[(&str, &str)]) -> Result<Files, Failure> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Files::read(dir.path(), &Args::command())
    }

    #[test]
    fn the_last_file_counts() {
        let files = [
            ("20-b.toml", "[mount]\nwrite-delay = 0.5\ntrusted = true\n"),
            (
                "10-a.toml",
                "[mount]\nwrite-delay = 7\n[serve]\ngrace = 1\n",
            ),
            ("note.txt", "rubbish"),
        ];
        let files = read(&files).unwrap();
        let program = Args::command();
        let mount = called(&program, "mount".as_ref()).unwrap();
        let of = |long: &str| {
            let option = options(mount).find(|one| one.get_long() == Some(long));
            files.setting(mount, option.unwrap()).unwrap()
        };
        assert_eq!(of("write-delay").unwrap().values, ["0.5"]);
        assert_eq!(of("trusted").unwrap().values, [""]);
        assert_eq!(of("intr"), None);
        assert_eq!(files.paths().count(), 2);
    }

    #[test]
    fn what_no_command_knows_is_refused_with_what_there_is() {
        let refused = |text: &str| read(&[("a.toml", text)]).unwrap_err().to_string();
        assert!(refused("[mnt]\n").contains("[mnt] is no command; there are up, down"));
        assert!(refused("[mount]\ncache = 'exact'\nmib = 3\n").contains("no option mib; it has"));
        assert!(refused("cache-mib = 3\n").contains("is no command"));
        assert!(refused("mount = 3\n").contains("below the name of a command"));
        assert!(refused("[mount\n").contains("a.toml"));
        assert!(refused("[mount]\nhelp = true\n").contains("no option help"));
    }

    #[test]
    fn a_directory_that_is_not_there_says_nothing() {
        let files = Files::read(Path::new("/no/such/dir"), &Args::command()).unwrap();
        assert_eq!(files.paths().count(), 0);
    }
}
