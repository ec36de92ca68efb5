//! The network between the clients and the server: delay, overtaking, links that break, links that
//! are silent for a while, and messages that arrive twice.
//!
//! On a connection that lives no message is lost, as TCP gives it: a message that cannot get
//! through while a link is silent arrives when that is over, unless the connection has been given
//! up meanwhile. Messages under way when a connection ends are lost, and where the seed says so
//! connections end at any message. Short messages overtake long ones, and in half of the worlds any
//! other, but for a greeting, its answer and the end of a session; nor does an answer to a look
//! overtake one to a change, which is short and may be what is seen. (A message that comes twice is
//! more than TCP does: it stands for one that was said again on the next connection.)

mod held;

use crate::coverage::Rare;
use crate::disk::Units;
use crate::inject::Strike;
use crate::question::{self, OpenQuestions, Question};
use crate::world::{NOBODY, World};
use held::Held;
use logic::client;
use logic::server::Conn;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::{Time, ToClient, ToServer};

/// A message and the bytes beside it.
#[derive(Clone, Debug)]
pub(crate) struct Beside<M> {
    pub(crate) message: M,
    pub(crate) units: Units,
}

#[derive(Default)]
struct Link {
    conn: Option<Conn>,
    /// Nothing gets through before this time, by way.
    silent_until: [Time; 2],
    /// No connection is made before this time.
    down_until: Time,
    /// The server that is dialed, and since when there has been no connection.
    at: usize,
    lost_at: Option<Time>,
    /// Nothing arrives before what must not be overtaken.
    floor: [Time; 2],
    /// When the last answer to a change arrives.
    changed: Time,
    /// When the last message of this way arrives: of the short ones, and of the long ones.
    last: [[Time; 2]; 2],
    wants: bool,
    /// How many messages to the server were lost with their connections since one arrived.
    swallowed: u32,
    questions: OpenQuestions,
}

impl Link {
    /// A message of this way does not get through, and its connection ends: with it ends all that
    /// was done to answer a question.
    fn swallow(&mut self, now: Time, way: usize, question: Option<Question>) {
        self.swallowed += u32::from(way == TO_SERVER);
        self.questions.ask(question);
        self.questions.swallow(now);
    }
}

/// A client speaks at least every quarter of its lease: after so many lost messages in a row it may
/// not have been heard for a whole one. A question is repeated no more often, and where the
/// patience of the server is short it is over after a few tries.
const MUTING_LOSSES: u32 = 3;

/// All links.
#[derive(Default)]
pub(crate) struct Network {
    links: RefCell<BTreeMap<u32, Link>>,
    owners: RefCell<BTreeMap<Conn, u32>>,
    /// The servers of connections.
    sides: RefCell<BTreeMap<Conn, usize>>,
    /// Connections that the server has ended: it hears nothing more from them.
    closed: RefCell<BTreeSet<Conn>>,
    held: Held,
    last_conn: Cell<Conn>,
    pub(crate) messages: Cell<u64>,
}

const TO_SERVER: usize = 0;
const TO_CLIENT: usize = 1;

/// How a message travels.
#[derive(Clone, Copy)]
struct Travel {
    way: usize,
    /// It goes behind what is short.
    long: bool,
    /// Nothing overtakes it; `behind`: nor does it overtake anything.
    keeps: bool,
    behind: bool,
    /// See [`question::answers`].
    answers: (bool, bool),
    /// The question that it is, or answers.
    question: Option<Question>,
}

impl Network {
    /// A client begins to want a connection.
    pub(crate) fn join(&self, world: &Rc<World>, host: u32) {
        let link = Link {
            wants: true,
            ..Link::default()
        };
        self.links.borrow_mut().insert(host, link);
        self.connect_later(world, host, 0);
    }

    /// A client vanishes without a word.
    pub(crate) fn leave(&self, host: u32) {
        if let Some(link) = self.links.borrow_mut().remove(&host)
            && let Some(conn) = link.conn
        {
            self.owners.borrow_mut().remove(&conn);
        }
    }

