//! A mount of a server's tree: the client, the kernel's connection, and what joins them; and its
//! orderly end.
//!
//! Guarantees: all steps that can fail for the server's sake come before anything is mounted. At
//! the end, whatever its cause, everything is written back after the last request of the kernel;
//! [`Mount::wait`] does not return before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::front::{Addresses, Reading};
use client::{Client, ClientError, LeaveError, Owed};
use parking_lot::Mutex;
use rustix::io::Errno;
use tracing::{debug, error, info, warn};
use wire::Fid;

use super::elsewhere::{Elsewhere, OtherVolume};
use super::notices::Notices;
use super::options::MountOptions;
use super::recording::{Listener, Recording};
use super::serving::{client_options, mount_and_serve};
use super::unmount::{self, Attempt};
use crate::feature::Feature;
use crate::init::Transport;
use crate::mount::{self, Control, MountId};
use crate::session::{Session, SessionError};

/// How long the end waits while not one changed block gets to the server.
const PROGRESS_TIME: Duration = Duration::from_secs(10);

/// Why something was not mounted or not ended, and the cure.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The server cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The kernel does not mount or unmount.
    #[error(transparent)]
    Mount(#[from] mount::MountError),
    /// The kernel's connection cannot be served.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Programs use the mount.
    #[error(
        "{dir} is in use: see by whom with `fuser -vm {dir}`, end that and try again",
        dir = .0.display()
    )]
    Busy(PathBuf),
    /// The server is away, and has not got everything.
    #[error(
        "{} stays mounted: the server at {server} does not answer, and {owed} are only here: \
         start it and try again, or give them up with `ariel umount --force {}`",
        .dir.display(),
        .dir.display()
    )]
    Away {
        /// Where it is mounted.
        dir: PathBuf,
        /// The server.
        server: String,
        /// The changes that it has not got.
        owed: Owed,
    },
    /// Not everything was written back; the rest is still in memory.
    #[error(transparent)]
    Leave(#[from] LeaveError),
    /// The connection ended, and the mount did not.
    #[error(
        "the kernel's connection of {dir} was cut (`umount -f`, or by way of \
         /sys/fs/fuse/connections); everything is written back, and the dead mount stays until \
         it is mounted again or taken away: ariel umount {dir}",
        dir = .0.display()
    )]
    Cut(PathBuf),
}

/// The servers that a mount has left.
#[derive(Debug, Default)]
struct Left {
    /// Its own.
    own: bool,
    /// All of them, and nothing runs any more.
    all: bool,
}

/// A mount that works. Dropping it ends it, as [`Mount::end`] does.
pub struct Mount {
    client: Arc<Client>,
    /// Volumes that other servers have.
    elsewhere: Arc<Elsewhere>,
    recording: Arc<Recording>,
    session: Session,
    mount_point: PathBuf,
    connection: u32,
    /// Ends the connection; `None`: it could not be opened.
    control: Option<Control>,
    id: MountId,
    /// Everything is written back and the servers are left. Locked by the thread that sees to it.
    left: Mutex<Left>,
    /// The process is to end: changes that cannot be written back soon are given up.
    ending: AtomicBool,
    /// Somebody asked the daemon to unmount, and is told what is not written back.
    asked: AtomicBool,
    /// The changes that were given up, once and for all, and the server that did not get them.
    lost: Mutex<Option<(Addresses, Owed)>>,
}

impl Mount {
    /// Connects to the server, mounts, and serves the mount.
    ///
    /// # Errors
    /// The server cannot be reached or the kernel cannot mount; nothing is mounted then.
    pub fn start(options: MountOptions) -> Result<Mount, MountError> {
        let notices = Arc::new(Notices::new(options.keeping));
        let front = Arc::clone(&notices) as Arc<dyn client::front::Front>;
        let client = Arc::new(Client::start(client_options(&options), front)?);
        match mount_and_serve(&options, &client, &notices) {
            Ok(served) => Ok(Mount {
                client,
                elsewhere: served.elsewhere,
                recording: served.recording,
                session: served.session,
                mount_point: served.mount_point,
                connection: served.connection,
                control: served.control,
                id: served.id,
                left: Mutex::default(),
                ending: AtomicBool::new(false),
                asked: AtomicBool::new(false),
                lost: Mutex::new(None),
            }),
            Err(error) => {
                // Nothing has been changed: this only ends the session early.
                if let Err(error) = client.leave(Duration::ZERO) {
                    debug!(%error, "the server was not told of the end");
                }
                client.stop();
                Err(error)
            }
        }
    }

