//! The beginning of a mount: from a session with the server to a kernel that is served.
//!
//! Guarantees: a mount that was made and cannot be served is removed again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use client::front::MachineOptions;
use client::{Client, ClientOptions};
use tracing::{debug, warn};
use wire::{FIRST_VOLUME, limits};

use super::elsewhere::Elsewhere;
use super::handler::{Translator, Tree};
use super::locks::{LockedFiles, Waiters};
use super::mounted::MountError;
use super::nodes::Nodes;
use super::notices::Notices;
use super::options::MountOptions;
use super::recording::Recording;
use super::sought;
use crate::groups::Groups;
use crate::init::Options;
use crate::mount::{self, Control, Hidden, MountId, Mounted, Prepared};
use crate::session::{Session, SessionError};

/// How long the server may take to open a session.
pub(super) const READY_TIME: Duration = Duration::from_secs(10);
/// How often the ages of changed blocks are looked at: by default (Nelson, section 3.5), and
/// however short the delay is.
const SCAN_NS: u64 = 5_000_000_000;
const SCAN_LEAST_NS: u64 = 10_000_000;
/// The knowledge of objects takes about as much memory as cached blocks may: 600 bytes each.
const OBJECTS_PER_MIB: usize = 1700;

/// The options of a client of the mount: of its own server, unless others are put in.
pub(super) fn client_options(options: &MountOptions) -> ClientOptions {
    let slots_per_mib = (1 << 20) / limits::BLOCK_BYTES;
    let first_mib = options.cache.first_mib();
    let (volume, first) = (&options.volume, String::from_utf8_lossy(FIRST_VOLUME));
    ClientOptions {
        server: options.server.clone(),
        machine: MachineOptions {
            slots: first_mib.saturating_mul(slots_per_mib),
            objects: first_mib as usize * OBJECTS_PER_MIB,
            write_delay_ns: options.write_delay_ns,
            announced: !options.silent_opens,
            timeout_ns: options.timeout_ns,
            keep_ns: Some(options.name_delay_ns).filter(|ns| *ns > 0),
            scan_ns: (options.write_delay_ns / 2).clamp(SCAN_LEAST_NS, SCAN_NS),
            volume: options.volume.clone().unwrap_or_default().into(),
            lends: options.lends,
            lend_limits: options.lend_limits,
            ..MachineOptions::default()
        },
        memory: options.cache.bounds(),
        name: options.name.clone(),
        finder: sought::finder(options, volume.as_deref().unwrap_or(&first)),
    }
}

/// A mount that is served.
pub(super) struct Served {
    pub(super) session: Session,
    pub(super) elsewhere: Arc<Elsewhere>,
    pub(super) recording: Arc<Recording>,
    pub(super) mount_point: PathBuf,
    pub(super) connection: u32,
    pub(super) control: Option<Control>,
    pub(super) id: MountId,
}

/// Mounts, and serves the mount of a client.
pub(super) fn mount_and_serve(
    options: &MountOptions,
    client: &Arc<Client>,
    notices: &Notices,
) -> Result<Served, MountError> {
    client.wait_ready(READY_TIME)?;
    let Prepared {
        mounted,
        mut hidden,
    } = mount::prepare(&options.dir, &as_mounted(options))?;
    let Mounted {
        fd,
        mount_point,
        connection,
        mut id,
    } = mounted;
    let control = Control::open(connection);
    let control = control.map_err(|error| debug!(%error, "no control of the connection"));
    let session_options = Options {
        threads: options.threads,
        transport: options.transport,
        without: options.without,
        root: Some(mount_point.clone()),
        auto_inval: options.keeping.compares_times(),
        // Without being told of closes nobody knows when locks end.
        locks: !options.silent_opens,
        ..Options::default()
    };
    let read_ahead = session_options.max_readahead;
    let shown = hidden.is_none();
    let served = Session::new(fd, session_options)
        .and_then(|session| serve(session, options, client, notices))
        .map_err(MountError::from)
        .and_then(|served| {
            let narrowed = narrow(hidden.as_mut(), options.part.as_deref())?;
            id = narrowed.unwrap_or(id);
            hidden.map_or(Ok(()), Hidden::show)?;
            Ok(served)
        });
    match served {
        Ok((session, elsewhere, recording)) => {
            if let Err(error) = mount::set_read_ahead(connection, read_ahead) {
                debug!(%error, "the kernel reads ahead as far as it does by default");
            }
            Ok(Served {
                session,
                elsewhere,
                recording,
                mount_point,
                connection,
                control: control.ok(),
                id,
            })
        }
        Err(error) => {
            if shown && let Err(error) = mount::unmount(&mount_point) {
                warn!(%error, "a mount that cannot be served stays behind");
            }
            Err(error)
        }
    }
}

fn as_mounted(options: &MountOptions) -> mount::MountOptions {
    mount::MountOptions {
        source: match &options.part {
            Some(part) => format!("{}:{}", options.server, part.display()),
            None => options.server.to_string(),
        },
        // Without a line in /etc/fuse.conf an ordinary user may mount for himself only.
        allow_other: rustix::process::geteuid().is_root(),
        flags: options.flags,
        replaces: options.replaces,
        by_helper: false,
    }
}

/// Has the mount show a directory of the tree alone, if that is wanted; its name then.
fn narrow(
    hidden: Option<&mut Hidden>,
    part: Option<&Path>,
) -> Result<Option<MountId>, mount::MountError> {
    let Some(part) = part else {
        return Ok(None);
    };
    let hidden = hidden.ok_or(mount::MountError::PartNeedsRoot)?;
    hidden.narrow(part).map(Some)
}

/// A session, and those parts of its tree that the mount keeps.
type Begun = (Session, Arc<Elsewhere>, Arc<Recording>);

fn serve(
    session: Session,
    options: &MountOptions,
    client: &Arc<Client>,
    notices: &Notices,
) -> Result<Begun, SessionError> {
    let (notifier, nodes) = (session.notifier(), Nodes::of(client.root()));
    let here = (notifier.clone(), nodes.clone());
    notices.connect(here, client, options.interruptible);
    let elsewhere = Elsewhere::new(options, nodes.slots());
    let keeps_names = session.negotiated().inc_epoch;
    if !keeps_names || !options.keeping.takes_back() {
        client.keeps_no_names();
    }
    let recording = Arc::new(Recording::default());
    let tree = Tree {
        client: Arc::clone(client),
        nodes,
        elsewhere: Arc::clone(&elsewhere),
        shows_snapshots: !options.hides_snapshots,
        silent_opens: options.silent_opens,
        keeping: options.keeping,
        keeps_names,
        may_give: options.keeping.takes_back() && session.negotiated().give,
        may_skip_flush: session.negotiated().no_flush,
        tells_birth: session.negotiated().birth,
        notifier,
        opened: AtomicU64::new(0),
        locked: LockedFiles::default(),
        waiters: Waiters::default(),
        groups: Groups::default(),
        recording: Arc::clone(&recording),
    };
    let tree = Arc::new(tree);
    elsewhere.stands_in(&tree);
    session.serve(Arc::new(Translator(tree)))?;
    Ok((session, elsewhere, recording))
}
