//! The state that a partition's operations work on, without the log: a request and its replay after
//! a crash do the same to it.

use crate::answers::Answers;
use crate::apply;
use crate::error::StoreError;
use crate::index::{Changes, Index};
use crate::log::{End, Place};
use crate::options::Mutant;
use crate::record::{Entry, FORMAT, HEADER_BYTES, Happened, Record, reads_format};
use crate::sessions::Mark;
use crate::snapshots;
use crate::txn::{Context, Txn, trouble};
use crate::value::{Object, root_object};
use crate::volumes;
use wire::{Caller, Chosen, Fid, Name, Op, Outcome, Refusal, Time};

/// The state that operations work on.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: Index,
    pub(crate) answers: Answers,
    pub(crate) inline_bytes: u32,
}

/// The root of a new partition.
pub(crate) struct Root {
    pub(crate) volume: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u16,
    pub(crate) now: Time,
}

impl Core {
    /// Works out what an operation does, and does not do it yet.
    pub(crate) fn plan(
        &self,
        context: Context<'_>,
        op: &Op,
    ) -> Result<(Outcome, Changes), Refusal> {
        if snapshots::are_changed(op) {
            return Err(Refusal::ReadOnly);
        }
        let mut txn = Txn::new(&self.index, context);
        let outcome = apply::apply(&mut txn, op)?;
        let volumes = &self.index.volumes;
        let opens = match op {
            Op::Open { fid, access } if access.write => Some(fid),
            Op::Claim { fid } => Some(fid),
            _ => None,
        };
        if opens.is_some_and(|fid| volumes.is_frozen(fid.volume)) {
            return Err(Refusal::ReadOnly);
        }
        let made = |id| txn.changes.volumes.iter().any(|(of, _)| *of == id);
        let frozen = |fid: &Fid| volumes.is_frozen(fid.volume) && !made(fid.volume);
        let mut changed = txn.changes.objects.iter().map(|(fid, _)| fid);
        if changed.any(|fid| fid.is_snapshots() || frozen(fid)) {
            return Err(Refusal::ReadOnly);
        }
        Ok((outcome, txn.changes))
    }

    /// Does an operation.
    fn apply(&mut self, context: Context<'_>, op: &Op) -> Result<Outcome, Refusal> {
        self.index.volumes.enter(op);
        let (outcome, changes) = self.plan(context, op)?;
        self.index.commit(changes);
        self.index.volumes.leave();
        Ok(outcome)
    }

    /// Works out how the cleaner's copy of a file's bytes takes the place of the old ones.
    pub(crate) fn plan_move(
        &self,
        context: Context<'_>,
        fid: Fid,
        offset: u64,
    ) -> Result<Changes, Refusal> {
        let mut txn = Txn::new(&self.index, context);
        apply::move_extents(&mut txn, fid, offset)?;
        txn.changes.moves = true;
        Ok(txn.changes)
    }

    /// Makes the root.
    pub(crate) fn format(&mut self, root: &Root) {
        let fid = Fid::root(root.volume);
        let object = root_object((root.uid, root.gid), root.mode, root.now);
        self.index.newest = root.now;
        self.index.counters.volume = root.volume;
        self.index.counters.next_vnode = fid.vnode + 1;
        self.index
            .volumes
            .put(root.volume, Some(volumes::first(root.now, 0, 0)));
        self.index.commit(Changes {
            objects: vec![(fid, Some(object))],
            objects_more: 1,
            ..Changes::default()
        });
    }

    /// Commits everything applied so far to the engine, of which the log ends here.
    pub(crate) fn settle(&mut self, end: &End) -> Result<(), StoreError> {
        self.note_end(
            Place {
                segment: end.id.number,
                offset: end.offset,
            },
            end.sequence,
        );
        if let Some(batch) = self.index.freeze() {
            self.index.engine().commit(&batch)?;
        }
        self.index.thaw();
        Ok(())
    }

