//! The part of a trace that a listener on the network would have seen: the clients' own hits are
//! not on it. Small caches swallow them (stack deletion, Smith 1977), and the rest behaves in
//! larger caches as all of it would. As clients of NFS do, a client asks for the attributes of a
//! file before it uses cached blocks of it, but not again within three seconds.

use crate::access::{Access, Op};
use logic::peers::{Arrival, Client, Fate, Found, Name, Options, Policy};
use std::collections::HashMap;

/// The blocks of the caches that swallow hits: 2 MiB.
const SMALL_BLOCKS: usize = 256;
const ATTRIBUTES_US: u64 = 3_000_000;

/// A listener.
pub struct Snoop<I> {
    accesses: I,
    clients: Vec<Client>,
    asked: HashMap<(u32, u64), u64>,
    now: u32,
    /// Reads that were seen, and reads that were not.
    pub reads: (u64, u64),
}

impl<I: Iterator<Item = Access>> Snoop<I> {
    /// Listens to so many clients.
    pub fn new(accesses: I, clients: u16) -> Self {
        let options = Options::new(Policy::Off, clients, SMALL_BLOCKS, 0);
        Self {
            accesses,
            clients: (0..clients).map(|me| Client::new(&options, me)).collect(),
            asked: HashMap::new(),
            now: 0,
            reads: (0, 0),
        }
    }

    /// A hit shows only as a question for attributes, and not always.
    fn hit(&mut self, access: Access) -> Option<Access> {
        self.reads.1 += 1;
        let asked = self.asked.entry((access.client, access.file)).or_insert(0);
        if access.time_us < *asked {
            return None;
        }
        *asked = access.time_us + ATTRIBUTES_US;
        Some(Access {
            op: Op::Attributes,
            block: 0,
            ..access
        })
    }
}

impl<I: Iterator<Item = Access>> Iterator for Snoop<I> {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        loop {
            let access = self.accesses.next()?;
            if !matches!(access.op, Op::Read | Op::Write) {
                return Some(access);
            }
            self.now += 1;
            let name = Name(wire::mix64(access.file) ^ u64::from(access.block));
            let client = &mut self.clients[access.client as usize];
            let found = client.read(self.now, name);
            if found == Found::Nowhere {
                client.filled(self.now, name, Arrival::default(), Fate::Own);
            }
            match (access.op, found) {
                (Op::Read, Found::Nowhere) => {
                    self.reads.0 += 1;
                    return Some(access);
                }
                (Op::Read, _) => {
                    if let Some(seen) = self.hit(access) {
                        return Some(seen);
                    }
                }
                // Writes go through to the server.
                _ => return Some(access),
            }
        }
    }
}
