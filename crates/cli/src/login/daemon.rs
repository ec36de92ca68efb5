//! The logins of a mount's users: a socket for all of them, at which the kernel names the user, and
//! the keeper of their tokens.
//!
//! Guarantees: a user asks for himself alone; tokens are in files of the daemon's user alone; a
//! token is renewed before it expires, as long as the cell allows that, by one of the daemons of
//! the machine; when a login or its end has been answered, this mount's programs have what it
//! gives.

use super::whoami::{self, Seen};
use crate::apart;
use crate::control::{self, Answer, Listener};
use crate::runtime;
use anyhow::{Context, anyhow, bail};
use cell::{Answer as Told, Claimed, Credential, Given, Proof, Question};
use fuse::front::Mount;
use net::{Addresses, Worker};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;
use wire::Rights;

/// How long a mount may take to connect anew.
const RECONNECT: Duration = Duration::from_secs(10);
/// How often tokens are looked at, at most: another daemon may have taken one.
const LOOK_AT_TOKENS: Duration = Duration::from_secs(60);

/// The mount whose users log in.
pub(crate) struct Of {
    /// Where its machine's credential is.
    pub(crate) credentials: PathBuf,
    /// Its server.
    pub(crate) servers: Addresses,
    /// Where it is.
    pub(crate) point: PathBuf,
    /// Its name at the server.
    pub(crate) name: String,
    /// The command line of another mount like it.
    pub(crate) words: Vec<OsString>,
    /// It is for one program and what that starts.
    pub(crate) is_apart: bool,
}

struct Shared {
    mount: Weak<Mount>,
    of: Of,
    session: u64,
    /// Where tokens are.
    tokens: PathBuf,
    /// The tokens that users have shown to this mount alone.
    presented: Mutex<BTreeMap<u32, Claimed>>,
    stopping: Mutex<bool>,
    changed: Condvar,
}

/// The logins. Dropping them ends the socket and the renewals; logins last.
pub(crate) struct Logins {
    shared: Arc<Shared>,
    renewer: Worker,
    _listener: Listener,
}

impl Logins {
    /// Takes questions of users of the mount there.
    pub(crate) fn start(mount: &Arc<Mount>, of: Of) -> anyhow::Result<Logins> {
        let name = runtime::of_mount(&of.credentials).replace("mount", "tokens");
        let tokens = runtime::dir()?.join(name);
        make_private(&tokens)?;
        let path = runtime::users_dir()?.join(socket_name(&of.point));
        let shared = Arc::new(Shared {
            mount: Arc::downgrade(mount),
            of,
            session: mount.client().session(),
            tokens,
            presented: Mutex::new(BTreeMap::new()),
            stopping: Mutex::new(false),
            changed: Condvar::new(),
        });
        let answering = Arc::clone(&shared);
        let answer = move |word: &str, question: &Value| -> Answer {
            if word == "apart" {
                let of = &answering.of;
                return apart::mount(&of.words, &of.point, question);
            }
            let answer = answering.answer(word, question);
            answer
                .unwrap_or_else(|error| control::refusal(format_args!("{error:#}")))
                .into()
        };
        let listener = Listener::at(&path, Box::new(answer))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        let renewing = Arc::clone(&shared);
        let renewer = Worker::start("logins", move || renewing.renew_all())?;
        Ok(Logins {
            shared,
            renewer,
            _listener: listener,
        })
    }
}