    /// Puts what is kept beside the index into it, for a checkpoint at this place, before the
    /// record of this number.
    pub(crate) fn note_end(&mut self, end: Place, sequence: u64) {
        let counters = &mut self.index.counters;
        (counters.segment, counters.offset) = (end.segment, end.offset);
        counters.sequence = sequence;
        self.answers.put_changes(&mut self.index);
        self.index.put_numbers();
    }

    /// Does once more what a record says was done. `sound`: its file bytes are.
    pub(crate) fn replay(&mut self, record: &Record<'_>, sound: bool) -> Result<(), StoreError> {
        let diverges = |what: &str| {
            let text = format!(
                "record {} does not follow from those before it ({what})",
                record.stamp.sequence
            );
            StoreError::Damaged(text)
        };
        let refused = |refusal| match refusal {
            Refusal::Disk => StoreError::unreadable(format!(
                "apply record {} of the log again",
                record.stamp.sequence
            )),
            other => diverges(&format!("{other:?}")),
        };
        let nobody = Caller::default();
        let mut context = Context {
            caller: &nobody,
            now: 0,
            data: record.data,
            checks: record.happened.checks(),
            place: Place {
                segment: record.stamp.segment.number,
                offset: (record.at + HEADER_BYTES) as u64,
            },
            // Damaged bytes must not get a new checksum by moving into the index.
            inline_bytes: if sound { self.inline_bytes } else { 0 },
            chosen: Chosen::default(),
        };
        match &record.happened {
            Happened::Apply {
                op,
                caller,
                now,
                origin,
                vnode,
                position,
                ..
            } => {
                let next = self.index.counters.next_vnode;
                if *vnode != next {
                    // One that was reserved is checked where the object is made.
                    let makes = matches!(op, Op::Make { .. } | Op::MakeNameless { .. });
                    if *vnode > next || !makes {
                        return Err(diverges("its object has another number"));
                    }
                    context.chosen.vnode = *vnode;
                }
                context.chosen.position = *position;
                context.caller = caller;
                context.now = *now;
                self.index.newest = self.index.newest.max(*now);
                self.index.volumes.partition = record.stamp.segment.identity;
                let outcome = self.apply(context, op).map_err(refused)?;
                let forgets = self.index.mutant == Some(Mutant::ForgetsAnswers);
                if let Some(origin) = origin.filter(|_| !forgets) {
                    self.answers.put(origin, outcome);
                }
            }
            Happened::Move { fid, offset, .. } => {
                let changes = self.plan_move(context, *fid, *offset).map_err(refused)?;
                self.index.commit(changes);
            }
            Happened::Relocate { .. } | Happened::Sweep { .. } => {
                self.replay_care(record, context.place)?;
            }
            other => self.replay_note(other)?,
        }
        Ok(())
    }

