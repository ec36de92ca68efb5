//! Answers kept so that a repeated request is not applied again, and the sessions they belong to.
//!
//! An answer is as durable as the change that it answers: replay of the log makes it again, and a
//! checkpoint puts it into the index. Forgetting needs no record: answers that replay brings back
//! are forgotten again the next time.

use crate::error::StoreError;
use crate::index::Index;
use crate::key;
use crate::sessions::Mark;
use crate::value;
use crate::volumes::Volume;
use std::collections::{BTreeMap, HashMap};
use wire::{Origin, Outcome, RequestId, SessionId};

#[derive(Debug)]
struct Kept {
    outcome: Outcome,
    /// The index has it, or a checkpoint is putting it there.
    stored: bool,
}

/// Answers and sessions.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    sessions: BTreeMap<SessionId, Mark>,
    kept: HashMap<SessionId, BTreeMap<RequestId, Kept>>,
    /// Kept since the last checkpoint began.
    fresh: Vec<Origin>,
    /// When `fresh` is searched for what has been forgotten.
    fresh_limit: usize,
    /// Forgotten since then, and in the index.
    gone: Vec<Origin>,
}

impl Answers {
    /// Reads what the engine has.
    pub(crate) fn load(index: &mut Index) -> Result<Self, StoreError> {
        let mut answers = Self::default();
        let (mut from, to) = key::partition();
        loop {
            let part = index.scan(&from, &to, 1024)?;
            let Some((last, _)) = part.last() else {
                return Ok(answers);
            };
            from = key::after(last);
            for (key, bytes) in part {
                answers
                    .load_one(index, &key, &bytes)
                    .ok_or_else(|| StoreError::Damaged("an index entry of sessions".to_owned()))?;
            }
        }
    }

    fn load_one(&mut self, index: &mut Index, key: &[u8], bytes: &[u8]) -> Option<()> {
        let parts = key::parts(key)?;
        match parts.kind {
            key::SESSION => {
                self.sessions
                    .insert(parts.vnode, Mark(value::decode(bytes)?));
            }
            key::ANSWER => {
                let kept = Kept {
                    outcome: value::decode(bytes)?,
                    stored: true,
                };
                let of = self.kept.entry(parts.vnode).or_default();
                of.insert(parts.number()?, kept);
            }
            key::SEGMENT => {
                index.load_live(u32::try_from(parts.vnode).ok()?, value::decode(bytes)?)
            }
            key::VOLUME if parts.vnode == 0 => index.volumes.load_next(value::decode(bytes)?),
            key::VOLUME => {
                let id = u32::try_from(parts.vnode).ok()?;
                index.volumes.load(id, Volume::decode(bytes)?);
            }
            _ => {}
        }
        Some(())
    }

    pub(crate) fn get(&self, origin: Origin) -> Option<&Outcome> {
        let kept = self.kept.get(&origin.session)?.get(&origin.request)?;
        Some(&kept.outcome)
    }

    pub(crate) fn put(&mut self, origin: Origin, outcome: Outcome) {
        let kept = Kept {
            outcome,
            stored: false,
        };
        let of = self.kept.entry(origin.session).or_default();
        of.insert(origin.request, kept);
        self.fresh.push(origin);
    }

    pub(crate) fn forget(&mut self, session: SessionId, below: RequestId) {
        let Some(of) = self.kept.get_mut(&session) else {
            return;
        };
        while let Some(first) = of.first_entry()
            && *first.key() < below
        {
            let request = *first.key();
            if first.remove().stored {
                self.gone.push(Origin { session, request });
            }
        }
        // A server that forgets as fast as it answers would let these grow between checkpoints.
        if self.fresh.len() > self.fresh_limit {
            let kept = &self.kept;
            self.fresh.retain(|origin| {
                let of = kept.get(&origin.session);
                of.is_some_and(|of| of.contains_key(&origin.request))
            });
            self.fresh_limit = 2 * self.fresh.len() + 1024;
        }
    }

    pub(crate) fn open(&mut self, session: SessionId, mark: Mark, index: &mut Index) {
        self.sessions.insert(session, mark);
        index.put(key::session(session), Some(value::encode(&mark.0)));
    }

    pub(crate) fn close(&mut self, session: SessionId, index: &mut Index) {
        self.forget(session, RequestId::MAX);
        self.kept.remove(&session);
        self.sessions.remove(&session);
        index.put(key::session(session), None);
    }

    pub(crate) fn sessions(&self) -> &BTreeMap<SessionId, Mark> {
        &self.sessions
    }

    /// How many answers are kept.
    pub(crate) fn count(&self) -> usize {
        self.kept.values().map(BTreeMap::len).sum()
    }

    /// Puts what changed into the index, for a checkpoint.
    pub(crate) fn put_changes(&mut self, index: &mut Index) {
        for origin in std::mem::take(&mut self.gone) {
            index.put(key::answer(origin.session, origin.request), None);
        }
        for origin in std::mem::take(&mut self.fresh) {
            let of = self.kept.get_mut(&origin.session);
            if let Some(kept) = of.and_then(|of| of.get_mut(&origin.request)) {
                kept.stored = true;
                let bytes = value::encode(&kept.outcome);
                index.put(key::answer(origin.session, origin.request), Some(bytes));
            }
        }
    }
}
