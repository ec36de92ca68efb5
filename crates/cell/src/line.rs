//! The line with which a machine joins: where the server is, the print of the authority's key, and
//! a secret. There is no form without the print: nobody in between can pass for the server.

use crate::words::{hex, unhex};
use net::{Addresses, KeyPrint};
use std::fmt;
use std::str::FromStr;

/// How a line begins; another form would begin otherwise.
const FORM: &str = "ariel1";

/// A line.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinLine {
    /// Where the server is.
    pub servers: Addresses,
    /// The authority's key.
    pub authority: KeyPrint,
    /// The secret that makes the line count.
    pub(crate) secret: [u8; 32],
}

/// A text that is no line.
#[derive(Debug, thiserror::Error)]
#[error(
    "that is no join line: it is one word that begins with `{FORM}/`, as `ariel join-token` \
     printed it"
)]
pub struct NoLine;

impl JoinLine {
    /// The line for this secret, in hexadecimal.
    #[must_use]
    pub fn new(servers: Addresses, authority: KeyPrint, secret: &str) -> Option<JoinLine> {
        Some(JoinLine {
            servers,
            authority,
            secret: unhex(secret)?.try_into().ok()?,
        })
    }
}

impl fmt::Display for JoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authority, secret) = (self.authority, hex(&self.secret));
        write!(f, "{FORM}/{}/{authority}/{secret}", self.servers)
    }
}

impl fmt::Debug for JoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM}/{}/{}/...", self.servers, self.authority)
    }
}

impl FromStr for JoinLine {
    type Err = NoLine;

    fn from_str(text: &str) -> Result<JoinLine, NoLine> {
        let words: Vec<&str> = text.trim().split('/').collect();
        let &[FORM, servers, authority, secret] = words.as_slice() else {
            return Err(NoLine);
        };
        let bytes = |text: &str| -> Option<[u8; 32]> { unhex(text)?.try_into().ok() };
        Ok(JoinLine {
            servers: servers.parse().map_err(|_| NoLine)?,
            authority: KeyPrint(bytes(authority).ok_or(NoLine)?),
            secret: bytes(secret).ok_or(NoLine)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_printed_and_shows_no_secret_to_a_log() {
        let line = JoinLine {
            servers: "server.example:7000,[fd00::1]:7000".parse().unwrap(),
            authority: KeyPrint([7; 32]),
            secret: [9; 32],
        };
        let text = line.to_string();
        assert!(!text.contains(char::is_whitespace));
        assert!(format!(" {text}\n").parse::<JoinLine>().unwrap() == line);
        assert!(!format!("{line:?}").contains(&hex(&line.secret)));
        let cut = &text[..text.len() - 2];
        for wrong in ["", cut, &text[1..], &text.replace("ariel1", "ariel2")] {
            assert!(wrong.parse::<JoinLine>().is_err(), "{wrong}");
        }
    }
}
