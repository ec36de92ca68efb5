//! The holders of one object, by their sessions.
//!
//! A server knows millions of objects, nearly all of them with one holder or two: these lie in a
//! list of just their length, in the order of sessions. A map would take ten times as much room.

use super::table::Holder;
use alloc::vec::Vec;
use wire::SessionId;

/// The holders, each session once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders(Vec<(SessionId, Holder)>);

impl Holders {
    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&session, |(id, _)| *id)
    }

    pub(crate) fn get(&self, session: &SessionId) -> Option<&Holder> {
        let at = self.find(*session).ok()?;
        Some(&self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, session: &SessionId) -> Option<&mut Holder> {
        let at = self.find(*session).ok()?;
        Some(&mut self.0[at].1)
    }

    /// The holder of this session, one that holds nothing if there was none.
    pub(crate) fn of(&mut self, session: SessionId) -> &mut Holder {
        let at = self.find(session).unwrap_or_else(|at| {
            self.0.reserve_exact(1);
            self.0.insert(at, (session, Holder::default()));
            at
        });
        &mut self.0[at].1
    }

    pub(crate) fn remove(&mut self, session: &SessionId) -> Option<Holder> {
        let at = self.find(*session).ok()?;
        Some(self.0.remove(at).1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SessionId, &Holder)> {
        self.0.iter().map(|(id, holder)| (id, holder))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Holder> {
        self.0.iter().map(|(_, holder)| holder)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn each_session_is_there_once_and_in_order() {
        let mut holders = Holders::default();
        for session in [5, 1, 9, 5, 1] {
            holders.of(session).epoch += session;
        }
        let all: Vec<SessionId> = holders.iter().map(|(id, _)| *id).collect();
        assert_eq!(all, vec![1, 5, 9]);
        assert_eq!(holders.get(&5).map(|holder| holder.epoch), Some(10));
        assert!(holders.get(&2).is_none() && holders.get_mut(&10).is_none());
        assert!(holders.remove(&5).is_some() && holders.remove(&7).is_none());
        holders.remove(&1);
        let left: Vec<_> = holders
            .iter()
            .map(|(id, holder)| (*id, holder.epoch))
            .collect();
        assert_eq!(left, vec![(9, 9)]);
        holders.remove(&9);
        assert!(holders.is_empty());
    }
}
