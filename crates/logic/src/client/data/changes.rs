//! How much of a file, and of a volume, is changed and not at the server.

use super::cache::{BlockState, Cache, There};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Fid, Time};

/// The blocks of a file that are dirty or on their way to the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changed {
    pub(crate) count: u32,
    /// No such block is before this one.
    pub(super) from: u64,
    /// How many of them the server may have no bytes of, and of how many of these that is not
    /// known.
    pub(crate) new: u32,
    pub(crate) unknown: u32,
}

impl Changed {
    /// A block counts, or counts no more.
    pub(super) fn count(&mut self, there: There, more: bool) {
        let step = |number: &mut u32| *number = if more { *number + 1 } else { *number - 1 };
        step(&mut self.count);
        if there != There::Yes {
            step(&mut self.new);
        }
        if there == There::Unknown {
            step(&mut self.unknown);
        }
    }
}

/// How many blocks of each volume are still to be written back, those twice that are on their way
/// and have changed since. There are few volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByVolume(Vec<(u32, u64)>);

impl ByVolume {
    pub(super) fn get(&self, volume: u32) -> u64 {
        let known = self.0.iter().find(|(id, _)| *id == volume);
        known.map_or(0, |(_, count)| *count)
    }

    /// A block in this state counts, or counts no more.
    pub(super) fn count(&mut self, volume: u32, state: BlockState, more: bool) {
        let times = match state {
            BlockState::Filling(_) | BlockState::Clean => return,
            BlockState::Dirty(_) | BlockState::Sending(None) => 1,
            BlockState::Sending(Some(_)) => 2,
        };
        match self.0.iter_mut().find(|(id, _)| *id == volume) {
            Some((_, count)) if more => *count += times,
            Some((_, count)) => *count -= times,
            None => self.0.push((volume, times)),
        }
    }
}

impl Cache {
    /// Files with dirty blocks, and since when the oldest of them is.
    pub(crate) fn dirty_files(&self) -> BTreeMap<Fid, Time> {
        let since = |(_, _, state)| match state {
            BlockState::Dirty(since) | BlockState::Sending(Some(since)) => Some(since),
            _ => None,
        };
        let oldest = |fid: &Fid| self.changed_blocks(*fid).filter_map(since).min();
        let files = self.changed_files();
        files.filter_map(|fid| Some((fid, oldest(&fid)?))).collect()
    }

    /// Files of which something has to be written back.
    pub(crate) fn files_to_clean(&self) -> Vec<Fid> {
        let waits = |fid: &Fid| {
            let mut blocks = self.changed_blocks(*fid);
            blocks.any(|(_, _, state)| {
                matches!(state, BlockState::Dirty(_) | BlockState::Sending(Some(_)))
            })
        };
        self.changed_files().filter(waits).collect()
    }
}
