//! The options of a store. The defaults are for a server; tests choose small numbers so
//! that segments end and checkpoints happen.

use wire::Time;

/// How a partition is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A segment of the log ends at this size.
    pub segment_bytes: u64,
    /// A checkpoint is begun when this many bytes of the index have changed.
    pub checkpoint_bytes: u64,
    /// A checkpoint is begun when the last one is older than this, and something changed.
    /// 0: never for its age.
    pub checkpoint_ms: u64,
    /// Files up to this size lie in the index.
    pub inline_bytes: u32,
    /// A copy shares bytes with what it is a copy of if there are at least so many.
    pub share_bytes: u32,
    /// ...and if they lie behind this offset: more than the bytes of any file that lie in the
    /// index, with whatever options the partition was and will be opened.
    pub share_from: u32,
    /// Most bytes of files in one part of a volume's stream. The limits of the other things
    /// in a part, and of those looked at for it, go with it.
    pub stream_bytes: u32,
    /// Memory for the pages of the index.
    pub index_cache_bytes: usize,
    /// For a new partition: a random number. It is part of the log's checksums, so that nobody can
    /// write a file that is taken for a piece of the log.
    pub identity: u64,
    /// For a new partition: its volume.
    pub volume: u32,
    /// For a new partition: the owner of the root.
    pub root_uid: u32,
    /// For a new partition: the group of the root.
    pub root_gid: u32,
    /// For a new partition: the mode of the root, 12 bits.
    pub root_mode: u16,
    /// For a new partition: the times of the root.
    pub created: Time,
    /// A planted fault; for tests of the tests.
    pub mutant: Option<Mutant>,
}

/// Faults that can be planted, each a line of code: the judges of the store must notice them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Bytes of files are shown without a look at their checksums.
    SkipsChecksums,
    /// Recovery leaves the last record of the log out.
    StopsEarly,
    /// A sync says that it is done, and does nothing.
    SyncsNothing,
    /// A sync that failed is forgotten.
    SyncsAgain,
    /// A checkpoint names a place up to which the log is not on stable storage.
    CheckpointsUnsynced,
    /// A truncation leaves the bytes behind the new end.
    KeepsCutBytes,
    /// Recovery brings changes back, and not the answers to them.
    ForgetsAnswers,
    /// Recovery applies each write twice.
    ReplaysTwice,
    /// The buffer at the end of a segment is written nowhere.
    LosesTail,
    /// A segment is removed before the index knows that nothing in it is in use.
    RemovesEarly,
    /// Recovery takes torn file bytes for sound ones.
    TrustsTornBytes,
    /// Recovery takes whatever does not read for the end of the log.
    TakesDamageForEnd,
    /// Recovery leaves what it found as little stable as it was.
    LeavesUnsynced,
    /// The name of a new segment is not synced.
    ForgetsNames,
    /// A volume goes on changing what its snapshots see.
    SnapshotsMelt,
    /// A clone changes what it shares in the volume that it was cloned from.
    ClonesShare,
    /// A thing that is removed under a later birth is seen again.
    ForgetsAbsence,
    /// Versions that only snapshots see are removed with those that nobody sees.
    SweepsSeen,
    /// Bytes that another version has, too, count as free.
    FreesShared,
    /// The cleaner moves the bytes of a single version.
    MovesOneVersion,
    /// A release changes the files of a replica in their place.
    ReleasesInPlace,
    /// A release takes back no directory that has a name of a file which it changes.
    KeepsNamesOfChanged,
    /// An object of a release that is not kept is taken for a later one.
    ShowsLaterReleases,
}

impl Mutant {
    /// Those that show only where volumes have versions.
    pub const OF_VERSIONS: [Self; 6] = [
        Self::SnapshotsMelt,
        Self::ClonesShare,
        Self::ForgetsAbsence,
        Self::SweepsSeen,
        Self::FreesShared,
        Self::MovesOneVersion,
    ];
    /// Those that show only in a replica.
    pub const OF_REPLICAS: [Self; 3] = [
        Self::ReleasesInPlace,
        Self::KeepsNamesOfChanged,
        Self::ShowsLaterReleases,
    ];
    /// All others.
    pub const ALL: [Self; 14] = [
        Self::SkipsChecksums,
        Self::StopsEarly,
        Self::SyncsNothing,
        Self::SyncsAgain,
        Self::CheckpointsUnsynced,
        Self::KeepsCutBytes,
        Self::ForgetsAnswers,
        Self::ReplaysTwice,
        Self::LosesTail,
        Self::RemovesEarly,
        Self::TrustsTornBytes,
        Self::TakesDamageForEnd,
        Self::LeavesUnsynced,
        Self::ForgetsNames,
    ];
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            checkpoint_bytes: 8 << 20,
            checkpoint_ms: 5_000,
            inline_bytes: 1024,
            share_bytes: 16 << 10,
            share_from: 8 << 10,
            stream_bytes: wire::limits::STREAM_BYTES as u32,
            index_cache_bytes: 256 << 20,
            identity: 0,
            volume: 1,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            created: 0,
            mutant: None,
        }
    }
}
