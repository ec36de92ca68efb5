//! A tree: the session with its server, and how a call is made and waited for.

use crate::bare::Bare;
use crate::error::{Error, Result};
use crate::object::{Found, Object};
use client::front::{Asker, Call, Completion, Done, MachineOptions};
use client::{Client, ClientOptions, Server};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use wire::{Caller, Fid, Op, Refusal, limits};

/// Slots for a MiB of cache.
const SLOTS_PER_MIB: u32 = (1 << 20) / limits::BLOCK_BYTES;
/// Knowledge of objects takes about as much memory as cached blocks may: 600 bytes each.
const OBJECTS_PER_MIB: usize = 1700;

/// Permission bits, set-id bits and the sticky bit; the permission bits alone.
const MODE_BITS: u32 = 0o7777;
const PERMISSION_BITS: u32 = 0o777;
/// Where /proc does not say it.
const USUAL_UMASK: u32 = 0o022;

/// How a tree is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most memory for cached blocks, MiB.
    pub cache_mib: u32,
    /// How long the server may take to open the session.
    pub connect_timeout: Duration,
    /// How long a call waits while the server says nothing; `None`: for ever.
    pub timeout: Option<Duration>,
    /// How long [`Tree::close`] waits while nothing gets to the server.
    pub close_timeout: Duration,
    /// The volume, or the snapshot, whose tree it is; `None`: the first volume.
    pub volume: Option<String>,
    /// A name for people, shown by `ariel status` of the server.
    pub name: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_mib: 64,
            connect_timeout: Duration::from_secs(10),
            timeout: None,
            close_timeout: Duration::from_secs(10),
            volume: None,
            name: format!("library, process {}", std::process::id()),
        }
    }
}

/// A server's tree. [`Tree::close`] gives the server what it has not got yet; a tree that is
/// dropped without it loses that.
pub struct Tree {
    client: Arc<Client>,
    caller: Caller,
    root: Arc<Object>,
    close_timeout: Duration,
    umask: u32,
    /// How many descriptors were opened.
    opened: AtomicU64,
}

impl Tree {
    /// Opens a session with a server, for the user of this process.
    ///
    /// # Errors
    /// The server does not answer, or not in time.
    pub fn connect(server: Server, options: &Options) -> Result<Self> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let machine = MachineOptions {
            slots: options.cache_mib.saturating_mul(SLOTS_PER_MIB),
            objects: options.cache_mib as usize * OBJECTS_PER_MIB,
            timeout_ns: options.timeout.map(nanoseconds),
            // There are no pages to fill.
            open_bytes: 0,
            passing_bytes: u32::MAX,
            volume: options.volume.clone().unwrap_or_default().into(),
            ..MachineOptions::default()
        };
        let client = ClientOptions {
            server,
            machine,
            memory: None,
            name: options.name.clone(),
            finder: None,
        };
        let front = Arc::new(Bare::default());
        let client = Arc::new(Client::start(client, front.clone())?);
        front.serves(Arc::downgrade(&client));
        client.keeps_no_names();
        let root = client.wait_ready(options.connect_timeout)?;
        Ok(Self {
            root: Object::root(&client, root),
            client,
            caller: caller(),
            close_timeout: options.close_timeout,
            umask: umask(),
            opened: AtomicU64::new(0),
        })
    }

    /// Gives everything back to the server, and ends the session.
    ///
    /// # Errors
    /// The server could not be given all; the error says what it has not got.
    pub fn close(self) -> Result<()> {
        self.leave()
    }

    /// The same for a tree that several own. Later calls are refused.
    ///
    /// # Errors
    /// As [`Tree::close`].
    pub fn leave(&self) -> Result<()> {
        self.client.leave(self.close_timeout)?;
        self.client.stop();
        Ok(())
    }

    /// Data that the server has not got yet: bytes, and changes of names and attributes.
    #[must_use]
    pub fn owed(&self) -> (u64, u64) {
        let owed = self.client.owed();
        (owed.bytes, owed.changes)
    }

    /// A number for a descriptor that is being opened.
    pub(crate) fn next_descriptor(&self) -> u64 {
        1 + self.opened.fetch_add(1, Ordering::Relaxed)
    }

    /// The mode of a new object. The umask counts unless the directory has a default access list.
    pub(crate) fn new_mode(&self, mode: u32) -> u32 {
        (mode & MODE_BITS) | (self.umask << wire::UMASK_SHIFT)
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn root(&self) -> &Arc<Object> {
        &self.root
    }

    /// Makes a call for the user of this process, and waits for its answer.
    pub(crate) fn ask(&self, call: Call, data: &[u8]) -> Completion {
        ask(&self.client, self.caller.clone(), call, data)
    }

    /// Asks for an operation.
    pub(crate) fn operate(&self, path: &Path, op: Op) -> Result<Done> {
        match self.ask(Call::Op(op), &[]).done {
            Done::Refused(refusal) => Err(Error::refused(path, refusal)),
            done => Ok(done),
        }
    }

    /// Asks for an operation whose answer is an object.
    pub(crate) fn operate_on(&self, path: &Path, op: Op) -> Result<Found> {
        match self.operate(path, op)? {
            Done::Entry { fid, attr, .. } => {
                let object = Object::counted(&self.client, fid);
                Ok(Found { object, attr })
            }
            Done::Absent { .. } => Err(Error::errno(path, Errno::NOENT)),
            Done::Elsewhere { .. } => Err(Error::elsewhere(path)),
            _ => Err(nonsense(path)),
        }
    }

    pub(crate) fn attr(&self, path: &Path, fid: Fid) -> Result<wire::Attr> {
        match self.operate(path, Op::GetAttr { fid })? {
            Done::Attr { attr, .. } => Ok(attr),
            _ => Err(nonsense(path)),
        }
    }
}

/// The client answered what was not asked: a bug, never the caller's fault.
pub(crate) fn nonsense(path: &Path) -> Error {
    Error::errno(path, Errno::IO)
}

/// Makes a call and waits for its answer.
pub(crate) fn ask(client: &Client, caller: Caller, call: Call, data: &[u8]) -> Completion {
    let (send, answer) = mpsc::sync_channel(1);
    let reply = Box::new(move |completion| {
        // The caller is below, and waits.
        let _ = send.send(completion);
    });
    client.call(Asker::from(caller), call, data, reply);
    // A client that is stopped drops the callback.
    let stopped = || Completion::refused(Refusal::SessionLost);
    answer.recv().unwrap_or_else(|_| stopped())
}

/// The umask of this process. It is read from /proc: umask(2) would change it for a moment, in
/// which other threads may make files.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let octal = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    octal.unwrap_or(USUAL_UMASK) & PERMISSION_BITS
}

/// The user of this process, with all groups.
fn caller() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Some(groups.into_iter().map(|group| group.as_raw()).collect()),
    }
}
