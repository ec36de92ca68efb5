//! The trace that most figures are about, the fleets it is replayed on, and what reads cost.

use crate::access::Trace;
use crate::count::{Counts, Prices};
use crate::replay::{Setup, replay};
use crate::workloads::{Size, Workload};
use logic::peers::{Options, Policy};

/// One trace, replayed under many conditions.
pub(super) struct Lab {
    pub(super) trace: Trace,
    pub(super) size: Size,
}

/// A policy, or the unreal best case: each client's memory is there twice, once for itself and
/// once for all (section 3 of the paper).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Policy(Policy),
    Best,
}

/// The subjects of figure 4, ours after the paper's.
pub(super) const SUBJECTS: [Subject; 9] = [
    Subject::Policy(Policy::Off),
    Subject::Policy(Policy::Direct),
    Subject::Policy(Policy::Greedy),
    Subject::Policy(Policy::Central),
    Subject::Policy(Policy::NChance),
    Subject::Policy(Policy::Hash),
    Subject::Policy(Policy::Weighted),
    Subject::Policy(Policy::Fleet),
    Subject::Best,
];

impl Subject {
    pub(super) fn word(self) -> &'static str {
        match self {
            Subject::Policy(policy) => policy.word(),
            Subject::Best => "best case",
        }
    }

    pub(super) fn options(self, size: Size) -> Options {
        let of =
            |policy| Options::new(policy, size.clients, size.client_blocks, size.server_blocks);
        match self {
            Subject::Policy(policy) => of(policy),
            Subject::Best => Options {
                own_blocks: size.client_blocks,
                managed_blocks: size.client_blocks,
                ..of(Policy::Central)
            },
        }
    }
}

impl Lab {
    pub(super) fn new(seed: u64) -> Self {
        Self::of(Workload::Sprite, seed)
    }

    pub(super) fn of(workload: Workload, seed: u64) -> Self {
        Self {
            trace: workload.trace(seed),
            size: workload.size(),
        }
    }

    pub(super) fn run(&self, options: Options) -> Counts {
        let setup = Setup {
            options,
            warm: self.size.warm,
        };
        replay(&self.trace, &setup)
    }

    pub(super) fn subject(&self, subject: Subject) -> Counts {
        self.run(subject.options(self.size))
    }
}

/// Blocks in so many MiB.
pub(super) const fn mib(mib: usize) -> usize {
    mib * (1 << 20) / crate::workloads::BLOCK_BYTES as usize
}

/// Times of today, named.
pub(super) const TODAY: [(&str, Prices); 2] = [
    ("today, SSD", Prices::TODAY_SSD),
    ("today, disk", Prices::TODAY_DISK),
];

pub(super) fn ms(counts: &Counts) -> f64 {
    counts.response_ns(&Prices::PAPER) / 1e6
}

pub(super) fn speed_up(base: &Counts, counts: &Counts, prices: &Prices) -> f64 {
    base.response_ns(prices) / counts.response_ns(prices)
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A number of the paper, or that there is none.
pub(super) fn given(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), shown)
}
