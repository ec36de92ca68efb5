//! A cell: the machines that belong together, and how each proves that it is one of them.
//!
//! A cell has an authority. Its key stands in the cell's own directory, or, of a cell with several
//! servers, in the database that they share, and nowhere else. It certifies servers and machines;
//! the rights of a machine stand in the cell's database, not in its certificate, so that they can
//! be changed at once. A machine joins with a line that says where the server is, which key the
//! authority has, and a secret that is worth a few uses and some time.
//!
//! On a machine that is not trusted a user proves who he is, with a password or a key of his, and
//! gets a token: signed, for that machine, until a time.
//!
//! Guarantees: every file with a secret belongs to its owner alone, from its first byte on; secrets
//! of join lines are kept as hashes; a change that was answered to an administrator is on the disk;
//! a machine that is revoked is not let in from then on. This crate knows no files of the tree, no
//! sessions and no tokens.
#![forbid(unsafe_code)]

mod audit;
mod authority;
mod credential;
mod database;
mod door;
mod ended;
mod engine;
mod etcd;
mod following;
mod given_up;
mod group_table;
mod groups;
mod line;
mod load;
mod location;
mod machine;
mod members;
mod noted;
mod own;
mod part;
mod placement;
mod private;
mod question;
mod renewal;
mod replicas;
mod revision;
mod stores;
#[cfg(test)]
mod test_cell;
mod token;
mod user;
mod users;
mod words;

pub use authority::AuthorityError;
pub use credential::{Credential, CredentialError, FILE, Shown};
pub use database::{Database, DatabaseError};
pub use door::{CellDoor, Change};
pub use groups::{Group, GroupDeed, Member, OnGroups};
pub use line::{JoinLine, NoLine};
pub use load::{Load, StoreLoad};
pub use location::{DatabaseUrl, Location};
pub use machine::{Machine, Role};
pub use members::{Cell, CellError};
pub use part::part_name;
pub use question::{Answer, AskError, Given, Invite, Question, ask, join};
pub use renewal::Renewal;
pub use replicas::Replicas;
pub use revision::ServerLine;
pub use stores::{Listed, Moving, OnStores, Site, Stage, StoreAnswer, StoreQuestion};
pub use token::{Claimed, Narrower, TOKEN_BYTES_MAX, attenuate, claimed};
pub use user::{Proof, User, ssh_key, to_sign};
pub use words::{Words, group_name, machine_name, user_name};
