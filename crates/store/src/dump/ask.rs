//! The snapshot that a request asks for, and the place where a part of it begins.

use super::{Between, Cursor, Dumper, FIRST_THING};
use crate::store::Store;
use crate::value;
use wire::limits::STREAM_BYTES;
use wire::{Blob, Caller, Dump, Name, Op, Outcome, Refusal, StreamChunk, StreamHead};

impl Store {
    /// A part of what a snapshot has.
    pub(crate) fn dump(&self, op: &Op, caller: &Caller) -> Result<Outcome, Refusal> {
        let Op::Dump {
            of,
            since,
            after,
            plan,
        } = op
        else {
            return Err(Refusal::Invalid);
        };
        if caller.uid != 0 {
            return Err(Refusal::NotPermitted);
        }
        let (head, new, between) = self.sent(of, since.as_ref())?;
        let cursor = match after {
            Some(after) => value::decode(&after.0).ok_or(Refusal::Invalid)?,
            None => Cursor {
                thing: FIRST_THING.to_vec(),
                offset: 0,
                whole: false,
            },
        };
        let mut dumper = Dumper {
            core: &self.core,
            log: &self.log,
            new,
            between,
            plan: *plan,
            most: (self.options.stream_bytes as usize).clamp(1, STREAM_BYTES),
            whole: cursor.whole,
            current: None,
            chunk: StreamChunk::default(),
            bytes: 0,
            weight: 0,
            steps: 0,
        };
        let next = dumper.part(cursor)?;
        Ok(Outcome::Dump(Box::new(Dump {
            head,
            chunk: dumper.chunk,
            next: next.map(|next| Blob(value::encode(&next))),
        })))
    }

    /// The head of the stream, the snapshot, and the births since the other one.
    fn sent(
        &self,
        of: &Name,
        since: Option<&Name>,
    ) -> Result<(StreamHead, u32, Option<Between>), Refusal> {
        let volumes = &self.core.index.volumes;
        let new = volumes.find(of).ok_or(Refusal::NotFound)?;
        let snapshot = volumes.get(new).ok_or(Refusal::NotFound)?;
        let whole = snapshot.snapshot_of.ok_or(Refusal::Invalid)?;
        // Later changes at the source of a replica fit behind the replica's own streams.
        let is_replica = volumes.is_replica(whole);
        let identity = |id| {
            let of = volumes.info(id)?.provenance;
            of.copy_of.filter(|_| is_replica).or(Some(of.identity))
        };
        let mut head = StreamHead {
            volume: identity(whole).ok_or(Refusal::NotFound)?,
            snapshot: identity(new).ok_or(Refusal::NotFound)?,
            name: snapshot.name.clone(),
            since: None,
            objects: snapshot.objects,
            bytes: snapshot.bytes,
        };
        let Some(since) = since else {
            return Ok((head, new, None));
        };
        let old = volumes.find(since).ok_or(Refusal::Stale)?;
        head.since = identity(old);
        let (from, to) = volumes.between(old, new).ok_or(Refusal::CrossVolume)?;
        let (Some((of, first)), Some((_, last))) = (from.first(), to.first()) else {
            return Err(Refusal::CrossVolume);
        };
        let between = Between {
            old,
            of: *of,
            births: (first + 1, *last),
        };
        let listed = volumes
            .get(*of)
            .is_some_and(|of| of.copied.listed_from <= first + 1);
        match listed {
            true => Ok((head, new, Some(between))),
            // An older program has not listed it.
            false => Err(Refusal::NotSupported),
        }
    }
}
