//! A machine that is not ours: it speaks the protocol, through the codec, and says what is not so.
//!
//! It gives back what it never had and says it twice, invents epochs and stamps, says after a
//! restart that it holds what others do, asks for objects that are not there, of other volumes too,
//! watches, and takes what it was not told, greets wrongly or not at all, and leaves recalls
//! unanswered or answers them in vain. It does not use the rights of an ordinary client: it changes
//! nothing that is there, so that the judge needs no excuse for what the others see. A *greedy* one
//! takes files for itself, and then says nothing of their attributes: a client that has a file to
//! itself is believed what it says of it.

mod words;

use crate::atlas::{Fault, RARE_PERMILLE};
use crate::coverage::Rare;
use crate::disk::Units;
use crate::network::Beside;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::world::World;
use logic::client;
use std::cell::RefCell;
use std::rc::Rc;
use wire::{
    Epoch, Fid, Op, Outcome, Recall, Request, Returned, Right, SessionId, Time, ToClient, ToServer,
    VERSION,
};

/// Its number among the machines, above those of all others.
pub(crate) const LIAR: u32 = 1_000;
/// Another session that it may greet with.
const OTHER: SessionId = 7;
/// It does not say more than this.
const MOST: u32 = 1_000;
/// About how many words it says of itself while it stays: another world finds sooner what more
/// words would find.
const WORDS: Time = 400;
/// The longest pause between two words of one who stays for a short time.
const PAUSE_NS: Time = 2_000_000;
const RIGHTS: [Right; 4] = [
    Right::None,
    Right::Transient,
    Right::Shared,
    Right::Exclusive,
];

/// The machine, once it has come.
#[derive(Default)]
pub(crate) struct Liar(RefCell<Option<State>>);

struct State {
    rng: Rng,
    session: SessionId,
    greedy: bool,
    until: Time,
    /// The longest pause between two words.
    pause_ns: Time,
    connected: bool,
    greeted: bool,
    /// It says nothing any more but goodbye; how often it has.
    leaves: bool,
    byes: u32,
    boot: Epoch,
    /// The objects that it has heard of.
    fids: Vec<Fid>,
    epochs: Vec<Epoch>,
    last_request: u64,
    last: Option<ToServer>,
    said: u32,
}

impl World {
    pub(crate) fn liar_comes(self: &Rc<Self>, greedy: bool, until: Time) {
        let mut rng = Rng::new(self.rng.borrow_mut().next());
        let state = State {
            session: rng.next() | 1,
            rng,
            greedy,
            until,
            pause_ns: PAUSE_NS.max(2 * until.saturating_sub(self.sched.now()) / WORDS),
            connected: false,
            greeted: false,
            leaves: false,
            byes: 0,
            boot: 0,
            fids: vec![Fid::root(1)],
            epochs: Vec::new(),
            last_request: 0,
            last: None,
            said: 0,
        };
        if self.liar.0.borrow().is_none() {
            *self.liar.0.borrow_mut() = Some(state);
            self.net.join(self, LIAR);
            self.lie();
        }
    }

    /// It leaves as it ought to.
    pub(crate) fn liar_leaves(self: &Rc<Self>) {
        let words = self.liar.0.borrow_mut().as_mut().map(|liar| {
            liar.leaves = true;
            liar.goodbye()
        });
        self.liar_says(words.unwrap_or_default());
    }

    /// Has it said goodbye to all that it has greeted, if it ever came?
    pub(crate) fn liar_has_left(&self) -> bool {
        let liar = self.liar.0.borrow();
        liar.as_ref()
            .is_none_or(|liar| liar.byes > 2 && !liar.connected)
    }

    pub(crate) fn is_liar(&self, session: SessionId) -> bool {
        let liar = self.liar.0.borrow();
        liar.as_ref()
            .is_some_and(|liar| [liar.session, OTHER].contains(&session))
    }

    /// Says something now and then.
    fn lie(self: &Rc<Self>) {
        let (words, pause) = {
            let mut liar = self.liar.0.borrow_mut();
            let Some(liar) = liar.as_mut() else { return };
            if liar.leaves || self.sched.now() > liar.until {
                return;
            }
            let pause = liar.rng.between(10_000, liar.pause_ns);
            (liar.connected.then(|| liar.word()), pause)
        };
        self.liar_says(words.into_iter().collect());
        let then = Rc::clone(self);
        self.sched.at(self.sched.now() + pause, move || then.lie());
    }

