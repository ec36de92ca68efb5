//! Creating and opening a partition.

use crate::answers::Answers;
use crate::checkpoint::Checkpoints;
use crate::clean::Cleaner;
use crate::cut::Cut;
use crate::disk::{Directory, Files};
use crate::embedded::{INDEX, Redb};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::heal::Healing;
use crate::image;
use crate::images::Images;
use crate::index::Index;
use crate::key;
use crate::log::{self, Log, Place, Use, segment_name};
use crate::memory::MemoryDisk;
use crate::options::{Mutant, Options};
use crate::promised::Measured;
use crate::rebuild::{self, ASIDE, Until};
use crate::record::{self, Entry, FORMAT, SEGMENT_HEADER_BYTES, SegmentHead};
use crate::replica::Asked;
use crate::roll::Roll;
use crate::room::Room;
use crate::segments::{self, Bytes};
use crate::state::{Core, Root};
use crate::store::Store;
use crate::sweep::Sweeper;
use crate::value::{self, Counters, Object};
use crate::volumes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Fid;

/// A creation that was interrupted left no more than this in the first segment.
const UNFINISHED_BYTES: u64 = 4096;

impl Store {
    /// Creates a partition in a new or empty directory, and opens it.
    pub fn create(dir: &Path, options: &Options) -> Result<Self, StoreError> {
        let files: Arc<dyn Files> = Arc::new(Directory::create(dir)?);
        Self::create_in_directory(files, options)
    }

    fn create_in_directory(files: Arc<dyn Files>, options: &Options) -> Result<Self, StoreError> {
        let engine = Redb::new(files.clone(), options.index_cache_bytes)?;
        create(files, Arc::new(engine), None, options)
    }

    /// Opens a partition.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, StoreError> {
        let files: Arc<dyn Files> = Arc::new(Directory::open(dir)?);
        open_files(dir, files, (None, options, Purpose::Use))
    }

    /// Opens a partition, and creates it first where there is none.
    pub fn open_or_create(dir: &Path, options: &Options) -> Result<Self, StoreError> {
        let files: Arc<dyn Files> = match Directory::open(dir) {
            Ok(files) => Arc::new(files),
            Err(StoreError::NotAPartition(_)) => return Self::create(dir, options),
            Err(other) => return Err(other),
        };
        if clear_unfinished(&*files)? {
            return Self::create_in_directory(files, options);
        }
        open_files(dir, files, (None, options, Purpose::Use))
    }

    /// A new partition in memory.
    pub fn in_memory(options: &Options) -> Result<Self, StoreError> {
        Self::create_in_memory(&MemoryDisk::new(), options)
    }

    /// Creates a partition on this disk in memory.
    pub fn create_in_memory(disk: &MemoryDisk, options: &Options) -> Result<Self, StoreError> {
        let (files, engine) = (Arc::new(disk.clone()), Arc::new(disk.clone()));
        create(files, engine, Some(disk.clone()), options)
    }

    /// Opens the partition on this disk in memory: after a crash, for instance.
    pub fn open_in_memory(disk: &MemoryDisk, options: &Options) -> Result<Self, StoreError> {
        let (files, engine) = (Arc::new(disk.clone()), Arc::new(disk.clone()));
        open(files, engine, (Some(disk.clone()), options, Purpose::Use))
    }

    /// Opens or creates the partition on this disk in memory with the index engine that
    /// directories have: so that the engine's own use of the disk can be made to fail.
    pub fn on_memory_with_engine(disk: &MemoryDisk, options: &Options) -> Result<Self, StoreError> {
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        if clear_unfinished(&*files)? {
            let engine = Arc::new(Redb::new(files.clone(), options.index_cache_bytes)?);
            return create(files, engine, Some(disk.clone()), options);
        }
        let with = (Some(disk.clone()), options, Purpose::Use);
        open_files(Path::new("memory"), files, with)
    }
}

