//! Questions of no meaning: each has the kernel make a request on one processor, whose answer makes
//! it look for requests that found no seat.

use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use tracing::{debug, warn};

use super::processors;
use crate::idle_policy;

/// Asks about the root from a processor, again and again for as long as it is wanted. On a thread
/// of its own: the asker waits for the lane.
pub(super) fn ask(cpu: u16, root: PathBuf, is_wanted: impl Fn() -> bool + Send + 'static) {
    let run = move || {
        idle_policy::be_ordinary();
        if processors::stay_on(cpu).is_err() {
            return;
        }
        while is_wanted() {
            // The answer does not matter, but that there is one.
            let flags = AtFlags::STATX_FORCE_SYNC;
            if let Err(errno) = statx(CWD, &root, flags, StatxFlags::BASIC_STATS) {
                return debug!(%errno, "the root does not answer");
            }
        }
    };
    let thread = std::thread::Builder::new().name("ariel-asks".to_owned());
    if let Err(error) = thread.spawn(run) {
        warn!(%error, "no further thread; requests may wait for others to be answered");
    }
}
