//! The states that programs may be shown: one byte of a file, its size, and a name, as on one
//! machine. The judge keeps every order in which the calls may have had their turn so far, so that
//! what it accepts is exactly what is linearizable, and its knowledge is a set that can be
//! compared.

use super::memo::{Machine, Wrong};
use std::collections::BTreeSet;
use wire::Time;

/// A call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Do {
    OpenRead,
    OpenWrite,
    Close,
    Read,
    Write(u8),
    Append,
    Stat,
    Create,
    Unlink,
    Lookup,
}

/// The program's sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    Done,
    Byte(u8),
    Size(u64),
    Named(bool),
    Exists,
    NotFound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Truth {
    byte: u8,
    size: u64,
    named: bool,
}

impl Truth {
    /// The call has its turn.
    fn turn(&mut self, call: Do) -> Seen {
        match call {
            Do::Read => return Seen::Byte(self.byte),
            Do::Stat => return Seen::Size(self.size),
            Do::Lookup => return Seen::Named(self.named),
            Do::Create if self.named => return Seen::Exists,
            Do::Unlink if !self.named => return Seen::NotFound,
            Do::Write(byte) => self.byte = byte,
            Do::Append => self.size += 1,
            Do::Create => self.named = true,
            Do::Unlink => self.named = false,
            Do::OpenRead | Do::OpenWrite | Do::Close => {}
        }
        Seen::Done
    }
}

/// One order: where it has led, and what the calls under way have seen that had their turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    truth: Truth,
    seen: Vec<Option<Seen>>,
}

/// All orders that fit.
#[derive(Clone, Debug)]
pub struct Judge {
    orders: BTreeSet<Order>,
    under_way: Vec<Option<Do>>,
}

/// A call of a client begins; or it ends and shows this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Begin(usize, Do),
    End(usize, Seen),
}

impl Machine for Judge {
    type Event = Event;
    type Effect = ();

    fn take(&mut self, _now: Time, event: &Event) -> Result<Vec<()>, Wrong> {
        match *event {
            Event::Begin(client, call) => self.begin(client, call),
            Event::End(client, seen) => {
                let call = self.under_way[client];
                if !self.end(client, seen) {
                    return Err(format!(
                        "client {client}: {call:?} shows {seen:?}, which no order explains"
                    ));
                }
            }
        }
        Ok(vec![])
    }
}

impl Judge {
    /// Before the first call, with or without a file of one zero byte.
    pub fn new(clients: usize, file: bool) -> Self {
        let truth = Truth {
            byte: 0,
            size: u64::from(file),
            named: file,
        };
        let seen = vec![None; clients];
        Self {
            orders: BTreeSet::from([Order { truth, seen }]),
            under_way: vec![None; clients],
        }
    }

    /// A call begins.
    fn begin(&mut self, client: usize, call: Do) {
        self.under_way[client] = Some(call);
    }

    /// A call ends and shows this: false if that cannot be.
    fn end(&mut self, client: usize, seen: Seen) -> bool {
        let mut reached = BTreeSet::new();
        let mut open: Vec<Order> = std::mem::take(&mut self.orders).into_iter().collect();
        while let Some(order) = open.pop() {
            if !reached.insert(order.clone()) {
                continue;
            }
            for (other, call) in self.under_way.iter().enumerate() {
                if let (Some(call), None) = (call, order.seen[other]) {
                    let mut next = order.clone();
                    next.seen[other] = Some(next.truth.turn(*call));
                    open.push(next);
                }
            }
        }
        for mut order in reached {
            if order.seen[client] == Some(seen) {
                order.seen[client] = None;
                self.orders.insert(order);
            }
        }
        self.under_way[client] = None;
        !self.orders.is_empty()
    }
}

#[test]
fn the_judge_knows_stale_from_concurrent() {
    let mut judge = Judge::new(2, true);
    judge.begin(0, Do::Write(1));
    judge.begin(1, Do::Read);
    assert!(judge.clone().end(1, Seen::Byte(0)));
    assert!(judge.end(1, Seen::Byte(1)));
    judge.begin(1, Do::Read);
    assert!(!judge.clone().end(1, Seen::Byte(0)), "back in time");
    assert!(judge.end(0, Seen::Done));
    assert!(!judge.end(1, Seen::Byte(0)), "stale");
}
