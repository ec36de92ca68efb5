//! The server's machine with its store.

use super::disk::TinyDisk;
use super::link::{Load, Packet};
use super::memo::{Machine, Wrong, mark};
use logic::server::{Conn, Event as Word, Input, Output, Server};
use std::rc::Rc;
use wire::Time;

/// Added to the number of a client's connection for the next one.
pub const NEXT_CONN: Conn = 100;

/// The server.
#[derive(Clone, Debug)]
pub struct Hub {
    pub server: Server,
    pub disk: TinyDisk,
}

/// Something that happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Arrives(Conn, Rc<Packet>),
    Gone(Conn),
    Tick,
}

impl Hub {
    fn input(&mut self, event: &Event) -> Result<Input, Wrong> {
        let (from, packet) = match event {
            Event::Gone(conn) => return Ok(Input::Gone { conn: *conn }),
            Event::Tick => return Ok(Input::Tick),
            Event::Arrives(from, packet) => (*from, packet),
        };
        let Load::Up(message) = packet.load.clone() else {
            return Err("an answer comes to the server".into());
        };
        let bulk_len = packet.bytes.len() as u32;
        let bulk = self.disk.hold(packet.bytes.clone());
        Ok(Input::Message {
            from,
            message,
            bulk,
            bulk_len,
        })
    }
}

impl Machine for Hub {
    type Event = Event;
    /// A message for a connection.
    type Effect = (Conn, Rc<Packet>);

    fn take(&mut self, now: Time, event: &Event) -> Result<Vec<Self::Effect>, Wrong> {
        let input = self.input(event)?;
        let (mut outputs, mut sent) = (Vec::new(), Vec::new());
        self.server.handle(now, input, &mut self.disk, &mut outputs);
        for output in outputs {
            match output {
                Output::Send {
                    to, message, bulk, ..
                } => {
                    let bytes = self.disk.bulks.remove(&bulk).unwrap_or_default();
                    let client = ((to - 1) % NEXT_CONN) as usize;
                    let packet = Packet::new(client, Load::Down(message), bytes);
                    sent.push((to, Rc::new(packet)));
                }
                Output::Discard { bulk } => {
                    self.disk.bulks.remove(&bulk);
                }
                Output::Sync { .. } => return Err("nobody asked for a sync".into()),
                Output::Close { conn, violation } => {
                    return Err(format!("the server ends connection {conn}: {violation:?}"));
                }
                Output::Event(event @ (Word::Fenced { .. } | Word::Away { .. })) => {
                    return Err(format!("server: {event:?}"));
                }
                Output::Event(_) => {}
            }
        }
        Ok(sent)
    }

    /// The rights that it has given.
    fn sight(&self) -> u64 {
        let lines = self.server.tokens();
        let rights = lines
            .iter()
            .map(|line| (line.session, line.fid, line.right));
        mark(&rights.collect::<Vec<_>>())
    }
}
