//! The sessions that are open, as a restarted server knows them. The note of a session is one
//! number: the machine that began it, and whether its client is away. The number stands where
//! programs before wrote the time at which the session began, or its largest value for a client
//! that is away; so an older partition is read.
//!
//! Guarantees: a note of an earlier program names no machine.

use crate::record::Entry;
use crate::store::Store;
use wire::{MachineId, SessionId, Time};

/// Times do not reach this bit before the year 2262.
const NAMES_MACHINE: u64 = 1 << 63;
const AWAY: u64 = 1 << 62;
const OLD_AWAY: u64 = Time::MAX;

/// The note of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) u64);

impl Mark {
    /// Of a machine with too large a number, which no cell gives, nothing is noted.
    pub(crate) fn new(machine: MachineId, away: bool) -> Mark {
        let machine = if machine < AWAY - 1 { machine } else { 0 };
        Mark(NAMES_MACHINE | if away { AWAY } else { 0 } | machine)
    }

    /// 0: it is not known, or a process that proved nothing began it.
    pub(crate) fn machine(self) -> MachineId {
        match self.0 & NAMES_MACHINE {
            0 => 0,
            _ if self.0 == OLD_AWAY => 0,
            _ => self.0 & (AWAY - 1),
        }
    }

    pub(crate) fn is_away(self) -> bool {
        self.0 & (NAMES_MACHINE | AWAY) == NAMES_MACHINE | AWAY
    }
}

impl Store {
    /// Notes that a machine has begun a session: a restarted server knows it. 0: a process that
    /// proved nothing has.
    pub fn open_session(&mut self, session: SessionId, machine: MachineId) {
        self.mark_session(session, Mark::new(machine, false));
    }

    fn mark_session(&mut self, session: SessionId, mark: Mark) {
        let Mark(noted) = mark;
        self.note(&Entry::OpenSession {
            session,
            mark: noted,
        });
        let core = &mut self.core;
        core.answers.open(session, mark, &mut core.index);
    }

    /// Notes that a session ended; its answers are forgotten.
    pub fn close_session(&mut self, session: SessionId) {
        self.note(&Entry::CloseSession { session });
        let core = &mut self.core;
        core.answers.close(session, &mut core.index);
    }

    /// The sessions that are open, ascending.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.core.answers.sessions().keys().copied().collect()
    }

    /// The machines that have begun the open sessions, as far as that is noted.
    pub fn machines(&self) -> Vec<(SessionId, MachineId)> {
        let all = self.core.answers.sessions().iter();
        let machines = all.map(|(session, mark)| (*session, mark.machine()));
        machines.filter(|(_, machine)| *machine != 0).collect()
    }

    /// Notes that the client of a session is away, or has come back: a restarted server knows it.
    pub fn note_away(&mut self, session: SessionId, away: bool) {
        let known = self.core.answers.sessions().get(&session);
        let machine = known.map_or(0, |mark| mark.machine());
        self.mark_session(session, Mark::new(machine, away));
    }

    /// The open sessions whose clients are away.
    pub fn away(&self) -> Vec<SessionId> {
        let all = self.core.answers.sessions().iter();
        let away = all.filter(|(_, mark)| mark.is_away());
        away.map(|(session, _)| *session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_what_was_noted_and_those_of_earlier_programs_no_machine() {
        for machine in [0, 1, 77, AWAY - 2] {
            for away in [false, true] {
                let mark = Mark::new(machine, away);
                assert_eq!((mark.machine(), mark.is_away()), (machine, away));
            }
        }
        for too_large in [AWAY - 1, AWAY, u64::MAX] {
            assert_eq!(Mark::new(too_large, false).machine(), 0);
        }
        let of_2026 = Mark(1_800_000_000_000_000_000);
        assert_eq!((of_2026.machine(), of_2026.is_away()), (0, false));
        assert_eq!(
            (Mark(OLD_AWAY).machine(), Mark(OLD_AWAY).is_away()),
            (0, true)
        );
        assert_eq!((Mark(0).machine(), Mark(0).is_away()), (0, false));
    }
}
