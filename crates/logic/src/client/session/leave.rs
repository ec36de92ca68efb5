//! The end of a session in order: everything is written back and told, the server has made stable
//! what it had answered, and is told goodbye.

use super::LinkState;
use crate::Ticket;
use crate::client::{Client, Done, Step};
use alloc::vec::Vec;
use wire::{Fid, ToServer};

impl Client {
    pub(crate) fn leave_if_clean(&mut self, step: &mut Step<'_>) {
        let told = self.delegation.unanswered == 0;
        let clean = self.cache.dirty() == 0 && self.writeback.cleaners == 0 && told;
        if let Some(ticket) = self.session.leaving.filter(|_| clean)
            && self.is_settled(step)
        {
            self.session.leaving = None;
            self.say(step, ToServer::Goodbye);
            self.session.state = LinkState::Left;
            self.finish(step, ticket, Done::Nothing);
        }
    }

    /// Writes everything back and says goodbye.
    pub(crate) fn leave(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        self.session.leaving = Some(ticket);
        self.ship(step);
        let dirty: Vec<Fid> = self.cache.dirty_files().into_keys().collect();
        for fid in dirty {
            self.flush(step, fid);
        }
        self.leave_if_clean(step);
    }
}
