//! The door's answers to keys of all kinds.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::authority::{PublicKey, new_key};
use crate::members::LIFE_S;
use crate::question::Invite;
use crate::user::User;
use std::fs;

/// A question of each kind that an administrator alone may ask; the last one takes a machine's
/// rights.
fn of_administrators() -> Vec<Question> {
    let rights = Rights {
        root: true,
        ..Rights::default()
    };
    let user = User {
        name: "ann".into(),
        uid: 1001,
        gid: 100,
        groups: vec![],
        keys: vec![],
        password: false,
    };
    let name = || "desk".to_owned();
    vec![
        Question::Invite(Invite {
            uses: 1,
            for_s: 60,
            role: Role::Administrator,
            rights: rights.clone(),
        }),
        Question::Machines,
        Question::Limited {
            parts: vec!["home:/".into()],
            question: Box::new(Question::Grant {
                name: name(),
                rights: rights.clone(),
            }),
        },
        Question::Grant {
            name: name(),
            rights,
        },
        Question::SetUser {
            user,
            password: Some("a password".into()),
            new: true,
        },
        Question::Users,
        Question::RemoveUser { name: "ann".into() },
        Question::ForgetServer {
            name: "other".into(),
        },
        Question::Revoke { name: name() },
    ]
}

fn asked(door: &CellDoor, key: Option<KeyPrint>, question: &Question) -> Answer {
    let question = serde_json::to_vec(question).unwrap();
    serde_json::from_slice(&door.answer(key, &question)).unwrap()
}

/// The key of a machine, or an administrator, that joins.
fn joined(door: &CellDoor, name: &str, role: Role) -> Option<KeyPrint> {
    let invite = Invite {
        uses: 1,
        for_s: 60,
        role,
        rights: Rights::default(),
    };
    let (secret, _) = door.cell().invite(&invite, &[]).unwrap();
    let (_, public) = new_key().unwrap();
    door.cell().join(&secret, name, &public).unwrap();
    PublicKey::parse(&public).map(|key| key.print())
}

#[test]
fn an_administrators_questions_are_answered_to_administrators_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cell");
    Cell::make(&path, "own").unwrap();
    let door = CellDoor::open(&path, LIFE_S).unwrap();
    let desk = joined(&door, "desk", Role::Machine);
    let administrator = joined(&door, "ops", Role::Administrator);
    let gone = joined(&door, "gone", Role::Administrator);
    door.cell().revoke("gone").unwrap();
    let before = door.cell().machines();
    let refusal = |question: &Question, other: Option<KeyPrint>| match asked(&door, other, question)
    {
        Answer::Refused(why) => why,
        answer => panic!("{answer:?}"),
    };
    let mut refusals = 0;
    for question in &of_administrators() {
        assert!(question.is_administrators());
        for (other, reason) in [
            (None, NOT_ADMINISTRATOR),
            (desk, NOT_ADMINISTRATOR),
            (gone, "was revoked"),
            (Some(KeyPrint::of_key(b"unknown")), "does not know"),
        ] {
            let why = refusal(question, other);
            assert!(why.contains(reason), "{why}");
            refusals += 1;
        }
    }
    assert_eq!(door.cell().machines(), before);
    assert!(door.cell().users().is_empty());
    let audit = fs::read_to_string(path.join("audit.log")).unwrap();
    assert_eq!(audit.matches("\"refused\":\"").count(), refusals);
    assert!(!audit.contains("a password"));
    for question in &of_administrators() {
        let answer = asked(&door, administrator, question);
        let forgets = matches!(question, Question::ForgetServer { .. });
        assert_eq!(matches!(answer, Answer::Refused(_)), forgets, "{answer:?}");
    }
}

#[test]
fn a_grant_that_is_not_in_force_is_told_again_whatever_comes_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cell");
    Cell::make(&path, "own").unwrap();
    let door = CellDoor::open(&path, LIFE_S).unwrap();
    let administrator = joined(&door, "ops", Role::Administrator);
    joined(&door, "desk", Role::Machine);
    let tries = std::sync::Arc::new(Mutex::new(0));
    let counted = std::sync::Arc::clone(&tries);
    door.tell(Box::new(move |_, (change, _)| {
        assert_eq!(change, Change::Regranted);
        *counted.lock() += 1;
        match *counted.lock() {
            1 => Err("not yet".into()),
            _ => Ok(()),
        }
    }));
    let grant = |root| Question::Grant {
        name: "desk".into(),
        rights: Rights {
            root,
            ..Rights::default()
        },
    };
    match asked(&door, administrator, &grant(true)) {
        Answer::Refused(why) => assert!(why.ends_with("not yet"), "{why}"),
        answer => panic!("{answer:?}"),
    }
    // Back to what it was: mounts may have come back under the other one.
    let answer = asked(&door, administrator, &grant(false));
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    assert_eq!(*tries.lock(), 2);
}

#[test]
fn only_grants_and_invitations_are_limited_to_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cell");
    Cell::make(&path, "own").unwrap();
    let door = CellDoor::open(&path, LIFE_S).unwrap();
    let administrator = joined(&door, "ops", Role::Administrator);
    let limited = |question| Question::Limited {
        parts: vec!["home:/".into()],
        question: Box::new(question),
    };
    // Each question is answered and noted, whoever asks.
    for asker in [None, administrator] {
        for question in of_administrators() {
            let granted = matches!(question, Question::Grant { .. } | Question::Invite(_));
            let answer = asked(&door, asker, &limited(question));
            let refused = matches!(answer, Answer::Refused(_));
            assert!(refused || (granted && asker.is_some()), "{answer:?}");
        }
    }
    let wrong = Question::Limited {
        parts: vec!["/a/../b".into()],
        question: Box::new(of_administrators().remove(0)),
    };
    match asked(&door, administrator, &wrong) {
        Answer::Refused(why) => assert!(why.contains("is no part of the tree"), "{why}"),
        answer => panic!("{answer:?}"),
    }
}
