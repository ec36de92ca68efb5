//! How fast a server applies what a client has done by itself and tells it of later.

use crate::place::At;
use crate::tree::stable;
use std::fs::{self, File};
use std::io;

/// Files made at once: a client keeps so many to itself, and for longer than it takes.
const TOGETHER: u32 = 4_000;
/// So often are they told of; and once before, when the client learns that they may be its own.
const TIMES: u32 = 5;

/// Creates a second from when the server hears of the first until the client hears that all are
/// applied and on its disk, and the server's processor time for each, us. The files are empty.
pub(crate) fn apply(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let count = at.sizes.files.min(TOGETHER);
    (at.fresh)()?;
    let top = at.dir.join("applied");
    fs::create_dir(&top)?;
    let (mut creates, mut seconds, mut busy_ns, mut most) = (0, 0.0, 0, 0);
    for time in 0..=TIMES {
        let dir = top.join(format!("time-{time}"));
        fs::create_dir(&dir)?;
        (0..count).try_for_each(|n| File::create_new(dir.join(format!("file-{n}"))).map(drop))?;
        let kept = at.told()?.untold;
        most = most.max(kept);
        let before = at.usage()?;
        let took = at.seconds(|| stable(&dir))?;
        let after = at.usage()?;
        if time > 0 && kept >= u64::from(count) {
            creates += count;
            seconds += took;
            busy_ns += after.server_ns.saturating_sub(before.server_ns);
        }
        fs::remove_dir_all(dir)?;
        stable(&top)?;
    }
    fs::remove_dir(top)?;
    if creates == 0 {
        let what = format!(
            "of {count} files made, the client had told the server of all but {most} at once: \
             it may delegate no directories (--name-delay 0), or the machine is too busy"
        );
        return Err(io::Error::other(what));
    }
    let creates = f64::from(creates);
    Ok(vec![creates / seconds, busy_ns as f64 / 1e3 / creates])
}
