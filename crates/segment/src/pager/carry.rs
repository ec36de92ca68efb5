//! Carries out what the machine says.

use super::{State, Work};
use crate::error::Result;
use logic::pages::{Output, SegmentId};
use std::sync::Arc;

impl State {
    /// All outputs, in their order. An output that fails ends the program that it was for.
    pub(super) fn carry_all(&mut self, outputs: &[Output], inline: bool, mine: &mut Option<Work>) {
        let mut skip = false;
        for (at, output) in outputs.iter().enumerate() {
            if std::mem::take(&mut skip) {
                continue;
            }
            let next = outputs.get(at + 1);
            skip = is_mapped_zero(output, next);
            let (segment, result) = self.carry(output, skip, inline, mine);
            if let Err(error) = result {
                tracing::error!(segment, %error, "a page cannot be mapped or given up");
                self.end(segment);
            }
        }
    }

    fn end(&self, segment: SegmentId) {
        if let Some(room) = self.rooms.get(&segment) {
            room.end_program();
        }
    }

    fn carry(
        &mut self,
        output: &Output,
        mapped_zero: bool,
        inline: bool,
        mine: &mut Option<Work>,
    ) -> (SegmentId, Result<()>) {
        let room = |segment: &SegmentId| &self.rooms[segment];
        match output {
            Output::Zero { segment, run } if mapped_zero => {
                (*segment, room(segment).zero_mapped(*run))
            }
            Output::Zero { segment, run } => (*segment, room(segment).zero(*run)),
            Output::Copy { from, to, run } => (*to, room(to).copy_from(room(from), *run)),
            Output::Map {
                segment,
                run,
                writable,
            } => (*segment, room(segment).map(*run, *writable)),
            Output::Protect { segment, run } => (*segment, room(segment).protect(*run, true)),
            Output::Unprotect { segment, run } => (*segment, room(segment).protect(*run, false)),
            Output::Unmap { segment, run } => {
                room(segment).unmap(*run);
                (*segment, Ok(()))
            }
            Output::Drop { segment, run } => (*segment, room(segment).drop_frames(*run)),
            Output::Fetch { segment, ahead, .. } => {
                let work = self.work_of(output);
                if inline && !ahead && mine.is_none() {
                    *mine = work;
                } else if *ahead {
                    self.queue.extend(work);
                } else {
                    // Somebody waits for it.
                    work.into_iter()
                        .for_each(|work| self.queue.push_front(work));
                }
                (*segment, Ok(()))
            }
            Output::Store { segment, .. } => {
                let work = self.work_of(output);
                self.queue.extend(work);
                (*segment, Ok(()))
            }
            Output::Forked { segment } | Output::Discarded { segment, .. } => {
                self.answered.insert(*segment);
                (*segment, Ok(()))
            }
            Output::Close { file } => {
                self.files.remove(file);
                (0, Ok(()))
            }
            Output::End { segment } => {
                self.end(*segment);
                (*segment, Ok(()))
            }
        }
    }

    fn work_of(&mut self, output: &Output) -> Option<Work> {
        let (job, segment, run, file, is_store) = match *output {
            Output::Fetch {
                job,
                segment,
                run,
                file,
                ..
            } => (job, segment, run, file, false),
            Output::Store {
                job,
                segment,
                run,
                file,
            } => (job, segment, run, file, true),
            _ => return None,
        };
        Some(Work {
            job,
            room: Arc::clone(&self.rooms[&segment]),
            run,
            file: Arc::clone(self.files.entry(file).or_default()),
            is_store,
        })
    }
}

/// Frames of zeros that are mapped to be written are one call of the kernel.
fn is_mapped_zero(output: &Output, next: Option<&Output>) -> bool {
    let (Output::Zero { segment, run }, Some(next)) = (output, next) else {
        return false;
    };
    let map = Output::Map {
        segment: *segment,
        run: *run,
        writable: true,
    };
    *next == map
}
