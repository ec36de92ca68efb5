//! The cell itself: its machines, and how they become members and cease to be.
//!
//! Guarantees: a line is worth its uses and its time, and no more, also if many come at once; of
//! machines that are not revoked no two have a name in common; a number is never given twice. The
//! memory agrees with the database: each change is made there first.
//!
//! The memory is changed by the holder of `changing` alone, after the database.

use crate::authority::{Authority, AuthorityError, PublicKey};
use crate::database::{Changes, Database, DatabaseError, Place};
use crate::engine::Embedded;
use crate::groups::Groups;
use crate::location::Location;
use crate::machine::{Invitation, Key, Machine, Role};
use crate::part::checked;
use crate::private;
use crate::question::{Certified, Invite};
use crate::revision::Revision;
use crate::users::Users;
use crate::words::{hash, hex, machine_name, now_s, secret, unhex};
use net::{KeyPrint, Pem, ServerTls};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wire::Rights;

/// How long certificates count, of machines and of servers, unless a server is told otherwise.
pub(crate) const LIFE_S: u64 = 30 * 86_400;
/// Most machines that join with one line, and for how long at most it counts.
const USES_MAX: u32 = 100_000;
const INVITE_MAX_S: u64 = 365 * 86_400;
/// So many expired ones are removed in one change.
pub(crate) const EXPIRED_AT_ONCE: usize = 64;
const MACHINES: &str = "machines";
const INVITATIONS: &str = "invitations";
/// The last number of a machine.
const LAST: &str = "last";
pub(crate) const CELL: &str = "cell";

/// Why a cell cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// There is none.
    #[error("there is no cell in {0}: make one with `ariel cell init`")]
    None(PathBuf),
    /// There is one already.
    #[error("{0} holds a cell already: see it with `ariel machine list`")]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The database fails.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The authority's files are not what they should be.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Credentials cannot be written.
    #[error(transparent)]
    Credential(#[from] crate::credential::CredentialError),
    /// It may not be done; the reason in words for the asker.
    #[error("{0}")]
    Refused(String),
    /// Another server has changed the cell meanwhile: what was decided may be wrong now.
    #[error("another server of the cell changes it at the same moment: try again")]
    Outdated,
}

pub(crate) fn refused(why: impl Into<String>) -> CellError {
    CellError::Refused(why.into())
}

/// The authority's file.
#[derive(Serialize, Deserialize)]
pub(crate) struct AuthorityFile {
    pub(crate) cell: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Its name.
pub(crate) const AUTHORITY: &str = "authority.json";
/// The database's.
pub(crate) const DATABASE: &str = "cell.redb";

/// The machines, by number; and the number of the last.
#[derive(Default)]
pub(crate) struct State {
    machines: BTreeMap<u64, Machine>,
    last: u64,
}

impl State {
    pub(crate) fn load(database: &dyn Database) -> Result<State, CellError> {
        let mut state = State::default();
        for (_, bytes) in database.list(MACHINES)? {
            let machine: Machine = decode(&bytes)?;
            state.machines.insert(machine.id, machine);
        }
        if let Some(bytes) = database.get(&place(CELL, LAST))? {
            state.last = decode(&bytes)?;
        }
        Ok(state)
    }

    fn alive(&self, name: &str, now_s: u64) -> Option<&Machine> {
        let mut all = self.machines.values();
        all.find(|machine| machine.name == name && machine.is_alive(now_s))
    }