/// The purpose of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be used: the log's torn end is cut off, the opening is counted.
    Use,
    /// To be looked at: nothing is written.
    Look,
    /// To be repaired: parts of the log that do not read are left out.
    Mend,
    /// The same, and nothing is written.
    Plan,
}

impl Purpose {
    fn writes(self) -> bool {
        matches!(self, Self::Use | Self::Mend)
    }
}

/// Opens the files of a directory. An index that is missing, or is not what was written, is made
/// again if the partition is to be used.
pub(crate) fn open_files(
    dir: &Path,
    files: Arc<dyn Files>,
    (memory, options, purpose): (Option<MemoryDisk>, &Options, Purpose),
) -> Result<Store, StoreError> {
    let again = |what: &str| {
        tracing::error!("the index {what}: it is made again from the log");
        rebuild::make(&files, options, Until::End).map_err(|error| lost(dir, what, error))?;
        rebuild::replace(&*files)?;
        tracing::warn!("the index has been made again; what was there is kept as `{ASIDE}`");
        Redb::new(files.clone(), options.index_cache_bytes)
    };
    let opened = |engine: Redb| {
        let engine = Arc::new(engine);
        let store = open(
            files.clone(),
            engine.clone(),
            (memory.clone(), options, purpose),
        );
        store.map_err(|error| match error {
            StoreError::NotAPartition(_) => StoreError::NotAPartition(dir.to_owned()),
            StoreError::Damaged(what) if engine.doubts() > 0 => StoreError::IndexBroken {
                dir: dir.to_owned(),
                what: format!("does not read ({what})"),
            },
            other => other,
        })
    };
    if purpose == Purpose::Use {
        rebuild::clear(&*files)?;
    }
    let first = open_engine(dir, &files, options).and_then(opened);
    match first {
        Err(StoreError::IndexBroken { what, .. }) if purpose == Purpose::Use => {
            opened(again(&what)?)
        }
        other => other,
    }
}

/// Why an index that does not read cannot be made again.
pub(crate) fn lost(dir: &Path, what: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::IndexLost { why, .. } => StoreError::IndexLost {
            dir: dir.to_owned(),
            what: what.to_owned(),
            why,
        },
        other => other,
    }
}

/// Opens the index's engine of a partition in a directory, if what it holds can be what was
/// committed last.
pub(crate) fn open_engine(
    dir: &Path,
    files: &Arc<dyn Files>,
    options: &Options,
) -> Result<Redb, StoreError> {
    let segments = log::segments(&**files)?;
    if segments.is_empty() {
        return Err(StoreError::NotAPartition(dir.to_owned()));
    }
    let broken = |what: String| StoreError::IndexBroken {
        dir: dir.to_owned(),
        what,
    };
    let unread = |what| broken(format!("does not read ({what})"));
    let image = image::newest(&**files)?;
    // Without a checkpoint the log is whole, and not long.
    let whole = (1..).zip(&segments).all(|(nth, segment)| nth == *segment);
    let begun = !whole || segments.len() > UNCHECKPOINTED || image.is_some();
    let len = files.open(INDEX, false).and_then(|index| index.len());
    if begun && len.unwrap_or(0) == 0 {
        return Err(broken("is missing or empty".to_owned()));
    }
    let engine = match Redb::new(files.clone(), options.index_cache_bytes) {
        Err(StoreError::Damaged(what)) => return Err(unread(what)),
        Err(StoreError::Io { source, .. }) if is_of_content(&source) => {
            return Err(unread(source.to_string()));
        }
        other => other?,
    };
    let counters = match engine.get(&key::counters()) {
        Err(StoreError::Damaged(what)) => return Err(unread(what)),
        other => other?,
    };
    let counters = counters.map(|sealed| value::unseal(&key::counters(), sealed));
    let counters = counters.map(|value| value.and_then(|value| value::decode::<Counters>(&value)));
    match counters {
        Some(None) => Err(unread("its counters are not what was written".to_owned())),
        None if begun => Err(broken("holds nothing".to_owned())),
        Some(Some(counters)) if image.is_some_and(|image| image.sequence > counters.sequence) => {
            Err(broken("is older than the image of it".to_owned()))
        }
        _ => Ok(engine),
    }
}

