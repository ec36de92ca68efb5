//! Effects of the outputs of a client's machine in the scenarios' world.

use super::super::show;
use super::{Load, Packet, SERVER, World};
use logic::{Ticket, client, server};
use wire::ToServer;

impl World {
    pub(super) fn client_output(&mut self, name: char, output: client::Output, bulk: &[u8]) {
        use client::Output;
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        match output {
            Output::Send {
                message,
                bulk: pieces,
            } => {
                let bytes = machine.gather(&pieces, bulk);
                self.client_sends(name, *message, bytes);
            }
            Output::Keep { request, bulk: of } => machine.keep(request, &of, bulk),
            Output::Forget { request } => machine.forget(request),
            Output::Done { ticket, done } => self.on_done(name, (ticket, &done), bulk),
            Output::Abandoned { ticket, done } => self.on_abandoned(name, (ticket, &done), bulk),
            Output::Spent { ticket } => {
                machine.writes.remove(&ticket);
                self.say(format!("{name} needs the bytes no more"));
            }
            // Said once a call was told of; else whenever one waits for long, which is no news.
            Output::Look { callers } => {
                if callers.iter().any(|caller| caller.signalled) {
                    self.say(format!("{name} is to look at {} callers", callers.len()));
                }
            }
            Output::Fill { slot, from, len } => {
                let from = (from as usize).min(bulk.len());
                machine.fill(slot, &bulk[from..from + len as usize]);
            }
            Output::CopyIn {
                ticket,
                from,
                slot,
                at,
                len,
                but_zeros,
            } => machine.copy_in((ticket, from), (slot, at, len), but_zeros),
            Output::Zero { slot, at, len } => machine.zero(slot, at, len),
            Output::Outdated { fid } => {
                let text = show::name(&self.disk, fid);
                self.say(format!("{name}'s kernel throws attributes of {text} away"));
            }
            Output::Invalidate { id, what } => {
                let text = show::invalidate(&self.disk, &what);
                machine.dropping.push_back((id, text.clone()));
                if machine.slow {
                    self.say(format!("{name}'s kernel is to drop {text}"));
                }
            }
            Output::Peer(output) => self.for_peer(name, output, bulk),
            Output::Hangup | Output::Redial => self.client_hangs_up(name),
            Output::Watched {
                watch,
                missed,
                changes,
                end,
            } => {
                let told = show::changes(&self.disk, missed, &changes, end);
                self.say(format!("{name} is told by watch {watch}: {told}"));
            }
            Output::Event(event) => self.say(format!("{name}: {event:?}")),
        }
    }

    /// The bytes of the call are kept.
    fn on_abandoned(&mut self, name: char, (ticket, done): (Ticket, &client::Done), bulk: &[u8]) {
        let machine = self.machines.get(&name).expect("a machine of this name");
        let bytes = machine.writes.get(&ticket).cloned();
        self.on_done(name, (ticket, done), bulk);
        let machine = self.machines.get_mut(&name).expect("it was there before");
        machine.writes.extend(bytes.map(|bytes| (ticket, bytes)));
    }

    fn client_sends(&mut self, name: char, message: ToServer, bytes: Vec<u8>) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        if message == ToServer::Goodbye {
            machine.plugged = false;
        }
        if let Some(conn) = machine.conn {
            let load = Load::ToServer(message, bytes);
            self.send(Packet {
                from: name,
                to: SERVER,
                conn,
                load,
            });
        }
    }

    fn client_hangs_up(&mut self, name: char) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this name");
        if let Some(conn) = machine.conn.take() {
            self.say(format!("{name} hangs up"));
            self.server(server::Input::Gone { conn });
            self.client(name, client::Input::Gone, &[]);
            self.connect(name);
        }
    }
}