    fn by_key(&self, key: KeyPrint) -> Option<&Machine> {
        self.machines.values().find(|machine| machine.has_key(key))
    }
}

/// A cell.
pub struct Cell {
    name: String,
    authority: Authority,
    pub(crate) database: Box<dyn Database>,
    /// Held while something is decided and noted, so that one follows the other; the memory is
    /// locked for moments only, since the database may take its time.
    pub(crate) changing: Mutex<Revision>,
    pub(crate) state: Mutex<State>,
    pub(crate) users: Users,
    pub(crate) groups: Groups,
    pub(crate) life_s: u64,
}

pub(crate) fn place(table: &'static str, key: impl ToString) -> Place {
    Place {
        table,
        key: key.to_string(),
    }
}

pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>, CellError> {
    serde_json::to_vec(value).map_err(|error| refused(error.to_string()))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CellError> {
    serde_json::from_slice(bytes).map_err(|error| {
        refused(format!(
            "the cell's database holds rubbish ({error}): restore it from a backup"
        ))
    })
}

impl Cell {
    /// Opens the cell in a directory, or the one whose database a file there names.
    ///
    /// # Errors
    /// There is none, another process has it, its files are damaged, or its database is away.
    pub fn open(dir: &Path) -> Result<Cell, CellError> {
        if let Some(location) = Location::read(dir)? {
            return Cell::open_shared(location);
        }
        let path = dir.join(AUTHORITY);
        let text = match private::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CellError::None(dir.to_owned()));
            }
            Err(error) => return Err(CellError::Io { path, error }),
        };
        let file = serde_json::from_str(&text).map_err(|error| CellError::Io {
            path,
            error: error.into(),
        })?;
        Cell::with(file, Box::new(Embedded::open(&dir.join(DATABASE))?))
    }

    pub(crate) fn with(
        file: AuthorityFile,
        database: Box<dyn Database>,
    ) -> Result<Cell, CellError> {
        let AuthorityFile {
            cell,
            certificate,
            key,
        } = file;
        // Read first: what is changed after it is seen as a change.
        let revision = Revision::load(&*database)?;
        let state = State::load(&*database)?;
        Ok(Cell {
            authority: Authority::load(&cell, certificate, &key)?,
            name: cell,
            users: Users::load(&*database)?,
            groups: Groups::load(&*database)?,
            database,
            changing: Mutex::new(revision),
            state: Mutex::new(state),
            life_s: LIFE_S,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The authority's certificate, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.authority.certificate()
    }

    fn life(&self) -> (u64, u64) {
        let now_s = now_s();
        (now_s, now_s + self.life_s)
    }

    /// How a server of the cell shows itself, and until when that counts.
    pub(crate) fn certify_server(&self) -> Result<(ServerTls, (u64, u64)), CellError> {
        let (key, public) = crate::authority::new_key()?;
        let public = PublicKey::parse(&public).ok_or_else(|| refused("no key of a server"))?;
        let life = self.life();
        let certificate = self.authority.certify_server(&public, (&self.name, life))?;
        let pem = Pem {
            authority: self.authority.certificate(),
            certificate: &certificate,
            key: &key,
        };
        let tls = ServerTls::new(pem).map_err(|error| refused(error.to_string()))?;
        Ok((tls, life))
    }

    /// The machine with this key.
    #[must_use]
    pub fn machine_of(&self, key: KeyPrint) -> Option<Machine> {
        self.state.lock().by_key(key).cloned()
    }

    /// The machine with this number.
    #[must_use]
    pub fn machine(&self, id: u64) -> Option<Machine> {
        self.state.lock().machines.get(&id).cloned()
    }

    /// All machines, by number.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        self.state.lock().machines.values().cloned().collect()
    }

    /// A new secret that is worth this, in these parts of the tree alone, if there are any; and
    /// until when.
    ///
    /// # Errors
    /// It would be worth nothing, or too much.
    pub fn invite(&self, invite: &Invite, parts: &[String]) -> Result<(String, u64), CellError> {
        let parts = checked(parts)?;
        if !(1..=USES_MAX).contains(&invite.uses) || !(1..=INVITE_MAX_S).contains(&invite.for_s) {
            return Err(refused(format!(
                "a line is for 1 to {USES_MAX} machines, and counts for a year at most"
            )));
        }
        let secret = secret();
        let invitation = Invitation {
            uses: invite.uses,
            expires_s: now_s() + invite.for_s,
            role: invite.role,
            rights: invite.rights.clone(),
            parts,
        };
        let mut changes = self.without_expired()?;
        let at = place(INVITATIONS, hash(&secret));
        changes.then.push((at, Some(encode(&invitation)?)));
        self.commit(&mut self.changing.lock(), changes)?;
        Ok((hex(&secret), invitation.expires_s))
    }

    /// Removes what nobody can use any more.
    fn without_expired(&self) -> Result<Changes, CellError> {
        let now_s = now_s();
        let mut changes = Changes::default();
        for (key, bytes) in self.database.list(INVITATIONS)? {
            let invitation: Invitation = decode(&bytes)?;
            if invitation.expires_s <= now_s {
                changes.then.push((place(INVITATIONS, key), None));
            }
        }
        // The rest goes with the next line.
        changes.then.truncate(EXPIRED_AT_ONCE);
        Ok(changes)
    }

    /// Makes an asker that knows this secret a machine.
    ///
    /// # Errors
    /// The secret is worth nothing, or the name or key is none.
    pub fn join(&self, secret: &str, name: &str, key: &str) -> Result<Certified, CellError> {
        let worthless = "the line counts no more, or never did: make another one with \
                         `ariel join-token`";
        let secret = unhex(secret).ok_or_else(|| refused(worthless))?;
        let at = place(INVITATIONS, hash(&secret));
        let before = self.database.get(&at)?.ok_or_else(|| refused(worthless))?;
        let mut invitation: Invitation = decode(&before)?;
        if invitation.expires_s <= now_s() || invitation.uses == 0 {
            return Err(refused(worthless));
        }
        invitation.uses -= 1;
        let after = match invitation.uses {
            0 => None,
            _ => Some(encode(&invitation)?),
        };
        let changes = Changes {
            when: vec![(at.clone(), Some(before))],
            then: vec![(at, after)],
        };
        let name = machine_name(name).map_err(refused)?;
        let grant = (invitation.rights, invitation.parts);
        self.add((&name, invitation.role, grant), key, changes)
    }

    /// Adds a machine, together with these changes.
    pub(crate) fn add(
        &self,
        (name, role, (rights, parts)): (&str, Role, (Rights, Vec<String>)),
        key: &str,
        mut changes: Changes,
    ) -> Result<Certified, CellError> {
        let key = PublicKey::parse(key).ok_or_else(|| refused("that is no public key"))?;
        let mut changing = self.changing.lock();
        let (life_s, id) = (self.life(), self.next_id(name, &key)?);
        let machine = Machine {
            id,
            name: name.to_owned(),
            role,
            rights,
            parts,
            keys: vec![Key {
                print: key.print().to_string(),
                expires_s: life_s.1,
            }],
            joined_s: life_s.0,
            revoked_s: None,
        };
        let certified = self.certify(&machine, &key, life_s)?;
        changes.then.push((place(CELL, LAST), Some(encode(&id)?)));
        changes
            .then
            .push((place(MACHINES, id), Some(encode(&machine)?)));
        if !self.commit(&mut changing, changes)? {
            return Err(refused("another machine has just used the line: try again"));
        }
        let mut state = self.state.lock();
        state.last = id;
        state.machines.insert(id, machine);
        Ok(certified)
    }

    /// Has no machine this name?
    pub(crate) fn is_free(&self, name: &str) -> Result<(), CellError> {
        match self.state.lock().alive(name, now_s()) {
            Some(_) => Err(refused(format!(
                "the cell has a machine {name} already: choose another name with `--name`, or take \
                 its certificate from it with `ariel machine revoke {name}`"
            ))),
            None => Ok(()),
        }
    }

    /// The number of the next machine, if it may have this name and this key.
    fn next_id(&self, name: &str, key: &PublicKey) -> Result<u64, CellError> {
        self.is_free(name)?;
        let state = self.state.lock();
        match state.by_key(key.print()) {
            Some(_) => Err(refused("that key is known already: make a new one")),
            None => Ok(state.last + 1),
        }
    }

    fn certify(
        &self,
        machine: &Machine,
        key: &PublicKey,
        life_s: (u64, u64),
    ) -> Result<Certified, CellError> {
        let of = (machine.name.as_str(), key);
        let certificate = self.authority.certify_machine(of, (&self.name, life_s))?;
        Ok(Certified {
            cell: self.name.clone(),
            name: machine.name.clone(),
            role: machine.role,
            life_s,
            authority: self.authority.certificate().to_owned(),
            certificate,
        })
    }

    /// Another certificate of a machine, for another key. The old one counts until it expires.
    ///
    /// # Errors
    /// The machine was revoked meanwhile, or the key is none.
    pub fn renew(&self, id: u64, key: &str) -> Result<Certified, CellError> {
        let key = PublicKey::parse(key).ok_or_else(|| refused("that is no public key"))?;
        let life_s = self.life();
        let machine = self.change(|state| {
            if state.by_key(key.print()).is_some() {
                return Err(refused("that key is known already: make a new one"));
            }
            let machine = state.machines.get(&id).filter(|it| it.revoked_s.is_none());
            let mut machine = machine.cloned().ok_or_else(|| refused("it was revoked"))?;
            machine.keys.retain(|key| key.expires_s > life_s.0);
            machine.keys.push(Key {
                print: key.print().to_string(),
                expires_s: life_s.1,
            });
            Ok(machine)
        })?;
        self.certify(&machine, &key, life_s)
    }

    /// Takes everything from the machine of this name.
    ///
    /// # Errors
    /// There is none, or it is the last administrator: nobody could let anybody in any more.
    pub fn revoke(&self, name: &str) -> Result<Machine, CellError> {
        self.change(|state| {
            let mut machine = named(state, name)?;
            let rules = |it: &Machine| it.role == Role::Administrator && it.revoked_s.is_none();
            if rules(&machine) && state.machines.values().filter(|it| rules(it)).count() == 1 {
                return Err(refused(format!(
                    "{name} is the cell's last administrator, without whom nobody could let any \
                     machine in: make another one first (`ariel join-token --administrator` here, \
                     `ariel join LINE` there), and revoke {name} as that one"
                )));
            }
            machine.revoked_s = Some(now_s());
            Ok(machine)
        })
    }

    /// Gives the machine of this name these rights, in these parts of the tree alone, if there are
    /// any.
    ///
    /// # Errors
    /// There is none.
    pub fn grant(
        &self,
        name: &str,
        rights: &Rights,
        parts: &[String],
    ) -> Result<Machine, CellError> {
        let parts = checked(parts)?;
        if rights.uids.iter().any(|(first, last)| first > last) || rights.uids.len() > 1024 {
            return Err(refused(
                "a range of users ends before it begins, or there are too many",
            ));
        }
        self.change(|state| {
            let mut machine = named(state, name)?;
            machine.rights = rights.clone();
            machine.parts = parts;
            Ok(machine)
        })
    }

    /// Changes one machine, in the database first.
    fn change(
        &self,
        how: impl FnOnce(&State) -> Result<Machine, CellError>,
    ) -> Result<Machine, CellError> {
        let mut changing = self.changing.lock();
        let machine = how(&self.state.lock())?;
        let at = place(MACHINES, machine.id);
        let changes = Changes {
            when: Vec::new(),
            then: vec![(at, Some(encode(&machine)?))],
        };
        self.commit(&mut changing, changes)?;
        let mut state = self.state.lock();
        state.machines.insert(machine.id, machine.clone());
        Ok(machine)
    }
}

