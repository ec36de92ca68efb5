//! The papers' results: the figures of the one on cooperative caching, and the list of all tables
//! and figures with measurements, with what can be reproduced of them.

use logic::peers::Policy;

/// The paper's result for an algorithm on the Sprite traces (sections 4.1 and 2.5, figures 4 and
/// 5). `None`: it is not in the text. Where the text gives a share of the base time, the time is
/// computed from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Result {
    /// Against no cooperation.
    pub(super) speed_up: Option<f64>,
    /// An average read, in milliseconds.
    pub(super) ms: Option<f64>,
    /// The share of reads that goes to the disk.
    pub(super) disk: Option<f64>,
    /// The share of reads that the client's own memory does not answer.
    pub(super) local_misses: Option<f64>,
}

/// The paper's result; `None` for what it does not have.
pub(super) fn sprite(policy: Policy) -> Option<Result> {
    let result = |speed_up, ms, disk, local_misses| {
        Some(Result {
            speed_up,
            ms,
            disk,
            local_misses,
        })
    };
    match policy {
        Policy::Off => result(Some(1.0), None, Some(0.157), Some(0.22)),
        Policy::Direct => result(Some(1.05), Some(2.62), None, Some(0.22)),
        Policy::Greedy => result(Some(1.22), Some(2.24), None, Some(0.22)),
        Policy::Central => result(Some(1.64), None, Some(0.076), Some(0.36)),
        Policy::NChance => result(Some(1.73), Some(1.59), Some(0.077), Some(0.23)),
        // "Nearly identical hit rates" and "slightly worse": the numbers are those of the
        // algorithms that they are compared with.
        Policy::Hash => result(Some(1.64), None, None, None),
        Policy::Weighted => result(Some(1.73), None, None, None),
        Policy::Fleet => None,
    }
}

/// The unreal best case: "both coordinated algorithms are within 10 % of it".
pub(super) const BEST: Result = Result {
    speed_up: Some(1.75),
    ms: Some(1.57),
    disk: None,
    local_misses: Some(0.22),
};

/// A speed-up that the paper gives for N-chance forwarding on the snooped trace, by the hit rate
/// that is assumed for what could not be seen.
pub(super) const SNOOPED: [(f64, f64); 3] = [(0.7, 2.20), (0.8, 2.00), (0.9, 1.67)];

/// A table or figure of one of the five papers.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// The paper.
    pub paper: &'static str,
    /// Its number there.
    pub name: &'static str,
    /// Its subject.
    pub shows: &'static str,
    /// The command that reproduces it.
    pub by: Option<&'static str>,
}

const COOPERATIVE: &str = "Dahlin and others 1994, Cooperative Caching";
const NELSON: &str = "Nelson 1988, Physical Memory Management in a Network Operating System";
const VMFS: &str = "Nelson 1987, Virtual Memory vs. The File System";
const SNFS: &str = "Srinivasan and Mogul 1989, Spritely NFS";
const ANDREW: &str = "Howard and others 1988, Scale and Performance in a Distributed File System";

const fn item(paper: &'static str, name: &'static str, shows: &'static str) -> Item {
    Item {
        paper,
        name,
        shows,
        by: None,
    }
}

const fn done(name: &'static str, shows: &'static str) -> Item {
    Item {
        by: Some("ariel reproduce cooperative"),
        ..item(COOPERATIVE, name, shows)
    }
}

const fn forks(name: &'static str, shows: &'static str) -> Item {
    Item {
        by: Some("ariel reproduce fork"),
        ..item(NELSON, name, shows)
    }
}

const fn memory(paper: &'static str, name: &'static str, shows: &'static str) -> Item {
    Item {
        by: Some("ariel reproduce memory"),
        ..item(paper, name, shows)
    }
}

