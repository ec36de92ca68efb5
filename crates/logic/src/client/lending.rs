//! Blocks that other clients lend, and blocks that are lent to them.
//!
//! A request for missing blocks may be answered with the name of a client that has them. The blocks
//! stay as they are, waiting for their bytes, while that client is asked. Blocks that do not come
//! from there (it has given them up, it is slow or gone, its bytes are not those that the server's
//! digests vouch for) are asked of the server once more, in a request that it does not send
//! elsewhere again. So a lender costs a trip, or a bounded time, and never an error.
//!
//! Guarantees: bytes of a lender are used only where the server's own could be, had they come at
//! that moment: under a right, for the version that the file has under it, and with no own change
//! of the file begun since. A lender gives only clean blocks of the version that the server has
//! named, and for no longer than the server has said; a block that is on its way here it waits for,
//! so that many readers of one file pull each byte from the server about once.

mod borrowing;
mod keeping;
mod rate;

use super::api::Output;
use super::data::cache::{BlockState, Weights};
use super::piece::Piece;
use super::session::asked::Why;
use super::{Client, Lends, Step};
use crate::Ticket;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use borrowing::Borrowing;
use keeping::{Sharing, Taking};
use rate::Rate;
use wire::limits::BLOCK_BYTES;
use wire::{Capability, Elsewhere, Fid, Lenders, Secret, Time, ToClient, ToServer};

/// A lender waits for so long for blocks that are on their way to it...
const FILLING_NS: Time = 2_000_000_000;
/// ...and says so often that it does: a reader that hears nothing goes to the server.
const SOON_EVERY_NS: Time = 250_000_000;
/// A machine is busy when somebody waits for memory for so much of a second, and idle again below
/// the other, thousandths.
const BUSY_PERMILLE: u32 = 50;
const IDLE_PERMILLE: u32 = 10;
/// So many questions of others wait at most.
const ASKED: usize = 256;
/// Inputs from other clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerInput {
    /// Others may ask here: the answer to [`PeerOutput::Listen`].
    Listening {
        /// Where, as text.
        addr: Vec<u8>,
        /// The print of this machine's key.
        key: Secret,
    },
    /// How the machine is.
    Machine {
        /// So much of the last second somebody waited for memory, thousandths.
        stalled_permille: u32,
        /// It runs on a battery.
        on_battery: bool,
    },
    /// Another client asks for blocks. The room has looked at the seal, and at the asker.
    Asked {
        /// The room's number of the question.
        ask: u64,
        /// The blocks that the server lets it have.
        capability: Capability,
    },
    /// A lender says that it will answer; it says so again and again.
    Soon {
        /// Of [`PeerOutput::Borrow`].
        id: u64,
    },
    /// A lender has answered, or will not.
    Borrowed {
        /// Of [`PeerOutput::Borrow`].
        id: u64,
        /// Which of the blocks lie beside this, whole and in this order: those of which the bytes
        /// are the ones that the digests vouch for.
        have: Vec<u16>,
        /// It could not be reached, or some bytes were others.
        failing: bool,
    },
}

/// Outputs to other clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOutput {
    /// Let others ask, with capabilities that are sealed with this.
    Listen {
        /// Shared with the server alone.
        secret: Secret,
        /// Say by [`PeerInput::Machine`] how the machine is, about every second.
        looks: bool,
    },
    /// Let nobody ask any more.
    Close,
    /// A lender has not answered in time: it is asked for this no more, and a late answer counts
    /// nothing.
    GiveUp {
        /// Of [`PeerOutput::Borrow`].
        id: u64,
    },
    /// Ask a lender.
    Borrow {
        /// The number of this.
        id: u64,
        /// The lender, and the blocks.
        elsewhere: Elsewhere,
    },
    /// The answer to a question comes later.
    Soon {
        /// Which question.
        ask: u64,
    },
    /// The answer to a question.
    Lent {
        /// Which.
        ask: u64,
        /// Which of the blocks these are.
        have: Vec<u16>,
        /// The blocks.
        bulk: Vec<Piece>,
    },
}