fn named(state: &State, name: &str) -> Result<Machine, CellError> {
    let mut all = state.machines.values().rev();
    let found = all.find(|machine| machine.name == name && machine.revoked_s.is_none());
    found.cloned().ok_or_else(|| {
        refused(format!(
            "the cell has no machine {name}: `ariel machine list` shows all"
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authority::new_key;
    use crate::credential::Credential;

    fn cell() -> (tempfile::TempDir, Cell) {
        let dir = tempfile::tempdir().unwrap();
        Cell::make(&dir.path().join("cell"), "own").unwrap();
        let cell = Cell::open(&dir.path().join("cell")).unwrap();
        (dir, cell)
    }

    fn invite(cell: &Cell, uses: u32, for_s: u64) -> String {
        let invite = Invite {
            uses,
            for_s,
            role: Role::Machine,
            rights: Rights::default(),
        };
        cell.invite(&invite, &[]).unwrap().0
    }

    fn join(cell: &Cell, secret: &str, name: &str) -> Result<Certified, CellError> {
        cell.join(secret, name, &new_key().unwrap().1)
    }

    #[test]
    fn a_cell_is_made_once_with_its_administrator_and_its_machine() {
        let (dir, cell) = cell();
        let path = dir.path().join("cell");
        assert!(matches!(Cell::make(&path, "x"), Err(CellError::Exists(_))));
        let machines = cell.machines();
        let of = |at: usize| (machines[at].name.as_str(), machines[at].role);
        assert_eq!(of(0), ("administrator", Role::Administrator));
        assert_eq!(of(1), ("own", Role::Machine));
        assert_eq!(machines[1].rights, Rights::all());
        for role in [Role::Administrator, Role::Machine] {
            let credential = Credential::read(&Cell::credentials(&path, role))
                .unwrap()
                .unwrap();
            let print = net::print_of_pem(&credential.certificate).unwrap();
            assert_eq!(cell.machine_of(print).unwrap().role, role);
            credential.tls().unwrap();
        }
        let none = Cell::open(&dir.path().join("none"))
            .err()
            .unwrap()
            .to_string();
        assert!(none.contains("ariel cell init"), "{none}");
    }

    #[test]
    fn a_line_is_worth_its_uses_and_its_time() {
        let (_dir, cell) = cell();
        let secret = invite(&cell, 2, 60);
        join(&cell, &secret, "a").unwrap();
        join(&cell, &secret, "b").unwrap();
        assert!(join(&cell, &secret, "c").is_err(), "it was for two");
        assert!(join(&cell, "00", "c").is_err());
        assert!(join(&cell, &hex(&super::secret()), "c").is_err());
        let secret = invite(&cell, 1, 60);
        let taken = join(&cell, &secret, "a").unwrap_err().to_string();
        assert!(
            taken.contains("--name") && taken.contains("revoke a"),
            "{taken}"
        );
        assert!(cell.join(&secret, "d", "04").is_err(), "no key");
        join(&cell, &secret, "d").expect("a refusal does not use the line up");
        for (uses, for_s) in [(0, 60), (1, 0), (USES_MAX + 1, 60), (1, INVITE_MAX_S + 1)] {
            let invite = Invite {
                uses,
                for_s,
                role: Role::Machine,
                rights: Rights::default(),
            };
            assert!(cell.invite(&invite, &[]).is_err(), "{uses} {for_s}");
        }
    }

    #[test]
    fn many_who_come_at_once_share_what_a_line_is_worth() {
        let (_dir, cell) = cell();
        let secret = invite(&cell, 5, 60);
        let joined = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..12)
                .map(|number| {
                    let (cell, secret) = (&cell, &secret);
                    scope.spawn(move || {
                        // Another may have used the line at the same moment: not this one's last.
                        (0..12).any(|_| join(cell, secret, &format!("m{number}")).is_ok())
                    })
                })
                .collect();
            let ends = tries.into_iter().map(|one| one.join().unwrap());
            ends.filter(|joined| *joined).count()
        });
        assert_eq!(joined, 5);
        assert_eq!(cell.machines().len(), 7);
    }

    #[test]
    fn revoked_machines_stay_known_and_their_names_are_free() {
        let (dir, cell) = cell();
        let secret = invite(&cell, 3, 60);
        let first = join(&cell, &secret, "a").unwrap();
        let print = net::print_of_pem(&first.certificate).unwrap();
        let machine = cell.revoke("a").unwrap();
        assert!(cell.revoke("a").is_err());
        assert!(cell.renew(machine.id, &new_key().unwrap().1).is_err());
        assert!(cell.machine_of(print).unwrap().revoked_s.is_some());
        join(&cell, &secret, "a").unwrap();
        let last = cell.revoke("administrator").unwrap_err().to_string();
        assert!(last.contains("join-token --administrator"), "{last}");
        drop(cell);
        let cell = Cell::open(&dir.path().join("cell")).unwrap();
        assert!(
            cell.machine_of(print).unwrap().revoked_s.is_some(),
            "over a restart"
        );
        let next = join(&cell, &secret, "c").unwrap();
        let print = net::print_of_pem(&next.certificate).unwrap();
        assert_eq!(
            cell.machine_of(print).unwrap().id,
            5,
            "no number is given twice"
        );
    }

    #[test]
    fn a_renewed_machine_is_the_same_one_and_has_its_rights() {
        let (dir, mut cell) = cell();
        let secret = invite(&cell, 1, 60);
        let old = join(&cell, &secret, "a").unwrap();
        let rights = Rights {
            root: true,
            write: false,
            uids: vec![(7, 9)],
            ..Rights::default()
        };
        let id = cell.grant("a", &rights, &[]).unwrap().id;
        let new = cell.renew(id, &new_key().unwrap().1).unwrap();
        for certificate in [&old.certificate, &new.certificate] {
            let print = net::print_of_pem(certificate).unwrap();
            let machine = cell.machine_of(print).unwrap();
            assert_eq!((machine.id, &machine.rights), (id, &rights));
        }
        // Expired keys are forgotten at the next renewal.
        cell.life_s = 0;
        cell.renew(id, &new_key().unwrap().1).unwrap();
        cell.life_s = LIFE_S;
        cell.renew(id, &new_key().unwrap().1).unwrap();
        assert_eq!(cell.machine(id).unwrap().keys.len(), 3);
        drop(cell);
        let cell = Cell::open(&dir.path().join("cell")).unwrap();
        assert_eq!(cell.machine(id).unwrap().rights, rights);
        let backwards = Rights {
            uids: vec![(9, 7)],
            ..rights
        };
        assert!(cell.grant("a", &backwards, &[]).is_err());
    }
}
