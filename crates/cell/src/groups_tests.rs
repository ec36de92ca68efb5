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
fn does(
    cell: &Cell,
    (machine, uid): (&Machine, u32),
    deed: &GroupDeed,
) -> Result<Option<Members>, String> {
    let mount = Some("build:/mnt");
    let at = At {
        machine,
        uid,
        mount,
    };
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
    let at = At {
        machine: &build,
        uid: 1001,
        mount: None,
    };
    assert!(cell.do_with_groups(at, &deed, &refuses).is_err());
    assert!(cell.group_members().groups_of(1002).is_empty());
    does(&cell, ann, &deed).unwrap();
    let before = cell.groups();
    drop(cell);
    let cell = Cell::open(&dir.path().join("cell")).unwrap();
    assert_eq!(cell.groups(), before);
    assert_eq!(cell.group_members().groups_of(1002), [before[0].gid]);
}

fn hold(name: &str, held: bool) -> GroupDeed {
    GroupDeed::Hold {
        name: name.into(),
        held,
    }
}

/// A cell with a group in another one, and a third; user 1002 is in all of them.
fn nested() -> (tempfile::TempDir, Cell, Machine) {
    let (dir, cell) = cell();
    let build = machine(&cell, "build", true);
    let ann = (&build, 1001);
    for name in ["1001:inner", "1001:outer", "1001:other"] {
        does(&cell, ann, &create(name)).unwrap();
    }
    does(&cell, ann, &change("1001:outer", "1001:inner", true)).unwrap();
    does(&cell, ann, &change("1001:inner", "1002", true)).unwrap();
    does(&cell, ann, &change("1001:other", "1002", true)).unwrap();
    (dir, cell, build)
}

fn gid(cell: &Cell, name: &str) -> u32 {
    let all = cell.groups().into_iter();
    let mut named = all.filter(|group| group.name == name);
    named.next().unwrap().gid
}

/// The groups of user 1002 on the mount.
fn here(build: &Machine, members: &Members) -> Vec<u32> {
    members.on(build.id, b"build:/mnt").groups_of(1002).to_vec()
}

#[test]
fn a_membership_is_given_up_on_a_mount_with_all_that_it_gives() {
    let (_dir, cell, build) = nested();
    let (ann, bob) = ((&build, 1001), (&build, 1002));
    let told = |deed: &GroupDeed| does(&cell, bob, deed).unwrap_err();
    let changed = |at, deed: &GroupDeed| does(&cell, at, deed).unwrap().unwrap();
    assert!(told(&hold("1001:inner", true)).contains("have not given up"));
    let of_ann = does(&cell, ann, &hold("1001:inner", false)).unwrap_err();
    assert!(of_ann.contains("not in"), "{of_ann}");
    let members = changed(bob, &hold("1001:inner", false));
    // With the inner group goes the outer one, in which he is by that alone; elsewhere nothing.
    assert_eq!(here(&build, &members), [gid(&cell, "1001:other")]);
    assert_eq!(members.everywhere().groups_of(1002).len(), 3);
    assert!(told(&hold("1001:inner", false)).contains("already"));
    // He comes into the outer one in another way, which he has not given up.
    let members = changed(ann, &change("1001:outer", "1002", true));
    let left = ["1001:outer", "1001:other"].map(|name| gid(&cell, name));
    assert_eq!(here(&build, &members), left);
    let listed = |uid, mount| {
        let at = At {
            machine: &build,
            uid,
            mount,
        };
        let all = cell.do_with_groups(at, &GroupDeed::List, &|_| Ok(()));
        all.unwrap().iter().filter(|group| group.disabled).count()
    };
    assert_eq!(listed(1002, Some("build:/mnt")), 1);
    assert_eq!(listed(1001, Some("build:/mnt")) + listed(1002, None), 0);
}

#[test]
fn a_given_up_membership_lasts_until_it_is_taken_back_or_the_mount_ends() {
    let (dir, cell, build) = nested();
    let (ann, bob) = ((&build, 1001), (&build, 1002));
    does(&cell, bob, &hold("1001:inner", false)).unwrap();
    // Somebody takes the member out and puts him in again.
    does(&cell, ann, &change("1001:inner", "1002", false)).unwrap();
    does(&cell, ann, &change("1001:inner", "1002", true)).unwrap();
    let (inner, before) = (gid(&cell, "1001:inner"), cell.group_members());
    drop(cell);
    let cell = Cell::open(&dir.path().join("cell")).unwrap();
    assert_eq!(cell.group_members(), before);
    assert!(!here(&build, &before).contains(&inner));
    let members = does(&cell, bob, &hold("1001:inner", true)).unwrap();
    assert_eq!(here(&build, &members.unwrap()).len(), 3);
    // The end of the mount ends it, and a group that is gone is not given up any more.
    does(&cell, bob, &hold("1001:inner", false)).unwrap();
    let refuses = |_| Err("nothing changes".to_owned());
    let other = cell.forget_mount((&build, "build:/other"), &refuses);
    other.unwrap();
    let ended = cell.forget_mount((&build, "build:/mnt"), &|_| Ok(()));
    ended.unwrap();
    assert_eq!(here(&build, &cell.group_members()).len(), 3);
    does(&cell, bob, &hold("1001:other", false)).unwrap();
    let delete = GroupDeed::Delete {
        name: "1001:other".into(),
    };
    does(&cell, ann, &delete).unwrap();
    assert!(does(&cell, bob, &hold("1001:other", true)).is_err());
}

#[test]
fn nobody_gives_up_what_others_have_or_without_a_mount() {
    let (_dir, cell) = cell();
    let (build, desk) = (machine(&cell, "build", true), machine(&cell, "desk", false));
    let ann = (&build, 1001);
    does(&cell, ann, &create("1001:a")).unwrap();
    does(&cell, ann, &change("1001:a", "1001", true)).unwrap();
    let hold = GroupDeed::Hold {
        name: "1001:a".into(),
        held: false,
    };
    let at = |machine, uid, mount| At {
        machine,
        uid,
        mount,
    };
    for (at, why) in [
        (at(&build, 1001, None), "ask through one"),
        (at(&build, 1002, Some("m")), "not in"),
        (at(&desk, 1001, Some("m")), "does not speak for you"),
    ] {
        let told = cell.do_with_groups(at, &hold, &|_| Ok(())).unwrap_err();
        assert!(told.to_string().contains(why), "{told}");
    }
    // Refused as a whole: nobody is without the group.
    assert_eq!(
        cell.group_members()
            .on(build.id, b"m")
            .groups_of(1001)
            .len(),
        1
    );
}

#[test]
fn names_of_users_are_told_to_those_for_whom_a_machine_speaks() {
    let (_dir, cell) = cell();
    let (build, desk) = (machine(&cell, "build", true), machine(&cell, "desk", false));
    let ann = crate::User {
        name: "ann".into(),
        uid: 1001,
        gid: 1001,
        groups: Vec::new(),
        keys: Vec::new(),
        password: false,
    };
    cell.set_user(ann, None, true).unwrap();
    let names = cell.names(&build, 1002).unwrap();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        [("ann".into(), 1001)]
    );
    let told = cell.names(&desk, 1001).unwrap_err().to_string();
    assert!(told.contains("ariel login"), "{told}");
}