/// A question that waits.
#[derive(Clone, Debug)]
struct Asked {
    capability: Capability,
    until: Time,
    /// When the reader was told last that it is answered soon.
    told: Time,
}

/// All that is borrowed and lent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lending {
    /// The server has said that clients lend to each other.
    wanted: bool,
    /// Others may ask here: where, and the print of the machine's key.
    listens: Option<(Vec<u8>, Secret)>,
    /// The machine has better things to do than to lend.
    busy: bool,
    borrowing: BTreeMap<u64, Borrowing>,
    last: u64,
    asked: BTreeMap<u64, Asked>,
    /// The server has said that clients keep blocks for each other.
    sharing: Option<Sharing>,
    taking: BTreeMap<u64, Taking>,
    rate: Rate,
    /// The `lenders` of the next request for blocks, if not the usual ones.
    instead: Option<Lenders>,
    pub(crate) counts: LendingFigures,
}

/// Figures for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LendingFigures {
    /// Does it lend?
    pub lends: bool,
    /// Blocks that came from other clients.
    pub borrowed: u64,
    /// Blocks that the server sent.
    pub fetched: u64,
    /// Blocks that were given to other clients.
    pub lent: u64,
    /// Blocks that a lender was to have and had not.
    pub lacking: u64,
    /// Lenders that did not answer in time, or with other bytes.
    pub failing: u64,
    /// Blocks that are kept for others now.
    pub kept: u64,
    /// Blocks that came to be kept for others.
    pub taken: u64,
    /// Those of them that a program here has read.
    pub adopted: u64,
}

impl Lending {
    pub(crate) fn lends(&self) -> bool {
        self.wanted && self.listens.is_some()
    }

    /// The next request is for bytes of which the machine's kernel keeps the only copy.
    pub(crate) fn passes(&mut self) {
        self.instead = self.lends().then_some(Lenders::Passing);
    }

    /// The `lenders` of a request.
    pub(crate) fn lenders(&mut self, why: &Why) -> Lenders {
        let instead = self.instead.take();
        match why {
            Why::Fill { .. } if self.lends() => instead.unwrap_or(Lenders::Any),
            Why::Call(_) if instead == Some(Lenders::Passing) => Lenders::Passing,
            _ => Lenders::None,
        }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        let borrowing = self.borrowing.values().map(|one| one.until);
        let asked = self.asked.values();
        let asked = asked.map(|one| one.until.min(one.told + SOON_EVERY_NS));
        let taking = self.taking.values().map(|one| one.until);
        borrowing.chain(asked).chain(taking).min()
    }
}

impl Client {
    /// A message of the server about lending.
    pub(crate) fn on_lending_message(&mut self, step: &mut Step<'_>, message: ToClient) {
        match message {
            ToClient::Lend { secret, .. } => self.on_lend(step, secret),
            ToClient::Keep => self.stop_lending(step),
            ToClient::Share {
                copies_weigh,
                others_weigh,
            } => self.on_share(step, Weights::new(copies_weigh, others_weigh)),
            ToClient::Take(handed) => self.on_take(step, handed),
            ToClient::Last(rows) => self.on_last(&rows),
            other => unreachable!("{} is not about lending", other.kind()),
        }
    }

    /// The server says that a file is read again, of which this client has kept no copy beside that
    /// of its kernel: it keeps one from now on.
    pub(crate) fn on_reread(&mut self, step: &mut Step<'_>, (ticket, fid): (Ticket, Fid)) {
        self.node(fid).is_reread = true;
        self.start(step, ticket);
    }

    /// The server says that clients lend to each other.
    pub(crate) fn on_lend(&mut self, step: &mut Step<'_>, secret: Secret) {
        if self.options.lends == Lends::Never {
            return;
        }
        self.lending.wanted = true;
        let looks = self.options.lends == Lends::Idle;
        let listen = PeerOutput::Listen { secret, looks };
        step.out.push(Output::Peer(listen));
    }