/// Does the error say that a file is not what it should be, not that it cannot be read?
fn is_of_content(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::Other
    )
}

/// Segments that there may be before the first checkpoint; of more, the index is made in parts.
const UNCHECKPOINTED: usize = 16;

/// Removes what an interrupted creation left. Is the directory empty now?
fn clear_unfinished(files: &dyn Files) -> Result<bool, StoreError> {
    let doing = "look for an unfinished creation";
    let io = |e| StoreError::io(doing, e);
    let names = files.list().map_err(io)?;
    let first = segment_name(1);
    let ours = |name: &String| *name == first || name == INDEX || name == "lost+found";
    if !names.iter().all(ours) {
        return Ok(false);
    }
    if names.contains(&first) {
        let bytes = match files.open(&first, false).and_then(|disk| disk.len()) {
            Ok(len) if len <= UNFINISHED_BYTES => segments::load(files, 1)?,
            Ok(_) => return Ok(false),
            Err(e) => return Err(io(e)),
        };
        let finished = match record::parse_segment_header(1, &bytes) {
            SegmentHead::First(id, _) => record::parse(id, &bytes, SEGMENT_HEADER_BYTES).is_some(),
            _ => record::was_finished(&bytes),
        };
        if finished {
            return Ok(false);
        }
        files.remove(&first).map_err(io)?;
    }
    if names.iter().any(|name| name == INDEX) {
        files.remove(INDEX).map_err(io)?;
    }
    Ok(true)
}

fn create(
    files: Arc<dyn Files>,
    engine: Arc<dyn Engine>,
    memory: Option<MemoryDisk>,
    options: &Options,
) -> Result<Store, StoreError> {
    let mut log = Log::create(files, options)?;
    let images = Images::found(&**log.files(), &[1], engine.is_file())?;
    let mut core = new_core(engine, options)?;
    let root = Root {
        volume: options.volume,
        uid: options.root_uid,
        gid: options.root_gid,
        mode: options.root_mode,
        now: options.created,
    };
    let meta = record::encode(&Entry::Format {
        format: FORMAT,
        volume: root.volume,
        uid: root.uid,
        gid: root.gid,
        mode: root.mode,
        now: root.now,
    });
    log.make_room(record::record_bytes(0, meta.len()) as u64, Use::Note)?;
    log.append(&[], &meta);
    core.format(&root);
    let mut store = Store {
        core,
        log,
        options: options.clone(),
        checkpoints: Checkpoints::new([1], 1),
        images,
        healing: Healing::default(),
        cleaner: Cleaner::default(),
        sweeper: Sweeper::default(),
        room: Room::default(),
        measured: Measured::default(),
        memory,
        left: 0,
        changed_record: 0,
        members: access::Members::default(),
        cut: Cut::default(),
        released: Asked::default(),
    };
    store.count_boot()?;
    Ok(store)
}

pub(crate) fn new_core(engine: Arc<dyn Engine>, options: &Options) -> Result<Core, StoreError> {
    let none = Counters {
        volume: 0,
        next_vnode: 0,
        objects: 0,
        bytes: 0,
        boot: 0,
        segment: 1,
        offset: SEGMENT_HEADER_BYTES as u64,
        sequence: 1,
    };
    let mut index = Index::new(engine, none, options.mutant);
    if let Some(counters) = index.get_as(&key::counters())? {
        index.counters = counters;
    }
    if let Some(newest) = index.get_as(&key::newest())? {
        index.newest = newest;
    }
    let answers = Answers::load(&mut index)?;
    let counters = &index.counters;
    if counters.volume != 0 && index.volumes.len() == 0 {
        // Of a partition that never had another volume nothing is kept by itself.
        let (id, objects, bytes) = (counters.volume, counters.objects, counters.bytes);
        // Damage of the root is met where the root is looked at.
        let key = key::object(Fid::root(id));
        let found = index.raw_scan(&key, &key::after(&key), 1)?;
        let root = found.into_iter().next().and_then(|(_, value)| value);
        let root: Option<Object> = root.and_then(|bytes| value::decode(&bytes));
        let made = root.map_or(0, |root| root.attr.btime);
        let first = volumes::first(made, objects, bytes);
        index.volumes.put(id, Some(first));
    }
    Ok(Core {
        index,
        answers,
        inline_bytes: options.inline_bytes,
    })
}

