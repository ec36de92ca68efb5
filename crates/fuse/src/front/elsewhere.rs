//! Volumes that other servers of the cell have: each has a session of its own with its server, and
//! so a tree of its own within the mount.
//!
//! Guarantees: a session is begun when a program first asks for something behind a mount point, by
//! a thread of its own; requests that come before it is ready are kept, and none of them holds a
//! lock that a recall of another session waits for, as the look-up of a mount point is answered
//! without waiting for the server behind it. A session lasts as long as the mount, and goes on
//! where its volume is. A failure is logged with its cure; the next request tries again, a second
//! later at the earliest.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use client::front::{Addresses, Call, Completion, Done, Missing, now_ns};
use client::{Client, LeaveError, Owed, Server};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use tracing::{debug, info, warn};
use wire::{Attr, Fid, Kind, Op, Refusal, SessionId};

use super::convert;
use super::errno;
use super::handler::{Translator, Tree, refuse};
use super::nodes::{Nodes, Slots};
use super::notices::Notices;
use super::options::MountOptions;
use super::serving::{READY_TIME, client_options};
use super::sought;
use crate::abi::{EntryOut, ROOT_ID};
use crate::reply::{Delivery, Reply};
use crate::request::{Header, Kept, Request};

/// For so long what has failed is not tried again.
const PAUSE_NS: u64 = 1_000_000_000;

/// The server that has a volume, and the volume's name.
#[derive(Debug)]
pub struct Place {
    /// The server.
    pub server: Server,
    /// The name.
    pub volume: String,
}

/// Finds the servers of a cell that have volumes.
pub trait Servers: Debug + Send + Sync {
    /// Where the volume of this number is; nothing: no server of the cell has it. It may take as
    /// long as it takes to ask all servers.
    ///
    /// # Errors
    /// In words, with a cure: some server that may have it cannot be asked.
    fn of_volume(&self, volume: u32) -> Result<Option<Place>, String>;

    /// The server of a volume with which there is a session, and no connection: it is lost, or has
    /// told that the volume is elsewhere. `None`: nobody knows, or it is on its way. It may take as
    /// long.
    fn again(&self, volume: u32, missing: Missing) -> Option<Addresses>;

    /// The mount has a session with this server: one more, or one that it had with another server
    /// before.
    fn has_session(&self, server: &Addresses, session: SessionId);
}

/// A request that waits for its session, and the right to answer it.
type Waiting = (Kept, Reply);

enum Session {
    Begins(Vec<Waiting>),
    /// With the volume's name.
    Ready(Arc<Tree>, String),
    /// Everything is written back, and the mount ends.
    Left,
    Failed {
        errno: Errno,
        at_ns: u64,
    },
}

/// A volume of another server, for people.
#[derive(Debug)]
pub struct OtherVolume {
    /// Its name.
    pub volume: String,
    /// The server that has it.
    pub server: String,
    /// There is no connection, or the server is silent.
    pub away: bool,
    /// The changes that the server has not got.
    pub owed: Owed,
}

/// The volumes of other servers that a mount has come by.
pub(super) struct Elsewhere {
    options: MountOptions,
    slots: Arc<Slots>,
    /// The tree of the mount's own session.
    main: OnceLock<Weak<Tree>>,
    sessions: RwLock<Sessions>,
}

#[derive(Default)]
struct Sessions {
    all: BTreeMap<u32, Session>,
    /// The mount ends: no session begins any more.
    ending: bool,
}

impl Elsewhere {
    pub(super) fn new(options: &MountOptions, slots: &Arc<Slots>) -> Arc<Elsewhere> {
        Arc::new(Elsewhere {
            options: options.clone(),
            slots: Arc::clone(slots),
            main: OnceLock::new(),
            sessions: RwLock::default(),
        })
    }

    /// The tree of the mount's own session is this one.
    pub(super) fn stands_in(&self, main: &Arc<Tree>) {
        // Called once.
        let _ = self.main.set(Arc::downgrade(main));
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The tree of another session than the mount's own, once it is ready.
    pub(super) fn tree(&self, session: u32) -> Option<Arc<Tree>> {
        match self.sessions.read().all.get(&session) {
            Some(Session::Ready(tree, _)) => Some(Arc::clone(tree)),
            _ => None,
        }
    }

    /// The tree of a session, the mount's own or another one that is ready.
    fn any_tree(&self, session: u32) -> Option<Arc<Tree>> {
        match self.slots.is_own(session) {
            true => self.main.get().and_then(Weak::upgrade),
            false => self.tree(session),
        }
    }

    /// The trees of all sessions that are ready.
    pub(super) fn trees(&self) -> Vec<Arc<Tree>> {
        let sessions = self.sessions.read();
        let ready = sessions.all.values().filter_map(|session| match session {
            Session::Ready(tree, _) => Some(Arc::clone(tree)),
            _ => None,
        });
        ready.collect()
    }

    /// Serves a request when its session is ready, and has that begin.
    pub(super) fn serve_later(self: &Arc<Self>, session: u32, request: &Request<'_>, reply: Reply) {
        let mut sessions = self.sessions.write();
        if let Some(Session::Failed { at_ns, .. }) = sessions.all.get(&session)
            && now_ns().saturating_sub(*at_ns) >= PAUSE_NS
        {
            sessions.all.remove(&session);
        }
        let ending = sessions.ending;
        match sessions.all.entry(session) {
            Entry::Vacant(_) if ending => {
                reply.error(errno::UNREACHABLE);
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Session::Begins(vec![(request.keep(), reply)]));
                drop(sessions);
                self.begin(session);
            }
            Entry::Occupied(mut there) => match there.get_mut() {
                Session::Begins(waiting) => waiting.push((request.keep(), reply)),
                Session::Failed { errno, .. } => {
                    reply.error(*errno);
                }
                Session::Left => {
                    reply.error(errno::UNREACHABLE);
                }
                Session::Ready(tree, _) => {
                    let tree = Arc::clone(tree);
                    drop(sessions);
                    Translator::serve(&tree, request.clone(), reply);
                }
            },
        }
    }

