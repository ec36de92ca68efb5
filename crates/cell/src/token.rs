//! Tokens of users: a user who has logged in shows his later.
//!
//! A token is a biscuit that the cell has signed: for one user on one machine, until a time.
//! Its holder can narrow it without asking anybody, to a path, to reading, to a shorter time;
//! nobody can widen it. Guarantees: a token of another cell, of another machine, or changed by
//! anybody but by narrowing is refused; so is one whose limits are not all understood.

use crate::database::{Changes, Database};
use crate::members::{CELL, CellError, decode, encode, place, refused};
use crate::words::{hex, unhex};
use biscuit_auth::builder::{Algorithm, AuthorizerBuilder, BiscuitBuilder, BlockBuilder};
use biscuit_auth::{AuthorizerLimits, Biscuit, KeyPair, PrivateKey, UnverifiedBiscuit};
use std::fmt::Write;
use std::time::Duration;

/// Most bytes of a token as text.
pub const TOKEN_BYTES_MAX: usize = 3000;
/// The longest that the checks of a token may take. The library's own limit is a millisecond: a
/// server that Linux did not run meanwhile refused tokens that were right.
const CHECK_TIME_MAX: Duration = Duration::from_secs(1);
/// The record of the key that signs tokens.
const TOKENS: &str = "tokens";
/// Most times that a token is narrowed.
const BLOCKS_MAX: usize = 16;

/// The key that signs tokens.
pub(crate) struct Signer(KeyPair);

impl Signer {
    /// The key of a cell: its first server makes it.
    pub(crate) fn of(database: &dyn Database) -> Result<Signer, CellError> {
        let at = place(CELL, TOKENS);
        if let Some(bytes) = database.get(&at)? {
            return Signer::load(&decode::<String>(&bytes)?);
        }
        let (signer, private) = Signer::make();
        let changes = Changes {
            when: vec![(at.clone(), None)],
            then: vec![(at.clone(), Some(encode(&private)?))],
        };
        if database.commit(&changes)? {
            return Ok(signer);
        }
        let bytes = database.get(&at)?.ok_or(CellError::Outdated)?;
        Signer::load(&decode::<String>(&bytes)?)
    }

    /// A new one, and its private part in hexadecimal.
    pub(crate) fn make() -> (Signer, String) {
        let pair = KeyPair::new();
        let private = hex(&pair.private().to_bytes());
        (Signer(pair), private)
    }

    /// The one that was made.
    pub(crate) fn load(private: &str) -> Result<Signer, CellError> {
        let bytes = unhex(private).unwrap_or_default();
        let key = PrivateKey::from_bytes(&bytes, Algorithm::Ed25519);
        let key = key.map_err(|_| refused("the cell's database holds no key for tokens"))?;
        Ok(Signer(KeyPair::from(&key)))
    }

    /// A token that says this.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, CellError> {
        let Claims {
            user,
            uid,
            machine,
            expires_s,
            renewable_s,
            ..
        } = claims;
        let code = format!(
            "user(\"{user}\"); uid({uid}); renewable({renewable_s}); check if on({machine}); \
             check if now($now), $now < {expires_s};"
        );
        let failed = |error: biscuit_auth::error::Token| refused(error.to_string());
        let token = BiscuitBuilder::new().code(code).map_err(failed)?;
        let token = token.build(&self.0).map_err(failed)?;
        token.to_base64().map_err(failed)
    }

    /// The content of a token, if it counts on this machine at this time.
    pub(crate) fn read(
        &self,
        text: &str,
        (machine, now_s): (u64, u64),
    ) -> Result<Claims, CellError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(refused(NO_TOKEN));
        }
        let token = Biscuit::from_base64(text, self.0.public()).map_err(|_| refused(NO_TOKEN))?;
        if token.block_count() > BLOCKS_MAX {
            return Err(refused("the token was narrowed too often: log in again"));
        }
        let mut claims = Claims::default();
        for block in 0..token.block_count() {
            let source = token.print_block_source(block);
            let source = source.map_err(|_| refused(NO_TOKEN))?;
            for line in source.lines().filter(|line| !line.trim().is_empty()) {
                claims.take(line.trim(), block == 0)?;
            }
        }
        if claims.machine != machine {
            return Err(refused(
                "the token is of another machine: log in on this one with `ariel login`",
            ));
        }
        if claims.expires_s <= now_s {
            let narrow = match claims.narrowed {
                true => "narrow another one, with a longer --expires, or ",
                false => "",
            };
            return Err(refused(format!(
                "the token has expired, by the server's clock: {narrow}log in again with \
                 `ariel login`"
            )));
        }
        // The library has the last word on the claims read above.
        let mut facts = format!("now({now_s}); on({machine}); access(\"read\"); allow if true;");
        if let Some(path) = &claims.under {
            for at in ways(path) {
                // Writing to a string cannot fail.
                let _ = write!(facts, " within(\"{at}\");");
            }
        }
        let limits = AuthorizerLimits {
            max_time: CHECK_TIME_MAX,
            ..AuthorizerLimits::default()
        };
        let authorizer = AuthorizerBuilder::new().set_limits(limits).code(facts);
        let allowed = authorizer
            .and_then(|authorizer| authorizer.build(&token))
            .and_then(|mut authorizer| authorizer.authorize());
        allowed
            .map_err(|_| refused("the token does not count: log in again with `ariel login`"))?;
        Ok(claims)
    }
}

