//! A machine that was granted parts of the tree alone: whatever it asks for outside of them is
//! refused, also if its root is root; what leads to them is shown, and nothing beside it; and what
//! it was granted it has like any other machine.

use crate::refused::{OWNER, STRANGER, World, denied};
use crate::support::operations::{KINDS, every};
use logic::server::{Output, rule};
use wire::{
    Chosen, Delegated, Fid, Make, Name, Op, Outcome, Part, Refusal, Request, Right, Rights,
    ToClient, ToServer, Violation,
};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// All rights, in these parts.
fn within(parts: &[(&str, &[&str])]) -> Rights {
    let part = |(volume, path): &(&str, &[&str])| Part {
        volume: name(volume),
        path: path.iter().map(|text| name(text)).collect(),
    };
    Rights {
        parts: parts.iter().map(part).collect(),
        ..Rights::all()
    }
}

/// A tree where everybody may everything, and a machine whose root is root in these parts of it.
fn limited(parts: &[(&str, &[&str])]) -> World {
    let mut world = World::new(0o777, 0o666);
    world.comes(STRANGER, within(parts));
    world
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(Refusal::Denied | Refusal::Stale))
}

#[test]
fn each_operation_outside_of_the_parts_is_refused_also_to_root() {
    for parts in [
        &[("root", ["none"].as_slice())],
        &[("root", ["dir", "sub"].as_slice())],
    ] {
        let mut refused = 0;
        for at in 0..KINDS {
            let mut world = limited(parts);
            let file = world.file;
            let op = every(file, file).swap_remove(at);
            let objects = rule(&op).objects.into_iter().flatten().count();
            let volumes = matches!(op, Op::Volume(_) | Op::Dump { .. } | Op::Restore { .. });
            let outcome = world.asks(STRANGER, op.clone());
            assert_eq!(
                outcome == denied(),
                objects > 0 || volumes,
                "{op:?}: {outcome:?}"
            );
            refused += usize::from(is_refused(&outcome));
        }
        assert_eq!(refused, 32);
    }
}

#[test]
fn in_its_parts_a_machine_is_refused_nothing() {
    for parts in [
        [("root", ["dir"].as_slice())].as_slice(),
        &[("other", [].as_slice()), ("root", [].as_slice())],
        &[("root", ["none"].as_slice()), ("root", ["dir"].as_slice())],
    ] {
        for at in 0..KINDS {
            let mut world = limited(parts);
            let op = every(world.file, world.dir).swap_remove(at);
            let volumes = matches!(op, Op::Volume(_) | Op::Dump { .. } | Op::Restore { .. });
            let outcome = world.asks(STRANGER, op.clone());
            assert_eq!(outcome == denied(), volumes, "{op:?}: {outcome:?}");
        }
    }
}

#[test]
fn on_the_way_nothing_is_shown_but_the_next_step() {
    for at in 0..KINDS {
        let mut world = limited(&[("root", &["dir", "sub"])]);
        let dir = world.dir;
        let op = every(dir, dir).swap_remove(at);
        let shown = matches!(
            op,
            Op::GetAttr { .. }
                | Op::GetXattr { .. }
                | Op::ListXattr { .. }
                | Op::ReadLink { .. }
                | Op::Sync { .. }
                | Op::Unlock { .. }
                | Op::GiveLocks { .. }
        );
        let about = rule(&op).objects.into_iter().flatten().next().is_some();
        if about {
            let outcome = world.asks(STRANGER, op.clone());
            assert_eq!(outcome == denied(), !shown, "{op:?}: {outcome:?}");
        }
    }
    let mut world = limited(&[("root", &["dir", "sub"])]);
    let dir = world.dir;
    let steps = [(Fid::root(1), "dir", true), (Fid::root(1), "other", false)];
    for (dir, called, shown) in steps
        .into_iter()
        .chain([(dir, "sub", true), (dir, "f", false)])
    {
        let name = name(called);
        let outcome = world.asks(STRANGER, Op::Lookup { dir, name });
        assert_eq!(!is_refused(&outcome), shown, "{called}: {outcome:?}");
    }
}

