//! Making the index again: from the newest image and the log behind it, or from the whole log.
//!
//! The new index is made beside the old one and takes its place when it is done, so that an end of
//! the process or of the machine meanwhile leaves what was there. The old file is kept, under
//! another name, until another one is.

use crate::disk::Files;
use crate::embedded::{INDEX, Redb};
use crate::engine::{Batch, Engine};
use crate::error::StoreError;
use crate::image::{self, Image};
use crate::log;
use crate::open::new_core;
use crate::options::Options;
use crate::roll::Roll;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The index that is being made.
pub(crate) const FRESH: &str = "index.new";
/// The index that another one has replaced.
pub(crate) const ASIDE: &str = "index.damaged";
/// The engine is given changes when they are so many bytes.
const BATCH_BYTES: usize = 8 << 20;

/// Up to where in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// To its end; a torn end is cut off.
    End,
    /// Up to this record, which is not applied any more.
    Record(u64),
    /// To its end; nothing but the new index is written.
    Look,
    /// As far as it reads.
    Readable,
}

fn remove(files: &dyn Files, name: &str) -> Result<(), StoreError> {
    match files.remove(name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io(format!("remove {name}"), e))
        }
        _ => Ok(()),
    }
}

/// Removes what an interrupted making of an index left.
pub(crate) fn clear(files: &dyn Files) -> Result<(), StoreError> {
    remove(files, FRESH)
}

/// Makes the index in its own file. It takes no one's place yet.
pub(crate) fn make(
    files: &Arc<dyn Files>,
    options: &Options,
    until: Until,
) -> Result<(), StoreError> {
    let segments = log::segments(&**files)?;
    let engine = match image::newest(&**files)? {
        Some(image) => from_image(files, options, &image),
        None => empty(files, options),
    };
    let engine = match engine {
        // The image rotted too, which is no matter as long as the log is whole.
        Err(StoreError::Damaged(what)) if segments.first() == Some(&1) => {
            tracing::error!("damaged: {what}; it is passed over");
            empty(files, options)
        }
        other => other,
    };
    let engine: Arc<dyn Engine> = Arc::new(engine?);
    let mut core = new_core(engine, options)?;
    let from = core.index.counters.segment;
    let last = segments.last().copied().unwrap_or(0).max(from);
    let missing = (from..=last).find(|segment| segments.binary_search(segment).is_err());
    if let Some(missing) = missing {
        let name = log::segment_name(missing);
        return Err(StoreError::IndexLost {
            dir: PathBuf::new(),
            what: String::new(),
            why: format!("the log has no {name}, from which on it has to be made"),
        });
    }
    let roll = Roll::new(&**files, &mut core, &segments).settling(BATCH_BYTES);
    let end = match until {
        Until::Record(until) => roll.run_until(until)?,
        Until::Look => roll.run()?.end,
        Until::Readable => roll.run_readable(options.identity)?.0.end,
        Until::End => {
            let rolled = roll.run()?;
            rolled.cut(&**files)?;
            for (segment, disk) in rolled.write_again(&**files)? {
                let name = log::segment_name(segment);
                disk.sync()
                    .map_err(|e| StoreError::io(format!("sync {name}"), e))?;
            }
            files
                .sync()
                .map_err(|e| StoreError::io("sync the log", e))?;
            rolled.end
        }
    };
    core.settle(&end)
}

fn empty(files: &Arc<dyn Files>, options: &Options) -> Result<Redb, StoreError> {
    clear(&**files)?;
    Redb::named(files.clone(), FRESH, options.index_cache_bytes)
}

fn from_image(
    files: &Arc<dyn Files>,
    options: &Options,
    image: &Image,
) -> Result<Redb, StoreError> {
    let engine = empty(files, options)?;
    let (mut batch, mut bytes) = (Batch::new(), 0);
    image::read(&**files, image, |part| {
        let lens = part
            .iter()
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        bytes += lens.sum::<usize>();
        batch.extend(part);
        if bytes < BATCH_BYTES {
            return Ok(());
        }
        bytes = 0;
        engine.commit(&std::mem::take(&mut batch))
    })?;
    engine.commit(&batch)?;
    Ok(engine)
}

/// The index that was made takes the place of the one that is there, which nobody may use any more.
pub(crate) fn replace(files: &dyn Files) -> Result<(), StoreError> {
    let io = |e| StoreError::io("put the index in its place", e);
    match files.rename(INDEX, ASIDE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    files.rename(FRESH, INDEX).map_err(io)?;
    files.sync().map_err(io)
}
