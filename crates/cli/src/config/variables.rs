//! Variables that look as if they set an option, and set none.
//!
//! Guarantees: a variable is told of only where a command begins whose options it would set; the
//! nearest names that count are told with it.

use super::{STARTING, options, variable_name};
use crate::failure::{Failure, NOT_RUN};
use clap::Command;
use std::ffi::{OsStr, OsString};

/// So many names are shown; none differs in more than a third, or two letters.
const SHOWN: usize = 3;

/// The beginning of the variables that set options of a command.
fn prefix(command: &Command) -> String {
    format!(
        "ARIEL_{}_",
        command.get_name().replace('-', "_").to_uppercase()
    )
}

/// The command whose options a variable would set, by its name.
fn owner<'a>(program: &'a Command, name: &str) -> Option<&'a Command> {
    let all = program.get_subcommands();
    let own = all.filter(|one| !one.is_hide_set() && name.starts_with(&prefix(one)));
    // `ARIEL_JOIN_TOKEN_USES` is of `join-token`, not of `join`.
    own.max_by_key(|one| one.get_name().len())
}

/// Every variable that would set an option of this command, or of those that it starts, does.
pub(super) fn check(
    program: &Command,
    command: &Command,
    names: impl Iterator<Item = OsString>,
) -> Result<(), Failure> {
    // `up` starts the two others, which would end with the error.
    let checked = |one: &str| match command.get_name() {
        "up" => STARTING.contains(&one),
        name => name == one,
    };
    for name in names {
        let Some(name) = name.to_str().filter(|name| name.starts_with("ARIEL_")) else {
            continue;
        };
        let Some(owner) = owner(program, name).filter(|one| checked(one.get_name())) else {
            continue;
        };
        let known: Vec<String> = options(owner).map(|it| variable_name(owner, it)).collect();
        if !known.iter().any(|one| one == name) {
            return Err(refused(owner.get_name(), name, &known));
        }
    }
    Ok(())
}

fn refused(command: &str, name: &str, known: &[String]) -> Failure {
    let mut near: Vec<(usize, &String)> = known.iter().map(|it| (distance(name, it), it)).collect();
    near.sort();
    let most = name.len().saturating_sub(prefix_len(command)) / 3;
    let near = near.iter().filter(|(far, _)| *far <= most.max(2));
    let near: Vec<&str> = near.take(SHOWN).map(|(_, name)| name.as_str()).collect();
    let meant = match near.as_slice() {
        [] => String::new(),
        near => format!("is {} meant? ", near.join(" or ")),
    };
    Failure::new(
        NOT_RUN,
        format_args!(
            "the variable {name} sets no option of `ariel {command}`: {meant}\
             `ariel config show {command}` shows all"
        ),
    )
}

fn prefix_len(command: &str) -> usize {
    "ARIEL__".len() + command.len()
}

/// The letters to put in, take out or replace so that one word becomes the other (Wagner, Fischer:
/// The String-to-String Correction Problem).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.bytes().enumerate() {
            let replaced = before + usize::from(letter != wanted);
            before = row[place + 1];
            row[place + 1] = replaced.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

/// A variable that is set, and not to nothing.
pub(super) fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| value.as_os_str() != OsStr::new(""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::Args;
    use crate::config::called;
    use clap::CommandFactory;

    fn checked(command: &str, name: &str) -> Result<(), Failure> {
        let program = Args::command();
        let command = called(&program, command.as_ref()).unwrap();
        check(&program, command, [OsString::from(name)].into_iter())
    }

    #[test]
    fn a_variable_that_sets_nothing_is_told_with_the_nearest_that_does() {
        let told = checked("mount", "ARIEL_MOUNT_CHACHE_MIB").unwrap_err();
        assert_eq!(told.code, NOT_RUN);
        let told = told.to_string();
        assert!(told.contains("ARIEL_MOUNT_CHACHE_MIB"), "{told}");
        assert!(told.contains("is ARIEL_MOUNT_CACHE_MIB"), "{told}");
        let told = checked("mount", "ARIEL_MOUNT_CHACHE")
            .unwrap_err()
            .to_string();
        assert!(told.contains("ARIEL_MOUNT_CACHE meant"), "{told}");
        let told = checked("serve", "ARIEL_SERVE_XQYZXQYZ")
            .unwrap_err()
            .to_string();
        assert!(
            !told.contains("meant") && told.contains("config show serve"),
            "{told}"
        );
        assert!(
            checked("up", "ARIEL_MOUNT_CHACHE").is_err(),
            "it starts a mount"
        );
        // A name that one command does not know may be of another one, or of no command.
        for (command, name) in [
            ("mount", "ARIEL_MOUNT_CACHE_MIB"),
            ("serve", "ARIEL_MOUNT_CHACHE"),
            ("join", "ARIEL_JOIN_TOKEN_USSES"),
            ("mount", "ARIEL_IT_MOUNT"),
            ("mount", "ARIEL_LONG"),
            ("mount", "ARIEL_CONFIG"),
        ] {
            assert!(checked(command, name).is_ok(), "{command} {name}");
        }
    }

    #[test]
    fn words_are_near_that_differ_in_few_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