    /// The server says that they do so no more, or has begun anew.
    pub(crate) fn stop_lending(&mut self, step: &mut Step<'_>) {
        if !self.lending.wanted {
            return;
        }
        (self.lending.wanted, self.lending.listens) = (false, None);
        self.stop_sharing();
        self.turn_away(step);
        step.out.push(Output::Peer(PeerOutput::Close));
    }

    /// Nobody who waits for blocks gets any.
    fn turn_away(&mut self, step: &mut Step<'_>) {
        for ask in core::mem::take(&mut self.lending.asked).into_keys() {
            lend_nothing(step, ask);
        }
    }

    /// The server is told where this client lends; nowhere, while its machine is busy.
    fn say_lends(&mut self, step: &mut Step<'_>) {
        let up = self.session.state == super::session::LinkState::Up;
        if let Some((addr, key)) = self.lending.listens.clone().filter(|_| up) {
            let addr = if self.lending.busy { Vec::new() } else { addr };
            self.say(step, ToServer::Lends { addr, key });
        }
        self.share_memory(step);
    }

    /// A machine whose programs wait for memory, or that runs on a battery, lends nothing; it
    /// begins again when that is well over.
    fn on_machine(&mut self, step: &mut Step<'_>, stalled_permille: u32, on_battery: bool) {
        let most = if self.lending.busy {
            IDLE_PERMILLE
        } else {
            BUSY_PERMILLE
        };
        let busy = stalled_permille >= most || on_battery;
        if busy != self.lending.busy {
            self.lending.busy = busy;
            self.turn_away(step);
            self.say_lends(step);
        }
        self.say_spare(step);
    }

    pub(crate) fn on_peer(&mut self, step: &mut Step<'_>, input: PeerInput) {
        match input {
            PeerInput::Listening { addr, key } => {
                self.lending.listens = self.lending.wanted.then_some((addr, key));
                self.say_lends(step);
            }
            PeerInput::Machine {
                stalled_permille,
                on_battery,
            } => self.on_machine(step, stalled_permille, on_battery),
            PeerInput::Asked { ask, capability } => self.on_asked(step, ask, capability),
            PeerInput::Soon { id } => self.on_soon(step.now, id),
            PeerInput::Borrowed { id, have, failing } => {
                self.on_borrowed(step, id, &have, failing);
            }
        }
    }

    fn on_asked(&mut self, step: &mut Step<'_>, ask: u64, capability: Capability) {
        let over = capability.until < self.clock.about(step.now);
        let spent = self.lending.rate.is_spent(step.now);
        let turns_away = self.lending.busy || !self.lending.lends() || spent;
        if over || turns_away || self.lending.asked.len() >= ASKED {
            return lend_nothing(step, ask);
        }
        if !self.is_filling(&capability) || !self.is_promised_before(&capability) {
            return self.lend(step, ask, &capability);
        }
        let asked = Asked {
            capability,
            until: step.now + FILLING_NS,
            told: step.now,
        };
        self.lending.asked.insert(ask, asked);
        step.out.push(Output::Peer(PeerOutput::Soon { ask }));
    }

    /// Would who asks for these blocks wait for a client that has been sent to its lender before?
    /// Of two that are sent to each other, the one that was sent first goes to the server.
    fn is_promised_before(&self, of: &Capability) -> bool {
        let mut borrowing = self.lending.borrowing.values();
        !borrowing.any(|own| own.is_later(of))
    }

    /// Blocks are borrowed from now on: of the clients that wait for them here, the lender may wait
    /// for one that was sent here before: such a client waits no longer.
    fn lend_before_borrowing(&mut self, step: &mut Step<'_>) {
        let waits = |(ask, asked): (&u64, &Asked)| {
            (!self.is_promised_before(&asked.capability)).then_some(*ask)
        };
        let over: Vec<u64> = self.lending.asked.iter().filter_map(waits).collect();
        for ask in over {
            if let Some(asked) = self.lending.asked.remove(&ask) {
                self.lend(step, ask, &asked.capability);
            }
        }
    }