    /// Begins a session on a thread of its own.
    fn begin(self: &Arc<Self>, session: u32) {
        let own = Arc::clone(self);
        let run = move || own.end_of_beginning(session, own.connect(session));
        let started = thread::Builder::new().name("elsewhere".into()).spawn(run);
        if let Err(error) = started {
            warn!(%error, "no thread can be started for a volume of another server");
            self.end_of_beginning(session, Err(errno::UNREACHABLE));
        }
    }

    /// Serves the requests that wait, or refuses them.
    fn end_of_beginning(&self, session: u32, begun: Result<(Arc<Tree>, String), Errno>) {
        let mut sessions = self.sessions.write();
        let (next, served, too_late) = match begun {
            Ok((tree, _)) if sessions.ending => {
                (Session::Left, Err(errno::UNREACHABLE), Some(tree))
            }
            Ok((tree, name)) => (Session::Ready(Arc::clone(&tree), name), Ok(tree), None),
            Err(errno) => {
                let at_ns = now_ns();
                (Session::Failed { errno, at_ns }, Err(errno), None)
            }
        };
        let before = sessions.all.insert(session, next);
        drop(sessions);
        if let Some(tree) = too_late {
            give_up(&tree.client);
        }
        let Some(Session::Begins(waiting)) = before else {
            return;
        };
        for (kept, reply) in waiting {
            match (&served, kept.request()) {
                (Ok(tree), Ok(request)) => Translator::serve(tree, request, reply),
                (Err(errno), _) => {
                    reply.error(*errno);
                }
                (Ok(_), Err(_)) => {
                    reply.error(errno::NONSENSE);
                }
            }
        }
    }

    /// Where a volume is; why it cannot be shown is logged.
    fn place(&self, volume: u32) -> Result<Place, Errno> {
        let servers = self.options.servers.as_ref();
        match servers.map_or(Ok(None), |servers| servers.of_volume(volume)) {
            Ok(Some(place)) => Ok(place),
            Ok(None) => {
                warn!(
                    volume,
                    "a mount point leads to a volume that no server of the cell has: `ariel volume \
                     undelete` brings it back, `ariel volume unmount` removes the mount point"
                );
                Err(errno::of(Refusal::Stale))
            }
            Err(reason) => {
                warn!(
                    volume,
                    reason, "the volume behind a mount point is not found"
                );
                Err(errno::UNREACHABLE)
            }
        }
    }

    /// A session with the server that has a volume, and the volume's name.
    fn connect(&self, volume: u32) -> Result<(Arc<Tree>, String), Errno> {
        // It is gone with the mount.
        let main = self.main.get().and_then(Weak::upgrade);
        let main = main.ok_or(errno::UNREACHABLE)?;
        let Place {
            server,
            volume: name,
        } = self.place(volume)?;
        let mut options = client_options(&self.options);
        options.machine.volume = name.clone().into();
        options.server = server.clone();
        options.finder = sought::finder(&self.options, &name);
        let notices = Arc::new(Notices::new(self.options.keeping));
        let front = Arc::clone(&notices) as Arc<dyn client::front::Front>;
        let began = Client::start(options, front);
        let ready = began.and_then(|client| {
            client.wait_ready(READY_TIME)?;
            Ok(Arc::new(client))
        });
        let client = match ready {
            Ok(client) if client.root() == Fid::root(volume) => client,
            Ok(client) => {
                warn!(name, %server, "another volume has taken the name meanwhile: try again");
                give_up(&client);
                return Err(errno::of(Refusal::Stale));
            }
            Err(error) => {
                warn!(name, %server, %error, "a volume of another server cannot be reached");
                return Err(errno::UNREACHABLE);
            }
        };
        let nodes = Nodes::of_other(&self.slots, volume);
        notices.connect(
            (main.notifier.clone(), nodes.clone()),
            &client,
            self.options.interruptible,
        );
        info!(name, %server, "a volume of another server is shown");
        if let Some(servers) = &self.options.servers {
            servers.has_session(&client.server(), client.session());
        }
        Ok((Arc::new(main.beside(client, nodes)), name))
    }

