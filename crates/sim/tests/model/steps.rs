//! The steps of one client's machine, with the kernel and the program around it.

use super::disk::{FILE, ROOT};
use super::host::{BYTES, Host};
use super::judge::{Do, Seen};
use super::link::{Load, Packet};
use super::memo::{Machine, Wrong, mark};
use logic::Ticket;
use logic::client::{Done, Input, Invalidate, Output, Waits};
use std::rc::Rc;
use wire::{Caller, Fid, Refusal, Right, Time};

/// Something that happens to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Connected,
    /// The connection is gone, and there is another one.
    Reconnected,
    /// The program begins its next call; or one that is none of the exploration's.
    Calls(Do),
    Looks(Do),
    /// It begins a call once more that was put back.
    Again,
    Arrives(Rc<Packet>),
    /// The kernel has dropped what that order says.
    Dropped(usize),
    Tick,
}

/// Something that leaves a client.
#[derive(Clone, Debug)]
pub enum Effect {
    Sent(Rc<Packet>),
    /// The program sees this, and its call ends.
    Saw(Seen),
}

/// A step under way.
struct Step<'a> {
    host: &'a mut Host,
    now: Time,
    effects: Vec<Effect>,
}

impl Machine for Host {
    type Event = Event;
    type Effect = Effect;

    fn take(&mut self, now: Time, event: &Event) -> Result<Vec<Effect>, Wrong> {
        let mut step = Step {
            host: self,
            now,
            effects: Vec::new(),
        };
        step.run(event)?;
        let effects = step.effects;
        self.covered()?;
        Ok(effects)
    }

    /// Its rights, and what is changed under them.
    fn sight(&self) -> u64 {
        let lines = self.client.tokens();
        let rights = lines
            .iter()
            .map(|line| (line.fid, line.right, line.dirty > 0));
        mark(&(self.at, rights.collect::<Vec<_>>()))
    }
}

impl Host {
    /// Kernels keep only what a right covers.
    fn covered(&self) -> Result<(), Wrong> {
        let own = self.client.tokens();
        let right = |fid: Fid| {
            let line = own.iter().find(|line| line.fid == fid);
            line.map_or(Right::None, |line| line.right)
        };
        let kernel = &self.kernel;
        let uncovered = (kernel.page.is_some() && right(FILE) < Right::Transient)
            || (kernel.size.is_some() && right(FILE) < Right::Shared)
            || (kernel.name.is_some() && right(ROOT) < Right::Shared);
        if uncovered {
            let at = self.at;
            return Err(format!("client {at} has no right to what {kernel:?} keeps"));
        }
        Ok(())
    }
}

