//! A claim to a tree, for commands of which one at a time is to work on it.
//!
//! Guarantees: of those who claim the same volume one has it. A claim is a lock of a byte of the
//! volume's root that no kernel can name, so it stands in the way of no program. It ends when the
//! tree is closed; that of a process that is killed ends with the lease of its session.

use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::{Call, Done};
use std::path::Path;
use wire::{Lock, LockMode, LockOwner, LockWait, Refusal};

/// A kernel knows half as many bytes.
const BYTE: u64 = u64::MAX;

impl Tree {
    /// Claims the tree's volume; false: another one has it. `waits`: until that one is done.
    /// A tree that has it claims it once more, and so hears whether it was lost.
    ///
    /// # Errors
    /// The session was lost, and the claim with it; or the server refuses the lock.
    pub fn claim(&self, waits: bool) -> Result<bool> {
        let path = Path::new("/");
        let lock = Lock {
            owner: LockOwner::Bytes(0),
            mode: LockMode::Exclusive,
            first: BYTE,
            last: BYTE,
            pid: std::process::id(),
        };
        let wait = match waits {
            true => LockWait::Always,
            false => LockWait::Never,
        };
        let call = Call::Lock {
            fid: self.root().fid(),
            lock,
            wait,
            handle: 0,
        };
        match self.ask(call, &[]).done {
            Done::Nothing => Ok(true),
            Done::Refused(Refusal::Locked) => Ok(false),
            Done::Refused(refusal) => Err(Error::refused(path, refusal)),
            _ => Err(nonsense(path)),
        }
    }
}