    /// Waits until the mount is gone, whichever process unmounted it, and everything is written
    /// back. While the server is there, or when the daemon was asked to unmount and could say that
    /// something is missing, it goes on trying. If nobody was told, and the server is away, that is
    /// given up.
    pub fn wait(&self) {
        self.session.wait();
        loop {
            match self.leave() {
                Ok(()) => return,
                Err(LeaveError::Stuck { .. }) if self.ending.load(Ordering::Acquire) => return,
                Err(LeaveError::Stuck { server, owed })
                    if self.owes_in_vain().is_some() && !self.asked.load(Ordering::Acquire) =>
                {
                    self.ending.store(true, Ordering::Release);
                    error!(%server, "{owed} are lost: unmounted while the server is away");
                    *self.lost.lock() = Some((server, self.owed()));
                    return;
                }
                Err(error @ LeaveError::Stuck { .. }) => {
                    error!(%error, "the mount is gone, its last changes are not; trying again");
                }
                Err(error) => {
                    error!(%error, "the last changes are lost");
                    return;
                }
            }
        }
    }

    /// After [`Mount::wait`]: whether the mount has ended as it should. Nothing is unmounted here:
    /// the kernel has done that, and another mount may be at the mount point now.
    ///
    /// # Errors
    /// Not everything could be written back; or only the connection has ended, and the mount is
    /// still there, dead.
    pub fn ended(&self) -> Result<(), MountError> {
        self.leave()?;
        match self.is_mounted() {
            true => Err(MountError::Cut(self.mount_point.clone())),
            false => Ok(()),
        }
    }

