//! Groups, from outside: who may change what, nesting, and what is in force when.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::test_cell::{cell, machine};

fn create(name: &str) -> GroupDeed {
    GroupDeed::Create { name: name.into() }
}

fn change(name: &str, member: &str, add: bool) -> GroupDeed {
    GroupDeed::Change {
        name: name.into(),
        member: member.into(),
        uid: None,
        add,
    }
}

/// Does it; the table that was in force then, if it was another one.
fn does(cell: &Cell, at: (&Machine, u32), deed: &GroupDeed) -> Result<Option<Members>, String> {
    let seen = Mutex::new(None);
    let in_force = |members| {
        *seen.lock() = Some(members);
        Ok(())
    };
    let done = cell.do_with_groups(at, deed, &in_force);
    done.map_err(|error| error.to_string())?;
    Ok(seen.into_inner())
}

#[test]
fn users_own_groups_under_their_names_and_others_do_not_change_them() {
    let (_dir, cell) = cell();
    let build = machine(&cell, "build", true);
    let (ann, bob) = ((&build, 1001), (&build, 1002));
    let wrong = does(&cell, ann, &create("friends")).unwrap_err();
    assert!(wrong.contains("1001:NAME"), "{wrong}");
    assert!(does(&cell, ann, &create("1002:friends")).is_err());
    does(&cell, ann, &create("1001:friends")).unwrap();
    assert!(does(&cell, ann, &create("1001:friends")).is_err(), "twice");
    for deed in [
        change("1001:friends", "1002", true),
        GroupDeed::Delete {
            name: "1001:friends".into(),
        },
        GroupDeed::Rename {
            name: "1001:friends".into(),
            to: "1002:x".into(),
        },
    ] {
        assert!(does(&cell, bob, &deed).unwrap_err().contains("not yours"));
    }
    let members = does(&cell, ann, &change("1001:friends", "1002", true)).unwrap();
    let gid = cell.groups()[0].gid;
    assert_eq!(members.unwrap().groups_of(1002), [gid]);
    assert!(does(&cell, ann, &change("1001:friends", "1002", true)).is_err());
    // A new owner has it under his name.
    let to = |to: &str| GroupDeed::Chown {
        name: "1001:friends".into(),
        to: to.into(),
        uid: None,
    };
    does(&cell, ann, &to("1002")).unwrap();
    assert_eq!(cell.groups()[0].name, "1002:friends");
    assert!(does(&cell, ann, &change("1002:friends", "1003", true)).is_err());
    does(&cell, bob, &change("1002:friends", "1002", false)).unwrap();
}

#[test]
fn machines_ask_for_those_alone_for_whom_they_speak() {
    let (_dir, cell) = cell();
    let (build, desk) = (machine(&cell, "build", true), machine(&cell, "desk", false));
    for at in [(&build, 0), (&build, 2000), (&desk, 1001), (&desk, 0)] {
        let wrong = does(&cell, at, &create("1001:x")).unwrap_err();
        assert!(wrong.contains("does not speak for you"), "{wrong}");
    }
    let administrator = cell.machines().into_iter();
    let administrator = administrator.filter(|it| it.role == Role::Administrator);
    for machine in administrator {
        does(&cell, (&machine, 0), &create("staff")).unwrap();
    }
}

#[test]
fn groups_nest_and_none_contains_itself() {
    let (_dir, cell) = cell();
    let build = machine(&cell, "build", true);
    let ann = (&build, 1001);
    for name in ["1001:a", "1001:b", "1001:c"] {
        does(&cell, ann, &create(name)).unwrap();
    }
    does(&cell, ann, &change("1001:a", "1001:b", true)).unwrap();
    does(&cell, ann, &change("1001:b", "1001:c", true)).unwrap();
    for outer in ["1001:b", "1001:c"] {
        let wrong = does(&cell, ann, &change(outer, "1001:a", true)).unwrap_err();
        assert!(wrong.contains("contain itself"), "{wrong}");
    }
    assert!(does(&cell, ann, &change("1001:a", "1001:a", true)).is_err());
    let members = does(&cell, ann, &change("1001:c", "1005", true))
        .unwrap()
        .unwrap();
    assert_eq!(members.groups_of(1005).len(), 3);
    let members = does(&cell, ann, &change("1001:a", "1001:b", false))
        .unwrap()
        .unwrap();
    assert_eq!(members.groups_of(1005).len(), 2);
    // Nobody is in a group that is gone, and its number is never given again.
    let gone = cell.groups()[2].gid;
    let delete = GroupDeed::Delete {
        name: "1001:c".into(),
    };
    assert!(
        does(&cell, ann, &delete)
            .unwrap()
            .unwrap()
            .groups_of(1005)
            .is_empty()
    );
    does(&cell, ann, &create("1001:c")).unwrap();
    assert!(cell.groups().iter().all(|group| group.gid != gone));
}

#[test]
fn what_is_not_in_force_is_not_noted_and_what_is_noted_stays() {
    let (dir, cell) = cell();
    let build = machine(&cell, "build", true);
    let ann = (&build, 1001);
    does(&cell, ann, &create("1001:a")).unwrap();
    let refuses = |_| Err("a server restarts".to_owned());
    let deed = change("1001:a", "1002", true);
    assert!(cell.do_with_groups(ann, &deed, &refuses).is_err());
    assert!(cell.group_members().groups_of(1002).is_empty());
    does(&cell, ann, &deed).unwrap();
    let before = cell.groups();
    drop(cell);
    let cell = Cell::open(&dir.path().join("cell")).unwrap();
    assert_eq!(cell.groups(), before);
    assert_eq!(cell.group_members().groups_of(1002), [before[0].gid]);
}