    /// Is any of these blocks on its way here?
    fn is_filling(&self, of: &Capability) -> bool {
        let blocks = of.first..of.first + u64::from(of.count);
        let mut found = self.cache.span(of.fid, blocks).flatten();
        found.any(|(_, state)| state.is_filling())
    }

    /// Answers a question with what is here.
    fn lend(&mut self, step: &mut Step<'_>, ask: u64, of: &Capability) {
        let node = self.nodes.get(&of.fid);
        let own = node.is_some_and(|node| node.version == of.version);
        let blocks = of.first..of.first + u64::from(of.count);
        let here = |(at, (block, found)): (usize, (u64, Option<_>))| match found {
            Some((slot, BlockState::Clean)) if own => Some((at as u16, slot)),
            _ => {
                let kept = self.cache.find_kept(of.fid, block, of.version)?;
                Some((at as u16, kept))
            }
        };
        let found = blocks.clone().zip(self.cache.span(of.fid, blocks));
        let (have, slots): (Vec<u16>, Vec<_>) = found.enumerate().filter_map(here).unzip();
        for slot in &slots {
            self.cache.set_copied(*slot);
        }
        let piece = |slot| Piece::Slot {
            slot,
            at: 0,
            len: BLOCK_BYTES,
        };
        // Not touched: a lent block has another copy now, and others may have none.
        self.lending.counts.lent += have.len() as u64;
        if let Some(per_second) = self.options.lend_limits.lent_bytes_per_s {
            let bytes = have.len() as u64 * u64::from(BLOCK_BYTES);
            self.lending.rate.spend(step.now, bytes, per_second);
        }
        let bulk = slots.into_iter().map(piece).collect();
        step.out
            .push(Output::Peer(PeerOutput::Lent { ask, have, bulk }));
    }

    /// Blocks of a file have come, or will not: clients that wait for them here are answered.
    pub(crate) fn lend_arrived(&mut self, step: &mut Step<'_>, fid: Fid) {
        if self.lending.asked.is_empty() {
            return;
        }
        let of_file = |asked: &Asked| asked.capability.fid == fid;
        let asked = self.lending.asked.iter();
        let ready =
            asked.filter(|(_, asked)| of_file(asked) && !self.is_filling(&asked.capability));
        let ready: Vec<u64> = ready.map(|(ask, _)| *ask).collect();
        for ask in ready {
            if let Some(asked) = self.lending.asked.remove(&ask) {
                self.lend(step, ask, &asked.capability);
            }
        }
    }

    pub(crate) fn tick_lending(&mut self, step: &mut Step<'_>) {
        self.tick_borrowing(step);
        self.tick_taking(step);
        let over = |(ask, one): (&u64, &Asked)| (one.until <= step.now).then_some(*ask);
        let over: Vec<u64> = self.lending.asked.iter().filter_map(over).collect();
        for ask in over {
            if let Some(asked) = self.lending.asked.remove(&ask) {
                self.lend(step, ask, &asked.capability);
            }
        }
        for (&ask, asked) in &mut self.lending.asked {
            if asked.told + SOON_EVERY_NS <= step.now {
                asked.told = step.now;
                step.out.push(Output::Peer(PeerOutput::Soon { ask }));
            }
        }
    }

    /// Figures of lending.
    pub fn lending(&self) -> LendingFigures {
        LendingFigures {
            lends: self.lending.lends() && !self.lending.busy,
            kept: self.cache.kept(),
            ..self.lending.counts
        }
    }
}

/// Does the server say this unasked, also in a session that has not begun?
pub(crate) fn is_offer(message: &ToClient) -> bool {
    use ToClient::{Keep, Last, Lend, Share, Take};
    matches!(
        message,
        Lend { .. } | Keep | Share { .. } | Take(_) | Last(_)
    )
}

fn lend_nothing(step: &mut Step<'_>, ask: u64) {
    let (have, bulk) = (Vec::new(), Vec::new());
    step.out
        .push(Output::Peer(PeerOutput::Lent { ask, have, bulk }));
}