    /// Is it still what is on top at its mount point?
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.id.is_at(&self.mount_point)
    }

    /// Unmounts, and writes everything back. May be called again after an error.
    ///
    /// # Errors
    /// Programs use the mount, which goes on working then; or not everything could be written back,
    /// with the mount gone and the changes still in memory.
    pub fn unmount(&self) -> Result<(), MountError> {
        let mounted = self.is_mounted();
        if mounted && let Some((server, owed)) = self.owes_in_vain() {
            // Nothing has changed: it goes on when the server is back.
            return Err(MountError::Away {
                dir: self.mount_point.clone(),
                server,
                owed,
            });
        }
        if mounted {
            self.asked.store(true, Ordering::Release);
        }
        match unmount::attempt_for_a_moment(&self.mount_point, self.id)? {
            Attempt::Gone => Ok(self.leave()?),
            Attempt::Busy => Err(MountError::Busy(self.mount_point.clone())),
        }
    }

    /// Ends the mount even while programs use it, for a process that was told to end: they get
    /// errors from now on, and their writes are written back, if the server is there.
    ///
    /// # Errors
    /// Not everything could be written back, or the mount could not be removed.
    pub fn end(&self) -> Result<(), MountError> {
        self.ending.store(true, Ordering::Release);
        let removed = match unmount::attempt(&self.mount_point, self.id) {
            Ok(Attempt::Gone) => Ok(()),
            Ok(Attempt::Busy) => {
                warn!(mount_point = %self.mount_point.display(), "ending a mount in use");
                self.abort();
                match mount::detach(&self.mount_point, self.id) {
                    Err(mount::MountError::NotMounted(_)) => Ok(()),
                    other => other.map(drop),
                }
            }
            Err(error) => Err(error),
        };
        self.leave()?;
        Ok(removed?)
    }

    /// Ends the mount within seconds, whatever the server and its programs do: programs that wait
    /// get errors. Changes that the server has not got by then are lost, and returned.
    ///
    /// # Errors
    /// The mount could not be removed, or the fate of changes is not known.
    pub fn force(&self) -> Result<Owed, MountError> {
        match self.end() {
            Ok(()) => Ok(Owed::default()),
            Err(MountError::Leave(LeaveError::Stuck { owed, .. })) => {
                Ok(self.lost().unwrap_or(owed))
            }
            Err(error) => Err(error),
        }
    }

    /// The changes that were given up at the end, since the server was away.
    #[must_use]
    pub fn lost(&self) -> Option<Owed> {
        self.lost.lock().as_ref().map(|(_, owed)| *owed)
    }

    /// The server that has not got everything: one that does not answer, or else the mount's own.
    #[must_use]
    pub fn silent_server(&self) -> String {
        let lost = self
            .lost
            .lock()
            .as_ref()
            .map(|(server, _)| server.to_string());
        let silent = || self.owes_in_vain().map(|(server, _)| server);
        lost.or_else(silent)
            .unwrap_or_else(|| self.client.server().to_string())
    }

    /// Ends the connection, which its users would otherwise keep alive for as long as they like.
    fn abort(&self) {
        let aborted = self.control.as_ref().map(Control::abort);
        if !matches!(aborted, Some(Ok(()))) {
            debug!(?aborted, "aborting by unmounting");
            // A forced unmount aborts even where it says that the mount is in use.
            if let Err(errno) = mount::abort_by_unmount(&self.mount_point)
                && errno != Errno::BUSY
            {
                warn!(%errno, "what programs write from now on may be lost");
            }
        }
    }

    /// Writes everything back and leaves the server, once.
    fn leave(&self) -> Result<(), LeaveError> {
        let mut left = self.left.lock();
        if !left.all {
            if let Some((server, owed)) = self.lost.lock().clone() {
                return Err(LeaveError::Stuck { server, owed });
            }
            let others = self.elsewhere.leave(PROGRESS_TIME);
            let ended = self.leave_own(&mut left.own).and(others);
            if let Err(LeaveError::Stuck { server, .. }) = &ended
                && self.ending.load(Ordering::Acquire)
            {
                *self.lost.lock() = Some((server.clone(), self.owed()));
            }
            ended?;
            self.stop();
            left.all = true;
            info!(mount_point = %self.mount_point.display(), "everything is written back");
        }
        Ok(())
    }

    /// Leaves the mount's own server, unless that is done.
    fn leave_own(&self, left: &mut bool) -> Result<(), LeaveError> {
        if !*left {
            self.client.leave(PROGRESS_TIME)?;
            *left = true;
        }
        Ok(())
    }

    fn stop(&self) {
        self.client.stop();
        self.elsewhere.stop();
    }

    /// The client behind the mount.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Listens to the accesses that the kernel asks for; `None`: somebody does already.
    #[must_use]
    pub fn record(&self) -> Option<Listener> {
        self.recording.start()
    }

    /// The object of this inode number, and the client that shows it; `None`: its server is not
    /// reached yet.
    #[must_use]
    pub fn object(&self, inode: u64) -> Option<(Arc<Client>, Fid)> {
        let slots = self.elsewhere.slots();
        let client = match slots.other_session(inode) {
            None => Arc::clone(&self.client),
            Some(session) => Arc::clone(&self.elsewhere.tree(session)?.client),
        };
        Some((client, slots.fid(inode)))
    }

    /// The inode number of an object.
    #[must_use]
    pub fn inode(&self, fid: Fid) -> u64 {
        self.elsewhere.slots().node(fid)
    }

    /// The volumes of other servers that it shows.
    #[must_use]
    pub fn other_volumes(&self) -> Vec<OtherVolume> {
        self.elsewhere.volumes()
    }

    /// The data and changes that servers have not got yet.
    #[must_use]
    pub fn owed(&self) -> Owed {
        let others = self.elsewhere.volumes();
        others
            .iter()
            .fold(self.client.owed(), |all, it| all + it.owed)
    }

    /// The server that has not got everything and does not answer, if there is one, and the changes
    /// that it has not got.
    fn owes_in_vain(&self) -> Option<(String, Owed)> {
        let owed = self.client.owed();
        if self.client.is_away() && !owed.is_nothing() {
            return Some((self.client.server().to_string(), owed));
        }
        let others = self.elsewhere.volumes().into_iter();
        let mut away = others.filter(|it| it.away && !it.owed.is_nothing());
        away.next().map(|it| (it.server, it.owed))
    }

    /// Requests of the kernel so far, by kind.
    #[must_use]
    pub fn fuse_counters(&self) -> Vec<(&'static str, u64)> {
        self.session.counters().snapshot().into_iter().collect()
    }

    /// Notifications to the kernel so far, by what it was told to drop or was given.
    #[must_use]
    pub fn told(&self) -> Vec<(&'static str, u64)> {
        self.session.notifier().counters().told().into()
    }

    /// How long it took to answer requests of the kernel, by kind.
    #[must_use]
    pub fn answers(&self) -> Vec<(&'static str, Reading)> {
        self.session.counters().answers()
    }

    /// The features in use that not every kernel has.
    #[must_use]
    pub fn features(&self) -> Vec<&'static str> {
        let negotiated = self.session.negotiated();
        let used = Feature::ALL.into_iter().filter(|f| match f {
            Feature::Uring => self.transport() == Transport::Uring,
            Feature::Handover => self.session.hands_over(),
            other => negotiated.uses(*other),
        });
        used.map(Feature::word).collect()
    }

    /// How requests come.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.session.transport()
    }

    /// Number of the kernel's connection.
    #[must_use]
    pub fn connection_id(&self) -> u32 {
        self.connection
    }

    /// Names the mount itself.
    #[must_use]
    pub fn id(&self) -> MountId {
        self.id
    }

    /// The mount point, absolute and free of symbolic links.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.left.get_mut().all {
            return;
        }
        if *self.ending.get_mut() {
            // It was tried, and the caller that tried was told what is lost.
            return self.stop();
        }
        if let Err(error) = self.end() {
            error!(%error, "the mount did not end in order");
            self.stop();
        }
    }
}
