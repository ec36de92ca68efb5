//! Capabilities of programs end with a write, and set anew they stay.
//!
//! A writer to a program takes its capabilities (`security.capability`), as on a local disk at the
//! write itself: the writer's bytes must never run with them. So under Exclusive, before the first
//! write is answered, the server takes them; bytes that are written back later take none, as others
//! may have been set since. Of a file without extended attributes that is known to have none, which
//! is most files, nobody is asked. (Bytes from the kernel's pages take none either: stores to a
//! mapping do not on a local disk, and for others the kernel has asked before.)

use crate::Ticket;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::{Caller, Fid, Hold, Op, Outcome, Refusal, Reply, RequestId};

const CAPABILITY: &[u8] = b"security.capability";

/// The client's knowledge of a file's capabilities.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Privileges {
    /// It has none, as long as the token is held.
    none: bool,
    /// The server is being asked to take them.
    ending: bool,
    /// How often it may have got some.
    sets: u32,
}

impl Privileges {
    /// It may have some.
    pub(crate) fn may_be_set(&mut self) {
        (self.none, self.sets) = (false, self.sets + 1);
    }
}

impl Client {
    /// Must a write wait until the server has taken the capabilities from the file?
    pub(crate) fn must_end_privileges(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        fid: Fid,
    ) -> bool {
        let node = self.node(fid);
        if node.bare || node.privileges.none {
            return false;
        }
        node.parked.push(ticket);
        if core::mem::replace(&mut node.privileges.ending, true) {
            return true;
        }
        let why = Why::Privileges {
            fid,
            sets: node.privileges.sets,
        };
        let name = CAPABILITY.to_vec();
        let op = Op::RemoveXattr { fid, name };
        let asked = (op, Caller::default(), Hold::default());
        self.request(step, asked, Vec::new(), why);
        true
    }

    /// The server has taken them, or there were none: the writes go on.
    pub(crate) fn privileges_end(
        &mut self,
        step: &mut Step<'_>,
        (fid, sets): (Fid, u32),
        (id, reply): (RequestId, Reply),
    ) {
        let Reply {
            outcome, grants, ..
        } = reply;
        let mut vouched = false;
        for grant in grants.iter().filter(|grant| grant.fid == fid) {
            vouched = self.vouches(*grant, id);
        }
        let node = self.node(fid);
        node.privileges.ending = false;
        let known = node.privileges.sets == sets;
        match outcome {
            Outcome::Attr(attr) => {
                node.privileges.none = known;
                self.changed(fid, attr, vouched);
            }
            Outcome::Refused(Refusal::NoAttribute) => node.privileges.none = known,
            Outcome::Refused(refusal) => self.fail_reads(step, fid, refusal),
            _ => self.fail_reads(step, fid, Refusal::Invalid),
        }
        self.unpark(step, fid);
    }
}
