//! Which server of a cell has a store: one record for each further store, in the cell's database.
//!
//! Guarantees: at any time at most one server serves a store, whichever of them crash, and however
//! late a change of the record comes. A record is changed by compare-and-swap alone, and each
//! change has a turn of its own, so that a change which was decided by an older record is not made.
//! A server serves a store while its record names it and is not leaving; only that server itself
//! can begin to leave. The other one takes over only with the turn in which the store was closed,
//! so it never has less than everything. `tests/it/placement.rs` tries all orders, with
//! crashes.

use alloc::borrow::ToOwned;
use alloc::string::String;

/// The place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The server that has it.
    pub server: String,
    /// Raised with each change.
    pub turn: u64,
    /// The server that is about to take it over: nobody serves it then.
    pub leaving_to: Option<String>,
}

/// The part of a server in the placement of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It serves the store.
    Serves,
    /// It had it, and another server is about to take it over in this turn; or it takes it back.
    Leaves(u64),
    /// Its copy is whole, and it is about to take over from another server.
    Takes(u64),
    /// Another server has it: a copy here is of no use.
    Nothing,
}

impl Placement {
    /// A store was made on this server.
    #[must_use]
    pub fn made(server: &str) -> Placement {
        Placement {
            server: server.to_owned(),
            turn: 1,
            leaving_to: None,
        }
    }

    fn next(&self, server: &str, leaving_to: Option<&str>) -> Placement {
        Placement {
            server: server.to_owned(),
            turn: self.turn + 1,
            leaving_to: leaving_to.map(str::to_owned),
        }
    }

    /// Its server is about to give it to another one; `None`: it is not there, or leaves already.
    #[must_use]
    pub fn leave(&self, own: &str, to: &str) -> Option<Placement> {
        let may = self.server == own && self.leaving_to.is_none() && to != own;
        may.then(|| self.next(own, Some(to)))
    }

    /// Its server takes it back; `None`: it is another's, or does not leave.
    #[must_use]
    pub fn stay(&self, own: &str) -> Option<Placement> {
        let may = self.server == own && self.leaving_to.is_some();
        may.then(|| self.next(own, None))
    }

    /// The other server takes it over, which has everything that it was when it was closed in this
    /// turn; `None`: it was taken back meanwhile, or is for another one.
    #[must_use]
    pub fn arrive(&self, own: &str, closed_in: u64) -> Option<Placement> {
        let may = self.turn == closed_in && self.leaving_to.as_deref() == Some(own);
        may.then(|| self.next(own, None))
    }

    /// Its volumes are purged: no copy that a server still has counts any more.
    #[must_use]
    pub fn removed(&self) -> Placement {
        self.next("", None)
    }

    /// Was it removed?
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.server.is_empty()
    }

    /// The part of a server. `whole_of`: its copy is whole, and was closed elsewhere in this turn.
    #[must_use]
    pub fn part(&self, own: &str, whole_of: Option<u64>) -> Part {
        match (&self.leaving_to, whole_of) {
            (None, _) if self.server == own => Part::Serves,
            (Some(_), _) if self.server == own => Part::Leaves(self.turn),
            (Some(to), Some(turn)) if to == own && turn == self.turn => Part::Takes(turn),
            _ => Part::Nothing,
        }
    }
}
