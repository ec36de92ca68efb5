//! The database's records of a machine, and of an invitation to become one.

use crate::part::parts;
use net::KeyPrint;
use serde::{Deserialize, Serialize};
use wire::Rights;

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Mounts.
    Machine,
    /// Administers the cell, and mounts nothing.
    Administrator,
}

/// A key that a machine has, and until when its certificate counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its print, in hexadecimal.
    pub print: String,
    /// Seconds since 1970.
    pub expires_s: u64,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its number; never zero, never used again.
    pub id: u64,
    /// Its name; of those that are not revoked no two have the same.
    pub name: String,
    /// Its purpose.
    pub role: Role,
    /// Its rights.
    pub rights: Rights,
    /// The parts of the tree that it may come to, as `VOLUME:/path`; none: all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// Its keys: the newest last.
    pub keys: Vec<Key>,
    /// When it joined, seconds since 1970.
    pub joined_s: u64,
    /// When it was revoked.
    pub revoked_s: Option<u64>,
}

impl Machine {
    /// Its rights, in its parts of the tree.
    #[must_use]
    pub fn bounds(&self) -> Rights {
        Rights {
            parts: parts(&self.parts),
            ..self.rights.clone()
        }
    }

    /// Until when its newest certificate counts.
    #[must_use]
    pub fn expires_s(&self) -> u64 {
        self.keys.iter().map(|key| key.expires_s).max().unwrap_or(0)
    }

    /// May it still show itself with one of its keys?
    #[must_use]
    pub fn is_alive(&self, now_s: u64) -> bool {
        self.revoked_s.is_none() && self.expires_s() > now_s
    }

    pub(crate) fn has_key(&self, print: KeyPrint) -> bool {
        let print = print.to_string();
        self.keys.iter().any(|key| key.print == print)
    }
}

/// The uses and the time for which the secret of a line counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    pub(crate) uses: u32,
    pub(crate) expires_s: u64,
    pub(crate) role: Role,
    pub(crate) rights: Rights,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<String>,
}
