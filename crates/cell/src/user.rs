//! The database's records of a user and of his logins, and the ways in which he proves who he is.

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use wire::{Name, Proven};

/// The only kind of key that is taken.
const KIND: &[u8] = b"ssh-ed25519";
const KEY_BYTES: usize = 32;

/// A user as an administrator sees him.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// His name.
    pub name: String,
    /// His number, in the tree and on the machines.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// His ssh keys: the second words of lines of `authorized_keys`.
    pub keys: Vec<String>,
    /// He has a password.
    pub password: bool,
}

/// A user as he is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) user: User,
    /// His password, hashed.
    pub(crate) hash: Option<String>,
}

/// A login, as it counts on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) name: String,
    pub(crate) machine: u64,
    pub(crate) uid: u32,
    pub(crate) session: Option<u64>,
    pub(crate) expires_s: u64,
    pub(crate) write: bool,
    pub(crate) under: Option<String>,
    /// Its user has left, or was removed; the group and further groups that he had.
    #[serde(default)]
    pub(crate) ended: Option<(u32, Vec<u32>)>,
}

impl Login {
    /// The key under which it is kept.
    pub(crate) fn key(&self) -> String {
        let session = self
            .session
            .map_or_else(String::new, |it| format!("{it:016x}"));
        format!("{}/{}/{session}", self.machine, self.uid)
    }

    /// The login as a server is told of it.
    pub(crate) fn proven(&self, (gid, groups): (u32, &[u32]), now_s: u64) -> Proven {
        let names = |path: &String| {
            let names = path.split('/').filter(|name| !name.is_empty());
            names
                .filter_map(|name| Name::new(name.as_bytes()).ok())
                .collect()
        };
        Proven {
            uid: self.uid,
            gid,
            groups: groups.to_vec(),
            session: self.session,
            write: self.write,
            under: self.under.as_ref().map(names),
            expired: self.expires_s <= now_s,
        }
    }
}

/// How a user proves who he is.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// By a password.
    Password(String),
    /// By a signature of what [`to_sign`] says, with one of his keys.
    Key {
        /// The key, as `authorized_keys` has it.
        key: String,
        /// The signature, in base64, as ssh agents give it.
        signature: String,
    },
}

/// The bytes that a user signs who logs in with a key.
#[must_use]
pub fn to_sign(challenge: &str, user: &str, machine: &str) -> Vec<u8> {
    format!("ariel login\n{challenge}\n{user}\n{machine}\n").into_bytes()
}

/// A password as it is kept.
pub(crate) fn hash(password: &str) -> Result<String, String> {
    if password.len() < 8 || password.len() > 1024 {
        return Err("a password has 8 to 1024 bytes".into());
    }
    let salt = SaltString::encode_b64(&crate::words::secret()[..16]);
    let hashed = salt.and_then(|salt| {
        let hashed = Argon2::default().hash_password(password.as_bytes(), &salt);
        hashed.map(|hash| hash.to_string())
    });
    hashed.map_err(|error| error.to_string())
}

/// Is it this password? Takes as long for a user who has none.
pub(crate) fn is_password(kept: Option<&str>, password: &str) -> bool {
    const NOBODYS: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$\
                           AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let parsed = PasswordHash::new(kept.unwrap_or(NOBODYS));
    let fits = |hash| {
        Argon2::default()
            .verify_password(password.as_bytes(), &hash)
            .is_ok()
    };
    parsed.is_ok_and(fits) && kept.is_some()
}

/// The parts of what ssh writes: lengths and bytes.
fn parts(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        parts.push(part);
        bytes = rest;
    }
    Some(parts)
}

/// A key as `authorized_keys` has it: the second word of its line, or the whole line.
///
/// # Errors
/// It is none, or of a kind that is not taken.
pub fn ssh_key(text: &str) -> Result<String, String> {
    let word = text
        .split_whitespace()
        .find(|word| word.starts_with("AAAA"));
    let word = word.ok_or("not a line of authorized_keys: ssh-ed25519 AAAA... comment")?;
    public_key(word).map_or_else(
        || Err("only ssh-ed25519 keys are taken: `ssh-keygen -t ed25519` makes one".to_owned()),
        |_| Ok(word.to_owned()),
    )
}

fn public_key(text: &str) -> Option<Vec<u8>> {
    let blob = STANDARD.decode(text).ok()?;
    match parts(&blob)?.as_slice() {
        [kind, key] if *kind == KIND && key.len() == KEY_BYTES => Some(key.to_vec()),
        _ => None,
    }
}

/// Is it a signature of these bytes with this key?
pub(crate) fn is_signed(key: &str, signature: &str, bytes: &[u8]) -> bool {
    let signed = || {
        let key = public_key(key)?;
        let blob = STANDARD.decode(signature).ok()?;
        let parts = parts(&blob)?;
        let [kind, signature] = parts.as_slice() else {
            return None;
        };
        let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, key);
        (*kind == KIND).then(|| key.verify(bytes, signature).is_ok())
    };
    signed().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    #[test]
    fn a_password_is_kept_as_a_hash_alone() {
        let kept = hash("correct horse").unwrap();
        assert!(kept.starts_with("$argon2id$") && !kept.contains("horse"));
        assert_ne!(kept, hash("correct horse").unwrap(), "salted");
        assert!(is_password(Some(&kept), "correct horse"));
        assert!(!is_password(Some(&kept), "correct house"));
        assert!(!is_password(None, "correct horse"));
        assert!(hash("short").is_err());
    }

    fn blob(parts: &[&[u8]]) -> String {
        let one = |part: &&[u8]| [&(part.len() as u32).to_be_bytes(), *part].concat();
        STANDARD.encode(parts.iter().map(one).collect::<Vec<_>>().concat())
    }

    #[test]
    fn a_signature_counts_for_its_key_and_its_bytes() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = blob(&[KIND, pair.public_key().as_ref()]);
        let bytes = to_sign("challenge", "ann", "desk");
        let signature = blob(&[KIND, pair.sign(&bytes).as_ref()]);
        assert!(is_signed(&key, &signature, &bytes));
        assert!(!is_signed(
            &key,
            &signature,
            &to_sign("challenge", "bob", "desk")
        ));
        let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
        let other = blob(&[KIND, other.public_key().as_ref()]);
        assert!(!is_signed(&other, &signature, &bytes));
        assert!(!is_signed(&key, "rubbish", &bytes));
        let line = format!("ssh-ed25519 {key} ann@desk");
        assert_eq!(ssh_key(&line).unwrap(), key);
        for wrong in ["", "ssh-rsa AAAAB3NzaC1yc2E= x", "AAAA"] {
            assert!(ssh_key(wrong).is_err(), "{wrong}");
        }
    }
}
