//! The table of docs/semantics.md about modes, POSIX lists and lists of directories together: each
//! row is set up in a store, and the store is asked.

use crate::world::*;
use access::{Entry as Right, List, Rights, Who};
use ariel_store::Store;
use wire::posix_acl::{GROUP, GROUP_OBJ, MASK, NO_ID, OTHER, USER, USER_OBJ, VERSION};
use wire::*;

const PAGE: &str = include_str!("../../../../docs/semantics.md");
const HEAD: &str = "| list of the directory | POSIX list of the file | caller | may | may not |";

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

fn setxattr(fid: Fid, called: &[u8], value: Vec<u8>) -> Op {
    Op::SetXattr {
        fid,
        name: called.to_vec(),
        value,
        mode: XattrMode::Any,
    }
}

/// `user 5: rl`, `anyone: rlw`, `empty`.
fn list(text: &str) -> Vec<u8> {
    let entry = |text: &str| {
        let (who, rights) = text.split_once(':').unwrap();
        Right {
            negative: false,
            who: match who.split_once(' ') {
                Some((_, uid)) => Who::User(uid.parse().unwrap()),
                None => Who::Anyone,
            },
            rights: Rights::parse(rights.trim()).unwrap(),
        }
    };
    match text {
        "empty" => List::default().encode(),
        text => List::new(vec![entry(text)]).unwrap().encode(),
    }
}

fn bits(text: &str) -> u16 {
    let one = |letter| match letter {
        'r' => 4,
        'w' => 2,
        '-' => 0,
        other => panic!("no bit: {other}"),
    };
    text.chars().map(one).sum()
}

/// Entries as setfacl(1) takes them, with those of a file 0640 around them, in Linux's form.
fn posix(text: &str) -> Vec<u8> {
    let mut entries = vec![
        (USER_OBJ, 6, NO_ID),
        (GROUP_OBJ, 4, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    for word in text.split(' ') {
        let mut parts = word.split(':');
        let tag = match parts.next().unwrap() {
            "u" => USER,
            "g" => GROUP,
            "m" => MASK,
            other => panic!("no tag: {other}"),
        };
        let id = parts.next().unwrap().parse().unwrap_or(NO_ID);
        entries.push((tag, bits(parts.next().unwrap()), id));
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// `user 5`, `user 5 of group 9`.
fn caller(text: &str) -> Caller {
    let words: Vec<&str> = text.split_whitespace().collect();
    let gid = words.get(4).map_or(50, |gid| gid.parse().unwrap());
    Caller {
        uid: words[1].parse().unwrap(),
        gid,
        groups: Some(vec![]),
    }
}

/// A file 0640 of user 1 and group 1, with these lists.
fn file((of_dir, of_file): (&str, &str)) -> (Store, Fid) {
    let mut store = Store::in_memory(&small()).unwrap();
    let dir = mkdir(&mut store, root(), "d");
    let fid = make(&mut store, dir, "f");
    let set = Set {
        mode: Some(0o640),
        uid: Some(1),
        gid: Some(1),
        ..Set::default()
    };
    let must = |store: &mut Store, op: &Op| {
        let outcome = run(store, op);
        assert!(
            !matches!(outcome, Outcome::Refused(_)),
            "{op:?}: {outcome:?}"
        );
    };
    must(&mut store, &Op::SetAttr { fid, set });
    if of_file != "-" {
        let value = posix(of_file);
        must(
            &mut store,
            &setxattr(fid, b"system.posix_acl_access", value),
        );
    }
    if of_dir != "-" {
        let (text, cleared) = match of_dir.strip_suffix(", cleared") {
            Some(text) => (text, true),
            None => (of_dir, false),
        };
        must(&mut store, &setxattr(dir, ACCESS_LIST, list(text)));
        if cleared {
            let name = ACCESS_LIST.to_vec();
            must(&mut store, &Op::RemoveXattr { fid: dir, name });
        }
    }
    (store, fid)
}

#[test]
fn modes_and_both_kinds_of_lists_decide_as_the_page_says() {
    let rows = rows();
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        let (store, fid) = file((row[0], row[1]));
        let caller = caller(row[2]);
        for (cell, expected) in [(row[3], true), (row[4], false)] {
            for deed in cell.split(',').map(str::trim).filter(|deed| *deed != "-") {
                let bit = match deed {
                    "read" => 4,
                    "write" => 2,
                    "execute" => 1,
                    other => panic!("no deed: {other}"),
                };
                let may = store.allows(&caller, fid, bit).unwrap();
                assert_eq!(may, expected, "{deed}: {row:?}");
            }
        }
    }
}
