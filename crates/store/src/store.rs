//! The store: the calls of its users.
//!
//! An operation that changes something goes this way: work out its outcome and its changes; append
//! its record to the log's buffer; put the changes into the index. The first may refuse, the others
//! cannot fail any more: room in the log was made before. Nothing waits for a disk but
//! [`Store::write_out`], a full buffer, the end of a segment, and (when memory would grow without
//! bound) a checkpoint.

use crate::checkpoint::Checkpoints;
use crate::clean::Cleaner;
use crate::cut::Cut;
use crate::error::StoreError;
use crate::heal::Healing;
use crate::images::Images;
use crate::log::{Log, Place, Use};
use crate::memory::MemoryDisk;
use crate::options::Options;
use crate::permission;
use crate::promised::Measured;
use crate::reading;
use crate::record::{self, Entry, HEADER_BYTES, Happening};
use crate::replica::Asked;
use crate::room::Room;
use crate::state::Core;
use crate::sweep::{KEYS_BESIDE, Sweeper};
use crate::sync::Syncer;
use crate::txn::{Context, trouble};
use crate::value;
use wire::{
    Attr, Caller, Chosen, Fid, Kind, Name, Op, Origin, Outcome, Refusal, RequestId, RoomOfDisk,
    SessionId, Time,
};

/// An operation to be applied.
#[derive(Clone, Copy, Debug)]
pub struct Apply<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Its caller.
    pub caller: &'a Caller,
    /// The time of it.
    pub now: Time,
    /// The session and number, by which a repetition is known as the same operation.
    pub origin: Option<Origin>,
    /// The bytes of a write; empty for anything else.
    pub data: &'a [u8],
    /// It is done already, as far as its caller knows, with these numbers; a new object gets one of
    /// those that were reserved. On a full disk it may take room that is kept for removals: these
    /// come behind it.
    pub delegated: Option<Chosen>,
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects that exist, those without a name included.
    pub objects: u64,
    /// Bytes of files and symbolic links.
    pub bytes: u64,
    /// Records in the log since the partition was made.
    pub records: u64,
    /// Of these, how many are on stable storage.
    pub stable_records: u64,
    /// The last one that is of an operation, since the store was opened; 0: none.
    pub changed_record: u64,
    /// Bytes appended to the log since the store was opened.
    pub appended_bytes: u64,
    /// Segments on the disk.
    pub segments: u64,
    /// Bytes of the disk that changes may not take: they are kept for the cleaner and the index.
    pub kept_bytes: u64,
    /// Bytes of the segments that are in use.
    pub live_bytes: u64,
    /// Bytes that the cleaner has moved since the store was opened.
    pub cleaned_bytes: u64,
    /// Syncs of the log since the store was opened.
    pub syncs: u64,
    /// Checkpoints since the store was opened.
    pub checkpoints: u64,
    /// How often the index was found damaged since the store was opened.
    pub index_stops: u64,
    /// How often it was made again since then.
    pub index_rebuilds: u64,
    /// Bytes written into images of the index since the store was opened.
    pub image_bytes: u64,
    /// Segments that nothing uses, kept until the next image.
    pub waiting_segments: u64,
    /// Could the index be made again, if it were lost now?
    pub rebuildable: bool,
    /// Bytes of the index that changed since the last checkpoint.
    pub changed_bytes: u64,
    /// Sessions that are open.
    pub sessions: u64,
    /// Answers kept for requests that may be repeated.
    pub answers: u64,
}

/// A partition that is open.
#[derive(Debug)]
pub struct Store {
    pub(crate) core: Core,
    pub(crate) log: Log,
    pub(crate) options: Options,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) images: Images,
    pub(crate) healing: Healing,
    pub(crate) cleaner: Cleaner,
    pub(crate) sweeper: Sweeper,
    pub(crate) room: Room,
    pub(crate) measured: Measured,
    pub(crate) memory: Option<MemoryDisk>,
    /// The last record that was found when it was opened.
    pub(crate) left: u64,
    /// The last record of an operation.
    pub(crate) changed_record: u64,
    /// The users of the cell's groups. The log knows nothing of them.
    pub(crate) members: access::Members,
    /// The changes that a repair had to leave out.
    pub(crate) cut: Cut,
    /// The changes of the release that is about to be published.
    pub(crate) released: Asked,
}

