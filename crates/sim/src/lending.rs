//! Messages between clients: blocks that they lend. Questions and answers are late, lost, or
//! go to machines that are gone; and lenders lie: they send other bytes than those of the block.
//!
//! Digests are of the units of a block. The seals of the real room are not played here: the server
//! has sent every reader that asks in these worlds.

use crate::coverage::Rare;
use crate::disk::{UNIT, Units};
use crate::rng::Rng;
use crate::room::Room;
use crate::world::World;
use logic::client::{Input, LendingFigures, Mutant, PeerInput, PeerOutput};
use logic::peers::Policy;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;
use wire::{Digest, Elsewhere, Time, mix64};

/// Units of a block.
const BLOCK_UNITS: usize = BLOCK_BYTES as usize / UNIT as usize;

/// How clients lend in a world.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    /// How long a message takes at most.
    late_ns: Time,
    /// Of a thousand messages, so many are lost...
    lost_permille: u64,
    /// ...and of a thousand answers, so many lie.
    lies_permille: u64,
    /// How they do it.
    pub(crate) policy: Policy,
}

impl Neighbours {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self {
            late_ns: *rng.pick(&[100_000, 5_000_000, 300_000_000, 2_000_000_000]),
            lost_permille: *rng.pick(&[0, 50, 300]),
            lies_permille: *rng.pick(&[0, 100, 500]),
            policy: *rng.pick(&[
                Policy::Greedy,
                Policy::NChance,
                Policy::Weighted,
                Policy::Fleet,
                Policy::Fleet,
            ]),
        }
    }
}

/// A question that a lender has not answered.
struct Question {
    reader: u32,
    id: u64,
    digests: Vec<Option<Digest>>,
}

/// All that is asked.
#[derive(Default)]
pub(crate) struct Lending {
    questions: RefCell<BTreeMap<u64, Question>>,
    last: Cell<u64>,
}

/// The digest of a block that consists of these units, with zeros behind them.
pub(crate) fn digest(units: &[u64]) -> Digest {
    let mut halves = [0x9e37_79b9_u64, 0x7f4a_7c15];
    for at in 0..BLOCK_UNITS {
        let unit = units.get(at).copied().unwrap_or_default();
        for half in &mut halves {
            *half = mix64(half.rotate_left(7) ^ mix64(unit.wrapping_add(at as u64 + 1)));
        }
    }
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&halves[0].to_le_bytes());
    digest[8..].copy_from_slice(&halves[1].to_le_bytes());
    Digest(digest)
}

/// The digests of the blocks of what was read.
pub(crate) fn digests(units: &[u64]) -> Vec<Digest> {
    units.chunks(BLOCK_UNITS).map(digest).collect()
}

impl Room {
    pub(crate) fn to_peer(self: &Rc<Self>, world: &Rc<World>, output: PeerOutput, beside: &Units) {
        match output {
            PeerOutput::Listen { .. } => {
                let (addr, key) = (self.host.to_string().into_bytes(), [0; 32]);
                self.later(
                    world,
                    self.host,
                    PeerInput::Listening { addr, key },
                    Units::new(),
                );
            }
            PeerOutput::Close | PeerOutput::GiveUp { .. } => {}
            PeerOutput::Borrow { id, elsewhere } => self.ask_lender(world, id, elsewhere),
            PeerOutput::Soon { ask } => {
                let questions = world.lending.questions.borrow();
                let reader = questions.get(&ask).map(|one| (one.reader, one.id));
                drop(questions);
                if let Some((reader, id)) = reader {
                    self.later(world, reader, PeerInput::Soon { id }, Units::new());
                }
            }
            PeerOutput::Lent { ask, have, bulk } => {
                let units = self.gather(&bulk, beside);
                self.lend(world, ask, (have, units));
            }
        }
    }

    /// A step has changed the figures.
    pub(crate) fn meet_kept(&self, world: &World, (old, new): (LendingFigures, LendingFigures)) {
        if new.taken > old.taken {
            world.meet(Rare::Kept.bit());
        }
        if new.adopted > old.adopted {
            world.meet(Rare::Adopted.bit());
        }
    }

