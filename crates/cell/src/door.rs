//! The door of a cell's server: lets machines in, and answers what is asked of the cell.
//!
//! Guarantees: an administrator's question is answered to a key of an administrator that is not
//! revoked, and to nobody else; the question, its author and its outcome stand in the audit log,
//! secrets left out; the server is told which machines a change concerns before the answer leaves.

use crate::audit::Audit;
use crate::given_up::At;
use crate::groups::{GroupDeed, OnGroups};
use crate::location::Location;
use crate::machine::{Machine, Role};
use crate::members::{Cell, CellError};
use crate::question::{Answer, Invite, Question};
use crate::revision::ServerLine;
use crate::stores::OnStores;
use crate::words::now_s;
use net::{Door, Identity, KeyPrint, ServerTls};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use wire::{MachineId, Rights};

/// A change of a machine's rights, as the server is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is no machine of the cell any more, and has no sessions when the call returns.
    Revoked,
    /// It has other rights, and no mount of it judges by the old ones when the call returns.
    Regranted,
    /// Its users have come, or are leaving by themselves: nobody need be waited for.
    Users,
}

/// Told of each machine whose rights have changed, and why its links end. Refused: the change is
/// not in force at all mounts yet.
type OnChange = Box<dyn Fn(MachineId, (Change, &str)) -> Result<(), String> + Send + Sync>;

/// The door.
pub struct CellDoor {
    pub(crate) cell: Cell,
    /// How the server shows itself, and the life of its certificate.
    tls: Mutex<(ServerTls, (u64, u64))>,
    on_change: OnceLock<OnChange>,
    pub(crate) on_groups: OnceLock<Box<OnGroups>>,
    pub(crate) on_stores: OnceLock<Box<OnStores>>,
    audit: Audit,
    knocks: Mutex<Knocks>,
    /// The server as the others of the cell see it, if there are others.
    pub(crate) server: Option<Mutex<ServerLine>>,
    /// The rights of each machine as the server was told them last, and whether it was revoked.
    pub(crate) told: Mutex<BTreeMap<MachineId, (bool, Rights)>>,
    /// The server judges by all changes up to this one, and the others know that.
    pub(crate) followed: Mutex<u64>,
    /// Is the database away, as far as is known?
    pub(crate) is_away: AtomicBool,
    pub(crate) stopping: Mutex<bool>,
    pub(crate) stopped: Condvar,
}

/// The peers that were refused lately, and when the log last said so.
#[derive(Default)]
struct Knocks(BTreeMap<KeyPrint, u64>);

impl Knocks {
    fn is_news(&mut self, key: KeyPrint, now_s: u64) -> bool {
        self.0.retain(|_, told_s| now_s < *told_s + KNOCK_S);
        self.0.len() < KNOCKS_MAX && self.0.insert(key, now_s).is_none()
    }
}

/// A refusal of the same key is told so seldom, and of so many keys in that time.
const KNOCK_S: u64 = 3600;
const KNOCKS_MAX: usize = 1024;