const NO_TOKEN: &str = "that is no token of this cell: `ariel login` gets one";

/// A path and all that it is in.
fn ways(path: &str) -> Vec<&str> {
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0);
    let mut all: Vec<&str> = ends.map(|at| &path[..at]).collect();
    all.push(path);
    all
}

/// The content of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) user: String,
    pub(crate) uid: u32,
    pub(crate) machine: u64,
    pub(crate) expires_s: u64,
    /// It is renewed until then.
    pub(crate) renewable_s: u64,
    pub(crate) reads_only: bool,
    /// It counts at and below this path alone.
    pub(crate) under: Option<String>,
    /// It says less than what the cell has signed.
    pub(crate) narrowed: bool,
}

/// The text between two others.
fn inner<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.strip_prefix(before)?.strip_suffix(after)
}

impl Claims {
    /// Takes in one line of a token; of the first block, which the cell has signed, or of another.
    fn take(&mut self, line: &str, first: bool) -> Result<(), CellError> {
        let strange = || refused("the token has a limit that this server does not know: update it");
        let number = |text: &str| text.parse::<u64>().map_err(|_| strange());
        self.narrowed |= !first;
        if let Some(until) = inner(line, "check if now($now), $now < ", ";") {
            let until = number(until)?;
            self.expires_s = match first {
                true => until,
                false => self.expires_s.min(until),
            };
        } else if line == "check if access(\"read\");" {
            self.reads_only = true;
        } else if let Some(path) = inner(line, "check if within(\"", "\");") {
            let path = clean(path).map_err(refused)?;
            let outer = self.under.as_deref().unwrap_or("/");
            if !is_within(&path, outer) {
                return Err(refused(format!(
                    "the token is limited to {outer} and to {path}, which is nothing: narrow the \
                     first token once"
                )));
            }
            self.under = Some(path);
        } else if !first {
            return Err(strange());
        } else if let Some(user) = inner(line, "user(\"", "\");") {
            user.clone_into(&mut self.user);
        } else if let Some(uid) = inner(line, "uid(", ");") {
            self.uid = uid.parse().map_err(|_| strange())?;
        } else if let Some(until) = inner(line, "renewable(", ");") {
            self.renewable_s = number(until)?;
        } else if let Some(machine) = inner(line, "check if on(", ");") {
            self.machine = number(machine)?;
        } else {
            return Err(strange());
        }
        Ok(())
    }
}

fn is_within(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    outer == "/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path of the tree as a limit: from the root, without what a name cannot be.
fn clean(path: &str) -> Result<String, String> {
    let plain = |name: &str| !matches!(name, "." | "..") && !name.contains(['"', '\\', '\n']);
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    if !path.starts_with('/') || names.is_empty() || !names.iter().copied().all(plain) {
        return Err(format!(
            "{path:?} is no path below the root: begin with /, without . and .. and quotes"
        ));
    }
    Ok(format!("/{}", names.join("/")))
}

/// The limits to which a token is narrowed.
#[derive(Clone, Debug, Default)]
pub struct Narrower {
    /// It counts at and below this path of the tree alone.
    pub path: Option<String>,
    /// It changes nothing.
    pub read_only: bool,
    /// It counts until then, seconds since 1970.
    pub expires_s: Option<u64>,
}

/// The content of a token as its holder may read it, without a word on whether it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The user.
    pub user: String,
    /// Until when it counts, seconds since 1970.
    pub expires_s: u64,
    /// It counts at and below this path alone.
    pub path: Option<String>,
    /// It changes nothing.
    pub read_only: bool,
}

/// Reads a token without the cell; `None`: it is none that is understood here.
#[must_use]
pub fn claimed(text: &str) -> Option<Claimed> {
    let token = UnverifiedBiscuit::from_base64(text).ok()?;
    let mut claims = Claims::default();
    for block in 0..token.block_count() {
        let source = token.print_block_source(block).ok()?;
        for line in source.lines().filter(|line| !line.trim().is_empty()) {
            claims.take(line.trim(), block == 0).ok()?;
        }
    }
    Some(Claimed {
        user: claims.user,
        expires_s: claims.expires_s,
        path: claims.under,
        read_only: claims.reads_only,
    })
}

