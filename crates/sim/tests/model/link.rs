//! Messages under way.

use super::memo::mark;
use std::hash::{Hash, Hasher};
use wire::{ToClient, ToServer};

/// A message.
#[derive(Clone, Debug)]
pub enum Load {
    Up(ToServer),
    Down(ToClient),
}

/// One direction of one client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up(usize),
    Down(usize),
}

/// A message with the bytes beside it.
#[derive(Debug)]
pub struct Packet {
    pub client: usize,
    pub load: Load,
    pub bytes: Vec<u8>,
    /// Tells it from all others.
    pub mark: u64,
}

impl Packet {
    pub fn new(client: usize, load: Load, bytes: Vec<u8>) -> Self {
        let mark = mark(&(client, &load, &bytes));
        Self {
            client,
            load,
            bytes,
            mark,
        }
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

impl Eq for Packet {}

impl Hash for Packet {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.mark);
    }
}
