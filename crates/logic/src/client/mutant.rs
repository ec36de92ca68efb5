//! Rules that are broken on purpose, to see whether the checkers notice.

/// A planted fault. The checkers must find each of them: that is a test of the checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Uses grants that a recall has overtaken.
    IgnoresEpochs,
    /// Gives a token back before the kernel has dropped its pages.
    ReturnsBeforeInvalidating,
    /// Gives a token back with dirty blocks still here.
    ReturnsBeforeWritingBack,
    /// Keeps the names that a recall lists.
    KeepsNames,
    /// Does not know that its kernel has a directory locked while it asks for a name, and waits for
    /// that lock without end.
    ForgetsALock,
    /// Takes it that its kernel does not know a name that a rename has given.
    ForgetsRenamed,
    /// Takes it that its kernel does not know the names that a listing has told it.
    ForgetsListed,
    /// The same of those that it is looking up.
    ForgetsLookups,
    /// Lets names live for ever without the directory's token.
    NamesWithoutToken,
    /// Lets attributes live for ever without the token.
    AttributesWithoutToken,
    /// Keeps cached blocks of another version.
    IgnoresVersions,
    /// Opens are cached without a token.
    CachesSharedOpens,
    /// Does not tell a restarted server what its programs have locked.
    ForgetsLocks,
    /// Gives back that it decides about the locks of a file without telling which there are.
    KeepsLocks,
    /// Decides about the locks of a file while an answer about one of them is under way.
    DecidesEarly,
    /// Has the server change, or look into, a range of a file with dirty blocks of it still here.
    LeavesRanges,
    /// Gives a token back before the server has taken the changes that were made under it.
    ReturnsBeforeTelling,
    /// Gives up a directory that is not used with its kernel knowing names of it.
    GivesUpAtOnce,
    /// Lists the names that it knows of a directory as if there were no others.
    ListsKnownNames,
    /// Does not know the extended attributes that it has set by itself.
    ForgetsXattrs,
    /// Tells the server other positions of the names that it made than its own programs.
    TellsOtherPositions,
    /// Has a call put back whose caller has begun again already.
    PutsBackTwice,
    /// Tells of a rename before the bytes of the file that it puts in the place of another.
    RenamesBeforeBytes,
    /// Tells how long a file is with the first of its bytes.
    TellsSizeAhead,
    /// Has the server make a file longer than the bytes that it has of it.
    ResizesAheadOfBytes,
    /// Does not count dirty bytes among those that a file occupies.
    ForgetsDirtyBytes,
    /// Gives its kernel pages of a file that is open for writing without having it alone.
    SharesMappedPages,
    /// Has the kernel drop pages before a change of the size is answered.
    CutsBeforeTheAnswer,
    /// Lets a change of the size wait until the kernel has dropped pages for a recall.
    ResizesBehindRecalls,
    /// Stamps what is written to its cache with its own machine's clock.
    StampsByOwnClock,
    /// Takes an answer for a sign that the server has heard this client just now.
    RenewsFromAnswers,
    /// Takes each welcome for a renewal, also while it leaves a question unanswered.
    RenewsThoughStalled,
    /// Keeps nothing that the server has answered.
    ForgetsUnstable,
    /// Uses what others have wanted while it was away.
    KeepsWhatWasTaken,
    /// Drops what it had changed of what others have wanted meanwhile.
    DropsStranded,
    /// Writes what it had changed to a file that others have changed since.
    ResumesAnyVersion,
    /// Its room takes what another client has lent for what the server's digests vouch for.
    TakesAnyBytes,
    /// Uses a block that it kept for others whatever version the file has by now.
    AdoptsAnyVersion,
    /// Asks again for what was lost as if it happened now, with numbers of its own.
    AsksAgainAsNew,
    /// Gives up changed blocks, too, when it has to make do with less memory.
    ShrinksDirty,
    /// Keeps the blocks that it has, however little memory it may use.
    KeepsTooMuch,
    /// Keeps blocks that a recall and a later grant of the file have overtaken.
    KeepsOvertakenBlocks,
    /// Answers changes for which it has no room.
    AnswersWithoutRoom,
    /// Tells one descriptor of a file that bytes are lost, and no other.
    TellsOneDescriptor,
    /// Gives room back that it has promised, before that is written back.
    ReturnsRoomUnwritten,
}
