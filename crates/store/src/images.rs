//! When an image of the index is written, and what has to wait for it.
//!
//! The rule: a segment is removed only if nothing in it is in use, and if it lies before the place
//! of the newest image. So the newest image and the log behind it make the index again at any time;
//! before the first image, the whole log does.
//!
//! An image is written when segments that nothing uses, and that have to wait for it, have as many
//! bytes as the last image had, and no less than a segment has: so images cost at most as much as
//! the log that they set free. On a nearly full disk one is written as soon as a segment waits.
//! Where there is no room for one, room goes first: the segments are removed without, and the log
//! of the server says what that means.

use crate::error::StoreError;
use crate::image::{self, Image};
use crate::log::{Use, segment_name};
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The size of an object in an image, with its name, about.
const OBJECT_BYTES: u64 = 512;

/// So many segments may wait for a check to end, or a quarter of what is in use if that is more.
const PINNED_SEGMENTS: u64 = 16;

/// Segments stay on the disk as long as this is held; unless too many wait for that, or there is no
/// other room, in which case it says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pin(Arc<AtomicBool>);

impl Pin {
    /// Have segments been removed all the same?
    pub(crate) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The state of images.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// The index is a file, which can be lost.
    needed: bool,
    /// The log has everything from its beginning on.
    whole: bool,
    /// The newest image.
    base: Option<Image>,
    /// The number of the last one that was begun.
    last: u32,
    running: Option<JoinHandle<Result<Image, StoreError>>>,
    /// Bytes that had been appended to the log when one failed.
    failed: Option<u64>,
    /// Segments of which nothing is in use since a checkpoint, and their bytes.
    waiting: BTreeMap<u32, u64>,
    written: u64,
    pin: Pin,
}

impl Images {
    /// The images that are there of a partition with these segments.
    pub(crate) fn found(
        files: &dyn crate::disk::Files,
        segments: &[u32],
        needed: bool,
    ) -> Result<Self, StoreError> {
        if !needed {
            return Ok(Self::default());
        }
        let from = |first: u32| {
            let behind = segments.iter().filter(|segment| **segment >= first);
            (first..).zip(behind).all(|(nth, segment)| nth == *segment)
        };
        let base = image::newest(files)?;
        Ok(Self {
            needed,
            whole: from(1),
            base: base.filter(|base| from(base.place.segment)),
            last: image::numbers(files)?.last().copied().unwrap_or(0),
            ..Self::default()
        })
    }

    /// Room that the next one may take, of an index of so many objects.
    pub(crate) fn bytes(&self, objects: u64) -> u64 {
        let last = self.base.as_ref().map_or(0, |base| base.bytes);
        match self.needed {
            true => (last + last / 8).max(objects * OBJECT_BYTES),
            false => 0,
        }
    }

