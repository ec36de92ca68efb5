//! Which backing files are needed. A page keeps its place in its file when another segment gets
//! it, so a file may hold pages of several segments, and lives as long as one of them.

use super::table::{Entry, STORED};
use super::{FileId, Output, Pages, SegmentId};
use alloc::vec::Vec;

/// A file that may hold something.
#[derive(Default)]
pub(super) struct FileState {
    /// Pages whose content it holds, and jobs that use it.
    pub(super) uses: u64,
    /// A segment stores to it.
    pub(super) current: bool,
    /// Something was stored to it.
    pub(super) made: bool,
}

impl Pages {
    /// The number of a file that a segment stores to.
    pub(super) fn new_file(&mut self) -> FileId {
        let file = self.next_file;
        self.next_file += 1;
        let state = FileState {
            current: true,
            ..FileState::default()
        };
        self.files.insert(file, state);
        file
    }

    pub(super) fn use_file(&mut self, file: FileId) {
        let state = self.files.get_mut(&file).expect("a used file is known");
        state.uses += 1;
    }

    pub(super) fn leave_file(&mut self, file: FileId, outputs: &mut Vec<Output>) {
        let state = self.files.get_mut(&file).expect("a used file is known");
        state.uses -= 1;
        self.close_unused(file, outputs);
    }

    /// A segment stores to it no more.
    pub(super) fn retire_file(&mut self, file: FileId, outputs: &mut Vec<Output>) {
        let state = self.files.get_mut(&file).expect("a current file is known");
        state.current = false;
        self.close_unused(file, outputs);
    }

    fn close_unused(&mut self, file: FileId, outputs: &mut Vec<Output>) {
        let state = &self.files[&file];
        if state.uses == 0 && !state.current {
            if state.made {
                outputs.push(Output::Close { file });
            }
            self.files.remove(&file);
        }
    }

    /// The file's content is not this page's any more.
    pub(super) fn unstore(&mut self, entry: &mut Entry, outputs: &mut Vec<Output>) {
        if entry.is(STORED) {
            entry.clear(STORED);
            self.leave_file(entry.store, outputs);
            entry.store = 0;
        }
    }

    /// The pages that a relative got of this segment's file must stay: later stores go to another
    /// file.
    pub(super) fn change_file(&mut self, segment: SegmentId, outputs: &mut Vec<Output>) {
        let file = self.new_file();
        let old = core::mem::replace(&mut self.table.of_mut(segment).file, file);
        self.retire_file(old, outputs);
    }
}
