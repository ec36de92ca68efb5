//! Rules that are broken on purpose, to see whether the checkers notice.

/// A planted fault. The checkers must find each of them: that is a test of the checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Grants Shared while another client holds Exclusive.
    IgnoresExclusive,
    /// Changes names without telling who has cached them.
    ForgetsNames,
    /// Applies writes without ending transient rights.
    ForgetsTransients,
    /// Shows changes before the client that made them has seen the answer.
    SkipsConfirmation,
    /// Applies a repeated request again.
    AppliesTwice,
    /// Fences who leaves a recall unanswered although its lease has not ended.
    FencesAtOnce,
    /// Gives a lock again when the request comes a second time.
    LocksTwice,
    /// Lets a client decide about the locks of a file of which another one has locked something.
    DelegatesLocked,
    /// Does not look for circles of those who wait for locks.
    IgnoresDeadlocks,
    /// Does not tell who watches what is removed.
    ForgetsWatches,
    /// Does delegated changes, and what builds on them, in the order in which they come.
    DoesOutOfTurn,
    /// Does a change and answers that it was put back.
    DoesWhatIsPutBack,
    /// Serves after a restart, whatever those may hold who have not come back.
    ServesAtOnce,
    /// Makes again what was lost in the order in which clients ask for it.
    RedoesAsItComes,
    /// Serves before lost changes have been made again.
    ServesBeforeRedone,
    /// Says of all that it has logged that it is stable.
    SaysStableEarly,
    /// Does not make stable that a session has begun.
    ForgetsSessions,
    /// A change of rights is in force as soon as clients are asked for what they cache.
    RegrantsAtOnce,
    /// Makes snapshots of what has been written back, whoever has more.
    FreezesAtOnce,
    /// Makes a snapshot when the first round of tokens has been given up.
    FreezesPartly,
    /// Gives room that others have been given.
    GivesRoomTwice,
    /// Refuses changes although clients have room that they do not use.
    RefusesBesideUnused,
}
