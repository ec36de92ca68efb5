//! A maker of snapshots of the tree while programs work, and the content of each: a program that
//! had read everything at one moment of that call would have been shown the same.

use crate::disk::{DiskRoom, Units};
use crate::judge::Left;
use crate::room::Room;
use crate::world::World;
use crate::wrong::wrong;
use logic::client::{Call, Done};
use std::rc::Rc;
use wire::{FIRST_VOLUME, Fid, Kind, Name, Op, Refusal, VolumeOp};

/// Between two snapshots, at most, as a part of the time in which programs run.
const PARTS: u64 = 3;

/// A snapshot: when it was asked for and made, and its volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    volume: u32,
}

/// Makes snapshots from a machine.
pub(crate) struct Keeper {
    world: Rc<World>,
    room: Rc<Room>,
}

impl Keeper {
    pub(crate) fn new(world: &Rc<World>, room: &Rc<Room>) -> Self {
        Self {
            world: Rc::clone(world),
            room: Rc::clone(room),
        }
    }

    pub(crate) async fn run(&self) {
        for number in 1..=self.world.plan.snapshots {
            let most = self.world.plan.span_ns / PARTS + 1;
            let pause = self.world.rng.borrow_mut().below(most);
            self.world.sched.sleep(pause).await;
            self.make(number).await;
        }
    }

    async fn make(&self, number: u32) {
        let (world, host) = (&self.world, self.room.host);
        let name = |text: &[u8]| Name::new(text).expect("a name");
        let op = Op::Volume(VolumeOp::Snapshot {
            of: name(FIRST_VOLUME),
            name: name(format!("s{host}-{number}").as_bytes()),
        });
        let begin = world.sched.moment();
        let call = world
            .history
            .call(host, format!("{op:?}"), world.sched.now());
        let reply = self.room.call(world, Call::Op(op), Units::new(), false);
        let done = reply.wait().await.done;
        world.history.forgotten(call);
        let end = world.sched.moment();
        match done {
            Done::Volumes(made) if made.len() == 1 => {
                let volume = made[0].id;
                world.trace(|| format!("h{host} has made the snapshot {volume} ({begin}..{end})"));
                let snapshot = Snapshot { begin, end, volume };
                world.snapshots.borrow_mut().push(snapshot);
            }
            // Whether it was made is not known.
            Done::Refused(Refusal::SessionLost) => {}
            other => world.fail(wrong!("a snapshot is answered with {other:?}")),
        }
    }
}

/// The content of a volume: files with their modes and contents, directories, and names.
pub(crate) fn left(disk: &mut DiskRoom, volume: u32) -> Left {
    let there = |fid: Fid| Fid {
        volume: Fid::root(1).volume,
        ..fid
    };
    let mut left = Left::default();
    let mut dirs = vec![Fid::root(volume)];
    while let Some(dir) = dirs.pop() {
        for ((_, name), fid) in disk.names(dir) {
            left.names.insert((there(dir), name), there(fid));
            let Ok(Some(attr)) = logic::server::Disk::attr(disk, fid) else {
                continue;
            };
            let content = match attr.kind {
                Kind::File => disk.content(fid),
                _ => Units::new(),
            };
            if attr.kind == Kind::Directory {
                dirs.push(fid);
            }
            left.files.insert(there(fid), (attr.mode, content));
        }
    }
    left
}

impl Snapshot {
    /// Its content, as of the volume that it was made of.
    pub(crate) fn left(&self, disk: &mut DiskRoom) -> Left {
        left(disk, self.volume)
    }
}