/// More objects than can have been made and not be stable: a checkpoint makes the log stable long
/// before.
const PASSED_OVER: u64 = 1 << 20;

impl Store {
    /// Applies an operation; answers it from memory if it was applied under this origin before.
    ///
    /// [`Op::Read`] and [`Op::Sync`] are not applied but have their own functions. Whether a caller
    /// may read and write was decided when he opened the file: a [`Op::Write`] is not refused for
    /// the mode that the file has by now.
    pub fn apply(&mut self, apply: Apply<'_>) -> Outcome {
        self.apply_beside(apply, Some(RoomOfDisk::default()))
    }

    /// The same, beside what is promised of the room in the volume and on the disk: what grows by
    /// it is refused rather than that any of that be taken. `None`: it has been promised its own.
    pub fn apply_beside(&mut self, apply: Apply<'_>, promised: Option<RoomOfDisk>) -> Outcome {
        let result = if apply.op.changes() {
            let known = apply.origin.and_then(|origin| self.answer(origin));
            match (known, apply.op) {
                (Some(outcome), _) => Ok(outcome),
                (None, Op::Copy { .. }) => self.copy(&apply, promised),
                (None, Op::Restore { .. }) => self.restore(&apply, promised),
                (None, _) => self.change(&apply, promised),
            }
        } else if let Op::Dump { .. } = apply.op {
            self.dump(apply.op, apply.caller)
        } else if *apply.op == Op::StatFs {
            self.filesystem()
        } else if let Op::StatVolume { volume } = *apply.op {
            self.filesystem_of(volume)
        } else {
            let planned = self.core.plan(self.context(&apply, &[]), apply.op);
            planned.map(|(outcome, _)| outcome)
        };
        result.unwrap_or_else(Outcome::Refused)
    }

    fn context<'a>(&self, apply: &Apply<'a>, checks: &'a [u32]) -> Context<'a> {
        let end = self.log.end();
        Context {
            caller: apply.caller,
            now: apply.now,
            data: apply.data,
            checks,
            place: Place {
                offset: end.offset + HEADER_BYTES as u64,
                ..end
            },
            inline_bytes: self.core.inline_bytes,
            chosen: apply.delegated.unwrap_or_default(),
        }
    }

    /// The bytes of a copy that go into its record, like those of a write; others it shares with
    /// what it is a copy of.
    fn copy(
        &mut self,
        apply: &Apply<'_>,
        promised: Option<RoomOfDisk>,
    ) -> Result<Outcome, Refusal> {
        let Op::Copy { from, at, len, .. } = *apply.op else {
            return Err(Refusal::Invalid);
        };
        // Errors of the operation are reported below, in the usual order.
        let len = self.unshared(apply.op).unwrap_or(len);
        let len = len.min(wire::limits::BULK_BYTES);
        let mut data = Vec::new();
        reading::read((&self.core, &self.log), from, (at, len), &mut data)?;
        let data = &data;
        self.change(&Apply { data, ..*apply }, promised)
    }

    /// How many bytes of a copy go into its record; `None`: all.
    fn unshared(&self, op: &Op) -> Option<u32> {
        let Op::Copy {
            from,
            at,
            to,
            offset,
            len,
        } = *op
        else {
            return None;
        };
        let file = |fid: Fid| {
            let object = self.core.object(fid).ok();
            object.filter(|object| object.attr.kind == Kind::File)
        };
        let (source, target) = (file(from)?, file(to)?);
        let end = source.attr.size.min(at.saturating_add(u64::from(len)));
        let inline = u64::from(self.options.share_from.max(self.core.inline_bytes));
        let begin = inline.max(at);
        let until = offset.saturating_add(end.saturating_sub(at));
        let small = until.max(target.attr.size) <= u64::from(self.core.inline_bytes);
        let enough = end.saturating_sub(begin) >= u64::from(self.options.share_bytes.max(1));
        let shares = enough && !(small && target.extents == 0);
        shares.then_some((begin - at) as u32)
    }

