//! How much of a file is changed and not at the server.

use super::cache::There;

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
