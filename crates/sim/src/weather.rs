//! How the network of a world is: delays, losses and what overtakes what.

use crate::rng::Rng;
use wire::Time;

const MS: Time = 1_000_000;

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
    /// That of a world; `calm`: nothing is lost.
    pub(crate) fn draw(rng: &mut Rng, calm: bool) -> Self {
        let mut weather = Self {
            base_ns: rng.between(10_000, 300_000),
            jitter_ns: *rng.pick(&[5_000, 100_000, 2 * MS, 20 * MS]),
            ..Self::default()
        };
        // Not drawn, so that the other worlds stay what they were.
        weather.bulk_ns = [0, 0, 3 * MS, 30 * MS][(weather.base_ns % 4) as usize];
        weather.overtakes = rng.chance(500);
        if !calm {
            weather.loss_permille = *rng.pick(&[0, 0, 2, 10, 30]);
            weather.repeat_permille = *rng.pick(&[0, 0, 20, 200]);
        }
        weather
    }

    /// How long a message takes at most.
    pub(crate) fn most_ns(&self) -> Time {
        self.base_ns + self.jitter_ns + self.bulk_ns
    }
}