    fn ask_lender(self: &Rc<Self>, world: &Rc<World>, id: u64, elsewhere: Elsewhere) {
        world.meet(Rare::Elsewhere.bit());
        let host = String::from_utf8_lossy(&elsewhere.addr)
            .parse()
            .unwrap_or(0);
        let there = world.rooms.borrow().get(&host).cloned();
        if there.is_none_or(|room| !room.alive()) {
            let (have, failing) = (Vec::new(), true);
            let input = PeerInput::Borrowed { id, have, failing };
            return self.later(world, self.host, input, Units::new());
        }
        if world.rng.borrow_mut().chance(100) {
            let input = PeerInput::Machine {
                stalled_permille: *world.rng.borrow_mut().pick(&[0, 0, 40, 100]),
                on_battery: false,
            };
            self.later(world, host, input, Units::new());
        }
        let lending = &world.lending;
        lending.last.set(lending.last.get() + 1);
        let ask = lending.last.get();
        let question = Question {
            reader: self.host,
            id,
            digests: elsewhere.digests,
        };
        lending.questions.borrow_mut().insert(ask, question);
        let capability = elsewhere.capability;
        self.later(
            world,
            host,
            PeerInput::Asked { ask, capability },
            Units::new(),
        );
    }

    /// A lender's answer; it may be a lie.
    fn lend(self: &Rc<Self>, world: &Rc<World>, ask: u64, (have, mut units): (Vec<u16>, Units)) {
        let Some(question) = world.lending.questions.borrow_mut().remove(&ask) else {
            return;
        };
        let lies = world
            .plan
            .neighbours
            .as_ref()
            .map_or(0, |n| n.lies_permille);
        if !units.is_empty() && world.rng.borrow_mut().chance(lies) {
            let at = world.rng.borrow_mut().below(units.len() as u64) as usize;
            let other = *world.rng.borrow_mut().pick(&units);
            units[at] = match units[at] == other {
                true => other.wrapping_sub(1),
                false => other,
            };
        }
        let trusts = world.plan.client.mutant == Some(Mutant::TakesAnyBytes);
        let is_right = |(at, block): (&u16, &[u64])| {
            trusts || question.digests.get(usize::from(*at)) == Some(&Some(digest(block)))
        };
        let blocks = have.iter().zip(units.chunks_exact(BLOCK_UNITS));
        let (mut kept, mut right) = (Vec::new(), Units::new());
        for (at, block) in blocks {
            if is_right((at, block)) {
                kept.push(*at);
                right.extend(block);
            }
        }
        let failing = kept.len() < have.len();
        world.meet(match (failing, kept.is_empty()) {
            (true, _) => Rare::Lied.bit(),
            (false, true) => Rare::Lacking.bit(),
            (false, false) => Rare::Borrowed.bit(),
        });
        let id = question.id;
        let have = kept;
        let input = PeerInput::Borrowed { id, have, failing };
        self.later(world, question.reader, input, right);
    }

    /// Something gets to a client, or does not.
    fn later(self: &Rc<Self>, world: &Rc<World>, host: u32, input: PeerInput, units: Units) {
        let Some(neighbours) = world.plan.neighbours.clone() else {
            return;
        };
        let own = host == self.host;
        let (lost, delay) = {
            let mut rng = world.rng.borrow_mut();
            let lost = rng.chance(neighbours.lost_permille);
            (lost && !own, rng.between(10_000, neighbours.late_ns))
        };
        if lost && world.faults_on() {
            return;
        }
        let then = Rc::clone(world);
        world.sched.at(world.sched.now() + delay, move || {
            then.to_room(host, Input::Peer(input), units);
        });
    }
}

/// How much the clients of a world lend, and keep for others: not drawn, so that the other worlds
/// stay what they were.
pub(crate) fn limits(lease_ns: u64) -> logic::client::LendLimits {
    let draw = (lease_ns / 1_000_000 % 16) as usize;
    logic::client::LendLimits {
        kept_blocks: [u32::MAX, u32::MAX, 3, 0][draw / 4],
        lent_bytes_per_s: [None, None, Some(1 << 20), Some(32 << 10)][draw % 4],
    }
}
