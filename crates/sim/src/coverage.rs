//! "Sometimes" assertions: rare things that must happen in some worlds, or the worlds prove less
//! than they seem to. Each world notes which of them it met, a bit each; a run of many worlds
//! counts them, and fails when one was never met in as many worlds as it is expected in.

use logic::{client, server};
use wire::{Op, Request, Returned, Right, ToClient, ToServer, What};

macro_rules! rare {
    ($($name:ident: $text:literal,)*) => {
        /// Something that must happen sometimes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Rare { $($name,)* }

        impl Rare {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The event, for people.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

rare! {
    RecallAll: "a token was asked back whole",
    RecallShared: "an Exclusive token was asked back but for Shared",
    RecallNames: "names were asked to be dropped",
    Gathered: "names of several requests were dropped by one recall",
    RecallAttr: "an Exclusive holder was asked for attributes",
    Listed: "an Exclusive holder was told that somebody lists its file",
    Confirm: "a change had to be confirmed before others were shown it",
    Fenced: "a session was fenced",
    Away: "something was taken from a silent client",
    Conflict: "what a client had done was kept beside what others did",
    Buried: "a client's process was killed, and its guard ended its session",
    Regranted: "nobody judged any more by the rights of before",
    SessionLost: "a client heard that its session is over",
    Reassert: "a client said after a restart what it holds",
    ReassertExclusive: "it held something Exclusive",
    RestartKnown: "a restarted server waited for sessions",
    Transient: "a read brought a transient right",
    SharedOpen: "a file was opened without a token: write sharing",
    AloneOpen: "a file was opened with Exclusive",
    GrantShared: "Shared was granted",
    GrantExclusive: "Exclusive was granted",
    RepliedFromStore: "an answer of before the restart was found in the store",
    Release: "a token was given back unasked",
    Opens: "opens were told under no token",
    OpenLeft: "a token was returned with the file still open for writing",
    HeldBack: "a recall left a lesser right",
    KeepAlive: "a client had nothing to say but that it lives",
    Hangup: "a client gave up its connection",
    Refused: "a request was refused",
    Stale: "something was gone when it was asked for",
    NotEmpty: "a directory was not empty",
    Synced: "something was made stable",
    Young: "pages were dropped of an inode that the kernel may not know yet",
    PutBack: "a change that held a lock was put back",
    EpochBusy: "all names were dropped since the directory was in use",
    EpochYoung: "all names were dropped since an inode stayed unknown",
    Holes: "pages under way were left out of what is dropped",
    ListingDropped: "a directory's listing was dropped",
    Orphaned: "a file lost its last name",
    Replaced: "a rename took the place of another object",
    Reaped: "a nameless object was removed",
    MessageLost: "a message was lost",
    MessageTwice: "a message came twice",
    MessageOvertaken: "a message overtook another",
    Stored: "the disk was the real store",
    Recovered: "the real store was opened after a crash",
    Large: "the world was large",
    Mute: "a client left unanswered what it was asked",
    MuteFenced: "something was taken from a client that answered nothing, but was there",
    Liar: "a client lied",
    LiarRefused: "a client that lied was refused something",
    LiarEnded: "a client that lied broke the protocol: its connection was ended",
    LiarFenced: "something was taken from a client that lied",
    Late: "what had been asked for too long ago was settled",
    DiskFull: "the disk had no room for a change",
    DiskFailed: "the disk could not read or write what was asked for",
    BackRefused: "the disk refused what was written back",
    SyncFailed: "a sync failed",
    Stopped: "the server stopped, since its disk failed",
    Rotten: "a byte of the disk rotted",
    RotRead: "a read was refused, since its bytes are damaged",
    RotRefused: "the server could not be started, since its log was damaged",
    RotFound: "the check of the disk found damage",
    NotStarted: "the server could not be started, since its disk failed",
    Ahead: "a look-up brought a file's bytes",
    LetGo: "a kernel was asked to let go of what it does not use",
    Watched: "a watching program was told something",
    WatchMissed: "a watching program was told that it has missed something",
    WatchEnded: "what was watched came to its end",
    Shared: "a copy shared its bytes with the original",
    StableWrite: "a write was answered when it was on stable storage",
    LookedAhead: "a client looked ahead in a directory that somebody walked through",
    AheadListed: "a listing brought the bytes of files",
    Delegated: "changes were told that had been answered before",
    MadeOwn: "an object was made in a delegated directory",
    Expired: "names that are right were expired, to give up a directory that is not used",
    Unused: "clients were asked whether they use a directory that another one changes alone",
    LinkedOwn: "a file got another name in a delegated directory",
    ListedHere: "a listing was answered without the server",
    Unseen: "such a change was told before its machine was known to show it",
    Given: "a kernel was given a file's bytes when it was opened",
    LocksDelegated: "a client came to decide about the locks of a file",
    LocksGiven: "it gave that back, with locks",
    ChangesLost: "changes that were not told were lost with the session",
    Interrupted: "a caller was killed, or handled a signal, and was answered at once",
    Abandoned: "a write was under way whose caller had been killed",
    StoreWritten: "what was stored through a mapping was written back",
    HeldWriteBack: "write-back waited for a change of the size",
    Claimed: "a file was claimed for a page of a mapping",
    Undone: "a power failure undid what living clients had been answered",
    Elsewhere: "a reader was sent to a client that lends",
    Reread: "a client heard that a file is read again whose bytes only its kernel keeps",
    Borrowed: "a client lent blocks",
    Lacking: "a client that was to lend blocks had none of them",
    Handed: "a client was told to keep last copies of another one",
    Last: "a client heard that a copy of its had become a last copy",
    Kept: "a client kept last copies of another one",
    Adopted: "a program read a block that its machine had kept for others",
    Lied: "a client lent other bytes than those of the block",
    MadeAgain: "a change was made again as it had been",
    Shrunk: "a client gave blocks up for want of memory",
    AnotherServer: "another server took the place of a lost one, and knew no session",
    Moved: "the store moved to another server",
    MoveCut: "something happened to a server at a step of a move",
    TakenBack: "a store was taken back by the server that it was leaving",
    TakenOver: "a server that had died with a whole copy took the move to its end",
    LateChange: "a change of the record was made that nobody had heard of",
    Sought: "a client came to a server that had not got the store any more",
}

impl Rare {
    pub(crate) fn bit(self) -> u128 {
        1 << self as u32
    }
}

/// The rare events that an output of the server shows.
pub(crate) fn of_server(output: &server::Output) -> u128 {
    match output {
        server::Output::Send { message, bulk, .. } => match message {
            ToClient::Recall(recall) => match &recall.what {
                What::Keep(Right::None | Right::Transient) => Rare::RecallAll.bit(),
                What::Keep(_) => Rare::RecallShared.bit(),
                What::Names(names) if names.len() > 2 => {
                    Rare::RecallNames.bit() | Rare::Gathered.bit()
                }
                What::Names(_) => Rare::RecallNames.bit(),
                What::Attr => Rare::RecallAttr.bit(),
                What::Listed => Rare::Listed.bit(),
                What::Unused => Rare::Unused.bit(),
                What::Locks => 0,
            },
            ToClient::Confirm { .. } => Rare::Confirm.bit(),
            ToClient::Reply { reply, .. } => {
                let ahead = match &reply.outcome {
                    wire::Outcome::Entry(_) if *bulk != 0 => Rare::Ahead.bit(),
                    wire::Outcome::Dir { .. } if *bulk != 0 => Rare::AheadListed.bit(),
                    wire::Outcome::Elsewhere(nobody) if nobody.lender == 0 => Rare::Reread.bit(),
                    _ => 0,
                };
                of_reply(reply) | ahead
            }
            ToClient::Take(_) => Rare::Handed.bit(),
            ToClient::Last(_) => Rare::Last.bit(),
            _ => 0,
        },
        server::Output::Sync { .. } => Rare::Synced.bit(),
        server::Output::Event(server::Event::Fenced { .. }) => Rare::Fenced.bit(),
        _ => 0,
    }
}

fn of_reply(reply: &wire::Reply) -> u128 {
    let mut met = reply.grants.iter().fold(0, |met, grant| {
        met | match grant.right {
            Right::Transient => Rare::Transient.bit(),
            Right::Shared => Rare::GrantShared.bit(),
            Right::Exclusive => Rare::GrantExclusive.bit(),
            Right::None => 0,
        }
    });
    met |= match &reply.outcome {
        wire::Outcome::Locked {
            delegated: true, ..
        } => Rare::LocksDelegated.bit(),
        wire::Outcome::Opened(_) if reply.grants.is_empty() => Rare::SharedOpen.bit(),
        wire::Outcome::Opened(_) if met & Rare::GrantExclusive.bit() != 0 => Rare::AloneOpen.bit(),
        wire::Outcome::Removed { attr, .. } if attr.nlink == 0 => Rare::Orphaned.bit(),
        wire::Outcome::Renamed {
            victim: Some(_), ..
        } => Rare::Replaced.bit(),
        wire::Outcome::Refused(refusal) => {
            Rare::Refused.bit()
                | match refusal {
                    wire::Refusal::Stale => Rare::Stale.bit(),
                    wire::Refusal::NotEmpty => Rare::NotEmpty.bit(),
                    wire::Refusal::Again => Rare::PutBack.bit(),
                    _ => 0,
                }
        }
        _ => 0,
    };
    met
}

/// The rare events that the answer to a listing shows if it came at once.
pub(crate) fn of_listing(output: &client::Output) -> u128 {
    match output {
        client::Output::Done {
            done: client::Done::Listing { entries, .. },
            ..
        } if !entries.is_empty() => Rare::ListedHere.bit(),
        _ => 0,
    }
}

fn of_request(op: &Op) -> u128 {
    match op {
        Op::Prefetch { .. } => Rare::LookedAhead.bit(),
        Op::Claim { .. } => Rare::Claimed.bit(),
        Op::GiveLocks {
            held: Some(held), ..
        } if !held.is_empty() => Rare::LocksGiven.bit(),
        _ => 0,
    }
}

/// The rare events that an output of a client shows.
pub(crate) fn of_client(output: &client::Output) -> u128 {
    match output {
        client::Output::Send { message, .. } => match &**message {
            ToServer::Returned(Returned { right, hold, .. }) => {
                let mut met = 0;
                if hold.write {
                    met |= Rare::OpenLeft.bit();
                }
                if *right != Right::None {
                    met |= Rare::HeldBack.bit();
                }
                met
            }
            ToServer::Requests(requests) => {
                let mut met = Rare::Delegated.bit();
                for Request { op, delegated, .. } in requests {
                    if matches!(op, Op::Make { .. }) {
                        met |= Rare::MadeOwn.bit();
                    }
                    if matches!(op, Op::Link { .. }) {
                        met |= Rare::LinkedOwn.bit();
                    }
                    if delegated.is_some_and(|delegated| delegated.unseen) {
                        met |= Rare::Unseen.bit();
                    }
                }
                met
            }
            ToServer::Request(Request { op, .. }) => of_request(op),
            ToServer::Release { .. } => Rare::Release.bit(),
            ToServer::Opens { .. } => Rare::Opens.bit(),
            ToServer::KeepAlive { .. } => Rare::KeepAlive.bit(),
            ToServer::Reassert { holdings, .. } => {
                let alone = holdings.iter().any(|held| held.right == Right::Exclusive);
                let alone = if alone {
                    Rare::ReassertExclusive.bit()
                } else {
                    0
                };
                Rare::Reassert.bit() | alone
            }
            _ => 0,
        },
        client::Output::Hangup => Rare::Hangup.bit(),
        client::Output::Event(event) => match event {
            client::Event::SessionLost => Rare::SessionLost.bit(),
            client::Event::ChangesLost { .. } => Rare::ChangesLost.bit(),
            client::Event::Conflict { .. } => Rare::Conflict.bit(),
            client::Event::DataLost { .. } | client::Event::VolumeGone { .. } => 0,
            client::Event::WriteBackRefused { .. } => Rare::BackRefused.bit(),
        },
        client::Output::Invalidate { what, .. } => match what {
            client::Invalidate::Inode { young: true, .. } => Rare::Young.bit(),
            client::Invalidate::Inode { ranges, .. } if ranges.len() > 1 => Rare::Holes.bit(),
            client::Invalidate::Names { .. } => Rare::EpochBusy.bit(),
            client::Invalidate::Listing { .. } => Rare::ListingDropped.bit(),
            client::Invalidate::Unused { .. } => Rare::LetGo.bit(),
            client::Invalidate::Expire { .. } => Rare::Expired.bit(),
            _ => 0,
        },
        _ => 0,
    }
}