impl CellDoor {
    /// Opens the cell in this directory for a server. The certificates that it makes count for so
    /// long.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn open(dir: &Path, life_s: u64) -> Result<CellDoor, CellError> {
        let mut cell = Cell::open(dir)?;
        cell.life_s = life_s;
        cell.renew_own(dir)?;
        let server = Location::read(dir)?.map(|location| ServerLine {
            name: location.server,
            addresses: None,
            revision: 0,
            number: location.number,
        });
        let path = dir.join("audit.log");
        let audit = Audit::open(path.clone());
        let audit = audit.map_err(|error| CellError::Io { path, error })?;
        let door = CellDoor {
            tls: Mutex::new(cell.certify_server()?),
            cell,
            on_change: OnceLock::new(),
            on_groups: OnceLock::new(),
            on_stores: OnceLock::new(),
            audit,
            knocks: Mutex::new(Knocks::default()),
            server: server.map(Mutex::new),
            told: Mutex::new(BTreeMap::new()),
            followed: Mutex::new(0),
            is_away: AtomicBool::new(false),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        };
        // A server that is about to start asks for them itself.
        *door.told.lock() = door.known();
        Ok(door)
    }

    /// The cell.
    #[must_use]
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Notes what a user of a machine has done to the server, or why he was refused to.
    pub fn note(&self, machine: MachineId, (uid, what): (u32, &Value), refused: Option<String>) {
        let who = self.name_of(machine);
        let what = json!({ "uid": uid, "did": what });
        tracing::info!(who, %what, refused, "the server");
        self.audit.note(&who, &what, refused.map_or(Ok(()), Err));
    }

    /// From now on changes are told.
    pub fn tell(&self, on_change: OnChange) {
        // Set once, by the code that has started the server.
        let _ = self.on_change.set(on_change);
    }

    /// From now on the server is told who is in which group.
    pub fn tell_groups(&self, on_groups: Box<OnGroups>) {
        let _ = self.on_groups.set(on_groups);
    }

    /// Notes why a machine was refused a session. It tries again and again, so that stands there
    /// once an hour.
    pub fn note_refused(&self, machine: MachineId, why: &str) {
        let of = KeyPrint::of_key(format!("{machine} {why}").as_bytes());
        if self.knocks.lock().is_news(of, now_s()) {
            let who = self.name_of(machine);
            self.audit.note(&who, &json!("session"), Err(why.into()));
        }
    }

    fn name_of(&self, machine: MachineId) -> String {
        let known = self.cell.machine(machine);
        known.map_or_else(|| format!("machine {machine}"), |machine| machine.name)
    }

    /// The rights of a machine; none, if it is not one of the cell's.
    #[must_use]
    pub fn rights(&self, machine: MachineId) -> Rights {
        let known = self.cell.machine(machine);
        let known = known.filter(|machine| machine.revoked_s.is_none());
        let mut rights = known.map_or(nothing(), |machine| machine.bounds());
        if !rights.trusted {
            rights.users = self.cell.proven(machine, &rights);
            rights.ended = self.cell.ended(machine, &rights);
        }
        rights
    }

    /// Has the server judge by a machine's rights as they are now.
    pub(crate) fn changed(&self, machine: &Machine, change: Change) -> Result<(), CellError> {
        {
            // Read under the lock: of two changes at once the later one is what stays noted.
            let mut told = self.told.lock();
            let now = (machine.revoked_s.is_some(), self.rights(machine.id));
            told.insert(machine.id, now);
        }
        let why = match change {
            Change::Revoked => revoked(machine).to_string(),
            Change::Regranted | Change::Users => CHANGED.to_owned(),
        };
        if let Some(on_change) = self.on_change.get() {
            let told = on_change(machine.id, (change, &why));
            told.map_err(|why| {
                // Nobody knows what its mounts judge by: the next change is told in any case.
                self.told.lock().remove(&machine.id);
                not_in_force(why)
            })?;
        }
        Ok(())
    }

    /// The asking machine, which may still show itself.
    fn asker(&self, key: Option<KeyPrint>) -> Result<Option<Machine>, CellError> {
        let Some(key) = key else {
            return Ok(None);
        };
        let machine = self.cell.machine_of(key).ok_or_else(unknown)?;
        match machine.revoked_s {
            Some(_) => Err(revoked(&machine)),
            None => Ok(Some(machine)),
        }
    }

    pub(crate) fn answer_to(
        &self,
        asker: Option<&Machine>,
        question: Question,
    ) -> Result<Answer, CellError> {
        let is_administrator = asker.is_some_and(|asker| asker.role == Role::Administrator);
        if question.is_administrators() && !is_administrator {
            return Err(CellError::Refused(NOT_ADMINISTRATOR.into()));
        }
        match question {
            Question::Join { secret, name, key } => {
                Ok(Answer::Certified(self.cell.join(&secret, &name, &key)?))
            }
            Question::Renew { key } => {
                let asker = asker.ok_or_else(unknown)?;
                Ok(Answer::Certified(self.cell.renew(asker.id, &key)?))
            }
            Question::Invite(invite) => self.invite(&invite, &[]),
            Question::Grant { name, rights } => self.grant((&name, &rights), &[]),
            Question::Limited { parts, question } => match *question {
                Question::Invite(invite) => self.invite(&invite, &parts),
                Question::Grant { name, rights } => self.grant((&name, &rights), &parts),
                _ => Err(CellError::Refused(
                    "only what a machine is granted is limited to parts of the tree".into(),
                )),
            },
            Question::Machines => Ok(Answer::Machines(self.cell.machines())),
            Question::Servers => {
                asker.ok_or_else(unknown)?;
                Ok(Answer::Servers(self.cell.servers()?))
            }
            Question::ForgetServer { name } => self.forget_server(&name),
            Question::Revoke { name } => {
                let machine = self.cell.revoke(&name)?;
                self.changed(&machine, Change::Revoked)?;
                Ok(Answer::Done(machine))
            }
            Question::SetUser {
                user,
                password,
                new,
            } => {
                let machines = self.cell.set_user(user, password.as_deref(), new)?;
                self.changed_all(&machines, Change::Regranted)
            }
            Question::Users => Ok(Answer::Users(self.cell.users())),
            Question::RemoveUser { name } => {
                let machines = self.cell.remove_user(&name)?;
                self.changed_all(&machines, Change::Regranted)
            }
            Question::Groups { uid, mount, deed } => {
                self.answer_about_groups(asker.ok_or_else(unknown)?, (uid, mount.as_deref(), &deed))
            }
            Question::Names { uid } => Ok(Answer::Names(
                self.cell.names(asker.ok_or_else(unknown)?, uid)?,
            )),
            Question::Unmounted { mount } => {
                let of = (asker.ok_or_else(unknown)?, mount.as_str());
                let in_force = |members| self.put_in_force(members);
                self.cell.forget_mount(of, &in_force)?;
                Ok(Answer::Ok)
            }
            Question::Stores(question) => {
                self.answer_about_stores(asker.ok_or_else(unknown)?, question)
            }
            question => self.answer_about_logins(asker.ok_or_else(unknown)?, question),
        }
    }

    fn invite(&self, invite: &Invite, parts: &[String]) -> Result<Answer, CellError> {
        let (secret, expires_s) = self.cell.invite(invite, parts)?;
        Ok(Answer::Invited { secret, expires_s })
    }

    fn grant(
        &self,
        (name, rights): (&str, &Rights),
        parts: &[String],
    ) -> Result<Answer, CellError> {
        let machine = self.cell.grant(name, rights, parts)?;
        self.changed(&machine, Change::Regranted)?;
        Ok(Answer::Done(machine))
    }

    fn answer_about_groups(
        &self,
        machine: &Machine,
        (uid, mount, deed): (u32, Option<&str>, &GroupDeed),
    ) -> Result<Answer, CellError> {
        let at = At {
            machine,
            uid,
            mount,
        };
        let in_force = |members| self.put_in_force(members);
        let told = self.cell.do_with_groups(at, deed, &in_force)?;
        Ok(match deed {
            GroupDeed::List => Answer::Groups(told),
            _ => Answer::Ok,
        })
    }

    fn answer_about_logins(
        &self,
        asker: &Machine,
        question: Question,
    ) -> Result<Answer, CellError> {
        if asker.role != Role::Machine {
            return Err(CellError::Refused(
                "nobody logs in with an administrator's credential".into(),
            ));
        }
        let answer = match question {
            Question::Challenge => Answer::Challenge {
                challenge: self.cell.challenge(asker.id),
                machine: asker.name.clone(),
            },
            Question::Login {
                user,
                uid,
                proof,
                for_s,
                once,
            } => Answer::Given(
                self.cell
                    .login(asker, (&user, uid), &proof, (for_s, once))?,
            ),
            Question::Present {
                token,
                uid,
                session,
            } => {
                self.cell.present(asker, (&token, uid), session)?;
                Answer::Ok
            }
            // Nothing changes but a time.
            Question::Extend { token } => {
                return Ok(Answer::Given(self.cell.extend(asker, &token)?));
            }
            Question::Logout { uid } => {
                self.cell.logout(asker, uid)?;
                Answer::Ok
            }
            _ => return Err(unknown()),
        };
        if !matches!(answer, Answer::Challenge { .. }) {
            self.changed(asker, Change::Users)?;
        }
        Ok(answer)
    }

    fn changed_all(&self, machines: &[u64], change: Change) -> Result<Answer, CellError> {
        let machines = machines.iter().filter_map(|id| self.cell.machine(*id));
        // All are told, also when one cannot be.
        let told: Vec<_> = machines.map(|it| self.changed(&it, change)).collect();
        told.into_iter().collect::<Result<(), _>>()?;
        Ok(Answer::Ok)
    }

    /// Waits until logins have expired, and sees to it; false: it is time to end.
    pub fn lapse(&self) -> bool {
        let Some(lapsed) = self.cell.users.lapsed() else {
            return false;
        };
        // Nobody is waited for, so nothing is refused.
        let _ = self.changed_all(&lapsed, Change::Users);
        true
    }

    /// Nobody waits for logins any more.
    pub fn stop_lapses(&self) {
        self.cell.users.stop();
    }
}