impl Drop for Logins {
    fn drop(&mut self) {
        *lock(&self.shared.stopping) = true;
        self.shared.changed.notify_all();
        self.renewer.join();
        let mount = self.shared.of.name.clone();
        if self.shared.of.is_apart
            && let Err(error) = self.shared.ask(&Question::Unmounted { mount })
        {
            tracing::warn!("what was given up on this mount is not forgotten: {error:#}");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket of the mount there. A mount that one program has for itself is not found by others,
/// which look for any.
pub(super) fn socket_name(point: &Path) -> String {
    let of = runtime::of_mount(point);
    match apart::is_own(point) {
        true => format!("{of}.apart.sock"),
        false => format!("{of}{ENDING}"),
    }
}

/// The end of the names of such sockets.
pub(super) const ENDING: &str = ".login.sock";

fn make_private(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}

fn now_s() -> u64 {
    net::clock::wall_ns() / 1_000_000_000
}

impl Shared {
    fn ask(&self, question: &Question) -> anyhow::Result<Told> {
        let credential = Credential::read(&self.of.credentials)?;
        let credential = credential.context("this machine's certificate is gone: join again")?;
        let tls = credential.tls().map_err(anyhow::Error::msg)?;
        Ok(cell::ask(&self.of.servers, &tls, question)?)
    }

    fn answer(&self, word: &str, question: &Value) -> anyhow::Result<Value> {
        let uid = question["peer"].as_u64().context("nobody knows who asks")? as u32;
        match word {
            "challenge" => match self.ask(&Question::Challenge)? {
                Told::Challenge { challenge, machine } => {
                    Ok(json!({ "challenge": challenge, "machine": machine }))
                }
                _ => bail!(STRANGE),
            },
            "login" => self.log_in(uid, question),
            "present" => {
                let token = question["token"].as_str().unwrap_or_default().to_owned();
                let session = Some(self.session);
                let claimed = cell::claimed(&token);
                self.ask(&Question::Present {
                    token,
                    uid,
                    session,
                })?;
                self.wait_until(RECONNECT, |rights| {
                    let user = rights.proven(uid);
                    user.is_some_and(|user| !user.expired && user.session == session)
                })?;
                // The cell has taken it: what it says is so.
                if let Some(claimed) = claimed {
                    lock(&self.presented).insert(uid, claimed);
                }
                Ok(json!({ "ok": true }))
            }
            "logout" => {
                // His changes leave in his name, while he has one.
                self.write_back();
                // The cell forgets it first: a token that is left there counts for nobody.
                self.ask(&Question::Logout { uid })?;
                let _ = fs::remove_file(self.tokens.join(uid.to_string()));
                self.wait_until(RECONNECT, |rights| rights.proven(uid).is_none())?;
                Ok(json!({ "ok": true }))
            }
            "groups" => {
                let deed = serde_json::from_value(question["deed"].clone());
                let deed = deed.context("a mount does not know what to do with groups")?;
                let mount = Some(self.of.name.clone());
                match self.ask(&Question::Groups { uid, mount, deed })? {
                    Told::Groups(groups) => Ok(json!({ "groups": groups })),
                    Told::Ok => Ok(json!({ "ok": true })),
                    _ => bail!(STRANGE),
                }
            }
            "names" => match self.ask(&Question::Names { uid })? {
                Told::Names(names) => Ok(json!({ "names": names })),
                _ => bail!(STRANGE),
            },
            "whoami" => Ok(whoami::answer(&self.seen(uid)?)),
            "token" => {
                let kept = self
                    .kept(uid)
                    .context("you are not logged in: `ariel login`")?;
                Ok(json!({ "token": kept.given.token }))
            }
            other => bail!("a mount does not know {other:?}"),
        }
    }

    /// All that is known here of a user.
    fn seen(&self, uid: u32) -> anyhow::Result<Seen> {
        let mount = self.mount.upgrade().context("the mount is ending")?;
        let rights = mount.client().rights();
        // Nobody has to be in the cell for a machine to speak for him.
        let names = match rights.trusted {
            true => self.ask(&Question::Names { uid }).ok(),
            false => None,
        };
        let name = match names {
            Some(Told::Names(names)) => names.into_iter().find(|(_, it)| *it == uid),
            _ => None,
        };
        Ok(Seen {
            uid,
            rights,
            name: name.map(|(name, _)| name),
            login: self.kept(uid).map(|kept| kept.given),
            presented: lock(&self.presented).get(&uid).cloned(),
        })
    }

    fn log_in(&self, uid: u32, question: &Value) -> anyhow::Result<Value> {
        let word = |name: &str| question[name].as_str().map(str::to_owned);
        let proof = match (word("password"), word("key"), word("signature")) {
            (Some(password), ..) => Proof::Password(password),
            (_, Some(key), Some(signature)) => Proof::Key { key, signature },
            _ => bail!("no proof was given"),
        };
        let for_s = question["for"].as_u64().context("no time was said")?;
        let question = Question::Login {
            user: word("user").context("no user was named")?,
            uid,
            proof,
            for_s,
            once: question["once"].as_bool().unwrap_or(false),
        };
        let Told::Given(given) = self.ask(&question)? else {
            bail!(STRANGE);
        };
        let told = json!({ "user": given.user, "expires": given.expires_s });
        self.keep(uid, given)?;
        self.changed.notify_all();
        // A shorter one is over by then.
        let for_s = Duration::from_secs(for_s);
        if let Err(error) = self.wait_until(for_s.min(RECONNECT), |it| is_known(it, uid)) {
            return Err(match for_s < RECONNECT {
                true => anyhow!("the login was over before the mount had it: a longer --expires"),
                false => error,
            });
        }
        Ok(told)
    }

    /// Waits, no longer than this, until the mount has connected anew, and knows.
    fn wait_until(&self, limit: Duration, knows: impl Fn(&Rights) -> bool) -> anyhow::Result<()> {
        // The mount itself is not kept: it may end meanwhile.
        let watch = self
            .mount
            .upgrade()
            .map(|mount| mount.client().watch_rights());
        if watch.is_some_and(|watch| !watch.wait(limit, knows)) {
            bail!("the mount has not connected anew yet: try again in a moment");
        }
        Ok(())
    }

    /// Has the mount write back and tell all that it has. A failure is logged where it happens.
    fn write_back(&self) {
        if let Ok(dir) = fs::File::open(&self.of.point) {
            let _ = rustix::fs::syncfs(dir);
        }
    }

    fn kept(&self, uid: u32) -> Option<Kept> {
        let text = fs::read_to_string(self.tokens.join(uid.to_string())).ok()?;
        let (issued_s, given) = serde_json::from_str(&text).ok()?;
        Some(Kept { issued_s, given })
    }

    fn keep(&self, uid: u32, given: Given) -> anyhow::Result<()> {
        let path = self.tokens.join(uid.to_string());
        let aside = path.with_extension("new");
        let text = serde_json::to_string(&(now_s(), given))?;
        // A file left from before may be owned, and read, by anybody.
        let _ = fs::remove_file(&aside);
        let mut options = fs::File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside);
        let written = file.and_then(|mut file| {
            std::io::Write::write_all(&mut file, text.as_bytes())?;
            fs::rename(&aside, &path)
        });
        written.with_context(|| path.display().to_string())
    }

    fn renew_all(&self) {
        loop {
            let pause = self.renew_due().unwrap_or_else(|error| {
                tracing::warn!("logins cannot be renewed: {error:#}");
                LOOK_AT_TOKENS
            });
            let stopping = lock(&self.stopping);
            if *stopping {
                return;
            }
            let waited = self.changed.wait_timeout(stopping, pause);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }

    /// Renews what is due; how long it may be left alone.
    fn renew_due(&self) -> anyhow::Result<Duration> {
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        // One of the machine's daemons does it.
        let guard = options.open(self.tokens.join("lock"))?;
        flock(&guard, FlockOperation::LockExclusive)?;
        let mut pause = LOOK_AT_TOKENS;
        for entry in fs::read_dir(&self.tokens)? {
            let Some(uid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if let Some(kept) = self.kept(uid) {
                pause = pause.min(self.renew(uid, kept));
            }
        }
        Ok(pause)
    }

    fn renew(&self, uid: u32, Kept { issued_s, given }: Kept) -> Duration {
        let (now_s, user) = (now_s(), given.user.clone());
        if given.expires_s <= now_s {
            tracing::warn!(uid, user, "a login has expired: `ariel login`");
            let _ = fs::remove_file(self.tokens.join(uid.to_string()));
            return LOOK_AT_TOKENS;
        }
        let due_s = issued_s + given.expires_s.saturating_sub(issued_s) * 2 / 3;
        let may = given.expires_s < given.renewable_s;
        let next_s = if may { due_s } else { given.expires_s };
        if now_s < next_s {
            return Duration::from_secs(next_s - now_s);
        }
        let token = given.token;
        match self.ask(&Question::Extend { token }) {
            Ok(Told::Given(given)) => {
                tracing::info!(uid, user, "a login was renewed");
                if let Err(error) = self.keep(uid, given) {
                    tracing::warn!(uid, user, "a renewed login is not kept: {error:#}");
                }
            }
            Ok(_) => tracing::warn!(uid, user, "{STRANGE}"),
            Err(error) => tracing::warn!(uid, user, "a login is not renewed yet: {error:#}"),
        }
        Duration::from_secs(1)
    }
}

const STRANGE: &str = "the server answered something else: use the same version of Ariel";

/// A token as it is kept.
struct Kept {
    issued_s: u64,
    given: Given,
}

fn is_known(rights: &Rights, uid: u32) -> bool {
    rights.proven(uid).is_some_and(|user| !user.expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that looks for any mount must not find one that another has for itself.
    #[test]
    fn the_socket_of_a_mount_for_one_program_has_another_ending() {
        let of_all = socket_name(Path::new("/mnt/a"));
        assert!(of_all.ends_with(ENDING), "{of_all}");
        let own = socket_name(&Path::new(runtime::OF_USERS).join("apart-1-2"));
        assert!(!own.ends_with(ENDING), "{own}");
        let named_so = socket_name(Path::new("/mnt/apart-1-2"));
        assert!(named_so.ends_with(ENDING), "{named_so}");
    }
}
