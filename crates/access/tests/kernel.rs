//! The kernel's rule, applied to what it is shown, against the list's own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_access::{Entry, GROUPS, List, Members, PEOPLE_MAX, Rights, Shown, Who, shown};
use proptest::prelude::*;
use wire::{Attr, Caller, Kind};

const OF_CELL: u32 = *GROUPS.start();

/// An entry of a POSIX list: tag, bits, id.
type Posix = (u16, u16, u32);

fn entries(value: &[u8]) -> Vec<Posix> {
    let (entries, rest) = value[4..].as_chunks::<8>();
    assert!(rest.is_empty());
    let one = |e: &[u8; 8]| {
        let tag = u16::from_le_bytes([e[0], e[1]]);
        let bits = u16::from_le_bytes([e[2], e[3]]);
        (tag, bits, u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
    };
    entries.iter().map(one).collect()
}

/// Linux's `acl_permission_check` and `posix_acl_permission`, for one bit.
fn kernel_allows(shown: &Shown, object: &Attr, caller: &Caller, bit: u16) -> bool {
    let member = |gid| caller.gid == gid || caller.groups.as_ref().unwrap().contains(&gid);
    if caller.uid == object.uid {
        return (shown.mode >> 6) & bit != 0;
    }
    let Some(list) = shown.list.as_ref().filter(|_| shown.mode & 0o070 != 0) else {
        let class = if member(object.gid) { 3 } else { 0 };
        return (shown.mode >> class) & bit != 0;
    };
    let list = entries(list);
    let of = |tag: u16| list.iter().find(|e| e.0 == tag).map(|e| e.1);
    let mask = of(0x10).unwrap();
    if let Some((_, bits, _)) = list.iter().find(|e| e.0 == 2 && e.2 == caller.uid) {
        return bits & mask & bit != 0;
    }
    let groups = list.iter().filter(|e| match e.0 {
        4 => member(object.gid),
        8 => member(e.2),
        _ => false,
    });
    let groups: Vec<u16> = groups.map(|e| e.1).collect();
    match groups.is_empty() {
        true => of(0x20).unwrap() & bit != 0,
        false => groups.iter().any(|bits| bits & mask & bit != 0),
    }
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        Just(Who::Anyone),
        (1..6u32).prop_map(Who::User),
        (100..103u32).prop_map(Who::Group),
        (0..3u32).prop_map(|n| Who::Group(OF_CELL + n)),
    ]
}

fn list() -> impl Strategy<Value = List> {
    let entry = (any::<bool>(), who(), 0..128u8).prop_map(|(negative, who, rights)| Entry {
        negative,
        who,
        rights: Rights::from_byte(rights).unwrap(),
    });
    let entries = proptest::collection::vec(entry, 0..8);
    entries.prop_filter_map("no list", List::new)
}

fn members() -> impl Strategy<Value = Members> {
    let uids = || proptest::collection::vec(1..6u32, 0..4);
    let left = proptest::option::of((
        1..6u32,
        proptest::collection::vec(OF_CELL..OF_CELL + 3, 0..3),
    ));
    (uids(), uids(), uids(), left).prop_map(|(a, b, c, left)| {
        let members = Members::new([(OF_CELL, a), (OF_CELL + 1, b), (OF_CELL + 2, c)]);
        match left {
            Some((uid, left)) => members.with_left((1, b"m".to_vec()), uid, left),
            None => members,
        }
    })
}

fn object() -> impl Strategy<Value = Attr> {
    let kind = prop_oneof![Just(Kind::Directory), Just(Kind::File), Just(Kind::Fifo)];
    (kind, 0..0o10000u16, 1..6u32, 99..103u32).prop_map(|(kind, mode, uid, gid)| Attr {
        uid,
        gid,
        ..Attr::new(kind, mode, 0)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn a_kernel_judges_as_the_list_does(
        (list, members, object) in (list(), members(), object()),
        (uid, gid, more) in (1..7u32, 99..103u32, 99..103u32),
    ) {
        let here = members.on(1, b"m");
        let mut groups = here.groups_of(uid).to_vec();
        groups.push(more);
        let caller = Caller { uid, gid, groups: Some(groups) };
        let shown = shown(&list, here, &object);
        for bit in [4, 2, 1] {
            let kernel = kernel_allows(&shown, &object, &caller, bit);
            prop_assert_eq!(kernel, list.bits(&caller, &object) & bit != 0, "{}", bit);
        }
        prop_assert_eq!(shown.mode & 0o7000, object.mode & 0o7000);
    }

    #[test]
    fn a_value_is_a_list_or_none(
        list in list(),
        noise in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        prop_assert_eq!(List::decode(&list.encode()), Some(list));
        if let Some(list) = List::decode(&noise) {
            prop_assert_eq!(list.encode(), noise);
        }
    }
}

#[test]
fn of_too_many_people_a_kernel_never_learns_too_much() {
    let file = Attr {
        uid: 1,
        ..Attr::new(Kind::File, 0o600, 0)
    };
    let everybody: Vec<u32> = (10..10 + 3 * PEOPLE_MAX as u32).collect();
    let members = Members::new([(OF_CELL, everybody.clone())]);
    for negative in [false, true] {
        let entry = |negative, who| Entry {
            negative,
            who,
            rights: Rights::READ,
        };
        let others = entry(
            false,
            if negative {
                Who::Anyone
            } else {
                Who::Group(100)
            },
        );
        let list = List::new(vec![entry(negative, Who::Group(OF_CELL)), others]).unwrap();
        let shown = shown(&list, members.everywhere(), &file);
        assert!(shown.list.as_ref().is_none_or(|list| list.len() <= 4096));
        for uid in &everybody {
            let caller = Caller {
                uid: *uid,
                gid: 100,
                groups: Some(members.groups_of(*uid).to_vec()),
            };
            let allowed = list.bits(&caller, &file) & 4 != 0;
            assert!(
                !kernel_allows(&shown, &file, &caller, 4) || allowed,
                "{uid}"
            );
        }
    }
}
