//! Names, listings and attributes: what the client knows of directories.

pub(super) mod complete_dir;
pub(super) mod dir_cookies;
pub(super) mod dir_prefetch;
pub(super) mod learn;
pub(super) mod listing;
pub(super) mod mount_points;
pub(super) mod xattrs;
