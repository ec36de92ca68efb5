//! The table of cases of docs/semantics.md, each judged by the rule itself.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_access::{Entry, List, Rights, Who};
use wire::{Attr, Caller, Kind};

const PAGE: &str = include_str!("../../../docs/semantics.md");
const HEAD: &str = "| list of the directory | of the object | caller | may | may not |";

/// The rows below the head of the table.
fn rows() -> Vec<Vec<&'static str>> {
    let table = PAGE.split_once(HEAD).expect("the page has the table").1;
    let lines = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    lines.map(cells).collect()
}

/// `user 5: rl`, `group 100: r`, `anyone: l`; `not user 5: w` takes.
fn list(text: &str) -> List {
    let entry = |text: &str| {
        let (who, rights) = text.split_once(':').unwrap();
        let (negative, who) = match who.trim().strip_prefix("not ") {
            Some(who) => (true, who),
            None => (false, who.trim()),
        };
        let who = match who.split_once(' ') {
            Some(("user", uid)) => Who::User(uid.parse().unwrap()),
            Some(("group", gid)) => Who::Group(gid.parse().unwrap()),
            _ => Who::Anyone,
        };
        let rights = Rights::parse(rights.trim()).unwrap();
        Entry {
            negative,
            who,
            rights,
        }
    };
    match text {
        "empty" => List::default(),
        _ => List::new(text.split(';').map(entry).collect()).unwrap(),
    }
}

/// `file 640 of user 1`, `directory 700 of user 1`.
fn object(text: &str) -> Attr {
    let words: Vec<&str> = text.split_whitespace().collect();
    let kind = match words[0] {
        "file" => Kind::File,
        _ => Kind::Directory,
    };
    let mode = u16::from_str_radix(words[1], 8).unwrap();
    let uid = words.last().unwrap().parse().unwrap();
    Attr {
        uid,
        ..Attr::new(kind, mode, 0)
    }
}

/// `user 5`, `user 5 of group 100`.
fn caller(text: &str) -> Caller {
    let words: Vec<&str> = text.split_whitespace().collect();
    let gid = words.get(4).map_or(50, |gid| gid.parse().unwrap());
    Caller {
        uid: words[1].parse().unwrap(),
        gid,
        groups: Some(vec![]),
    }
}

/// May he do it? Deeds about files are judged by the mode bits, others by the rights.
fn may(deed: &str, list: &List, object: &Attr, caller: &Caller) -> bool {
    let (bits, rights) = (list.bits(caller, object), list.rights(caller, object));
    match deed {
        "read" => bits & 4 != 0,
        "write" => bits & 2 != 0,
        "execute" => bits & 1 != 0,
        "look up" => bits & 1 != 0,
        "insert" => rights.has(Rights::INSERT),
        "delete" => rights.has(Rights::DELETE),
        "lock" => rights.has(Rights::LOCK),
        "administer" => rights.has(Rights::ADMINISTER),
        other => panic!("no deed: {other}"),
    }
}

#[test]
fn the_cases_of_the_page_are_decided_so() {
    let rows = rows();
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        let (list, object, caller) = (list(row[0]), object(row[1]), caller(row[2]));
        for (cell, expected) in [(row[3], true), (row[4], false)] {
            for deed in cell.split(',').map(str::trim).filter(|deed| *deed != "-") {
                assert_eq!(
                    may(deed, &list, &object, &caller),
                    expected,
                    "{deed}: {row:?}"
                );
            }
        }
    }
}
