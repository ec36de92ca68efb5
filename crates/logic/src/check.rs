//! The invariants of tokens, as one function that looks at machines from outside. The simulator
//! calls it after every step that grants something, scenarios and the model after every step.

use crate::{client, server};
use alloc::collections::BTreeMap;
use core::fmt;
use wire::{Fid, Right, SessionId};

/// A client, and a token that it holds.
pub type Held = (SessionId, client::TokenLine);

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Two clients hold rights that exclude each other (1).
    Conflict {
        /// Of what.
        fid: Fid,
        /// The two clients and their rights.
        held: [(SessionId, Right); 2],
    },
    /// A client holds more than the server believes (2).
    Unknown {
        /// Which client.
        session: SessionId,
        /// Of what.
        fid: Fid,
        /// The right that it holds.
        right: Right,
    },
    /// Changed blocks are under less than Exclusive (4).
    Uncovered {
        /// Which client.
        session: SessionId,
        /// Of what.
        fid: Fid,
        /// The right that it holds.
        right: Right,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { fid, held: [a, b] } => write!(
                f,
                "{fid}: session {} holds {:?}, and session {} holds {:?}",
                a.0, a.1, b.0, b.1
            ),
            Self::Unknown {
                session,
                fid,
                right,
            } => write!(
                f,
                "{fid}: session {session} holds {right:?}, which the server does not know"
            ),
            Self::Uncovered {
                session,
                fid,
                right,
            } => write!(
                f,
                "{fid}: session {session} has changed blocks under {right:?}"
            ),
        }
    }
}

/// Do invariants 1, 2 and 4 of ARCHITECTURE.md hold of what clients hold at one instant? Of 2 only
/// if it is said what the server believes: a server that has just started learns it by and by.
pub fn check(held: &[Held], believed: Option<&[server::TokenLine]>) -> Result<(), Broken> {
    let mut known: BTreeMap<(SessionId, Fid), Right> = BTreeMap::new();
    for line in believed.into_iter().flatten() {
        known.insert((line.session, line.fid), line.right);
    }
    let mut most: BTreeMap<Fid, (SessionId, Right)> = BTreeMap::new();
    for (session, line) in held.iter().filter(|(_, line)| line.right > Right::None) {
        let (session, fid, right) = (*session, line.fid, line.right);
        let believes = known.get(&(session, fid)).copied().unwrap_or(Right::None);
        if believed.is_some() && believes < right {
            return Err(Broken::Unknown {
                session,
                fid,
                right,
            });
        }
        if line.dirty > 0 && right < Right::Exclusive {
            return Err(Broken::Uncovered {
                session,
                fid,
                right,
            });
        }
        let Some(other) = most.insert(fid, (session, right)) else {
            continue;
        };
        if right.max(other.1) == Right::Exclusive {
            let held = [other, (session, right)];
            return Err(Broken::Conflict { fid, held });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid {
        volume: 1,
        vnode: 2,
        uniq: 1,
    };

    fn line(right: Right, dirty: u32) -> client::TokenLine {
        client::TokenLine {
            fid: FILE,
            right,
            epoch: 1,
            opens: (0, 0),
            dirty,
        }
    }

    #[test]
    fn each_invariant_is_looked_at() {
        let shared = [(1, line(Right::Shared, 0)), (2, line(Right::Transient, 0))];
        assert_eq!(check(&shared, None), Ok(()));
        let unknown = check(&shared, Some(&[]));
        assert!(matches!(unknown, Err(Broken::Unknown { session: 1, .. })));
        let dirty = check(&[(1, line(Right::Shared, 1))], None);
        assert!(matches!(dirty, Err(Broken::Uncovered { .. })));
        let both = [
            (1, line(Right::Transient, 0)),
            (2, line(Right::Exclusive, 3)),
        ];
        assert!(matches!(check(&both, None), Err(Broken::Conflict { .. })));
    }
}
