//! Planted faults: a test of the judge. Each is one rule broken on purpose, in one line of a
//! machine; a judge that misses one would miss its like in earnest.

use crate::moving;
use crate::run::{RunOptions, is_planted, run_seed};
use logic::{client, server};
use std::fmt;

/// A planted fault, by where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// In the machine of every client.
    Client(client::Mutant),
    /// In the machine of the server.
    Server(server::Mutant),
    /// In the store, which is the disk of one world in four.
    Store(store::Mutant),
    /// In how servers give the store to each other.
    Moving(moving::Mutant),
}

impl Mutant {
    /// All that worlds of a reasonable number show. One of the store is left to the store's own
    /// tests, which find all of its faults: that bytes of a file which rotted in the log behind the
    /// checkpoint are taken for sound.
    pub const ALL: [Self; 85] = [
        Self::Client(client::Mutant::IgnoresEpochs),
        Self::Client(client::Mutant::ReturnsBeforeInvalidating),
        Self::Client(client::Mutant::ReturnsBeforeWritingBack),
        Self::Client(client::Mutant::KeepsNames),
        Self::Client(client::Mutant::NamesWithoutToken),
        Self::Client(client::Mutant::ForgetsListed),
        Self::Client(client::Mutant::ForgetsLookups),
        Self::Client(client::Mutant::ForgetsRenamed),
        Self::Client(client::Mutant::ForgetsALock),
        Self::Client(client::Mutant::AttributesWithoutToken),
        Self::Client(client::Mutant::IgnoresVersions),
        Self::Client(client::Mutant::CachesSharedOpens),
        Self::Server(server::Mutant::IgnoresExclusive),
        Self::Server(server::Mutant::ForgetsNames),
        Self::Server(server::Mutant::ForgetsTransients),
        Self::Server(server::Mutant::SkipsConfirmation),
        Self::Server(server::Mutant::AppliesTwice),
        Self::Server(server::Mutant::FencesAtOnce),
        Self::Client(client::Mutant::ForgetsLocks),
        Self::Server(server::Mutant::LocksTwice),
        Self::Server(server::Mutant::IgnoresDeadlocks),
        Self::Store(store::Mutant::SkipsChecksums),
        Self::Store(store::Mutant::TakesDamageForEnd),
        Self::Store(store::Mutant::StopsEarly),
        Self::Store(store::Mutant::KeepsCutBytes),
        Self::Store(store::Mutant::ForgetsAnswers),
        Self::Store(store::Mutant::ReplaysTwice),
        Self::Store(store::Mutant::LosesTail),
        Self::Store(store::Mutant::SyncsNothing),
        Self::Store(store::Mutant::SyncsAgain),
        Self::Store(store::Mutant::CheckpointsUnsynced),
        Self::Store(store::Mutant::LeavesUnsynced),
        Self::Store(store::Mutant::ForgetsNames),
        Self::Store(store::Mutant::RemovesEarly),
        Self::Client(client::Mutant::LeavesRanges),
        Self::Server(server::Mutant::ForgetsWatches),
        Self::Client(client::Mutant::StampsByOwnClock),
        Self::Client(client::Mutant::RenewsThoughStalled),
        Self::Client(client::Mutant::ReturnsBeforeTelling),
        Self::Client(client::Mutant::ListsKnownNames),
        Self::Client(client::Mutant::ForgetsXattrs),
        Self::Client(client::Mutant::GivesUpAtOnce),
        Self::Client(client::Mutant::TellsOtherPositions),
        Self::Server(server::Mutant::DoesOutOfTurn),
        Self::Server(server::Mutant::DoesWhatIsPutBack),
        Self::Client(client::Mutant::PutsBackTwice),
        Self::Client(client::Mutant::ForgetsDirtyBytes),
        Self::Client(client::Mutant::RenamesBeforeBytes),
        Self::Client(client::Mutant::TellsSizeAhead),
        Self::Client(client::Mutant::ResizesAheadOfBytes),
        Self::Client(client::Mutant::KeepsLocks),
        Self::Client(client::Mutant::DecidesEarly),
        Self::Server(server::Mutant::DelegatesLocked),
        Self::Server(server::Mutant::ServesAtOnce),
        Self::Client(client::Mutant::SharesMappedPages),
        Self::Client(client::Mutant::CutsBeforeTheAnswer),
        Self::Client(client::Mutant::ResizesBehindRecalls),
        Self::Client(client::Mutant::ForgetsUnstable),
        Self::Client(client::Mutant::AsksAgainAsNew),
        Self::Server(server::Mutant::RedoesAsItComes),
        Self::Server(server::Mutant::ServesBeforeRedone),
        Self::Server(server::Mutant::SaysStableEarly),
        Self::Server(server::Mutant::ForgetsSessions),
        Self::Server(server::Mutant::RegrantsAtOnce),
        Self::Client(client::Mutant::ShrinksDirty),
        Self::Client(client::Mutant::KeepsTooMuch),
        Self::Client(client::Mutant::KeepsOvertakenBlocks),
        Self::Client(client::Mutant::TakesAnyBytes),
        Self::Client(client::Mutant::AdoptsAnyVersion),
        Self::Client(client::Mutant::KeepsWhatWasTaken),
        Self::Client(client::Mutant::DropsStranded),
        Self::Client(client::Mutant::ResumesAnyVersion),
        Self::Server(server::Mutant::FreezesAtOnce),
        Self::Server(server::Mutant::FreezesPartly),
        Self::Store(store::Mutant::SnapshotsMelt),
        Self::Server(server::Mutant::GivesRoomTwice),
        Self::Server(server::Mutant::RefusesBesideUnused),
        Self::Client(client::Mutant::AnswersWithoutRoom),
        Self::Client(client::Mutant::ReturnsRoomUnwritten),
        Self::Client(client::Mutant::TellsOneDescriptor),
        Self::Moving(moving::Mutant::ServesOn),
        Self::Moving(moving::Mutant::ServesAnyCopy),
        Self::Moving(moving::Mutant::SkipsLastRound),
        Self::Moving(moving::Mutant::CarriesPart),
        Self::Moving(moving::Mutant::TakesUnstable),
    ];
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(mutant) => write!(f, "client {mutant:?}"),
            Self::Server(mutant) => write!(f, "server {mutant:?}"),
            Self::Store(mutant) => write!(f, "store {mutant:?}"),
            Self::Moving(mutant) => write!(f, "moving {mutant:?}"),
        }
    }
}

/// How a planted fault was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// In the world of this seed, which shows nothing wrong without it.
    pub seed: u64,
    /// After so many seeds, this one included.
    pub seeds: u64,
    /// The failure.
    pub what: String,
}

/// Runs worlds with a planted fault, from this seed on, until it is found in one of at most so
/// many.
pub fn hunt(mutant: Mutant, first: u64, seeds: u64, options: &RunOptions) -> Option<Caught> {
    let planted = RunOptions {
        mutant: Some(mutant),
        ..options.clone()
    };
    let shown = |at| {
        let seed = first + at;
        if !is_planted(seed, &planted) {
            return None;
        }
        let failure = run_seed(seed, &planted).err()?;
        let innocent = run_seed(seed, options).is_ok();
        innocent.then(|| Caught {
            seed,
            seeds: at + 1,
            what: failure.what,
        })
    };
    (0..seeds).find_map(shown)
}
