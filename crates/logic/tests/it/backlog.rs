//! Files whose changes cannot leave yet: the machine asks for their turn again and again, and its
//! state does not grow by that.

use crate::support::world::{Manner, SERVER, World};
use logic::client::{Call, How};
use wire::{Access, Fid, Name, Op, Time};

const SECOND: Time = 1_000_000_000;
/// More than batches may be on their way at first, and fewer than there are slots.
const FILES: usize = 24;

fn name(file: usize) -> Name {
    Name::new(format!("f{file}").as_bytes()).unwrap()
}

/// A client that has changed all files, each of which its server has.
fn changed() -> World {
    let (root, usual) = (Fid::root(1), logic::client::Options::default());
    let limits = (usual.part, 0, 0, None);
    let manner = Manner {
        announced: true,
        room_ahead: false,
        rereads: false,
    };
    let mut world = World::new(&['A'], limits, &manner, 100_000 * SECOND);
    for file in 0..FILES {
        world.disk.put(0, (root, &name(file)), b"old".to_vec());
    }
    for file in 0..FILES {
        let lookup = Op::Lookup {
            dir: root,
            name: name(file),
        };
        world.call('A', "lookup", Call::Op(lookup), None);
        world.settle();
        let fid = world.disk.labelled(&format!("f{file}")).unwrap();
        let open = Call::Open {
            fid,
            access: Access {
                read: false,
                write: true,
            },
            append: false,
            handle: file as u64 + 1,
        };
        world.call('A', "open", open, None);
        world.settle();
        let write = Call::Write {
            fid,
            offset: 0,
            len: 3,
            how: How::Direct,
        };
        world.call('A', "write", write, Some(b"new".to_vec()));
        world.settle();
        assert!(world.answer.contains("wrote 3"), "{}", world.answer);
    }
    world
}

/// All that the machine knows, as a length.
fn weight(world: &World) -> usize {
    format!("{:?}", world.machines[&'A'].client).len()
}

#[test]
fn files_that_wait_for_their_turn_wait_once() {
    let mut world = changed();
    world.hold(('A', SERVER));
    // The first scan after 30 s wants all of them to leave, and those behind it, too.
    world.wait(world.now + 40 * SECOND);
    let before = weight(&world);
    world.wait(world.now + 200 * SECOND);
    let after = weight(&world);
    assert!(after < before + before / 20, "{before} and then {after}");
    world.free(('A', SERVER));
    world.settle();
    world.wait(world.now + 10 * SECOND);
    let figures = world.machines[&'A'].client.figures();
    assert_eq!(figures.dirty, 0, "all have left");
}
