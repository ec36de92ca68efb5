//! The words that all of Ariel speaks: names of things, operations and their results, messages
//! between a client and a server, and their encoding.
//!
//! Guarantees: every type here is plain data; decoding never panics, whatever the bytes; a decoded
//! value has been checked against the bounds named in [`limits`]. The crate knows nothing of what
//! an operation means.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attr;
mod blob;
mod codec;
mod delegated;
mod ids;
mod lend;
pub mod limits;
mod lock;
mod message;
mod name;
mod op;
mod outcome;
pub mod posix_acl;
mod refusal;
mod request;
mod rights;
mod seed;
mod stream;
mod volume;
mod watch;

pub use attr::{Attr, Kind, Set, SetTime};
pub use blob::Blob;
pub use codec::{
    Bounded, DecodeError, VERSION, VERSION_OF_KEEPING, VERSION_OF_LAST, VERSION_OF_PASSING,
    VERSION_OF_REPLICAS, VERSION_OF_STALLED, VERSION_OLDEST, decode, encode, encode_about,
};
pub use delegated::{Chosen, Delegated};
pub use ids::{Epoch, Fid, RequestId, SNAPSHOTS_VNODE, SessionId, Time, file_time, volume_numbers};
pub use lend::{
    Capability, Digest, Elsewhere, Handed, Last, Leaving, LenderId, Lenders, Secret, Spare,
    ToLender, ToReader,
};
pub use lock::{HeldLock, Lock, LockMode, LockOwner, LockWait, Locked};
pub use message::{
    Again, Hold, Holding, Origin, Place, Recall, Returned, Right, ToClient, ToServer, Unseen,
    Violation, Welcome, What,
};
pub use name::{Name, NameError};
pub use op::{ACCESS_LIST, Access, Caller, Make, Op, UMASK_SHIFT, WriteMode, XattrMode};
pub use outcome::{DirEntry, Entry, Filesystem, Grant, Logged, Outcome, Reply};
pub use refusal::Refusal;
pub use request::Request;
pub use rights::{MachineId, NOBODY, Part, Proven, Rights, next_session};
pub use seed::{mix64, splitmix64};
pub use stream::{
    Child, Dump, Identity, Provenance, Receiving, StreamChunk, StreamHead, StreamPiece,
};
pub use volume::{
    FIRST_VOLUME, Limits, REPLICA_SUFFIX, Room, RoomOfDisk, SCHEDULE_RULES, SNAPSHOT_MARK,
    SNAPSHOTS_NAME, ScheduleRule, StoreOf, VOLUME_NAME_BYTES, VOLUMES_MAX, VolumeInfo, VolumeOp,
    VolumeState, is_replica_name, is_volume_name, origin_name, replica_name, snapshot_name,
    split_volume_name,
};
pub use watch::{Change, Deed, Path, WatchId};
