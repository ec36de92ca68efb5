//! How the network of a world is: delays, losses and what overtakes what.

use wire::Time;

/// The network's effect on messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) base_ns: Time,
    pub(crate) jitter_ns: Time,
    /// How much longer than a short message a long one takes at most: a link that is full.
    pub(crate) bulk_ns: Time,
    pub(crate) loss_permille: u64,
    pub(crate) repeat_permille: u64,
    pub(crate) overtakes: bool,
}

impl Weather {
    /// How long a message takes at most.
    pub(crate) fn most_ns(&self) -> Time {
        self.base_ns + self.jitter_ns + self.bulk_ns
    }
}
