//! `ariel cell servers`: the servers of a cell, and which of them answer.
//!
//! Guarantees: each server that says of itself that it runs is asked whether it does, all at the
//! same time; one that does not answer is shown with the reason, and keeps no other from being
//! shown.

use super::{ask, strange};
use crate::args::CellServersArgs;
use crate::failure::Failure;
use crate::{at_once, show};
use cell::{Answer, Credential, Question, ServerLine};
use net::Addresses;
use serde_json::{Value, json};
use std::fmt::Write as _;

const WHAT: &str = "cell servers";

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It answers.
    Runs,
    /// It has ended, and said so.
    Ended,
    /// It has not said that it has ended, and does not answer.
    Silent(String),
}

pub(super) fn servers(args: &CellServersArgs) -> Result<(), Failure> {
    let (credential, Answer::Servers(lines)) = ask(WHAT, &args.admin, &Question::Servers)? else {
        return Err(strange(WHAT));
    };
    let states = states(&credential, &lines)?;
    show::print(&match args.json {
        true => format!("{:#}", as_json(&lines, &states)),
        false => table(&lines, &states),
    });
    Ok(())
}

/// Asks all of them.
fn states(credential: &Credential, lines: &[ServerLine]) -> Result<Vec<State>, Failure> {
    let tls = credential.tls().map_err(|error| Failure::of(WHAT, error))?;
    let asked = lines.iter().map(|line| line.addresses.clone()).collect();
    let answers = at_once::ask(asked, move |addresses: Option<String>| {
        let Some(addresses) = addresses else {
            return State::Ended;
        };
        let asked = addresses
            .parse::<Addresses>()
            .map_err(|error| error.to_string());
        let asked = asked.and_then(|addresses| {
            let answer = cell::ask(&addresses, &tls, &Question::Servers);
            answer.map_err(|error| error.to_string())
        });
        asked.map_or_else(State::Silent, |_| State::Runs)
    });
    let mut states = vec![State::Silent("it was not asked".to_owned()); lines.len()];
    for (place, state) in answers {
        states[place] = state;
    }
    Ok(states)
}

fn as_json(lines: &[ServerLine], states: &[State]) -> Value {
    let one = |(line, state): (&ServerLine, &State)| {
        let mut shown = json!(line);
        let (word, why) = match state {
            State::Runs => ("runs", None),
            State::Ended => ("ended", None),
            State::Silent(why) => ("silent", Some(why)),
        };
        (shown["state"], shown["why"]) = (json!(word), json!(why));
        shown
    };
    lines.iter().zip(states).map(one).collect()
}

fn table(lines: &[ServerLine], states: &[State]) -> String {
    if lines.is_empty() {
        return "This cell has one server, and its database is in the server's directory.".into();
    }
    let latest = lines.iter().map(|line| line.revision).max().unwrap_or(0);
    let mut text = String::from("NAME                 STATE        KNOWS        ADDRESSES\n");
    for (line, state) in lines.iter().zip(states) {
        let knows = match (&line.addresses, latest - line.revision) {
            (None, _) => "-".to_owned(),
            (_, 0) => "all".to_owned(),
            (_, behind) => format!("{behind} behind"),
        };
        let addresses = line.addresses.as_deref().unwrap_or("-");
        let (state, why) = match state {
            State::Runs => ("runs", String::new()),
            State::Ended => ("not running", String::new()),
            State::Silent(why) => ("no answer", format!("  ({why})")),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<20} {state:<12} {knows:<12} {addresses}{why}",
            line.name
        );
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_told_from_one_that_ended() {
        let line = |name: &str, addresses: Option<&str>, revision| ServerLine {
            name: name.to_owned(),
            addresses: addresses.map(str::to_owned),
            revision,
            number: 0,
        };
        let lines = [
            line("one", Some("a:1"), 5),
            line("two", None, 2),
            line("three", Some("c:3"), 3),
        ];
        let silent = State::Silent("Connection refused".to_owned());
        let states = [State::Runs, State::Ended, silent];
        let text = table(&lines, &states);
        let words = |at: usize| {
            let line = text.lines().nth(at).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(1), "one runs all a:1");
        assert_eq!(words(2), "two not running - -");
        assert_eq!(
            words(3),
            "three no answer 2 behind c:3 (Connection refused)"
        );
        let shown = as_json(&lines, &states);
        assert_eq!(shown[0]["state"], "runs");
        assert_eq!(shown[2]["state"], "silent");
        assert_eq!(shown[2]["why"], "Connection refused");
    }
}