    pub(crate) fn liar_hears(self: &Rc<Self>, input: &client::Input) {
        self.trace(|| format!("liar < {input:?}"));
        if let client::Input::Message { message, .. } = input
            && let ToClient::Reply { reply, .. } = &**message
            && matches!(reply.outcome, Outcome::Refused(_))
        {
            self.meet(Rare::LiarRefused.bit());
        }
        let words = {
            let mut liar = self.liar.0.borrow_mut();
            let Some(liar) = liar.as_mut() else { return };
            match input {
                client::Input::Connected { .. } => liar.connects(),
                client::Input::Message { message, .. } => liar.hears(message),
                _ => {
                    liar.connected = false;
                    // Messages under way when it began to leave may have ended a connection.
                    if liar.byes > 2 {
                        self.net.leave(LIAR);
                    }
                    vec![]
                }
            }
        };
        self.liar_says(words);
    }

    fn liar_says(self: &Rc<Self>, words: Vec<ToServer>) {
        for word in words {
            self.trace(|| format!("liar > {word:?}"));
            self.meet(Rare::Liar.bit());
            let len = match &word {
                ToServer::Request(Request {
                    op: Op::Write { len, .. },
                    ..
                }) => *len as usize,
                _ => 0,
            };
            // As the server's room does with what it cannot read.
            let Ok(message) = wire::decode(&wire::encode(&word)) else {
                return self.net.hangup(self, LIAR);
            };
            let units = Units::from(vec![1; len / crate::disk::UNIT as usize]);
            self.net.to_server(self, LIAR, Beside { message, units });
        }
    }
}

impl State {
    fn hello(&self) -> ToServer {
        // A leaving liar says goodbye for both sessions in turn.
        let other = self.leaves && self.byes % 2 == 1;
        ToServer::Hello {
            version: VERSION,
            session: if other { OTHER } else { self.session },
            name: b"liar".to_vec(),
            volume: Vec::new(),
        }
    }

    fn goodbye(&mut self) -> Vec<ToServer> {
        if !self.connected {
            return vec![];
        }
        self.byes += 1;
        vec![ToServer::Goodbye]
    }

    fn connects(&mut self) -> Vec<ToServer> {
        self.connected = true;
        self.greeted = false;
        if self.leaves {
            let mut words = vec![self.hello()];
            words.extend(self.goodbye());
            return words;
        }
        let greets = self.greedy || !self.rng.chance(100);
        greets.then(|| self.hello()).into_iter().collect()
    }

    fn hears(&mut self, message: &ToClient) -> Vec<ToServer> {
        match message {
            ToClient::Welcome(welcome) => {
                self.greeted = true;
                self.boot = welcome.boot;
            }
            ToClient::Lost => self.session = self.rng.next() | 1,
            ToClient::Reply { reply, .. } => {
                for grant in &reply.grants {
                    self.learns(grant.fid, grant.epoch);
                }
                if let Outcome::Entry(entry) = &reply.outcome {
                    self.learns(entry.fid, self.boot);
                }
            }
            ToClient::Recall(recall) => {
                self.learns(recall.fid, recall.epoch);
                if !self.leaves && self.said < MOST && self.rng.chance(700) {
                    return vec![self.answer(recall)];
                }
            }
            ToClient::Confirm { request } if self.rng.chance(500) => {
                return vec![ToServer::Confirmed { request: *request }];
            }
            _ => {}
        }
        vec![]
    }

    fn learns(&mut self, fid: Fid, epoch: Epoch) {
        if !self.fids.contains(&fid) {
            self.fids.push(fid);
        }
        self.epochs.push(epoch);
    }

    /// The answer to a recall: true, or in vain.
    fn answer(&mut self, recall: &Recall) -> ToServer {
        self.said += 1;
        let vain = self.greedy || self.rng.chance(700);
        let upto = if vain && self.rng.chance(300) {
            0
        } else {
            recall.epoch
        };
        let right = if self.greedy {
            Right::Exclusive
        } else if vain {
            *self.rng.pick(&RIGHTS)
        } else {
            Right::None
        };
        ToServer::Returned(Returned {
            fid: recall.fid,
            epoch: recall.epoch,
            right,
            upto,
            hold: self.hold(),
            attr: self.attr(),
        })
    }
}

impl Plan {
    /// A machine that lies, from a sequence of its own.
    pub(crate) fn draw_liar(&mut self, rng: &mut Rng) {
        if !rng.chance(RARE_PERMILLE / 2) {
            return;
        }
        let lease = self.server.lease_ns;
        self.server.recall_ns = rng.between(lease / 2, 2 * lease);
        let (at, ns) = (self.fault_time(rng), rng.between(lease / 2, 4 * lease));
        let greedy = rng.chance(500);
        self.faults.push((at, Fault::Liar { greedy, ns }));
    }
}
