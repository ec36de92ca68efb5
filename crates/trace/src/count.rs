//! The counters of a replay, and the costs of its reads.

/// Where a read was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the client's own memory.
    Local,
    /// In the server's memory.
    Server,
    /// In another client's memory.
    Peer,
    /// On the server's disk.
    Disk,
}

impl Level {
    /// All of them, as reports list them.
    pub const ALL: [Level; 4] = [Level::Local, Level::Server, Level::Peer, Level::Disk];

    /// The word for it in reports.
    pub fn word(self) -> &'static str {
        match self {
            Level::Local => "own memory",
            Level::Server => "server memory",
            Level::Peer => "another client",
            Level::Disk => "server disk",
        }
    }
}

/// How long a read takes that is answered at each level, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// A block from the own memory.
    pub local_ns: u64,
    /// A message from one machine to another one.
    pub hop_ns: u64,
    /// The bytes of a block over the network.
    pub block_ns: u64,
    /// The server's disk.
    pub disk_ns: u64,
}

impl Prices {
    /// The paper's: figure 1, 155 Mbit/s ATM, and figure 3.
    pub const PAPER: Prices = Prices {
        local_ns: 250_000,
        hop_ns: 200_000,
        block_ns: 400_000,
        disk_ns: 14_800_000,
    };

    /// Machines of today on 25 Gbit/s Ethernet through the kernel's TCP, the server with an NVMe
    /// SSD: a copy of 8 KiB, 15 us a message, the block at 20 Gbit/s, 90 us for a random read.
    pub const TODAY_SSD: Prices = Prices {
        local_ns: 2_000,
        hop_ns: 15_000,
        block_ns: 3_300,
        disk_ns: 90_000,
    };

    /// The same, the server with a disk of 7,200 turns a minute: 12 ms for a random read.
    pub const TODAY_DISK: Prices = Prices {
        disk_ns: 12_000_000,
        ..Self::TODAY_SSD
    };

    /// Messages that a read by way of the server and a peer needs.
    pub(crate) fn peer_ns(&self, hops: u64) -> u64 {
        self.local_ns + hops * self.hop_ns + self.block_ns
    }
}

/// The server's work, in units: a message is one, the bytes of a block are two, a transfer of
/// its disk is two (section 4.1 of the paper).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Reads answered from its memory.
    pub memory: u64,
    /// Reads answered from its disk.
    pub disk: u64,
    /// Reads that it passed to clients.
    pub forwarded: u64,
    /// Questions, notices and blocks sent away.
    pub other: u64,
}

impl Load {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.memory + self.disk + self.forwarded + self.other
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads by level.
    pub reads: [u64; 4],
    /// Reads by client and level.
    pub by_client: Vec<[u64; 4]>,
    /// Blocks written.
    pub writes: u64,
    /// Reads from peers that needed two messages before the bytes, one, or none.
    pub peer_hops: u64,
    /// Messages of all machines, without writes.
    pub messages: u64,
    /// Blocks that were sent from machine to machine while no reader waited for them.
    pub moved: u64,
    /// Peers that had not what the hint said.
    pub wrong_hints: u64,
    /// The server's load.
    pub load: Load,
}

impl Counts {
    /// Reads.
    pub fn all_reads(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// The share of the reads that was answered at a level.
    pub fn share(&self, level: Level) -> f64 {
        self.reads[level as usize] as f64 / self.all_reads().max(1) as f64
    }

    /// The share of the reads that was not answered by the client's own memory.
    pub fn local_misses(&self) -> f64 {
        1.0 - self.share(Level::Local)
    }

    /// The time of an average read.
    pub fn response_ns(&self, prices: &Prices) -> f64 {
        let hops = match self.reads[Level::Peer as usize] {
            0 => 0.0,
            reads => self.peer_hops as f64 / reads as f64,
        };
        response_ns(&self.reads, hops, prices)
    }

    /// The same of one client.
    pub fn client_response_ns(&self, client: usize, prices: &Prices) -> f64 {
        let hops = match self.reads[Level::Peer as usize] {
            0 => 0.0,
            reads => self.peer_hops as f64 / reads as f64,
        };
        response_ns(&self.by_client[client], hops, prices)
    }
}

/// `hops`: messages of an average read from a peer.
fn response_ns(reads: &[u64; 4], hops: f64, prices: &Prices) -> f64 {
    let all: u64 = reads.iter().sum();
    let [local, server, peer, disk] = reads.map(|n| n as f64 / all.max(1) as f64);
    let remote = prices.peer_ns(2) as f64;
    let peer_ns = prices.peer_ns(0) as f64 + hops * prices.hop_ns as f64;
    local * prices.local_ns as f64
        + server * remote
        + peer * peer_ns
        + disk * (remote + prices.disk_ns as f64)
}
