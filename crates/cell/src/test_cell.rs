//! A cell and a machine for the tests of this crate.
#![allow(clippy::unwrap_used)]

use crate::machine::Role;
use crate::question::Invite;
use crate::{Cell, Machine};
use wire::Rights;

/// A new cell of its own.
pub(crate) fn cell() -> (tempfile::TempDir, Cell) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cell");
    Cell::make(&path, "own").unwrap();
    (dir, Cell::open(&path).unwrap())
}

/// A machine that is trusted with users from 1000 to 1999, or not trusted.
pub(crate) fn machine(cell: &Cell, name: &str, trusted: bool) -> Machine {
    let rights = Rights {
        trusted,
        uids: vec![(1000, 1999)],
        ..Rights::default()
    };
    let (uses, for_s, role) = (1, 60, Role::Machine);
    let invite = Invite {
        uses,
        for_s,
        role,
        rights,
    };
    let (secret, _) = cell.invite(&invite, &[]).unwrap();
    let (_, public) = crate::authority::new_key().unwrap();
    cell.join(&secret, name, &public).unwrap();
    let all = cell.machines();
    all.into_iter().find(|it| it.name == name).unwrap()
}