    /// Does once more what was done for room, and that nobody sees.
    fn replay_care(&mut self, record: &Record<'_>, place: Place) -> Result<(), StoreError> {
        match &record.happened {
            Happened::Relocate {
                fid,
                from,
                to,
                segment,
                position,
                ..
            } => {
                let begin = u64::from(*position);
                let within = begin..begin + record.data.len() as u64;
                self.relocate((*fid, (*from, *to)), *segment, (within, place))
            }
            Happened::Sweep { volume, from, keys } => {
                self.sweep(*volume, from, *keys)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Does once more what a record without an operation says.
    fn replay_note(&mut self, happened: &Happened) -> Result<(), StoreError> {
        match happened {
            Entry::Format { format, .. } if !reads_format(*format) => {
                return Err(StoreError::Format {
                    found: *format,
                    known: FORMAT,
                });
            }
            Entry::Format {
                volume,
                uid,
                gid,
                mode,
                now,
                ..
            } => self.format(&Root {
                volume: *volume,
                uid: *uid,
                gid: *gid,
                mode: *mode,
                now: *now,
            }),
            Entry::OpenSession { session, mark } => {
                self.answers.open(*session, Mark(*mark), &mut self.index);
            }
            Entry::CloseSession { session } => self.answers.close(*session, &mut self.index),
            Entry::Shown { now } => self.index.newest = self.index.newest.max(*now),
            Entry::Boot { count } => self.index.counters.boot = *count,
            Entry::Numbers { vnode } => self.index.counters.next_vnode = *vnode,
            Entry::Apply { .. }
            | Entry::Move { .. }
            | Entry::Relocate { .. }
            | Entry::Sweep { .. } => {}
        }
        Ok(())
    }

    /// The directory that has a name of an object, and the name: of several the one that is known;
    /// `None`: none is, or it is the root.
    pub(crate) fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal> {
        let object = self.object(fid)?;
        if object.parent == 0 {
            return Ok(None);
        }
        let dir = Fid {
            volume: self.index.volumes.live(fid.volume),
            vnode: object.parent,
            uniq: 1,
        };
        let key = crate::key::position(dir, object.home);
        let placed: Option<crate::value::Placed> = self.index.get_as(&key).map_err(trouble)?;
        let same = |named: &Fid| (named.vnode, named.uniq) == (fid.vnode, fid.uniq);
        let placed = placed.filter(|placed| same(&placed.fid));
        Ok(placed.map(|placed| (dir, placed.name)))
    }

    /// The directories in which an object has names; of one that has lost its last name, the one
    /// that had it.
    pub(crate) fn dirs(&self, fid: Fid) -> Result<Vec<Fid>, Refusal> {
        let object = self.object(fid)?;
        let dir = |vnode: u64| Fid {
            volume: self.index.volumes.live(fid.volume),
            vnode,
            uniq: 1,
        };
        let mut dirs = Vec::new();
        let lost = object.attr.nlink == 0 && object.parent != 0;
        if lost || self.place(fid)?.is_some() {
            dirs.push(dir(object.parent));
        }
        let only = object.attr.nlink < 2 && !dirs.is_empty();
        if only || object.attr.kind == wire::Kind::Directory {
            return Ok(dirs);
        }
        let (mut from, to) = crate::key::range(fid, crate::key::LINK);
        loop {
            let found = self.index.scan(&from, &to, 1).map_err(trouble)?;
            let first = found.first().and_then(|(key, _)| crate::key::parts(key));
            let Some((at, _)) = first.and_then(|parts| parts.spot()) else {
                return Ok(dirs);
            };
            // That of the name that is noted is there already.
            if dirs.first() != Some(&dir(at.vnode)) {
                dirs.push(dir(at.vnode));
            }
            let Some(next) = at.vnode.checked_add(1) else {
                return Ok(dirs);
            };
            (from, _) = crate::key::range_from(fid, crate::key::LINK, &next.to_be_bytes());
        }
    }

    /// The path of an object, as far as it is known.
    pub(crate) fn path_of(&self, fid: Fid) -> Option<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = fid;
        while let Some((dir, name)) = self.place(at).ok()? {
            if names.len() > 4096 {
                return None;
            }
            names.push(name.into());
            at = dir;
        }
        if at != Fid::root(at.volume) {
            return None;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }

    /// An object for people: its path where known, and its fid.
    pub(crate) fn describe(&self, fid: Fid) -> String {
        match self.path_of(fid) {
            Some(path) => format!("{} ({fid})", String::from_utf8_lossy(&path)),
            None => format!("object {fid}"),
        }
    }

    /// An object that must exist under this very fid.
    pub(crate) fn object(&self, fid: Fid) -> Result<Object, Refusal> {
        let object = self.index.object(fid).map_err(trouble)?;
        let object = object.filter(|object| object.uniq == fid.uniq);
        let shown = object.map(|object| self.index.volumes.show(fid, object));
        shown.ok_or(Refusal::Stale)
    }
}
