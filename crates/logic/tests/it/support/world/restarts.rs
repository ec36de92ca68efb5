//! Ends of the server, and what is there then: its next run, with what that knows, or another one.

use super::{World, options};
use logic::server::{Disk, Server};
use wire::{Fid, Place, Right};

impl World {
    /// The server dies and starts again on its store.
    pub fn restart(&mut self) {
        self.cut_all();
        let (boot, record) = (self.boot, Disk::logged(&self.disk));
        self.left.push(Place { boot, record });
        self.boot += 100;
        let held = self.disk.held.iter();
        let held = held.map(|(&(session, fid), &right)| (session, fid, right));
        self.server = self.next_server(Some(held.collect()));
        self.syncs.clear();
        self.say(format!("S starts again @{}", self.boot));
    }

    /// The server's next run, which may know what its clients held.
    fn next_server(&self, held: Option<Vec<(u64, Fid, Right)>>) -> Server {
        let known = self.disk.sessions.iter().copied().collect();
        let away: Vec<u64> = self.disk.away.iter().copied().collect();
        let (options, root) = (options(self.silent_ns, self.rereads), Fid::root(1));
        let server = Server::new(options, self.now, (self.boot, root), (known, 0)).knowing(held);
        server.after(self.left.clone()).without(&away)
    }

    /// The server's machine loses its power and starts again: all that was not stable is lost, and
    /// so is its last run's knowledge of what clients hold.
    pub fn power(&mut self) {
        self.cut_all();
        let (boot, record) = (self.boot, self.disk.lose_power());
        self.left.push(Place { boot, record });
        self.boot += 100;
        self.server = self.next_server(None);
        self.syncs.clear();
        self.say(format!(
            "S loses its power, and starts again @{}",
            self.boot
        ));
    }

    /// The server is lost, and its clients come to another one: it has the same files, knows none
    /// of them, and counts its epochs from where the first one began.
    pub fn elsewhere(&mut self) {
        self.cut_all();
        for session in core::mem::take(&mut self.disk.sessions) {
            Disk::close_session(&mut self.disk, session);
            self.over.insert(session);
        }
        self.disk.away.clear();
        self.server = self.next_server(Some(Vec::new()));
        self.syncs.clear();
        self.say(format!(
            "S is lost, and another one is there @{}",
            self.boot
        ));
    }

    fn cut_all(&mut self) {
        for name in self.machines.keys().copied().collect::<Vec<_>>() {
            let plugged = self.machines[&name].plugged;
            self.cut_from(name, plugged);
        }
    }
}
