//! The door of one of several servers: it answers by the changes that the others have made, too.
//!
//! Guarantees: an answer that a change is made says that every server that runs judges by it; one
//! that cannot say so names the servers. A machine that joins, and a user who logs in, is known to
//! every server that follows within some seconds when that is answered. A server follows the others
//! in the order of their changes.

use crate::door::{CellDoor, Change};
use crate::groups::GroupDeed;
use crate::machine::Machine;
use crate::members::CellError;
use crate::question::{Answer, Question};
use crate::revision::ServerLine;
use access::Members;
use net::Addresses;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{MachineId, Rights};

/// How long it is waited for a change before it is looked whether the server ends.
const WAIT_TIME: Duration = Duration::from_secs(2);
/// How long after a failure to follow the others it is tried again.
const AWAY_TIME: Duration = Duration::from_secs(1);
/// How long an answer waits for the other servers.
const FOLLOW_TIME: Duration = Duration::from_secs(5);
/// So often is a question answered again because other servers change the cell, too.
const TRIES: usize = 16;

impl CellDoor {
    /// Answers a question by all changes that were made before it. Where it changes the rights of
    /// somebody, every server knows that when it is answered.
    pub(crate) fn settle(
        &self,
        asker: Option<&Machine>,
        question: &Question,
    ) -> Result<Answer, CellError> {
        let mut answer = self.answer_to(asker, question.clone());
        for _ in 0..TRIES {
            if !matches!(answer, Err(CellError::Outdated)) {
                break;
            }
            self.follow()?;
            answer = self.answer_to(asker, question.clone());
        }
        let answer = answer?;
        let Some(server) = &self.server else {
            return Ok(answer);
        };
        let concern = concern(question);
        if concern == Concern::None {
            return Ok(answer);
        }
        let own = server.lock().name.clone();
        // Nothing that others have changed meanwhile is left out of what they are waited for.
        let followed = self.follow();
        let behind = followed.and_then(|()| self.cell.wait_followed(&own, FOLLOW_TIME));
        match (concern, behind) {
            (Concern::Takes, Err(error)) => Err(error),
            (Concern::Takes, Ok(behind)) if !behind.is_empty() => Err(CellError::Refused(format!(
                "it is done, and in force at {own}, but not yet known to be at {}: `ariel cell \
                 servers` shows when it is; a server that will never come back is forgotten with \
                 `ariel cell remove-server`",
                behind.join(", ")
            ))),
            _ => Ok(answer),
        }
    }

    pub(crate) fn forget_server(&self, name: &str) -> Result<Answer, CellError> {
        let own = self
            .server
            .as_ref()
            .map(|server| server.lock().name.clone());
        if own.as_deref() == Some(name) {
            return Err(CellError::Refused(format!(
                "{name} is the server that answers: ask another one of the cell"
            )));
        }
        self.cell.forget_replicas_of(name)?;
        match self.cell.forget_server(name)? {
            true => Ok(Answer::Ok),
            false => Err(CellError::Refused(format!(
                "the cell has no server {name}: `ariel cell servers` shows all"
            ))),
        }
    }

    pub(crate) fn put_in_force(&self, members: Members) -> Result<(), String> {
        match self.on_groups.get() {
            Some(on_groups) => on_groups(members),
            None => Ok(()),
        }
    }

    /// The rights of each machine, and whether it was revoked.
    pub(crate) fn known(&self) -> BTreeMap<MachineId, (bool, Rights)> {
        let all = self.cell.machines().into_iter();
        let known = all.map(|it| (it.id, (it.revoked_s.is_some(), self.rights(it.id))));
        known.collect()
    }

    /// Takes in what other servers have changed. A later call does again what has failed, since it
    /// compares with what the server was told and not with what was known before.
    pub(crate) fn follow(&self) -> Result<(), CellError> {
        let mut followed = self.followed.lock();
        let revision = self.cell.reload()?;
        for (id, now) in self.known() {
            if self.told.lock().get(&id) == Some(&now) {
                continue;
            }
            match self.cell.machine(id) {
                Some(machine) if now.0 => self.changed(&machine, Change::Revoked)?,
                Some(machine) => self.changed(&machine, self.kind_of(id, &now.1))?,
                None => {}
            }
        }
        let in_force = |members| self.put_in_force(members);
        self.cell.put_groups_in_force(&in_force)?;
        self.tell_server(|line| line.revision = revision)?;
        *followed = revision;
        Ok(())
    }