const CHANGED: &str = "the rights of this machine have changed";

/// The change is there, and the server cannot say yet that all mounts judge by it.
fn not_in_force(why: String) -> CellError {
    CellError::Refused(format!(
        "it is done, and counts for all that is asked from now on, but mounts may still show what \
         they have in their caches: {why}"
    ))
}

pub(crate) const NOT_ADMINISTRATOR: &str = "only an administrator of the cell may do that: use the \
     credential in the server's data directory (`--data DIR`), or one made by \
     `ariel join-token --administrator`";

fn nothing() -> Rights {
    Rights {
        write: false,
        uids: vec![(wire::NOBODY, wire::NOBODY)],
        ..Rights::default()
    }
}

fn unknown() -> CellError {
    CellError::Refused(
        "the cell does not know this machine's key, though its authority made the certificate: \
         the cell's database is older than the certificate, so join again with `ariel join`"
            .into(),
    )
}

pub(crate) fn revoked(machine: &Machine) -> CellError {
    CellError::Refused(format!(
        "machine {} was revoked: only a new line lets it in again (`ariel join-token` on the \
         server's machine, then `ariel join` here)",
        machine.name
    ))
}

impl Door for CellDoor {
    fn tls(&self) -> ServerTls {
        let mut tls = self.tls.lock();
        let (from, until) = tls.1;
        if now_s() >= from + (until - from) / 3 {
            match self.cell.certify_server() {
                Ok(new) => *tls = new,
                Err(error) => tracing::error!(%error, "the server's certificate is not renewed"),
            }
        }
        tls.0.clone()
    }

