//! The kernel's switch for FUSE over io_uring, held for a while. It is one for the whole machine:
//! a holder, in whichever process, holds it alone, and puts it back.
#![allow(dead_code, unreachable_pub)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Puts the switch back when dropped.
pub struct Switch {
    before: String,
    _alone: File,
}

/// Holds the switch at on or off; the error says what is missing.
pub fn hold(on: bool) -> Result<Switch, String> {
    let read = || fs::read_to_string(SWITCH);
    read().map_err(|error| {
        format!("{SWITCH}: {error}: Linux 6.14 with CONFIG_FUSE_IO_URING is needed")
    })?;
    let path = lock_file();
    let alone = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    rustix::fs::flock(&alone, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| errno.to_string())?;
    let switch = Switch {
        before: read().map_err(|error| error.to_string())?,
        _alone: alone,
    };
    let wanted = if on { "Y" } else { "N" };
    match switch.before.trim() == wanted {
        true => Ok(switch),
        false => fs::write(SWITCH, wanted)
            .map(|()| switch)
            .map_err(|error| format!("{SWITCH} cannot be written ({error}): run as root")),
    }
}

fn lock_file() -> PathBuf {
    Path::new("/tmp").join("ariel-enable-uring.lock")
}

impl Drop for Switch {
    fn drop(&mut self) {
        // It could be written before.
        let _ = fs::write(SWITCH, self.before.trim());
    }
}