#[test]
fn nothing_is_changed_on_the_way_by_a_client_that_says_it_was_delegated() {
    let mut world = limited(&[("root", &["dir", "sub"])]);
    let dir = world.dir;
    let sub = name("sub");
    world.asks(STRANGER, Op::Lookup { dir, name: sub });
    let held = world.server.tokens();
    let on_way = held.iter().filter(|token| token.fid == dir);
    assert!(on_way.clone().all(|token| token.right < Right::Exclusive));
    world.last += 1;
    let made = Op::Make {
        dir,
        name: name("made"),
        make: Make::File,
        mode: 0o644,
        open: None,
    };
    let request = Request {
        delegated: Some(Delegated {
            at: 5,
            chosen: Chosen {
                vnode: 900,
                position: 0,
            },
            unseen: false,
            named: [None, None],
        }),
        ..world.request(made)
    };
    world.says(STRANGER, ToServer::Requests(vec![request]));
    world.comes(OWNER, Rights::all());
    let name = name("made");
    let found = world.asks(OWNER, Op::Lookup { dir, name });
    assert!(matches!(found, Outcome::Absent { .. }), "{found:?}");
}

#[test]
fn a_name_outside_of_the_parts_takes_nothing_out_and_brings_nothing_in() {
    let mut world = World::new(0o777, 0o666);
    world.comes(OWNER, Rights::all());
    let (dir, file) = (world.dir, world.file);
    let sub = world.make(dir, "part", Make::Directory, 0o777);
    let own = world.make(sub, "own", Make::File, 0o666);
    let both = world.make(dir, "both", Make::File, 0o666);
    let name_both = name("both");
    world.must(Op::Link {
        fid: both,
        dir: sub,
        name: name_both,
    });
    world.says(OWNER, ToServer::Goodbye);
    world.comes(STRANGER, within(&[("root", &["dir", "part"])]));
    for op in [
        Op::Rename {
            from: sub,
            name: name("own"),
            to: dir,
            new: name("out"),
            no_replace: false,
            exchange: false,
        },
        Op::Link {
            fid: own,
            dir,
            name: name("out"),
        },
        Op::Link {
            fid: file,
            dir: sub,
            name: name("in"),
        },
    ] {
        let outcome = world.asks(STRANGER, op.clone());
        assert!(is_refused(&outcome), "{op:?}: {outcome:?}");
    }
    assert_eq!(world.asks(STRANGER, Op::GetAttr { fid: file }), denied());
    // By one of its names it is in the part.
    let seen = world.asks(STRANGER, Op::GetAttr { fid: both });
    assert!(matches!(seen, Outcome::Attr(_)), "{seen:?}");
}

#[test]
fn a_new_session_is_refused_a_volume_of_which_nothing_was_granted() {
    for (volume, refused) in [("other", true), ("root", false)] {
        let mut world = World::new(0o777, 0o666);
        let out = world.comes(STRANGER, within(&[(volume, &[])]));
        let closed = out.iter().any(|output| match output {
            Output::Close { violation, .. } => *violation == Some(Violation::NotGranted),
            _ => false,
        });
        assert_eq!(closed, refused, "{volume}: {out:?}");
    }
}

#[test]
fn what_is_outside_of_a_new_grant_is_asked_back() {
    let mut world = World::new(0o777, 0o666);
    world.comes(STRANGER, Rights::all());
    for fid in [world.file, world.dir] {
        world.asks(STRANGER, Op::GetAttr { fid });
    }
    let out = world.comes(STRANGER, within(&[("root", &["dir", "sub"])]));
    let recalled: Vec<Fid> = out
        .iter()
        .filter_map(|output| match output {
            Output::Send {
                message: ToClient::Recall(recall),
                ..
            } => Some(recall.fid),
            _ => None,
        })
        .collect();
    assert!(recalled.contains(&world.file), "{out:?}");
}