    /// Segments below this one may go.
    fn floor(&self) -> u32 {
        match (&self.base, self.needed) {
            (_, false) => u32::MAX,
            (Some(base), true) => base.place.segment,
            (None, true) => 0,
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(crate) fn is_waiting(&self, segment: u32) -> bool {
        self.waiting.contains_key(&segment)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Could the index be made again from what is there?
    pub(crate) fn suffice(&self) -> bool {
        !self.needed || self.whole || self.base.is_some()
    }

    pub(crate) fn base(&self) -> Option<&Image> {
        self.base.as_ref()
    }

    /// The newest image, or the log behind it, is not to be relied on any more.
    pub(crate) fn spoil(&mut self) {
        self.base = None;
        self.whole = false;
        self.failed = None;
    }

    /// Segments stay on the disk as long as what this gives is kept.
    pub(crate) fn pin(&self) -> Pin {
        self.pin.clone()
    }

    /// Segments are removed from now on, even if a check wants them.
    fn break_pin(&mut self) {
        if self.is_pinned() {
            self.pin.0.store(true, Ordering::Release);
            self.pin = Pin::default();
        }
    }

    fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.pin.0) > 1
    }

    /// Waits for one that is being written, whatever comes of it.
    pub(crate) fn abandon(&mut self) {
        if let Some(thread) = self.running.take() {
            // Without an end it counts as none.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Nothing in these segments is in use, which is on stable storage: they go when they may.
    pub(crate) fn retire(&mut self, dead: Vec<u32>) {
        for segment in dead {
            let bytes = match self.images.needed {
                true => self.len_of(segment).unwrap_or(0),
                false => 0,
            };
            self.images.waiting.insert(segment, bytes);
        }
        let waiting: u64 = self.images.waiting.values().sum();
        let live: u64 = self.core.index.live().values().sum();
        if waiting > (live / 4).max(PINNED_SEGMENTS * self.log.segment_bytes()) {
            self.images.break_pin();
        }
        self.remove_waiting();
    }

    fn remove_waiting(&mut self) {
        if self.images.is_pinned() {
            return;
        }
        let may = self.images.waiting.range(..self.images.floor());
        let may: Vec<u32> = may.map(|(segment, _)| *segment).collect();
        for segment in may {
            match self.log.remove(segment) {
                Ok(()) => {
                    self.images.waiting.remove(&segment);
                    self.images.whole = false;
                    self.checkpoints.note_removed(segment);
                    self.cleaner.forget(segment);
                }
                // It is tried again with the next checkpoint.
                Err(error) => {
                    let name = segment_name(segment);
                    tracing::warn!("cannot remove the unused segment {name}: {error}");
                }
            }
        }
    }

    /// Is it time for an image?
    fn image_is_due(&self) -> bool {
        let images = &self.images;
        let idle = images.running.is_none() && !self.healing.is_at_work();
        if !images.needed || !idle || self.core.index.engine().doubts() > 0 {
            return false;
        }
        let again = self.log.segment_bytes();
        if let Some(failed) = images.failed
            && self.log.appended() < failed + again
        {
            return false;
        }
        let waiting: u64 = images.waiting.values().sum();
        let enough = images.base.as_ref().map_or(0, |base| base.bytes).max(again);
        let free = self.log.space().map_or(0, |(_, free)| free);
        let tight = free < 2 * self.log.kept(Use::Change);
        let due = !images.suffice() || waiting >= enough || (waiting > 0 && tight);
        due && self.image_has_room()
    }

    /// Is there so much room that an image leaves enough of it for the index?
    fn image_has_room(&self) -> bool {
        let free = self.log.space().map_or(0, |(_, free)| free);
        free >= self.log.kept(Use::Clean)
    }

    /// Keeps room for the next image.
    pub(crate) fn keep_for_image(&mut self) {
        let bytes = self.images.bytes(self.core.index.counters.objects);
        self.log.keep_for_images(bytes);
    }

    /// Begins an image if it is time for one.
    pub(crate) fn image_if_due(&mut self) {
        if !self.image_is_due() {
            return;
        }
        let work = match self.image_work() {
            Ok(work) => work,
            Err(error) => return self.end_image(Err(error)),
        };
        if self.memory.is_some() {
            return self.end_image(work());
        }
        let thread = std::thread::Builder::new().name("image".to_owned());
        match thread.spawn(work) {
            Ok(running) => self.images.running = Some(running),
            Err(e) => self.end_image(Err(StoreError::io("start a thread", e))),
        }
    }

    /// The work that writes an image of the index as the last checkpoint left it.
    fn image_work(
        &mut self,
    ) -> Result<impl FnOnce() -> Result<Image, StoreError> + Send + 'static, StoreError> {
        self.images.last += 1;
        let which = (self.images.last, self.log.id(0).identity);
        let (view, files) = (self.core.index.engine().view()?, self.log.files().clone());
        Ok(move || image::write(&*files, &*view, which))
    }

    fn end_image(&mut self, result: Result<Image, StoreError>) {
        let image = match result {
            Ok(image) => image,
            Err(error) => {
                if !matches!(error, StoreError::NoSpace) {
                    tracing::error!("an image of the index failed and will be repeated: {error}");
                }
                self.images.failed = Some(self.log.appended());
                let _ = self.log.files().remove(&image::name(self.images.last));
                return;
            }
        };
        self.images.failed = None;
        self.images.written += image.bytes;
        self.remove_images(image.number);
        self.images.base = Some(image);
        self.keep_for_image();
        self.remove_waiting();
    }

    /// Removes all images but this one.
    fn remove_images(&mut self, but: u32) {
        if self.images.is_pinned() {
            return;
        }
        let files = self.log.files();
        let numbers = image::numbers(&**files).unwrap_or_default();
        for number in numbers.into_iter().filter(|number| *number != but) {
            // It does no harm where it is, and goes with the next one.
            if let Err(error) = files.remove(&image::name(number)) {
                tracing::warn!("cannot remove the old {}: {error}", image::name(number));
            }
        }
    }

    /// Writes an image now.
    pub(crate) fn renew_image(&mut self) -> Result<(), StoreError> {
        if self.images.needed {
            let image = self.image_work().and_then(|work| work())?;
            self.end_image(Ok(image));
        }
        Ok(())
    }

    /// Notes what became of an image that was being written.
    pub(crate) fn note_image(&mut self) {
        let running = self.images.running.as_ref();
        if running.is_some_and(JoinHandle::is_finished) {
            self.join_images();
        }
    }

    /// Waits for an image that is being written.
    pub(crate) fn join_images(&mut self) {
        let Some(thread) = self.images.running.take() else {
            return;
        };
        let died = || {
            let died = std::io::Error::other("its thread ended early");
            Err(StoreError::io("write an image of the index", died))
        };
        let result = thread.join().unwrap_or_else(|_| died());
        self.end_image(result);
    }

    /// Makes room: segments that wait for an image are removed. Were there any?
    pub(crate) fn release_waiting(&mut self) -> bool {
        let before = self.checkpoints.removed();
        self.join_images();
        if !self.images.waiting.is_empty() {
            self.images.break_pin();
        }
        self.remove_waiting();
        // The second attempt has the room of the image before.
        for _ in 0..2 {
            let waits = !self.images.waiting.is_empty() && self.images.needed;
            if !waits || self.core.index.engine().doubts() > 0 || self.healing.is_at_work() {
                break;
            }
            let work = match self.image_has_room() {
                true => self.image_work(),
                false => Err(StoreError::NoSpace),
            };
            match work.and_then(|work| work()) {
                Err(StoreError::NoSpace) => {
                    self.end_image(Err(StoreError::NoSpace));
                    self.give_up_images();
                }
                other => self.end_image(other),
            }
        }
        self.checkpoints.removed() > before
    }

    /// There is no room for an image: first the one before goes, then it has to go without.
    fn give_up_images(&mut self) {
        let had = self.images.base.take().is_some();
        self.remove_images(0);
        if had {
            return;
        }
        tracing::error!(
            "the disk is so full that the index cannot be copied: until there is room for that, a \
             damaged index can only be restored from a copy"
        );
        self.images.needed = false;
        self.remove_waiting();
        self.images.needed = true;
    }
}