    pub(crate) fn change(
        &mut self,
        apply: &Apply<'_>,
        promised: Option<RoomOfDisk>,
    ) -> Result<Outcome, Refusal> {
        let announced = match apply.op {
            Op::Write { len, .. } => *len as usize,
            Op::Copy { .. } | Op::Restore { .. } => apply.data.len(),
            _ => 0,
        };
        if announced != apply.data.len() {
            return Err(Refusal::Invalid);
        }
        self.has_room(apply.op)?;
        self.pace(apply.now)?;
        let checks = value::checks(apply.data);
        let chosen = apply.delegated.unwrap_or_default();
        let meta = record::encode(&Entry::Apply {
            op: apply.op,
            caller: apply.caller,
            now: apply.now,
            origin: apply.origin,
            vnode: match chosen.vnode {
                0 => self.core.index.counters.next_vnode,
                reserved => reserved,
            },
            position: chosen.position,
            checks: &checks,
        });
        let bytes = record::record_bytes(apply.data.len(), meta.len());
        let purpose = crate::promised::purpose(apply);
        self.room_for(bytes as u64, purpose).map_err(trouble)?;
        if let (Some(promised), Use::Change) = (promised, purpose) {
            self.room_beside(bytes as u64, promised.log_bytes)?;
        }
        let context = self.context(apply, &checks);
        self.core.index.volumes.enter(apply.op);
        let planned = self.core.plan(context, apply.op);
        self.core.index.volumes.leave();
        let (outcome, changes) = planned?;
        if let Some(promised) = promised {
            self.within_limits(&changes, promised.volume)?;
        }
        self.changed_record = self.log.sequence();
        self.log.append(apply.data, &meta);
        self.core.index.newest = self.core.index.newest.max(apply.now);
        self.core.index.volumes.enter(apply.op);
        self.core.index.commit(changes);
        self.core.index.volumes.leave();
        if let Some(origin) = apply.origin {
            self.core.answers.put(origin, outcome.clone());
        }
        self.clean(bytes as u64);
        self.sweep(KEYS_BESIDE);
        Ok(outcome)
    }

    /// Reads bytes of a file into `into`, whose content is replaced. Bytes that are not the ones
    /// that were written are never returned: [`Refusal::Damaged`].
    pub fn read(&mut self, fid: Fid, offset: u64, len: u32, into: &mut Vec<u8>) -> Outcome {
        into.clear();
        match reading::read((&self.core, &self.log), fid, (offset, len), into) {
            Ok(size) => Outcome::Read {
                len: into.len() as u32,
                size,
            },
            Err(refusal) => {
                into.clear();
                Outcome::Refused(refusal)
            }
        }
    }

    /// Hands what was applied to the operating system, in one write: it survives the end of this
    /// process from then on. After a failure the same bytes are written again the next time.
    pub fn write_out(&mut self) -> Result<(), StoreError> {
        self.log.write_out()
    }

    /// A handle that syncs the written log without the store.
    pub fn sync_handle(&self) -> Syncer {
        self.log.syncer().clone()
    }

    /// The number of the last change's record.
    pub fn changed_record(&self) -> u64 {
        self.changed_record
    }

    /// The last record that is on stable storage.
    pub fn stable_record(&self) -> u64 {
        self.log.syncer().stable()
    }

    /// The last record of earlier runs that was found when the store was opened. All of them up to
    /// there are on stable storage.
    pub fn left_record(&self) -> u64 {
        self.left
    }

    /// The outcome of a change that was applied under this origin.
    pub fn answer(&self, origin: Origin) -> Option<Outcome> {
        self.core.answers.get(origin).cloned()
    }

