//! Users by the names that the cell and this machine give them.
//!
//! Guarantees: a name of the cell counts before one of this machine, as it does at the server; a
//! number is shown under a name only where that name would be taken for it.

use crate::args::AdminArgs;
use crate::failure::Failure;
use crate::{login, membership};
use cell::{Answer, Question};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Names and numbers.
pub(crate) type Names = BTreeMap<String, u32>;

/// The users of the cell and of this machine.
pub(crate) struct Known {
    of_cell: Names,
    of_machine: Names,
    /// The reason why those of the cell are not known.
    why_not: Option<String>,
}

impl Known {
    /// As the mount there, or any one, is told of the cell's.
    pub(crate) fn through(mount: Option<&Path>) -> Self {
        Self::with(through(mount).map_err(|error| format!("{error:#}")))
    }

    /// As an administrator is told of the cell's.
    pub(crate) fn to_administrator(admin: &AdminArgs) -> Self {
        Self::with(to_administrator(admin).map_err(|failure| failure.to_string()))
    }

    /// As somebody is told who asks without a cell.
    pub(crate) fn here() -> Self {
        Self::with(Ok(Names::new()))
    }

    fn with(of_cell: Result<Names, String>) -> Self {
        let (of_cell, why_not) = match of_cell {
            Ok(names) => (names, None),
            Err(why) => (Names::new(), Some(why)),
        };
        Self {
            of_cell,
            of_machine: of_machine(),
            why_not,
        }
    }

    /// The number of the user whom a word names.
    pub(crate) fn number(&self, word: &str) -> Option<u32> {
        let known = self.of_cell.get(word).or_else(|| self.of_machine.get(word));
        known.copied().or_else(|| word.parse().ok())
    }

    /// The word for a user.
    pub(crate) fn name(&self, uid: u32) -> String {
        let named = |(_, number): &(&String, &u32)| **number == uid;
        let of_machine = self.of_machine.iter().filter(named);
        let mut clear = of_machine.filter(|(name, _)| !self.of_cell.contains_key(*name));
        let found = self.of_cell.iter().find(named).or_else(|| clear.next());
        found.map_or_else(|| uid.to_string(), |(name, _)| name.clone())
    }

    /// The reason why the cell's users are not known, for the end of a message.
    pub(crate) fn why_not(&self) -> String {
        let why = self.why_not.as_ref();
        why.map_or_else(String::new, |why| {
            format!(" (the cell was not asked: {why})")
        })
    }
}

/// The users of the cell of a mount.
pub(crate) fn through(mount: Option<&Path>) -> anyhow::Result<Names> {
    let mut answer = login::ask(mount, &json!({ "ask": "names" }))?;
    let names: Value = answer["names"].take();
    Ok(serde_json::from_value(names)?)
}

fn to_administrator(admin: &AdminArgs) -> Result<Names, Failure> {
    let what = "user list";
    match membership::ask(what, admin, &Question::Users)?.1 {
        Answer::Users(users) => Ok(users.into_iter().map(|it| (it.name, it.uid)).collect()),
        _ => Err(Failure::of(what, cell::AskError::Strange)),
    }
}

/// The users of this machine.
pub(crate) fn of_machine() -> Names {
    table("/etc/passwd")
}

/// Names and numbers of a file like `/etc/passwd`.
pub(crate) fn table(path: &str) -> Names {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let one = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some((name.to_owned(), id.parse().ok()?))
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(&str, u32)]) -> Names {
        all.iter()
            .map(|(name, uid)| ((*name).to_owned(), *uid))
            .collect()
    }

    #[test]
    fn names_of_the_cell_count_before_those_of_the_machine() {
        let known = Known {
            of_cell: names(&[("ann", 1001), ("bob", 1002)]),
            of_machine: names(&[("ann", 7), ("carl", 8), ("robert", 1002)]),
            why_not: None,
        };
        assert_eq!(known.number("ann"), Some(1001));
        assert_eq!(known.number("carl"), Some(8));
        assert_eq!(known.number("4711"), Some(4711));
        assert_eq!(known.number("dora"), None);
        assert_eq!(known.name(1001), "ann");
        assert_eq!(known.name(1002), "bob");
        assert_eq!(known.name(8), "carl");
        assert_eq!(
            known.name(7),
            "7",
            "the machine's ann is not whom `ann` names"
        );
    }
}
