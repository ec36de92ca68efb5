//! Machines whose root is nobody at the server.

use super::World;
use logic::server;
use wire::Rights;

impl World {
    /// A machine begins anew, with the rights of one that has joined and no others.
    pub fn limit(&mut self, name: char, rights: Rights) {
        self.limited.insert(name, rights);
        self.cut(name);
        let session = self.number();
        self.start(name, session);
        self.connect(name);
    }

    /// A machine has other rights from now on, and is to connect anew.
    pub fn regrant(&mut self, name: char, rights: Rights) {
        self.limited.insert(name, rights);
        self.cut(name);
    }

    /// The same, where the server is told, and says when it is in force.
    pub fn regrant_at_once(&mut self, name: char, rights: Rights) {
        self.limited.insert(name, rights.clone());
        let (ticket, machine) = (1, name.into());
        self.server(server::Input::Regrant {
            ticket,
            machine,
            rights,
        });
    }

    /// The server learns whose connection it is.
    pub(super) fn come(&mut self, name: char, conn: server::Conn) {
        if let Some(rights) = self.limited.get(&name).cloned() {
            let machine = name.into();
            self.server(server::Input::Came {
                conn,
                machine,
                rights,
            });
        }
    }
}
