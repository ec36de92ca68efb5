//! The resources of a client while no program asks for anything.

use crate::place::At;
use crate::tree::SMALL_BYTES;
use crate::warm::{read_small, read_through};
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// Earlier requests are over after this time, and the work that follows by itself has begun.
const CALM: Duration = Duration::from_secs(1);
/// For how long the client is watched: longer than what it does from time to time.
const WATCHED: Duration = Duration::from_secs(6);

/// Nothing to wait for: the passing of time is what is measured.
pub(crate) fn idle(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let files = at.small_files()?;
    let (large, _) = at.large_file(8)?;
    let mut buffer = [0; SMALL_BYTES];
    files
        .iter()
        .try_for_each(|file| read_small(file, &mut buffer))?;
    read_through(&large)?;
    // No event ends what the client does by itself.
    sleep(CALM);
    let before = at.usage()?;
    let seconds = at.seconds(|| {
        sleep(WATCHED);
        Ok(())
    })?;
    let after = at.usage()?;
    let busy = after.client_ns.saturating_sub(before.client_ns) as f64 / 1e9;
    let memory = after.client_bytes as f64 / f64::from(1 << 20);
    Ok(vec![busy / seconds * 100.0, memory])
}