    /// The process of a client is killed: its sent messages arrive, then its connection ends.
    pub(crate) fn killed(&self, world: &Rc<World>, host: u32) {
        let link = self.links.borrow_mut().remove(&host);
        let Some(conn) = link.and_then(|link| link.conn) else {
            return;
        };
        let weather = &world.plan.weather;
        let wait = weather.most_ns() + world.late_ns(host) + 1;
        let then = Rc::clone(world);
        world.sched.at(world.sched.now() + wait, move || {
            then.net.owners.borrow_mut().remove(&conn);
            then.to_server_gone(conn);
        });
    }

    /// Somebody says this to the server on a connection of its own, and hears nothing.
    pub(crate) fn says(&self, world: &Rc<World>, words: [ToServer; 2]) {
        let conn = self.new_conn(world.owner());
        for message in words {
            let units = Units::new();
            world.message_to_server(conn, Beside { message, units });
        }
        world.to_server_gone(conn);
    }

    fn new_conn(&self, side: usize) -> Conn {
        let conn = self.last_conn.get() + 1;
        self.last_conn.set(conn);
        self.sides.borrow_mut().insert(conn, side);
        conn
    }

    /// The server of a connection.
    pub(crate) fn side(&self, conn: Conn) -> usize {
        self.sides.borrow().get(&conn).copied().unwrap_or_default()
    }

    pub(crate) fn connect_later(&self, world: &Rc<World>, host: u32, after: Time) {
        let delay = after + world.rng.borrow_mut().between(100_000, 3_000_000);
        let then = Rc::clone(world);
        world.sched.at(world.sched.now() + delay, move || {
            then.net.connect(&then, host)
        });
    }

    fn connect(&self, world: &Rc<World>, host: u32) {
        let now = world.sched.now();
        let retry = {
            let mut links = self.links.borrow_mut();
            let Some(link) = links.get_mut(&host).filter(|link| link.wants) else {
                return;
            };
            if link.conn.is_some() {
                return;
            }
            let blocked = link
                .silent_until
                .iter()
                .fold(link.down_until, |a, &b| a.max(b));
            if blocked > now {
                Some(blocked - now)
            } else if !world.servers[link.at].up() {
                if world.servers.len() > 1 {
                    let lost_at = *link.lost_at.get_or_insert(now);
                    let at = link.at;
                    drop(links);
                    return world.seek(host, (at, now - lost_at));
                }
                Some(5_000_000)
            } else {
                let conn = self.new_conn(link.at);
                (link.conn, link.lost_at) = (Some(conn), None);
                self.owners.borrow_mut().insert(conn, host);
                None
            }
        };
        match retry {
            Some(after) => self.connect_later(world, host, after),
            None => {
                world.trace(|| format!("h{host} connected"));
                let version = wire::VERSION;
                world.to_room(host, client::Input::Connected { version }, Units::new());
            }
        }
    }

    /// From now on a client dials this server.
    pub(crate) fn turn(&self, host: u32, to: usize) {
        if let Some(link) = self.links.borrow_mut().get_mut(&host) {
            link.at = to;
        }
    }

    /// The link of a client breaks; the server hears of it later, the client now.
    pub(crate) fn hangup(&self, world: &Rc<World>, host: u32) {
        let (conn, silent_until) = {
            let mut links = self.links.borrow_mut();
            let Some(link) = links.get_mut(&host) else {
                return;
            };
            let Some(conn) = link.conn.take() else { return };
            (link.floor, link.changed) = ([0; 2], 0);
            (conn, link.silent_until[TO_SERVER])
        };
        self.owners.borrow_mut().remove(&conn);
        world.trace(|| format!("h{host} disconnected"));
        let delay = world.rng.borrow_mut().between(0, 2_000_000);
        let then = Rc::clone(world);
        let heard = world.sched.now().max(silent_until) + delay;
        world.sched.at(heard, move || then.to_server_gone(conn));
        let then = Rc::clone(world);
        world.sched.at(world.sched.now(), move || {
            then.to_room(host, client::Input::Gone, Units::new());
        });
        self.connect_later(world, host, 0);
    }

    /// The server ends a connection.
    pub(crate) fn close(&self, world: &Rc<World>, conn: Conn) {
        let owner = self.owners.borrow().get(&conn).copied();
        self.closed.borrow_mut().insert(conn);
        if let Some(host) = owner {
            // Earlier messages get there first.
            let wait = world.plan.weather.most_ns();
            let then = Rc::clone(world);
            world.sched.at(world.sched.now() + wait, move || {
                if then.net.is_open(conn) {
                    then.net.hangup(&then, host);
                }
            });
        }
    }

