//! Delegated directories: changes applied here, and their log sent to the server.

pub(super) mod changes;
pub(super) mod dir_moves;
pub(super) mod local_apply;
mod local_size;
pub(super) mod log_ship;
pub(super) mod numbers;
pub(super) mod reply_order;
pub(super) mod salvage;
