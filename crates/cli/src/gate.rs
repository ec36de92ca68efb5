//! A cell's door as a server knows it.

use cell::CellDoor;
use net::{Door, Identity, KeyPrint, ServerTls, Worker};
use serde_json::{Value, json};
use server::{Administered, Deed, Machines};
use std::io;
use std::sync::Arc;
use wire::{MachineId, Name, Rights, VolumeOp};

/// A thread that waits for something in the cell, again and again. Dropping it ends that.
pub(crate) struct Watcher {
    gate: Arc<Gatekeeper>,
    end: fn(&CellDoor),
    worker: Worker,
}

impl Watcher {
    /// Sees to logins that expire.
    pub(crate) fn of_logins(gate: &Arc<Gatekeeper>) -> io::Result<Watcher> {
        Watcher::start(gate, CellDoor::lapse, CellDoor::stop_lapses)
    }

    /// Takes in what other servers of the cell change, and tells them at its end.
    pub(crate) fn of_servers(gate: &Arc<Gatekeeper>) -> io::Result<Watcher> {
        Watcher::start(gate, CellDoor::follow_next, CellDoor::stop_following)
    }

    /// `next` waits once; false: it is time to end.
    fn start(
        gate: &Arc<Gatekeeper>,
        next: fn(&CellDoor) -> bool,
        end: fn(&CellDoor),
    ) -> io::Result<Watcher> {
        let (gate, watched) = (Arc::clone(gate), Arc::clone(gate));
        let run = move || while next(&watched.0) {};
        let worker = Worker::start("cell", run)?;
        Ok(Watcher { gate, end, worker })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        (self.end)(&self.gate.0);
        self.worker.join();
    }
}

/// The door of a cell that was opened for a server.
pub(crate) struct Gatekeeper(pub(crate) CellDoor);

impl Door for Gatekeeper {
    fn tls(&self) -> ServerTls {
        self.0.tls()
    }

    fn admit(&self, key: KeyPrint) -> Result<Identity, String> {
        self.0.admit(key)
    }

    fn answer(&self, key: Option<KeyPrint>, question: &[u8]) -> Vec<u8> {
        self.0.answer(key, question)
    }
}

impl Machines for Gatekeeper {
    fn rights(&self, machine: MachineId) -> Rights {
        self.0.rights(machine)
    }

    fn members(&self) -> access::Members {
        self.0.cell().group_members()
    }

    fn administered(&self, done: &Administered) {
        let what = match &done.deed {
            // A part of what `receive` with `rollback` says.
            Deed::Volume(VolumeOp::Undo { .. }) => return,
            Deed::Volume(op) => said(op),
            Deed::List { volume, path, list } => said_of_list(*volume, path, list.as_deref()),
        };
        let refused = done.refused.map(|refusal| format!("{refusal:?}"));
        self.0.note(done.machine, (done.uid, &what), refused);
    }

    fn refused(&self, machine: MachineId, why: &str) {
        self.0.note_refused(machine, why);
    }
}

/// A change of an access list, for the audit log: users and groups by their numbers.
fn said_of_list(volume: u32, path: &[Name], list: Option<&[u8]>) -> Value {
    let names: Vec<_> = path.iter().map(text).collect();
    let entry = |entry: &access::Entry| {
        json!({
            "who": match entry.who {
                access::Who::Anyone => "anyone".to_owned(),
                access::Who::User(uid) => format!("user {uid}"),
                access::Who::Group(gid) => format!("group {gid}"),
            },
            "rights": entry.rights.letters(),
            "negative": entry.negative,
        })
    };
    let list = list.and_then(access::List::decode);
    let entries = list.map(|list| list.entries().map(entry).collect::<Vec<_>>());
    let dir = format!("/{}", names.join("/"));
    json!({ "list-of": dir, "in-volume": volume, "entries": entries })
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

/// An operation on volumes, for the audit log.
fn said(op: &VolumeOp) -> Value {
    let one = |deed: &str, of: &Name| json!({ "volume": deed, "of": text(of) });
    let two = |deed: &str, of: &Name, name: &Name| {
        let (of, name) = (text(of), text(name));
        json!({ "volume": deed, "of": of, "name": name })
    };
    let numbered = |deed: &str, volume: &u32| json!({ "volume": deed, "number": volume });
    match op {
        VolumeOp::Create { name, .. } => one("create", name),
        VolumeOp::Snapshot { of, name } => two("snapshot", of, name),
        VolumeOp::Clone { of, name } => two("clone", of, name),
        VolumeOp::Rename { of, name } => two("rename", of, name),
        VolumeOp::Delete { of } => one("delete", of),
        VolumeOp::Undelete { of } => one("undelete", of),
        VolumeOp::Purge { volume } => numbered("purge", volume),
        VolumeOp::Schedule { of, .. } => one("schedule", of),
        VolumeOp::Limit { of, limits } => {
            let (bytes, objects) = (limits.bytes, limits.objects);
            json!({ "volume": "limit", "of": text(of), "bytes": bytes, "objects": objects })
        }
        VolumeOp::Receive { name, rollback, .. } => {
            json!({ "volume": "receive", "of": text(name), "rollback": rollback })
        }
        VolumeOp::Undo { volume, .. } => numbered("undo", volume),
        VolumeOp::Publish { volume } => numbered("publish", volume),
        VolumeOp::Discard { volume } => numbered("discard", volume),
        VolumeOp::ReceiveRelease { name, release, .. } => {
            json!({ "volume": "receive-release", "of": text(name), "release": release })
        }
        VolumeOp::DropReleases { volume, .. } => numbered("drop-releases", volume),
    }
}
