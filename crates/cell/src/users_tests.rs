//! Users and their logins, from outside.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::test_cell::{cell, machine};
use crate::token::{Narrower, attenuate};

fn ann() -> User {
    User {
        name: "ann".into(),
        uid: 1001,
        gid: 100,
        groups: vec![7],
        keys: vec![],
        password: false,
    }
}

fn password(text: &str) -> Proof {
    Proof::Password(text.to_owned())
}

fn told<T: std::fmt::Debug>(result: Result<T, CellError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_user_logs_in_with_his_password_where_he_may() {
    let (_dir, cell) = cell();
    let (desk, trusted) = (machine(&cell, "desk", false), machine(&cell, "build", true));
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    let right = password("correct horse");
    let login = |machine: &Machine, uid, proof: &Proof| {
        cell.login(machine, ("ann", uid), proof, (60, false))
    };
    let given = login(&desk, 1001, &right).unwrap();
    let proven = cell.proven(desk.id, &desk.rights);
    assert_eq!(proven.len(), 1);
    assert_eq!(
        (proven[0].uid, proven[0].gid, &proven[0].groups),
        (1001, 100, &vec![7])
    );
    assert!(proven[0].write && !proven[0].expired && proven[0].under.is_none());
    assert!(cell.proven(trusted.id, &trusted.rights).is_empty());
    assert!(told(login(&desk, 1002, &right)).contains("number 1001"));
    assert!(told(login(&trusted, 1001, &right)).contains("trusted"));
    assert!(told(login(&desk, 1001, &password("wrong horse"))).contains("ariel user passwd"));
    // A token of one machine is worth nothing on another, nor to another user.
    let other = machine(&cell, "other", false);
    let shown = |machine, uid| cell.present(machine, (&given.token, uid), None);
    assert!(told(shown(&other, 1001)).contains("another machine"));
    assert!(told(shown(&desk, 1002)).contains("ann"));
    shown(&desk, 1001).unwrap();
    cell.logout(&desk, 1001).unwrap();
    assert!(cell.proven(desk.id, &desk.rights).is_empty());
    // A token of a removed user counts no more.
    shown(&desk, 1001).unwrap();
    assert_eq!(cell.remove_user("ann").unwrap(), [desk.id]);
    assert!(cell.proven(desk.id, &desk.rights).is_empty());
    assert!(told(shown(&desk, 1001)).contains("no user ann"));
    assert!(told(login(&desk, 1001, &right)).contains("no such user"));
}

#[test]
fn wrong_passwords_are_taken_at_a_bounded_rate() {
    let (_dir, cell) = cell();
    let desk = machine(&cell, "desk", false);
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    let login = |text: &str| cell.login(&desk, ("ann", 1001), &password(text), (60, false));
    for _ in 0..WRONG_MAX {
        assert!(told(login("wrong horse")).contains("no such user"));
    }
    assert!(told(login("correct horse")).contains("wait a minute"));
}

#[test]
fn logins_outlive_the_server_and_lapse_in_time() {
    let (dir, cell) = cell();
    let desk = machine(&cell, "desk", false);
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    let proof = password("correct horse");
    cell.login(&desk, ("ann", 1001), &proof, (2, true)).unwrap();
    drop(cell);
    let cell = Cell::open(&dir.path().join("cell")).unwrap();
    assert_eq!(cell.proven(desk.id, &desk.rights).len(), 1);
    // It tells when the login has expired, and remembers for a while that there was one.
    assert_eq!(cell.users.lapsed(), Some(vec![desk.id]));
    assert!(cell.proven(desk.id, &desk.rights)[0].expired);
    cell.users.stop();
    assert_eq!(cell.users.lapsed(), None);
}

#[test]
fn who_has_left_or_was_removed_is_known_for_what_he_was_answered_before() {
    let (dir, cell) = cell();
    let (desk, lab) = (machine(&cell, "desk", false), machine(&cell, "lab", false));
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    let proof = password("correct horse");
    let login = |at| cell.login(at, ("ann", 1001), &proof, (60, false)).unwrap();
    login(&desk);
    login(&lab);
    let on = |cell: &Cell, at: &Machine| {
        let (proven, ended) = (
            cell.proven(at.id, &at.rights),
            cell.ended(at.id, &at.rights),
        );
        (
            proven.len(),
            ended.iter().map(|user| user.caller()).collect::<Vec<_>>(),
        )
    };
    let known = cell.proven(desk.id, &desk.rights)[0].caller();
    assert_eq!(on(&cell, &desk), (1, vec![]));
    cell.logout(&desk, 1001).unwrap();
    assert_eq!(on(&cell, &desk), (0, vec![known.clone()]));
    assert_eq!(on(&cell, &lab), (1, vec![]), "he has left one machine");
    assert_eq!(cell.remove_user("ann").unwrap(), [lab.id], "where he was");
    assert_eq!(on(&cell, &lab), (0, vec![known.clone()]));
    drop(cell);
    let cell = Cell::open(&dir.path().join("cell")).unwrap();
    assert_eq!(on(&cell, &desk), (0, vec![known.clone()]));
    // A user who comes again under that name has the login alone that is new.
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    cell.login(&desk, ("ann", 1001), &proof, (60, false))
        .unwrap();
    assert_eq!(on(&cell, &desk), (1, vec![]));
}

#[test]
fn tokens_are_renewed_as_long_as_was_said_and_narrowed_ones_never() {
    let (_dir, cell) = cell();
    let desk = machine(&cell, "desk", false);
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    let proof = password("correct horse");
    let login = |once| {
        cell.login(&desk, ("ann", 1001), &proof, (60, once))
            .unwrap()
    };
    let longer = cell.extend(&desk, &login(false).token).unwrap();
    assert!(longer.expires_s > now_s() + 60);
    assert!(told(cell.extend(&desk, &login(true).token)).contains("ariel login"));
    let narrow = Narrower {
        path: Some("/job/7".into()),
        read_only: true,
        expires_s: None,
    };
    let narrowed = attenuate(&login(false).token, &narrow).unwrap();
    assert!(told(cell.extend(&desk, &narrowed)).contains("not renewed"));
    // It counts in its session, beside what counts in the others.
    cell.present(&desk, (&narrowed, 1001), Some(42)).unwrap();
    let rights = Rights {
        users: cell.proven(desk.id, &desk.rights),
        ..desk.rights.clone()
    };
    let within = |session| rights.clone().within(session).users;
    let (own, others) = (within(42), within(43));
    assert_eq!((own.len(), others.len()), (1, 1));
    assert_eq!(own[0].under.as_ref().map(Vec::len), Some(2));
    assert!(!own[0].write && others[0].write && others[0].under.is_none());
}

#[test]
fn users_are_plain_and_told_apart() {
    let (_dir, cell) = cell();
    cell.set_user(ann(), None, true).unwrap();
    assert!(told(cell.set_user(ann(), None, true)).contains("already"));
    let bob = |uid, name: &str| User {
        uid,
        name: name.into(),
        ..ann()
    };
    assert!(told(cell.set_user(bob(1001, "bob"), None, true)).contains("ann has the number"));
    for (uid, name) in [
        (0, "bob"),
        (65_534, "bob"),
        (1002, "Bob"),
        (1002, ""),
        (1002, "a\"b"),
    ] {
        assert!(
            cell.set_user(bob(uid, name), None, true).is_err(),
            "{uid} {name}"
        );
    }
    assert!(told(cell.set_user(bob(1002, "bob"), None, false)).contains("no user bob"));
    let key = User {
        keys: vec!["ssh-rsa AAAAB3".into()],
        ..bob(1002, "bob")
    };
    assert!(told(cell.set_user(key, None, true)).contains("ssh-ed25519"));
    assert_eq!(cell.users(), [ann()]);
}

#[test]
fn a_token_that_expires_at_once_is_refused_with_the_reason() {
    let (_dir, cell) = cell();
    let desk = machine(&cell, "desk", false);
    cell.set_user(ann(), Some("correct horse"), true).unwrap();
    let proof = password("correct horse");
    let login = |for_s| cell.login(&desk, ("ann", 1001), &proof, (for_s, true));
    for for_s in [0, 1] {
        let why = told(login(for_s));
        assert!(
            why.contains("expires before") && why.contains("2s at least"),
            "{why}"
        );
    }
    assert!(cell.proven(desk.id, &desk.rights).is_empty());
    let given = login(60).unwrap();
    let narrowed = |expires_s| {
        let to = Narrower {
            expires_s: Some(expires_s),
            ..Narrower::default()
        };
        let token = attenuate(&given.token, &to).unwrap();
        cell.present(&desk, (&token, 1001), Some(42))
    };
    assert!(told(narrowed(now_s() + 1)).contains("expire"));
    let why = told(narrowed(now_s() - 1));
    assert!(
        why.contains("longer --expires") && why.contains("has expired"),
        "{why}"
    );
    narrowed(now_s() + 30).unwrap();
}