    fn admit(&self, key: KeyPrint) -> Result<Identity, String> {
        let machine = self.asker(Some(key)).map_err(|error| {
            let error = error.to_string();
            // Its mounts try again and again.
            if self.knocks.lock().is_news(key, now_s()) {
                self.audit
                    .note(&key.to_string(), &json!("come in"), Err(error.clone()));
            }
            error
        })?;
        match machine {
            Some(machine) if machine.role == Role::Machine => Ok(Identity::Machine {
                id: machine.id,
                name: machine.name,
            }),
            _ => Err("an administrator's credential mounts nothing: use a machine's".into()),
        }
    }

    fn answer(&self, key: Option<KeyPrint>, question: &[u8]) -> Vec<u8> {
        let answer = match serde_json::from_slice::<Question>(question) {
            Ok(question) => {
                let what = question.noted();
                let asker = self.asker(key);
                let who = match &asker {
                    Ok(Some(machine)) => machine.name.clone(),
                    Ok(None) => "a stranger".to_owned(),
                    Err(_) => key.map_or_else(String::new, |key| key.to_string()),
                };
                let answer = asker.and_then(|asker| self.settle(asker.as_ref(), &question));
                let outcome = answer.as_ref().map(drop).map_err(ToString::to_string);
                let looks = [
                    "machines",
                    "servers",
                    "users",
                    "groups",
                    "names",
                    "challenge",
                    "stores",
                ];
                let looks = looks.map(|word| json!(word));
                if !looks.contains(&what) || outcome.is_err() {
                    tracing::info!(who, %what, refused = outcome.as_ref().err(), "the cell");
                    self.audit.note(&who, &what, outcome);
                }
                answer.unwrap_or_else(|error| Answer::Refused(error.to_string()))
            }
            Err(_) => Answer::Refused(
                "the server does not understand the question: use the same version of Ariel on \
                 both sides"
                    .into(),
            ),
        };
        serde_json::to_vec(&answer).unwrap_or_default()
    }
}

impl From<CellError> for io::Error {
    fn from(error: CellError) -> io::Error {
        io::Error::other(error)
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