    /// How a machine's rights have changed, if they are these now: are clients to be waited for?
    fn kind_of(&self, id: MachineId, now: &Rights) -> Change {
        let told = self.told.lock();
        let takes = told.get(&id).is_none_or(|(_, old)| now.take_from(old));
        match takes {
            true => Change::Regranted,
            false => Change::Users,
        }
    }

    fn tell_server(&self, how: impl FnOnce(&mut ServerLine)) -> Result<(), CellError> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let mut line = server.lock();
        how(&mut line);
        self.cell.tell_server(&line)
    }

    /// The server is reached there from now on, or nowhere.
    ///
    /// # Errors
    /// The database fails.
    pub fn tell_addresses(&self, addresses: Option<&Addresses>) -> Result<(), CellError> {
        self.tell_server(|line| line.addresses = addresses.map(ToString::to_string))
    }

    /// The server's name; `None`: the cell has no other one.
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        let server = self.server.as_ref();
        server.map(|server| server.lock().name.clone())
    }

    /// Waits for changes by other servers, and takes them in; false: it is time to end.
    pub fn follow_next(&self) -> bool {
        // Of a cell of its own nobody else changes anything: the end alone is waited for.
        let pause = match self.cell.is_shared() {
            false => Duration::MAX,
            true => self.note_away(self.follow_news()),
        };
        let mut stopping = self.stopping.lock();
        if !*stopping && !pause.is_zero() {
            self.stopped.wait_for(&mut stopping, pause);
        }
        !*stopping
    }

    /// Follows once, if there is something to follow before long.
    fn follow_news(&self) -> Result<(), CellError> {
        let is_news = *self.followed.lock() < self.cell.revision();
        match is_news || self.cell.wait_outdated(WAIT_TIME)? {
            true => self.follow(),
            false => Ok(()),
        }
    }

    /// When it is tried again. The log says once that nothing is heard, and that it is again.
    fn note_away(&self, followed: Result<(), CellError>) -> Duration {
        let was_away = self.is_away.swap(followed.is_err(), Ordering::Relaxed);
        match followed {
            Ok(()) => {
                if was_away {
                    tracing::info!("changes by other servers of the cell are in force again");
                }
                Duration::ZERO
            }
            Err(error) => {
                if !was_away {
                    tracing::warn!(%error, "changes by other servers are not in force for now");
                }
                AWAY_TIME
            }
        }
    }

    /// Nobody follows other servers any more.
    pub fn stop_following(&self) {
        *self.stopping.lock() = true;
        self.stopped.notify_all();
        // The others need not wait for it. They do not hear that if the database is away.
        if let Err(error) = self.tell_server(|line| line.addresses = None) {
            tracing::warn!(%error, "the other servers are not told that this one ends");
        }
    }
}

/// The concern of the other servers in a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concern {
    None,
    /// They are to let somebody in: they are waited for, and the answer is given all the same.
    Gives,
    /// It may take something from somebody: it is not done before they all know it.
    Takes,
}

fn concern(question: &Question) -> Concern {
    match question {
        Question::Revoke { .. }
        | Question::Grant { .. }
        | Question::SetUser { .. }
        | Question::RemoveUser { .. }
        | Question::Unmounted { .. }
        | Question::Logout { .. } => Concern::Takes,
        Question::Limited { question, .. } => concern(question),
        Question::Groups { deed, .. } if *deed != GroupDeed::List => Concern::Takes,
        Question::Join { .. } | Question::Login { .. } => Concern::Gives,
        Question::Groups { .. }
        | Question::Renew { .. }
        | Question::Invite(_)
        | Question::Machines
        | Question::Servers
        | Question::ForgetServer { .. }
        | Question::Users
        | Question::Stores(_)
        | Question::Challenge
        | Question::Present { .. }
        | Question::Names { .. }
        | Question::Extend { .. } => Concern::None,
    }
}
