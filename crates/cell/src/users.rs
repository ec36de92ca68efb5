//! The users of a cell: who they are, and where they have logged in.
//!
//! Guarantees: a password is never kept, and is guessed at a bounded rate; a signature counts once;
//! a token is given to a user for the machine alone that asks, where he has the number that he has
//! in the cell; a user who is removed, or who logs out, has no login from then on, and for a day
//! the changes still count that his machine has answered him before. The memory agrees with the
//! database: each change is made there first.

use crate::database::{Changes, Database};
use crate::ended::{end, forget};
use crate::machine::Machine;
use crate::members::{Cell, CellError, EXPIRED_AT_ONCE, decode, encode, place, refused};
use crate::question::Given;
use crate::token::{Claims, Signer};
use crate::user::{Kept, Login, Proof, User, hash, is_password, is_signed, ssh_key, to_sign};
use crate::words::{hex, now_s, secret, user_name};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Proven, Rights};

const USERS: &str = "users";
pub(crate) const LOGINS: &str = "logins";
/// How long a token counts at most, and for how long after a login it is renewed.
const TOKEN_MAX_S: u64 = 86_400;
const RENEWABLE_S: u64 = 7 * 86_400;
/// A shorter time is over before the mount that asks has heard of the login.
const TOKEN_MIN_S: u64 = 2;
/// How long it is remembered that a login has expired, so that its user is told.
const REMEMBERED_S: u64 = 86_400;
/// How long something that was given to be signed counts, and how many there are at most.
const CHALLENGE_S: u64 = 60;
const CHALLENGES_MAX: usize = 1024;
/// So many wrong proofs of one user are taken in a minute.
const WRONG_MAX: u32 = 5;
/// Further groups, keys and users at most.
const GROUPS_MAX: usize = 256;
const KEYS_MAX: usize = 32;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) users: BTreeMap<String, Kept>,
    pub(crate) logins: BTreeMap<String, Login>,
    /// The challenges given out to be signed: the machine, and until when each counts.
    challenges: BTreeMap<String, (u64, u64)>,
    /// Wrong proofs, by user: how many since when.
    wrong: BTreeMap<String, (u32, u64)>,
    /// Logins that expired until then have been seen to.
    seen_s: u64,
    stopping: bool,
}

/// The users, and their logins.
pub(crate) struct Users {
    signer: Signer,
    pub(crate) state: Mutex<State>,
    changed: Condvar,
}

/// The users and the logins of a database.
pub(crate) type Tables = (BTreeMap<String, Kept>, BTreeMap<String, Login>);

pub(crate) fn tables(database: &dyn Database) -> Result<Tables, CellError> {
    let mut tables = Tables::default();
    for (name, bytes) in database.list(USERS)? {
        tables.0.insert(name, decode(&bytes)?);
    }
    for (key, bytes) in database.list(LOGINS)? {
        tables.1.insert(key, decode(&bytes)?);
    }
    Ok(tables)
}

impl State {
    /// The user of this name as he is now, if he may become this one.
    fn replaced(&self, user: &User, name: &str, new: bool) -> Result<Option<Kept>, CellError> {
        let before = self.users.get(name).cloned();
        match (&before, new) {
            (Some(_), true) => {
                return Err(refused(format!(
                    "the cell has a user {name} already: change him with `ariel user passwd {name}`"
                )));
            }
            (None, false) => return Err(no_user(name)),
            _ => {}
        }
        let mut others = self.users.values().map(|kept| &kept.user);
        match others.find(|other| other.uid == user.uid && other.name != name) {
            Some(other) => Err(refused(format!(
                "{} has the number {} already",
                other.name, user.uid
            ))),
            None => Ok(before),
        }
    }
}