/// All tables and figures that show measurements.
pub const ITEMS: [Item; 65] = [
    done("figure 4", "read time by algorithm"),
    done("figure 5", "reads by level"),
    done("figure 6", "server load"),
    done("figure 7", "speed-up of each client"),
    done("figure 8", "direct cooperation: memory of the idle machine"),
    done("figure 9", "central coordination: managed share"),
    done("figure 10", "N-chance: number of chances"),
    done("figure 11", "client cache"),
    done("figure 12", "server cache"),
    done("figure 13", "network"),
    done("figure 14", "the snooped trace"),
    item(
        NELSON,
        "table 3-2",
        "server traffic by client cache, with consistency",
    ),
    item(
        NELSON,
        "table 3-3",
        "server traffic by client cache, without consistency",
    ),
    item(NELSON, "table 4-1", "cost of four look-up operations"),
    item(NELSON, "table 4-2", "rates of reading and writing"),
    item(
        NELSON,
        "table 4-4",
        "benchmarks with and without local disks and caches",
    ),
    item(NELSON, "table 4-5", "Andrew benchmark by number of clients"),
    item(NELSON, "figure 4-5", "server use by system"),
    item(NELSON, "table 4-6", "what name caches would bring"),
    item(NELSON, "table 5-4", "network traffic by client policy"),
    item(NELSON, "table 5-5", "disk traffic, server delay-30"),
    item(NELSON, "table 5-6", "disk traffic, server write-through"),
    item(
        NELSON,
        "table 5-7",
        "disk traffic, server as soon as possible",
    ),
    item(NELSON, "table 5-8", "disk traffic, server last-dirty-block"),
    item(NELSON, "table 5-9", "elapsed time, server delay-30"),
    item(NELSON, "table 5-10", "elapsed time, server write-through"),
    item(
        NELSON,
        "table 5-11",
        "elapsed time, server as soon as possible",
    ),
    item(
        NELSON,
        "table 5-12",
        "elapsed time, server last-dirty-block",
    ),
    item(NELSON, "table 5-13", "shorter seeks"),
    memory(NELSON, "table 6-2", "how the pools negotiate"),
    memory(NELSON, "figure 6-2", "traffic with caches of a fixed size"),
    memory(
        NELSON,
        "figure 6-3",
        "elapsed time, variable and fixed sizes",
    ),
    memory(NELSON, "figure 6-4", "traffic, variable and fixed sizes"),
    memory(NELSON, "figure 6-5", "elapsed time by penalty"),
    memory(NELSON, "figure 6-6", "traffic by penalty"),
    memory(
        NELSON,
        "table 6-3",
        "response times beside Sort, by penalty",
    ),
    memory(NELSON, "table 6-4", "its faults, and the size of the cache"),
    item(NELSON, "table 6-5", "the same with less changed memory"),
    forks("table 7-1", "fork, exit and wait by resident size"),
    forks("table 7-3", "copies that COW-COR saves in programs"),
    forks("table 7-4", "COW-COR against pure copy-on-write"),
    item(NELSON, "figure 7-4", "cost of copying at fork"),
    memory(VMFS, "figure 1", "elapsed time with caches of a fixed size"),
    memory(VMFS, "figure 2", "traffic with caches of a fixed size"),
    memory(VMFS, "figure 3", "elapsed time, variable and fixed sizes"),
    memory(VMFS, "figure 4", "traffic, variable and fixed sizes"),
    memory(VMFS, "figure 5", "elapsed time by penalty"),
    memory(VMFS, "figure 6", "traffic by penalty"),
    memory(VMFS, "table 3", "response times beside Sort"),
    memory(VMFS, "table 4", "the same with a penalty"),
    item(SNFS, "table 2", "Andrew benchmark"),
    item(SNFS, "table 3", "calls of the Andrew benchmark"),
    item(SNFS, "table 4", "sort benchmark"),
    item(SNFS, "table 5", "calls of the sort benchmark"),
    item(SNFS, "table 6", "sort benchmark, unlimited delay"),
    item(SNFS, "table 7", "its calls"),
    item(ANDREW, "table 1", "stand-alone benchmark"),
    item(ANDREW, "table 3", "prototype by load"),
    item(ANDREW, "table 6", "Andrew by load"),
    item(ANDREW, "table 7", "server use by load"),
    item(ANDREW, "table 8", "servers in daily use"),
    item(ANDREW, "table 11", "NFS and Andrew: times"),
    item(ANDREW, "table 12", "NFS and Andrew: server use"),
    item(ANDREW, "table 13", "NFS and Andrew: network traffic"),
    item(ANDREW, "table 14", "NFS and Andrew: latency"),
];
