//! The invariants of the page tables, as one function for tests: called after every step there.

use super::jobs::Work;
use super::table::{
    ALONE, COMING, COW, DIRTY, Entry, LEAVING, ON_WRITE, QUEUED, RESIDENT, STORED, TOUCHED,
    WRITABLE,
};
use super::{FileId, PageNo, Pages, SegmentId};
use alloc::collections::BTreeMap;

impl Pages {
    /// Looks at everything.
    ///
    /// # Panics
    /// An invariant does not hold.
    pub fn check(&self) {
        let mut uses: BTreeMap<FileId, u64> = BTreeMap::new();
        let mut all = 0;
        for (id, segment) in self.table.all() {
            let mut frames = 0;
            for (page, entry) in segment.used() {
                frames += u32::from(entry.is(RESIDENT | COMING));
                self.check_content(id, page, entry);
                self.check_relatives(id, page, entry);
                if entry.is(STORED) {
                    *uses.entry(entry.store).or_default() += 1;
                }
            }
            assert_eq!(segment.frames, frames, "frames of segment {id} are counted");
            all += frames;
            assert!(self.files[&segment.file].current, "segment {id} has a file");
        }
        assert_eq!(self.table.frames, all, "frames are counted");
        for job in self.jobs.values() {
            *uses.entry(job.file).or_default() += 1;
            let flag = match job.work {
                Work::Fetch(_) => COMING,
                Work::Store => LEAVING,
            };
            if let Some(segment) = self.table.get(job.segment) {
                let mut pages = job.run.page..job.run.end();
                assert!(pages.all(|page| segment.entry(page).is(flag)));
            }
        }
        for (file, state) in &self.files {
            let uses = uses.remove(file).unwrap_or_default();
            assert_eq!(state.uses, uses, "uses of file {file} are counted");
            assert!(state.uses > 0 || state.current, "an unused file is closed");
        }
        assert!(uses.is_empty(), "files in use are known");
    }

    /// The content of a page is somewhere, once.
    fn check_content(&self, id: SegmentId, page: PageNo, entry: Entry) {
        let told = |holds: bool, what: &str| {
            assert!(holds, "{what}: segment {id}, page {page}, {entry:?}");
        };
        if entry.is(WRITABLE) {
            let changed = entry.is(DIRTY) && entry.is(RESIDENT);
            told(changed, "a page that may be written is dirty");
            told(!entry.is(COW), "a shared page may not be written");
            told(!entry.is_slave(), "a relative's page may not be written");
        }
        if entry.is(DIRTY) {
            let held = entry.is(RESIDENT) && entry.is(TOUCHED) && !entry.is_slave();
            told(held, "dirty content is own, and in a frame");
            told(!entry.is(STORED), "dirty content is in no file");
        }
        if entry.is(TOUCHED) {
            let held = entry.is(DIRTY) || entry.is(STORED) || entry.is(LEAVING);
            told(held, "content is in a file or dirty");
            told(!entry.is_slave(), "content is own or a relative's");
        } else {
            let none = !entry.is(STORED | LEAVING | COW);
            told(none, "there is no content to store or share");
        }
        told(
            !(entry.is(COMING) && entry.is(RESIDENT)),
            "a frame is filled once",
        );
        told(
            !(entry.is(COMING) && entry.is(LEAVING)),
            "one job works on a frame",
        );
        told(
            !entry.is(LEAVING) || entry.is(RESIDENT),
            "a page that leaves is in a frame",
        );
        let queued = entry.is(QUEUED) || entry.is(LEAVING);
        told(!entry.is(RESIDENT) || queued, "the clock knows every frame");
    }

    /// Nelson, section 7.4: each slave names its master, no master is a slave, and a page is
    /// copy-on-write exactly as long as it has slaves.
    fn check_relatives(&self, id: SegmentId, page: PageNo, entry: Entry) {
        let told = |holds: bool, what: &str| {
            assert!(holds, "{what}: segment {id}, page {page}, {entry:?}");
        };
        if entry.is_slave() {
            let master = self.table.get(entry.master).expect("the master is there");
            let family = self.table.of(id).family;
            told(master.family == family, "master and slave are related");
            let page = master.entry(page);
            told(!page.is_slave(), "a master is no slave");
            told(
                page.is(COW) && page.is(TOUCHED),
                "a master's page is copy-on-write",
            );
            let twin = entry.is(ON_WRITE) || !entry.is(RESIDENT);
            told(twin, "a page that was referred to is own");
        } else {
            told(!entry.is(ON_WRITE | ALONE), "only slaves have a kind");
        }
        if entry.is(COW) {
            let slaves = self.table.slaves(id, page);
            told(
                !slaves.is_empty(),
                "a page without slaves is not copy-on-write",
            );
        }
    }
}