    /// Forgets the answers of a session below this request.
    pub fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        self.core.answers.forget(session, below);
    }

    /// Notes in the log, and in memory, what is not an operation.
    pub(crate) fn note(&mut self, happening: &Happening<'_>) {
        let meta = record::encode(happening);
        let bytes = record::record_bytes(0, meta.len());
        if let Err(error) = self.log.make_room(bytes as u64, Use::Note) {
            // It is in the buffer all the same: the next write of the buffer reports the error.
            tracing::error!("{error}");
        }
        self.log.append(&[], &meta);
    }

    /// Notes that this time has been shown: it counts as one at which a change was applied.
    pub fn note_time(&mut self, shown: Time) {
        self.note(&Entry::Shown { now: shown });
        self.core.index.newest = self.core.index.newest.max(shown);
    }

    /// The latest time that a change was applied at, or that was noted.
    pub fn newest(&self) -> Time {
        self.core.index.newest
    }

    /// How often the partition has been opened, this time included. It is on stable storage.
    pub fn boot(&mut self) -> u64 {
        self.core.index.counters.boot
    }

    /// Passes over vnode numbers, for good. Objects that a power failure has undone may still be
    /// known elsewhere: after this, no other object gets their numbers.
    pub fn pass_over_numbers(&mut self) -> Result<(), StoreError> {
        let vnode = self.core.index.counters.next_vnode + PASSED_OVER;
        self.note(&Entry::Numbers { vnode });
        self.core.index.counters.next_vnode = vnode;
        self.log.write_out()?;
        self.log.syncer().sync()
    }

    /// The root of the partition's volume.
    pub fn root(&self) -> Fid {
        Fid::root(self.core.index.counters.volume)
    }

    /// The attributes of an object, if it exists; refused if the disk cannot say.
    pub fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal> {
        match self.core.object(fid) {
            Ok(object) => Ok(Some(object.attr)),
            Err(Refusal::Stale) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// May this caller use an object so (4: read, 2: write, 1: execute or search)?
    pub fn allows(&self, caller: &Caller, fid: Fid, bit: u16) -> Result<bool, Refusal> {
        permission::of(&self.core, caller, (fid, bit))
    }

    /// Is it known that the object has no extended attributes?
    pub fn is_bare(&self, fid: Fid) -> bool {
        self.core.object(fid).is_ok_and(|object| object.xattrs == 0)
    }

    /// The object that a name in a directory names; refused if the disk cannot say.
    pub fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Refusal> {
        if self.attr(dir)?.is_none() {
            return Ok(None);
        }
        let entry = self.core.index.named(dir, name).map_err(trouble)?;
        Ok(entry.map(|entry| entry.fid))
    }

    /// A directory that has a name of an object, and the name: of several names one of them; `None`
    /// if none is known, or it is the root, or it is gone. Refused if the disk cannot say.
    pub fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal> {
        match self.core.place(fid) {
            Err(Refusal::Stale) => Ok(None),
            other => other,
        }
    }

    /// A path of an object, for messages: of a file with several names one of them, or none.
    pub fn path_of(&self, fid: Fid) -> Option<Vec<u8>> {
        self.core.object(fid).ok()?;
        self.core.path_of(fid)
    }

    /// Orderly end: everything is on stable storage, and the next opening has nothing to replay.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.join_images();
        self.join_healing();
        self.checkpoint()?;
        self.log.syncer().sync()
    }

    /// Numbers for people.
    pub fn stats(&self) -> Stats {
        let index = &self.core.index;
        let syncer = self.log.syncer();
        Stats {
            objects: index.counters.objects,
            bytes: index.counters.bytes,
            records: self.log.sequence() - 1,
            stable_records: syncer.stable(),
            changed_record: self.changed_record,
            appended_bytes: self.log.appended(),
            segments: self.checkpoints.segments(&self.log),
            kept_bytes: self.log.kept(Use::Change),
            live_bytes: index.live().values().sum(),
            cleaned_bytes: self.cleaner.moved_bytes,
            syncs: syncer.syncs(),
            checkpoints: self.checkpoints.done,
            index_stops: self.healing.before() + index.engine().doubts(),
            index_rebuilds: self.healing.done(),
            image_bytes: self.images.written(),
            waiting_segments: self.images.waiting(),
            rebuildable: self.images.suffice(),
            changed_bytes: index.active_bytes() as u64,
            sessions: self.core.answers.sessions().len() as u64,
            answers: self.core.answers.count() as u64,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The partition stays locked while somebody still writes to it.
        self.checkpoints.abandon();
        self.images.abandon();
        self.healing.abandon();
    }
}