    /// All links to a server break.
    pub(crate) fn server_died(&self, world: &Rc<World>, own: usize) {
        let is_there = |conn: &Conn| self.side(*conn) == own;
        let links = self.links.borrow();
        let to_here = links
            .iter()
            .filter(|(_, link)| link.conn.as_ref().is_none_or(is_there));
        let hosts: Vec<u32> = to_here.map(|(host, _)| *host).collect();
        drop(links);
        for host in hosts {
            self.hangup(world, host);
        }
        // Nor does anything arrive from machines that were killed before.
        self.owners.borrow_mut().retain(|conn, _| !is_there(conn));
    }

    /// The link breaks and stays so for a while.
    pub(crate) fn cut(&self, world: &Rc<World>, host: u32, ns: Time) {
        if let Some(link) = self.links.borrow_mut().get_mut(&host) {
            link.down_until = world.sched.now() + ns;
        }
        self.hangup(world, host);
    }

    /// Nobody wants a connection any more, once the one that there is has ended.
    pub(crate) fn stay_apart(&self) {
        for link in self.links.borrow_mut().values_mut() {
            link.wants = false;
        }
    }

    /// From now on every message arrives.
    pub(crate) fn heal(&self) {
        for link in self.links.borrow_mut().values_mut() {
            link.silent_until = [0; 2];
            link.down_until = 0;
        }
    }

    pub(crate) fn to_server(&self, world: &Rc<World>, host: u32, beside: Beside<ToServer>) {
        let Some(conn) = self.links.borrow().get(&host).and_then(|link| link.conn) else {
            return;
        };
        if world.keeps_back(host, &beside.message) {
            return;
        }
        let keeps = matches!(beside.message, ToServer::Hello { .. });
        let together = matches!(beside.message, ToServer::Requests(_));
        let travel = Travel {
            way: TO_SERVER,
            long: together || !beside.units.is_empty(),
            keeps,
            behind: keeps,
            answers: (false, false),
            question: Question::answered(&beside.message),
        };
        each(self.arrivals(world, host, travel), beside, |at, beside| {
            let then = Rc::clone(world);
            let arrive = move || {
                let net = &then.net;
                if net.is_open(conn) && !net.is_closed(conn) {
                    net.arrived(host, travel.question);
                    then.message_to_server(conn, beside);
                }
            };
            Self::at(world, (host, TO_SERVER), at, arrive);
        });
    }

    pub(crate) fn to_client(
        &self,
        world: &Rc<World>,
        conn: Conn,
        (beside, behind): (Beside<ToClient>, bool),
    ) {
        let Some(host) = self.owners.borrow().get(&conn).copied() else {
            return;
        };
        let last = matches!(beside.message, ToClient::Lost);
        let travel = Travel {
            way: TO_CLIENT,
            long: !beside.units.is_empty(),
            keeps: last || matches!(beside.message, ToClient::Welcome(_)),
            behind,
            answers: question::answers(&beside.message),
            question: Question::asked(&beside.message),
        };
        each(self.arrivals(world, host, travel), beside, |at, beside| {
            let then = Rc::clone(world);
            let arrive = move || {
                if then.net.is_open(conn) {
                    let bulk_len = (beside.units.len() as u64 * crate::disk::UNIT) as u32;
                    let message = Box::new(beside.message);
                    let input = client::Input::Message { message, bulk_len };
                    then.to_room(host, input, beside.units);
                }
            };
            Self::at(world, (host, TO_CLIENT), at, arrive);
        });
    }

    /// Has the server ended this connection?
    pub(crate) fn is_closed(&self, conn: Conn) -> bool {
        self.closed.borrow().contains(&conn)
    }

    /// The machine of a connection.
    pub(crate) fn owner(&self, conn: Conn) -> Option<u32> {
        self.owners.borrow().get(&conn).copied()
    }

    fn is_open(&self, conn: Conn) -> bool {
        self.owners.borrow().contains_key(&conn)
    }

    fn arrived(&self, host: u32, answered: Option<Question>) {
        if let Some(link) = self.links.borrow_mut().get_mut(&host) {
            link.swallowed = 0;
            link.questions.answer(answered);
        }
    }