impl Users {
    pub(crate) fn load(database: &dyn Database) -> Result<Users, CellError> {
        let (users, logins) = tables(database)?;
        let state = State {
            users,
            logins,
            seen_s: now_s(),
            ..State::default()
        };
        Ok(Users {
            signer: Signer::of(database)?,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// From now on the users and logins are these.
    pub(crate) fn replace(&self, (users, logins): Tables) {
        let mut state = self.state.lock();
        (state.users, state.logins) = (users, logins);
        self.changed.notify_all();
    }

    /// Waits until some logins have expired: of which machines. `None`: it is time to end.
    pub(crate) fn lapsed(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            let now_s = now_s();
            let since_s = std::mem::replace(&mut state.seen_s, now_s);
            let ended = |login: &&Login| (since_s + 1..=now_s).contains(&login.expires_s);
            let lapsed: Vec<u64> = state
                .logins
                .values()
                .filter(ended)
                .map(|it| it.machine)
                .collect();
            if !lapsed.is_empty() {
                return Some(lapsed);
            }
            let next = state.logins.values().map(|login| login.expires_s);
            match next.filter(|at| *at > now_s).min() {
                // The clock of the machine may be set: it is looked at from time to time.
                Some(next) => {
                    let pause = Duration::from_secs((next - now_s).min(60));
                    self.changed.wait_for(&mut state, pause);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }
}

impl Cell {
    /// All users, by name.
    #[must_use]
    pub fn users(&self) -> Vec<User> {
        let state = self.users.state.lock();
        state.users.values().map(|kept| kept.user.clone()).collect()
    }

    /// Makes or changes a user; the machines where that counts at once.
    ///
    /// # Errors
    /// He is there, or is not; or something of him is none.
    pub fn set_user(
        &self,
        mut user: User,
        password: Option<&str>,
        new: bool,
    ) -> Result<Vec<u64>, CellError> {
        let name = user_name(&user.name).map_err(refused)?;
        if user.uid == 0 || user.uid >= wire::NOBODY {
            return Err(refused(format!(
                "a user has a number from 1 to {}",
                wire::NOBODY - 1
            )));
        }
        if user.groups.len() > GROUPS_MAX || user.keys.len() > KEYS_MAX {
            return Err(refused(format!(
                "a user has {GROUPS_MAX} further groups and {KEYS_MAX} keys at most"
            )));
        }
        for key in &mut user.keys {
            *key = ssh_key(key).map_err(refused)?;
        }
        let hashed = password.map(hash).transpose().map_err(refused)?;
        let mut changing = self.changing.lock();
        let before = self.users.state.lock().replaced(&user, &name, new)?;
        let hash = hashed.or(before.and_then(|kept| kept.hash));
        user.password = hash.is_some();
        let kept = Kept { user, hash };
        let changes = Changes {
            when: Vec::new(),
            then: vec![(place(USERS, &name), Some(encode(&kept)?))],
        };
        self.commit(&mut changing, changes)?;
        let mut state = self.users.state.lock();
        state.users.insert(name.clone(), kept);
        let own = |login: &&Login| login.name == name && login.ended.is_none();
        let own = state.logins.values().filter(own);
        Ok(own.map(|login| login.machine).collect())
    }

    /// Takes everything from a user; the machines where he was.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn remove_user(&self, name: &str) -> Result<Vec<u64>, CellError> {
        let mut changing = self.changing.lock();
        let own = |login: &Login| login.name == name;
        let (machines, (mut changes, ended)) = {
            let state = self.users.state.lock();
            if !state.users.contains_key(name) {
                return Err(no_user(name));
            }
            let open = |login: &&Login| own(login) && login.ended.is_none();
            let machines = state.logins.values().filter(open);
            let machines: Vec<u64> = machines.map(|login| login.machine).collect();
            (machines, end(&state, own)?)
        };
        changes.then.push((place(USERS, name), None));
        self.commit(&mut changing, changes)?;
        let mut state = self.users.state.lock();
        state.users.remove(name);
        state.logins.extend(ended);
        Ok(machines)
    }

    /// Something to be signed by a user of this machine.
    #[must_use]
    pub fn challenge(&self, machine: u64) -> String {
        let (challenge, now_s) = (hex(&secret()), now_s());
        let mut state = self.users.state.lock();
        state.challenges.retain(|_, (_, until_s)| now_s < *until_s);
        if state.challenges.len() >= CHALLENGES_MAX {
            // Somebody asks for more than people sign.
            state.challenges.clear();
        }
        let until_s = now_s + CHALLENGE_S;
        state
            .challenges
            .insert(challenge.clone(), (machine, until_s));
        challenge
    }

    /// Lets a user in on a machine.
    ///
    /// # Errors
    /// He does not prove who he is, or may not come in there.
    pub fn login(
        &self,
        machine: &Machine,
        (name, uid): (&str, u32),
        proof: &Proof,
        (for_s, once): (u64, bool),
    ) -> Result<Given, CellError> {
        let user = self.prove(machine, name, proof)?;
        if user.uid != uid {
            return Err(refused(format!(
                "{name} has the number {} in the cell, and the asking user has {uid} on {}: a \
                 login counts only where they agree (`ariel user add --uid`, or `usermod --uid`)",
                user.uid, machine.name
            )));
        }
        if machine.rights.trusted {
            return Err(refused(format!(
                "machine {} is trusted with its users, so nobody needs to log in there",
                machine.name
            )));
        }
        if !machine.rights.bounds(uid) {
            return Err(refused(format!(
                "{name} may not come in on {}: `ariel machine grant {} --untrusted --uids` says \
                 who may",
                machine.name, machine.name
            )));
        }
        lasts(for_s)?;
        let now_s = now_s();
        let expires_s = now_s + for_s.min(TOKEN_MAX_S);
        let claims = Claims {
            user: name.to_owned(),
            uid,
            machine: machine.id,
            expires_s,
            renewable_s: if once { expires_s } else { now_s + RENEWABLE_S },
            ..Claims::default()
        };
        self.enter(&claims, None)?;
        self.give(&claims)
    }

    fn give(&self, claims: &Claims) -> Result<Given, CellError> {
        Ok(Given {
            token: self.users.signer.sign(claims)?,
            user: claims.user.clone(),
            expires_s: claims.expires_s,
            renewable_s: claims.renewable_s,
        })
    }

    /// The user, if it is he.
    fn prove(&self, machine: &Machine, name: &str, proof: &Proof) -> Result<User, CellError> {
        let now_s = now_s();
        let mut state = self.users.state.lock();
        state.wrong.retain(|_, (_, since_s)| now_s < *since_s + 60);
        if state
            .wrong
            .get(name)
            .is_some_and(|(count, _)| *count >= WRONG_MAX)
        {
            return Err(refused(
                "too many wrong attempts: wait a minute, then try again",
            ));
        }
        let kept = state.users.get(name).cloned();
        let is_he = match proof {
            Proof::Password(password) => {
                // It takes its time, and others are not to wait.
                drop(state);
                let hash = kept.as_ref().and_then(|kept| kept.hash.as_deref());
                let fits = is_password(hash, password);
                state = self.users.state.lock();
                fits
            }
            Proof::Key { key, signature } => {
                let mut all = state.challenges.iter();
                let signed = |challenge: &str| {
                    let bytes = to_sign(challenge, name, &machine.name);
                    is_signed(key, signature, &bytes)
                };
                let own = |of: &(u64, u64)| of.0 == machine.id && now_s < of.1;
                let found = all.find(|(challenge, of)| own(of) && signed(challenge));
                let challenge = found.map(|(challenge, _)| challenge.clone());
                let known = kept
                    .as_ref()
                    .is_some_and(|kept| kept.user.keys.contains(key));
                let fresh = challenge.and_then(|challenge| state.challenges.remove(&challenge));
                known && fresh.is_some()
            }
        };
        match kept.filter(|_| is_he) {
            Some(kept) => {
                state.wrong.remove(name);
                Ok(kept.user)
            }
            None => {
                let wrong = state.wrong.entry(name.to_owned()).or_insert((0, now_s));
                wrong.0 += 1;
                Err(refused(
                    "the cell has no such user with this password or key: an administrator sees \
                     users with `ariel user list` and sets passwords with `ariel user passwd`",
                ))
            }
        }
    }

    /// Enters a login; others that have expired long ago are forgotten.
    fn enter(&self, claims: &Claims, session: Option<u64>) -> Result<(), CellError> {
        let login = Login {
            name: claims.user.clone(),
            machine: claims.machine,
            uid: claims.uid,
            session,
            expires_s: claims.expires_s,
            write: !claims.reads_only,
            under: claims.under.clone(),
            ended: None,
        };
        let key = login.key();
        let now_s = now_s();
        let past = |login: &Login| login.expires_s + REMEMBERED_S <= now_s;
        let old = |login: &Login| past(login) && login.key() != key;
        let mut changing = self.changing.lock();
        let mut changes = forget(&self.users.state.lock(), old);
        // The rest goes with the next login.
        changes.then.truncate(EXPIRED_AT_ONCE);
        changes
            .then
            .push((place(LOGINS, &key), Some(encode(&login)?)));
        self.note(&mut changing, &changes)?;
        let mut state = self.users.state.lock();
        let gone = |key: &String| {
            changes
                .then
                .iter()
                .any(|(at, it)| at.key == *key && it.is_none())
        };
        state.logins.retain(|key, _| !gone(key));
        state.logins.insert(key, login);
        self.users.changed.notify_all();
        Ok(())
    }

    /// The content of a token, if it counts on this machine and its user is still one.
    fn claims(&self, machine: &Machine, token: &str) -> Result<Claims, CellError> {
        let claims = self.users.signer.read(token, (machine.id, now_s()))?;
        let state = self.users.state.lock();
        let user = state.users.get(&claims.user).map(|kept| kept.user.uid);
        match user == Some(claims.uid) {
            true => Ok(claims),
            false => Err(no_user(&claims.user)),
        }
    }

    /// A user shows a token on a machine, for one session there or for all.
    ///
    /// # Errors
    /// It does not count there.
    pub fn present(
        &self,
        machine: &Machine,
        (token, uid): (&str, u32),
        session: Option<u64>,
    ) -> Result<(), CellError> {
        let claims = self.claims(machine, token)?;
        if claims.uid != uid {
            return Err(refused(format!(
                "the token is of {} (user {}), and user {uid} shows it",
                claims.user, claims.uid
            )));
        }
        lasts(claims.expires_s.saturating_sub(now_s()))?;
        self.enter(&claims, session)
    }

    /// Another token for one that still counts.
    ///
    /// # Errors
    /// It does not count any more, or was narrowed, or is not renewed any more.
    pub fn extend(&self, machine: &Machine, token: &str) -> Result<Given, CellError> {
        let mut claims = self.claims(machine, token)?;
        let now_s = now_s();
        if claims.narrowed || claims.expires_s >= claims.renewable_s {
            return Err(refused(
                "the token is not renewed: log in again with `ariel login`",
            ));
        }
        claims.expires_s = (now_s + TOKEN_MAX_S).min(claims.renewable_s);
        self.enter(&claims, None)?;
        self.give(&claims)
    }

    /// A user leaves a machine.
    ///
    /// # Errors
    /// The database fails.
    pub fn logout(&self, machine: &Machine, uid: u32) -> Result<(), CellError> {
        let own = |login: &Login| login.machine == machine.id && login.uid == uid;
        let mut changing = self.changing.lock();
        let (changes, ended) = end(&self.users.state.lock(), own)?;
        self.note(&mut changing, &changes)?;
        let mut state = self.users.state.lock();
        state.logins.extend(ended);
        Ok(())
    }

    /// The users who have proved themselves on a machine with these rights.
    #[must_use]
    pub fn proven(&self, machine: u64, rights: &Rights) -> Vec<Proven> {
        let now_s = now_s();
        let state = self.users.state.lock();
        let own = state.logins.values().filter(|it| it.machine == machine);
        let proven = own
            .filter(|login| login.ended.is_none())
            .filter_map(|login| {
                let user = &state.users.get(&login.name)?.user;
                let groups = (user.gid, user.groups.as_slice());
                rights.bounds(user.uid).then(|| login.proven(groups, now_s))
            });
        proven.collect()
    }
}

/// Refused: a token that counts for so short a time.
fn lasts(for_s: u64) -> Result<(), CellError> {
    match for_s >= TOKEN_MIN_S {
        true => Ok(()),
        false => Err(refused(format!(
            "a token that counts for {for_s} s, by the server's clock, expires before its mount \
             has it: ask for more with --expires, {TOKEN_MIN_S}s at least"
        ))),
    }
}

fn no_user(name: &str) -> CellError {
    refused(format!(
        "the cell has no user {name}: `ariel user list` shows all"
    ))
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