/// A narrower token, made without asking anybody.
///
/// # Errors
/// That is no token, or no limit, in words.
pub fn attenuate(text: &str, to: &Narrower) -> Result<String, String> {
    let token = UnverifiedBiscuit::from_base64(text);
    let token = token.map_err(|_| "that is no token: `ariel token show` prints one".to_owned())?;
    let mut code = String::new();
    if let Some(path) = &to.path {
        code += &format!("check if within(\"{}\");", clean(path)?);
    }
    if to.read_only {
        code += "check if access(\"read\");";
    }
    if let Some(until) = to.expires_s {
        code += &format!("check if now($now), $now < {until};");
    }
    if code.is_empty() {
        return Err("nothing is to be narrowed: --path, --read-only or --expires".into());
    }
    let block = BlockBuilder::new().code(code);
    let narrowed = block.and_then(|block| token.append(block));
    let text = narrowed.and_then(|token| token.to_base64());
    let text = text.map_err(|error| error.to_string())?;
    match text.len() <= TOKEN_BYTES_MAX {
        true => Ok(text),
        false => Err("the token would be too long: narrow the first one once".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: u64 = 1_000_000;

    fn claims() -> Claims {
        Claims {
            user: "ann".into(),
            uid: 1001,
            machine: 7,
            expires_s: NOW + 100,
            renewable_s: NOW + 1000,
            ..Claims::default()
        }
    }

    fn told(result: Result<Claims, CellError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_token_counts_for_its_user_machine_and_time_alone() {
        let (signer, private) = Signer::make();
        let text = signer.sign(&claims()).unwrap();
        let again = Signer::load(&private).unwrap();
        assert_eq!(again.read(&text, (7, NOW)).unwrap(), claims());
        assert!(told(signer.read(&text, (8, NOW))).contains("another machine"));
        assert!(told(signer.read(&text, (7, NOW + 100))).contains("ariel login"));
        let (other, _) = Signer::make();
        assert!(told(other.read(&text, (7, NOW))).contains("no token of this cell"));
        let mut changed = text.clone().into_bytes();
        let middle = changed.len() / 2;
        changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(signer.read(&changed, (7, NOW)).is_err());
        assert!(signer.read("rubbish", (7, NOW)).is_err());
    }

    #[test]
    fn whoever_has_a_token_narrows_it_and_never_widens_it() {
        let (signer, _) = Signer::make();
        let first = signer.sign(&claims()).unwrap();
        let path = |path: &str| Narrower {
            path: Some(path.into()),
            ..Narrower::default()
        };
        let narrow = Narrower {
            read_only: true,
            expires_s: Some(NOW + 10),
            ..path("/a/b/")
        };
        let second = attenuate(&first, &narrow).unwrap();
        let read = signer.read(&second, (7, NOW)).unwrap();
        let under = read.under.as_deref();
        assert_eq!(
            (under, read.reads_only, read.expires_s),
            (Some("/a/b"), true, NOW + 10)
        );
        assert!(read.narrowed);
        // Narrowed once more: a wider limit does not count.
        let longer = Narrower {
            expires_s: Some(NOW + 50),
            ..path("/a/b/c")
        };
        let third = attenuate(&second, &longer).unwrap();
        let read = signer.read(&third, (7, NOW)).unwrap();
        let under = read.under.as_deref();
        assert_eq!(
            (under, read.reads_only, read.expires_s),
            (Some("/a/b/c"), true, NOW + 10)
        );
        for wider in ["/a", "/a/bc", "/x"] {
            let wider = attenuate(&second, &path(wider)).unwrap();
            assert!(signer.read(&wider, (7, NOW)).is_err());
        }
        for wrong in ["a", "/", "/a/../b", "/a\"b"] {
            assert!(attenuate(&first, &path(wrong)).is_err(), "{wrong}");
        }
        assert!(attenuate(&first, &Narrower::default()).is_err());
    }

    #[test]
    fn a_limit_that_is_not_understood_is_not_passed_over() {
        let (signer, _) = Signer::make();
        let first = signer.sign(&claims()).unwrap();
        let token = UnverifiedBiscuit::from_base64(&first).unwrap();
        for code in [
            "check if weekday(\"monday\");",
            "uid(0);",
            "user(\"root\");",
        ] {
            let block = BlockBuilder::new().code(code).unwrap();
            let text = token.append(block).unwrap().to_base64().unwrap();
            assert!(signer.read(&text, (7, NOW)).is_err(), "{code}");
        }
    }
}
