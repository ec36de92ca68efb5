//! Machines whose root is nobody at the server.

use super::World;
use logic::server;
use wire::Rights;

impl World {
    /// A machine begins anew, with the rights of one that has joined and no others.
    pub fn squash(&mut self, name: char) {
        self.squashed.insert(name);
        self.cut(name);
        let session = self.number();
        self.start(name, session);
        self.connect(name);
    }

    /// The server learns whose connection it is.
    pub(super) fn come(&mut self, name: char, conn: server::Conn) {
        if self.squashed.contains(&name) {
            self.server(server::Input::Came {
                conn,
                machine: name.into(),
                rights: Rights::default(),
            });
        }
    }
}