    /// Have so many messages of a machine been lost in a row that the server may think it silent?
    /// Or has one of the server's questions been swallowed so often, or its answer, until now?
    pub(crate) fn muted_by_loss(&self, world: &World, host: u32) -> bool {
        let links = self.links.borrow();
        // A session that left a question unanswered is not welcomed before its lease is over.
        let late = world
            .sched
            .now()
            .saturating_sub(2 * world.plan.server.lease_ns);
        links.get(&host).is_some_and(|link| {
            link.swallowed >= MUTING_LOSSES || link.questions.is_any_swallowed(MUTING_LOSSES, late)
        })
    }

    /// Does the connection end with this message?
    fn ends_here(&self, world: &Rc<World>, host: u32, travel: Travel) -> bool {
        let permille = world.plan.weather.loss_permille;
        let ends = world.rng.borrow_mut().chance(permille) && world.loses(host);
        if !ends {
            return false;
        }
        world.meet(Rare::MessageLost.bit());
        if let Some(link) = self.links.borrow_mut().get_mut(&host) {
            link.swallow(world.sched.now(), travel.way, travel.question);
        }
        // Its sender is in the middle of a step.
        let then = Rc::clone(world);
        let end = move || then.net.hangup(&then, host);
        world.sched.at(world.sched.now(), end);
        true
    }

    /// When a message arrives: never, once or twice.
    fn arrivals(&self, world: &Rc<World>, host: u32, travel: Travel) -> [Option<Time>; 2] {
        let Travel {
            way,
            long,
            keeps,
            behind,
            answers: (changes, shows),
            ..
        } = travel;
        self.messages.set(self.messages.get() + 1);
        let mut arrivals = [None; 2];
        let strike = world
            .strikes(host)
            .filter(|strike| !keeps || strike.ends_link());
        if strike.is_some_and(|strike| strike != Strike::Repeat) {
            return arrivals;
        }
        if way == TO_CLIENT
            && let Some(link) = self.links.borrow_mut().get_mut(&host)
        {
            link.questions.ask(travel.question);
        }
        let stormy = world.faults_on();
        if stormy && !keeps && self.ends_here(world, host, travel) {
            return arrivals;
        }
        let mut links = self.links.borrow_mut();
        let Some(link) = links.get_mut(&host) else {
            return arrivals;
        };
        let weather = &world.plan.weather;
        let rng = &mut world.rng.borrow_mut();
        // At both ends it is the machine that is slow, not the network.
        let late_ns = world.late_ns(host) + world.late_ns(NOBODY);
        let drawn = stormy && !keeps && rng.chance(weather.repeat_permille) && world.repeats(host);
        let twice = drawn || strike.is_some();
        if twice {
            world.meet(Rare::MessageTwice.bit());
        }
        for arrival in &mut arrivals[..1 + usize::from(twice)] {
            let mut flight = weather.base_ns + rng.below(weather.jitter_ns + 1) + late_ns;
            if long && weather.bulk_ns > 0 {
                flight += rng.below(weather.bulk_ns + 1);
            }
            let mut at = (world.sched.now() + flight).max(link.floor[way]);
            let last = &mut link.last[way];
            if behind {
                at = at.max(last[0].max(last[1]) + 1);
            } else if !weather.overtakes {
                at = at.max(last[usize::from(long)] + 1);
            }
            if shows {
                at = at.max(link.changed + 1);
            }
            if changes {
                link.changed = link.changed.max(at);
            }
            if at < last[0].max(last[1]) {
                world.meet(Rare::MessageOvertaken.bit());
            }
            last[usize::from(long)] = last[usize::from(long)].max(at);
            if keeps {
                link.floor[way] = at + 1;
            }
            *arrival = Some(at);
        }
        arrivals
    }
}

/// Sends a message off for each time at which it arrives.
fn each<M: Clone>(
    arrivals: [Option<Time>; 2],
    beside: Beside<M>,
    mut send: impl FnMut(Time, Beside<M>),
) {
    let [first, second] = arrivals;
    // Most messages arrive once, and need no copy.
    let copy = second.map(|at| (at, beside.clone()));
    if let Some(at) = first {
        send(at, beside);
    }
    if let Some((at, copy)) = copy {
        send(at, copy);
    }
}
