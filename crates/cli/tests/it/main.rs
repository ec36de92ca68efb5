//! The whole program at work: a real server, real mounts through the kernel, real programs.
//!
//! Guarantees: a test never hangs (a watchdog ends what it started and lets it fail), nor does a
//! process that it started (one that is stuck on a mount fails it), it leaves no mount and no
//! process behind, and ends with `ariel fsck` clean. Without root or `/dev/fuse` the tests say
//! `SKIPPED` and pass, except where `CI` is set: there they fail.
//!
//! With `ARIEL_IT_LOCAL=1` both "mounts" are one directory of the local file system. The judgements
//! are then true by definition, so this is how the tests themselves are checked: the judge passes
//! on a local file system. Tests of the program itself are skipped in that mode. With
//! `ARIEL_IT_LOCAL=split` each "mount" is a directory of its own, two that never agree: every test
//! that compares two mounts must fail then.
//!
//! With `ARIEL_IT_TRANSPORT=uring` (or `dev`) all mounts of the tests take the kernel's requests
//! that way; where the kernel's switch for it is off, the tests hold it on while they mount. With
//! `ARIEL_IT_WITHOUT` and `ARIEL_IT_NAME_DELAY` they are given these options of `ariel mount`, and
//! with `ARIEL_IT_COOPERATE` the servers this policy, unless the test says one.
//!
//! With `ARIEL_IT_SERVER=PROGRAM` the servers, and with `ARIEL_IT_OTHER_MOUNT=PROGRAM` each second
//! mount, are of another version of Ariel: adjacent versions of the protocol pass the exactness
//! tests together.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod acl;
mod append;
mod away;
mod basics;
mod basics_more;
mod bench;
mod cell_names;
mod certificates;
mod cli;
mod cli_daemons;
mod cli_mounts;
mod clocks;
mod cold_file;
mod config;
mod contention;
mod damage;
mod delegation;
mod exact;
mod exact_names;
mod excl;
mod far;
mod fleet;
mod flood;
mod given;
mod harness;
mod keeping;
mod kernels;
mod killed;
mod large;
mod lending;
mod local_disk;
mod locks;
mod machines;
mod mapped;
mod memberships;
mod memory;
mod million;
mod mmap;
mod moments;
mod mount_parts;
mod mountpoints;
mod moved;
mod moving;
mod names_in_use;
mod network;
mod overlay;
mod packages;
mod parts;
mod posix;
mod postgres;
mod power;
mod privileges;
mod profile;
mod programs;
mod real;
mod refused;
mod replaced;
mod replicas;
mod replicated;
mod restart;
mod room;
mod servers;
mod service;
mod silent;
mod slow_link;
mod sparse;
mod streams;
mod stuck;
mod suites;
mod timed;
mod torture;
mod traces;
mod transport;
mod two_mounts_fsx;
mod unwritten;
mod users;
mod versions;
mod volumes;
mod walks;
mod warm;
mod watch;
mod without_mount;