/// Opens a partition: roll forward, cut the torn end off, count the opening.
pub(crate) fn open(
    files: Arc<dyn Files>,
    engine: Arc<dyn Engine>,
    (memory, options, purpose): (Option<MemoryDisk>, &Options, Purpose),
) -> Result<Store, StoreError> {
    let mut core = new_core(engine, options)?;
    let committed = core.index.counters.sequence;
    let segments = log::segments(&*files)?;
    let roll = Roll::new(&*files, &mut core, &segments);
    let (roll, cut) = match purpose {
        Purpose::Use | Purpose::Look => (roll.run()?, Cut::default()),
        Purpose::Mend | Purpose::Plan => roll.run_readable(options.identity)?,
    };
    if core.index.counters.next_vnode == 0 {
        return Err(StoreError::NotAPartition(PathBuf::new()));
    }
    let mut existing = segments.clone();
    existing.retain(|segment| *segment <= roll.end.id.number);
    for (segment, live) in core.index.live() {
        if *live > 0 && !existing.contains(segment) {
            let name = segment_name(*segment);
            tracing::error!(
                "{name} is missing and {live} bytes of files with it: run `ariel fsck`"
            );
        }
    }
    let mut unsure = Vec::new();
    if purpose.writes() {
        roll.cut(&*files)?;
        if options.mutant != Some(Mutant::LeavesUnsynced) && purpose == Purpose::Use {
            unsure = roll.write_again(&*files)?;
        }
    }
    let images = Images::found(&*files, &segments, core.index.engine().is_file())?;
    let log = match purpose {
        Purpose::Use | Purpose::Look => Log::resume(files, options, roll.end, &unsure)?,
        Purpose::Mend => Log::begin(files, options, roll.end)?,
        Purpose::Plan => Log::pretend(files, options, roll.end)?,
    };
    let mut store = Store {
        core,
        log,
        options: options.clone(),
        checkpoints: Checkpoints::new(existing, committed),
        images,
        healing: Healing::default(),
        cleaner: Cleaner::default(),
        sweeper: Sweeper::default(),
        room: Room::default(),
        measured: Measured::default(),
        memory,
        left: roll.left,
        changed_record: 0,
        members: access::Members::default(),
        cut,
        released: Asked::default(),
    };
    store.keep_for_image();
    if purpose.writes() {
        store.leave_older_format()?;
        store.count_boot()?;
    }
    Ok(store)
}

impl Store {
    /// Records that an older program would not understand come into segments that it refuses to
    /// read.
    fn leave_older_format(&mut self) -> Result<(), StoreError> {
        let begin = Place {
            offset: 0,
            ..self.log.end()
        };
        let mut header = [0; SEGMENT_HEADER_BYTES];
        self.log.read(begin, &mut header)?;
        match record::is_of_older_format(&header) {
            true => self.log.next_segment(),
            false => Ok(()),
        }
    }

    /// Counts this opening, and puts all that was recovered on stable storage with it.
    fn count_boot(&mut self) -> Result<(), StoreError> {
        self.core.index.volumes.partition = self.log.id(0).identity;
        let count = self.core.index.counters.boot + 1;
        self.note(&Entry::Boot { count });
        self.core.index.counters.boot = count;
        self.log.write_out()?;
        self.log.syncer().sync()
    }
}
