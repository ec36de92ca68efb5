//! Configurations of the search: a state, and which of the open operations have taken effect in it.
//!
//! An operation that was lost in a crash may happen at any time, or never. Of two configurations
//! with one state and the same operations that will end, the one in which fewer of the lost ones
//! have happened can do whatever the other can: the other is needless. So these are kept without
//! their subsets.

use crate::model::State;
use std::collections::HashMap;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Config {
    pub(crate) state: State,
    /// Open operations that have taken effect, a bit for each slot.
    pub(crate) done: u128,
}

/// Configurations, without needless ones.
#[derive(Debug)]
pub(crate) struct Configs {
    /// The slots of operations that may never happen.
    lost: u128,
    /// For each state with what has happened else, the least that was used of the lost ones.
    least: HashMap<Config, Vec<u128>>,
    len: usize,
}

impl Configs {
    pub(crate) fn new(lost: u128) -> Configs {
        Configs {
            lost,
            least: HashMap::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// False: it is needless.
    pub(crate) fn insert(&mut self, config: Config) -> bool {
        let used = config.done & self.lost;
        let key = Config {
            done: config.done & !self.lost,
            ..config
        };
        let least = self.least.entry(key).or_default();
        if least.iter().any(|one| one & used == *one) {
            return false;
        }
        let before = least.len();
        least.retain(|one| one & used != used);
        least.push(used);
        self.len = self.len + least.len() - before;
        true
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = Config> {
        self.least.into_iter().flat_map(|(key, least)| {
            least.into_iter().map(move |used| Config {
                state: key.state.clone(),
                done: key.done | used,
            })
        })
    }
}

/// Configurations to be looked at, those first that have used the least of the lost operations.
pub(crate) struct Queue {
    lost: u128,
    /// By how many were used.
    by_used: Vec<Vec<Config>>,
}

impl Queue {
    pub(crate) fn new(lost: u128, all: impl Iterator<Item = Config>) -> Queue {
        let by_used = vec![Vec::new(); lost.count_ones() as usize + 1];
        let mut queue = Queue { lost, by_used };
        all.for_each(|config| queue.push(config));
        queue
    }

    pub(crate) fn push(&mut self, config: Config) {
        let used = (config.done & self.lost).count_ones() as usize;
        self.by_used[used].push(config);
    }

    pub(crate) fn pop(&mut self) -> Option<Config> {
        self.by_used.iter_mut().find_map(Vec::pop)
    }
}