impl Step<'_> {
    fn run(&mut self, event: &Event) -> Result<(), Wrong> {
        match event {
            Event::Connected => self.client(
                Input::Connected {
                    version: wire::VERSION,
                },
                &[],
            ),
            Event::Reconnected => {
                self.client(Input::Gone, &[])?;
                self.client(
                    Input::Connected {
                        version: wire::VERSION,
                    },
                    &[],
                )
            }
            Event::Calls(call) => {
                self.host.begun += 1;
                self.begin(*call)
            }
            Event::Looks(call) => self.begin(*call),
            Event::Again => self.begin_again(),
            Event::Arrives(packet) => self.arrive(packet),
            Event::Dropped(nth) => self.dropped(*nth),
            Event::Tick => self.client(Input::Tick, &[]),
        }
    }

    fn client(&mut self, input: Input, bulk: &[u8]) -> Result<(), Wrong> {
        let mut outputs = Vec::new();
        self.host.client.handle(self.now, input, &mut outputs);
        // This kernel takes its answers in at once, so that its locks are free.
        let mut turns = Vec::new();
        for output in outputs {
            match output {
                Output::Invalidate {
                    id,
                    what: Invalidate::Turn { .. },
                } => turns.push(id),
                output => self.output(output, bulk)?,
            }
        }
        for id in turns {
            self.client(Input::Invalidated { id }, &[])?;
        }
        Ok(())
    }

    fn output(&mut self, output: Output, bulk: &[u8]) -> Result<(), Wrong> {
        let host = &mut *self.host;
        let at = host.at;
        match output {
            Output::Send {
                message,
                bulk: pieces,
            } => {
                let bytes = host.gather(&pieces, bulk);
                let packet = Packet::new(at, Load::Up(*message), bytes);
                self.effects.push(Effect::Sent(Rc::new(packet)));
            }
            Output::Done { ticket, done } => return self.done(ticket, &done, bulk),
            Output::Keep { request, bulk: of } => {
                let bytes = host.gather(&of, bulk);
                host.kept.insert(request, bytes);
            }
            Output::Forget { request } => {
                if host.kept.remove(&request).is_none() {
                    return Err(format!("client {at} keeps nothing for #{request}"));
                }
            }
            // Nobody is killed here.
            Output::Abandoned { .. } | Output::Spent { .. } | Output::Look { .. } => {}
            Output::Fill { slot, from, len } => {
                let to = (from + len) as usize;
                host.put(slot, 0, &bulk[from as usize..to]);
            }
            Output::CopyIn { slot, at: to, .. } => {
                let byte = host.written();
                host.put(slot, to as usize, &[byte]);
            }
            Output::Zero { slot, at: from, .. } => {
                let bytes = host.slots.entry(slot).or_default();
                bytes[(from as usize).min(BYTES)..].fill(0);
            }
            Output::Invalidate { id, what } => host.kernel.orders.push((id, what)),
            // This kernel takes its answers in at once, and keeps no attributes.
            Output::Outdated { .. } => {}
            Output::Watched { .. } => return Err(format!("client {at} watches nothing")),
            Output::Peer(_) => return Err(format!("client {at} lends")),
            Output::Hangup | Output::Redial => return Err(format!("client {at} hangs up")),
            Output::Event(event) => return Err(format!("client {at}: {event:?}")),
        }
        Ok(())
    }

    fn arrive(&mut self, packet: &Packet) -> Result<(), Wrong> {
        let Load::Down(message) = packet.load.clone() else {
            return Err("a request comes to a client".into());
        };
        let message = Box::new(message);
        let bulk_len = packet.bytes.len() as u32;
        self.client(Input::Message { message, bulk_len }, &packet.bytes)
    }

    fn dropped(&mut self, nth: usize) -> Result<(), Wrong> {
        let kernel = &mut self.host.kernel;
        let (id, what) = kernel.orders.remove(nth);
        match what {
            Invalidate::Inode { fid, ranges, .. } if fid == FILE => {
                kernel.size = None;
                if ranges.iter().any(|(from, to)| *from == 0 && *to > 0) {
                    kernel.page = None;
                }
            }
            Invalidate::Name { .. } | Invalidate::Names { .. } | Invalidate::Expire { .. } => {
                kernel.name = None;
            }
            Invalidate::Sizes { fid } if fid == FILE => kernel.size = None,
            Invalidate::Inode { .. }
            | Invalidate::Sizes { .. }
            | Invalidate::Listing { .. }
            | Invalidate::Unused { .. }
            | Invalidate::Turn { .. } => {}
        }
        self.client(Input::Invalidated { id }, &[])
    }

    fn begin(&mut self, call: Do) -> Result<(), Wrong> {
        self.host.repeated = false;
        self.ask(call)
    }

    /// The kernel asks, whatever it knows of the name, and is the same thread.
    fn begin_again(&mut self) -> Result<(), Wrong> {
        let host = &mut *self.host;
        let Some(call) = host.again.take() else {
            return Ok(());
        };
        host.kernel.name = None;
        host.repeated = true;
        self.ask(call)
    }

    fn ask(&mut self, call: Do) -> Result<(), Wrong> {
        let host = &mut *self.host;
        host.last_ticket += 1;
        let ticket = host.last_ticket;
        host.under_way = Some((ticket, call));
        match host.ask(call) {
            Ok(seen) => self.end(seen),
            Err(call) => {
                let input = Input::Call {
                    ticket,
                    caller: Caller::default(),
                    thread: 1,
                    waits: Waits::default(),
                    call,
                };
                return self.client(input, &[]);
            }
        }
        Ok(())
    }

    fn end(&mut self, seen: Seen) {
        self.host.under_way = None;
        self.effects.push(Effect::Saw(seen));
    }

    fn done(&mut self, ticket: Ticket, done: &Done, bulk: &[u8]) -> Result<(), Wrong> {
        let host = &mut *self.host;
        let at = host.at;
        let Some((_, call)) = host.under_way.filter(|(current, _)| *current == ticket) else {
            return Err(format!(
                "client {at}: an answer to no call, {ticket}: {done:?}"
            ));
        };
        if *done == Done::Refused(Refusal::Again) && !host.repeated {
            host.under_way = None;
            host.again = Some(call);
            return Ok(());
        }
        let seen = host.learn(call, done, bulk);
        let seen = seen.ok_or_else(|| format!("client {at}: {call:?} is answered {done:?}"))?;
        self.end(seen);
        Ok(())
    }
}