    /// Has everything written back, and leaves the servers; one that fails keeps no other one. May
    /// be called again after an error.
    pub(super) fn leave(&self, limit: Duration) -> Result<(), LeaveError> {
        self.sessions.write().ending = true;
        let mut ended = Ok(());
        for tree in self.trees() {
            match tree.client.leave(limit) {
                Ok(()) => {
                    tree.client.stop();
                    let volume = tree.client.root().volume;
                    self.sessions.write().all.insert(volume, Session::Left);
                }
                failed => ended = ended.and(failed),
            }
        }
        ended
    }

    /// The mount has ended, in order or not.
    pub(super) fn stop(&self) {
        let all = {
            let mut sessions = self.sessions.write();
            sessions.ending = true;
            std::mem::take(&mut sessions.all)
        };
        for session in all.into_values() {
            if let Session::Ready(tree, _) = session {
                tree.client.stop();
            }
        }
    }

    /// The volumes, for people.
    pub(super) fn volumes(&self) -> Vec<OtherVolume> {
        let sessions = self.sessions.read();
        let told = sessions.all.values().filter_map(|session| match session {
            Session::Ready(tree, name) => Some(OtherVolume {
                volume: name.clone(),
                server: tree.client.server().to_string(),
                away: tree.client.is_away(),
                owed: tree.client.owed(),
            }),
            _ => None,
        });
        told.collect()
    }
}

/// Ends a session in which nothing has been changed, so that nobody waits for its lease.
fn give_up(client: &Client) {
    if let Err(error) = client.leave(Duration::ZERO) {
        debug!(%error, "the server was not told of the end");
    }
    client.stop();
}

impl Tree {
    /// Answers the look-up of a mount point whose volume another session shows, or will show. The
    /// kernel keeps the name for no time, since another machine says what the directory is. It
    /// may hold a lock of the directory around it, which others wait for: so the answer waits for
    /// nobody. Attributes that are not known here are asked for by the kernel itself, which holds
    /// no lock then.
    pub(super) fn give_elsewhere(&self, header: &Header, volume: u32, reply: Reply) {
        let (root, slots) = (Fid::root(volume), self.elsewhere.slots());
        if slots.node(root) == ROOT_ID {
            reply.error(errno::LOOP);
            return;
        }
        let Some(session) = slots.admit(volume, volume) else {
            return refuse(reply, Refusal::NotSupported);
        };
        match self.elsewhere.any_tree(session) {
            Some(tree) => tree.give_root(header, (root, session), reply),
            // It is the root of a session that begins with the first request for it.
            None => drop(reply.entry(&root_entry(slots.node(root), None))),
        }
    }

    /// Answers with the root of a volume of this tree, for a look-up in another one. The kernel's
    /// reference is counted, unless it is the root of the session, which is never given up.
    fn give_root(&self, header: &Header, (root, session): (Fid, u32), reply: Reply) {
        let (nodeid, keeping) = (self.nodes.node(root), self.keeping);
        let counted = root != Fid::root(session);
        if counted {
            self.client.handed(root);
        }
        let client = Arc::clone(&self.client);
        let give = move |reply: Reply, entry: &EntryOut| {
            if reply.entry(entry) == Delivery::Unwanted && counted {
                client.forget(root, 1);
            }
        };
        if self.client.known_mode_and_links(root).is_none() {
            return give(reply, &root_entry(nodeid, None));
        }
        let waiting = Arc::new(Mutex::new(Some(reply)));
        let (unanswered, answer) = (Arc::clone(&waiting), give.clone());
        let done = move |completion: Completion| {
            let Some(reply) = unanswered.lock().take() else {
                return;
            };
            let known = match &completion.done {
                Done::Attr { attr, lifetime } => Some((attr, keeping.lifetime(*lifetime))),
                _ => None,
            };
            answer(reply, &root_entry(nodeid, known));
        };
        let call = Call::Op(Op::GetAttr { fid: root });
        let ticket = self
            .client
            .call(convert::asker(header), call, &[], Box::new(done));
        let unanswered = waiting.lock().take();
        if let Some(reply) = unanswered {
            // A recall came between.
            give(reply, &root_entry(nodeid, None));
            self.client.abandon(ticket);
        }
    }
}

/// The root of a volume under the name of a mount point; without attributes that count, where they
/// are not known.
fn root_entry(nodeid: u64, known: Option<(&Attr, Duration)>) -> EntryOut {
    const UNKNOWN_MODE: u16 = 0o755;
    let unknown = Attr::new(Kind::Directory, UNKNOWN_MODE, 0);
    let (attr, lifetime) = known.unwrap_or((&unknown, Duration::ZERO));
    let (attr, uniq) = (convert::attr(nodeid, attr), u64::from(Fid::root(0).uniq));
    EntryOut::new(nodeid, uniq, attr, Duration::ZERO, lifetime)
}
