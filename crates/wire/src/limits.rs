//! The bounds of everything that comes from outside. A message that breaks one is a violation.

/// Bytes of a block: the unit of caching, addressed by (fid, block number).
pub const BLOCK_BYTES: u32 = 4096;
/// Most bytes of a name in a directory.
pub const NAME_BYTES: usize = 255;
/// Most bytes of a symbolic link's target.
pub const TARGET_BYTES: usize = 4095;
/// Most bytes that one read or write moves.
pub const BULK_BYTES: u32 = 1 << 20;
/// Most bytes that one copy at the server is about: they do not travel.
pub const COPY_BYTES: u32 = 1 << 30;
/// Most bytes of a file that come with a look-up, or with a listing.
pub const AHEAD_BYTES: u32 = 64 << 10;
/// Most bytes of an encoded message, without the bulk bytes that follow it.
pub const BODY_BYTES: usize = 1 << 20;
/// Most bytes of the value of an extended attribute.
pub const XATTR_VALUE_BYTES: usize = 64 << 10;
/// Most bytes of the names of all extended attributes of a file.
pub const XATTR_LIST_BYTES: usize = 64 << 10;
/// Most entries of one reply to a listing.
pub const DIR_ENTRIES: usize = 4096;
/// Positions of names that clients choose are below this: the rest is left for other changes.
pub const POSITIONS: u64 = 1 << 39;
/// Bits of the last position of a listing: above them is the release that is listed.
pub const LAST_BITS: u32 = 40;
/// Most delegated changes that come together.
pub const REQUESTS: usize = 1024;
/// Most numbers of objects that a client gets at once.
pub const NUMBERS: u32 = 1 << 16;
/// Most parts of one file that a client has locked while its locks are delegated to it.
pub const DELEGATED_LOCKS: usize = 8192;
/// Most parts in which a client says what it holds: the server keeps which of them have come.
pub const PARTS: u32 = 1 << 16;
/// Of so many earlier runs a server says which of their changes are left, at most.
pub const RUNS: usize = 16;
/// Most changes that a client has under way of those that it asks for again.
pub const AGAIN: u32 = 256;
/// Most groups of a caller.
pub const GROUPS: usize = 1024;
/// Most bytes of a path of a change that is told to a watcher.
pub const PATH_BYTES: usize = 64 << 10;
/// Largest number of a change that is told to a watcher: no sum of such numbers is too large.
pub const CHANGES: u64 = 1 << 62;
/// Most blocks that one client asks another one for at once.
pub const LENT_BLOCKS: u32 = BULK_BYTES / BLOCK_BYTES;
/// Most rows of blocks that a client says at once to leave its cache...
pub const LEAVING: usize = 256;
/// ...and most blocks in these.
pub const LEAVING_BLOCKS: u64 = 1024;
/// Most bytes of an address where a client listens, as text.
pub const ADDRESS_BYTES: usize = 64;
/// Most bytes of files in one part of a volume's stream.
pub const STREAM_BYTES: usize = 512 << 10;
/// Most pieces in one part of a volume's stream.
pub const STREAM_PIECES: usize = 16 << 10;
/// Most bytes of what a sender needs to go on with a stream.
pub const STREAM_AFTER_BYTES: usize = 1024;
/// Numbers of objects in a volume's stream are below this.
pub const STREAM_VNODES: u64 = 1 << 48;
/// Largest size of a file.
pub const FILE_BYTES: u64 = 1 << 50;

const _: () = assert!(BULK_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(4 * PATH_BYTES < BODY_BYTES);
const _: () = assert!(XATTR_VALUE_BYTES < BODY_BYTES && TARGET_BYTES < BODY_BYTES);
