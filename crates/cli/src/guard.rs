//! The guard: a second process that removes a mount when the daemon behind it was killed, and tells
//! the server, so that nobody has to wait for the end of the dead client's lease.
//!
//! In an orderly end the daemon ends its guard before itself: by the time the guard would see that
//! end, the kernel may have given the connection's number to another mount.

use crate::args::GuardArgs;
use crate::failure::Failure;
use crate::{control, runtime};
use fuse::front::Mount;
use std::io;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// How long the guard tries to reach the server.
const BURIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The daemon's end of it.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the guard of a mount of this process.
    pub(crate) fn start(mount: &Mount) -> io::Result<Guard> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("__guard")
            .arg("--connection")
            .arg(mount.connection_id().to_string())
            .arg("--dir")
            .arg(mount.mount_point())
            .arg("--server")
            .arg(mount.client().server().to_string())
            // After the loss of a session the daemon has another one: its lease must end then.
            .arg("--session")
            .arg(mount.client().session().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        fuse::guard::start(command).map(Guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The guard itself: its standard input is a descriptor of the daemon.
pub(crate) fn guard(args: &GuardArgs) -> Result<ExitCode, Failure> {
    let watched = fuse::guard::watch_stdin(args.connection, &args.dir);
    control::remove_stale(&runtime::of_mount(&args.dir));
    // Only where nothing of the mount is left: until then programs may still see it.
    watched.map_err(|error| Failure::of("guard", error))?;
    client::bury(args.server, args.session, BURIAL_TIMEOUT)
        .map_err(|error| Failure::of("guard", error))?;
    Ok(ExitCode::SUCCESS)
}
