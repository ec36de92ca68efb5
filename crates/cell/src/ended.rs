//! Logins that have ended: changes of their users from before, which machines tell later, count.
//!
//! Guarantee: an ended login gives nobody a right to anything new, and is forgotten after a day.

use crate::database::Changes;
use crate::members::{Cell, CellError, encode, place};
use crate::user::Login;
use crate::users::{LOGINS, State};
use crate::words::now_s;
use std::collections::BTreeMap;
use wire::{Proven, Rights};

impl Cell {
    /// Those who have left, or were removed, lately.
    #[must_use]
    pub fn ended(&self, machine: u64, rights: &Rights) -> Vec<Proven> {
        let now_s = now_s();
        let state = self.users.state.lock();
        let own = state.logins.values().filter(|it| it.machine == machine);
        let ended = own.filter_map(|login| {
            let (gid, groups) = login.ended.as_ref()?;
            rights
                .bounds(login.uid)
                .then(|| login.proven((*gid, groups), now_s))
        });
        ended.collect()
    }
}

/// These logins end: as they are remembered for what their users were answered before.
pub(crate) fn end(
    state: &State,
    which: impl Fn(&Login) -> bool,
) -> Result<(Changes, BTreeMap<String, Login>), CellError> {
    let (mut changes, mut ended) = (Changes::default(), BTreeMap::new());
    let open = state.logins.iter().filter(|(_, it)| it.ended.is_none());
    for (key, login) in open.filter(|(_, login)| which(login)) {
        let user = state.users.get(&login.name).map(|kept| &kept.user);
        let groups = user.map(|user| (user.gid, user.groups.clone()));
        let login = Login {
            expires_s: login.expires_s.min(now_s()),
            ended: Some(groups.unwrap_or((wire::NOBODY, Vec::new()))),
            ..login.clone()
        };
        let value = Some(encode(&login)?);
        changes.then.push((place(LOGINS, key), value));
        ended.insert(key.clone(), login);
    }
    Ok((changes, ended))
}

/// These logins are remembered no more.
pub(crate) fn forget(state: &State, which: impl Fn(&Login) -> bool) -> Changes {
    let old = state.logins.iter().filter(|(_, login)| which(login));
    Changes {
        when: Vec::new(),
        then: old.map(|(key, _)| (place(LOGINS, key), None)).collect(),
    }
}
