//! The surroundings of one client's machine: slots with real bytes, the bytes of writes, a kernel
//! that drops what it is told to, at once or when the scenario says so.

use logic::Ticket;
use logic::client::{Client, Piece};
use std::collections::{BTreeMap, VecDeque};

pub const BLOCK: usize = 4096;

/// One client with its surroundings.
pub struct Machine {
    pub client: Client,
    /// The connection, if there is one.
    pub conn: Option<u64>,
    /// It may dial.
    pub plugged: bool,
    /// It has said goodbye: the next to connect is another process.
    pub left: bool,
    /// Its kernel drops things only when told to.
    pub slow: bool,
    /// Of the program that calls.
    pub thread: u32,
    /// Notifications that the kernel has not carried out yet: number and text.
    pub dropping: VecDeque<(u64, String)>,
    /// The text of each unanswered call.
    pub calls: BTreeMap<Ticket, String>,
    /// Bytes of unanswered writes.
    pub writes: BTreeMap<Ticket, Vec<u8>>,
    /// Bytes kept for requests.
    kept: BTreeMap<u64, Vec<u8>>,
    slots: Vec<Vec<u8>>,
}

impl Machine {
    pub fn new(client: Client, slots: usize) -> Self {
        Self {
            client,
            conn: None,
            plugged: true,
            left: false,
            slow: false,
            thread: 1,
            dropping: VecDeque::new(),
            calls: BTreeMap::new(),
            writes: BTreeMap::new(),
            kept: BTreeMap::new(),
            slots: vec![vec![0; BLOCK]; slots],
        }
    }

    /// The bytes of pieces, as they are now.
    pub fn gather(&self, pieces: &[Piece], bulk: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match *piece {
                Piece::Slot { slot, at, len } => {
                    let at = at as usize;
                    bytes.extend(&self.slots[slot as usize][at..at + len as usize]);
                }
                Piece::Zero { len } => bytes.resize(bytes.len() + len as usize, 0),
                Piece::Bulk { from, len } => {
                    bytes.extend(&bulk[from as usize..(from + len) as usize]);
                }
                Piece::Call { ticket } => bytes.extend(&self.writes[&ticket]),
                Piece::Kept { request } => bytes.extend(&self.kept[&request]),
            }
        }
        bytes
    }

    pub fn keep(&mut self, request: u64, pieces: &[Piece], bulk: &[u8]) {
        let bytes = self.gather(pieces, bulk);
        self.kept.insert(request, bytes);
    }

    pub fn forget(&mut self, request: u64) {
        let kept = self.kept.remove(&request);
        assert!(kept.is_some(), "nothing is kept for #{request}");
    }

    pub fn fill(&mut self, slot: u32, bytes: &[u8]) {
        let slot = &mut self.slots[slot as usize];
        slot[..bytes.len()].copy_from_slice(bytes);
        slot[bytes.len()..].fill(0);
    }

    /// `but_zeros`: where zeros come, the slot keeps what it has.
    pub fn copy_in(
        &mut self,
        (ticket, from): (Ticket, u32),
        (slot, at, len): (u32, u32, u32),
        but_zeros: bool,
    ) {
        let bytes = self.writes[&ticket][from as usize..(from + len) as usize].to_vec();
        let to = &mut self.slots[slot as usize][at as usize..(at + len) as usize];
        let counts = |byte: u8| byte != 0 || !but_zeros;
        for (to, from) in to.iter_mut().zip(bytes).filter(|(_, from)| counts(*from)) {
            *to = from;
        }
    }

    pub fn zero(&mut self, slot: u32, at: u32, len: u32) {
        self.slots[slot as usize][at as usize..(at + len) as usize].fill(0);
    }
}
