//! One program's connection: its calls, and what is left of it at its end.

use super::room::Room;
use super::{Shared, spawn};
use crate::talk::{self, BAD_SIZE, NO_ROOM, NO_SEGMENT, UNKNOWN, Words, call};
use crate::uffd::{PAGE, Uffd};
use logic::pages::{Counters, Input, Kind, Run, SegmentId};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Most pages of a segment: 16 TiB.
const MOST_PAGES: u64 = 1 << 32;
const LEAST_LIMIT: u64 = 16;

pub(super) struct Connection<'a> {
    shared: &'a Arc<Shared>,
    calls: OwnedFd,
    orders: Option<Arc<OwnedFd>>,
    owned: BTreeSet<SegmentId>,
    process: u32,
}

/// An answer: words, and the memory of a new segment.
type Answer = std::result::Result<(Vec<u64>, Option<Arc<Room>>), u64>;

impl<'a> Connection<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, calls: OwnedFd) -> Self {
        let process = rustix::net::sockopt::socket_peercred(&calls);
        Self {
            shared,
            calls,
            orders: None,
            owned: BTreeSet::new(),
            process: process.map_or(0, |peer| peer.pid.as_raw_nonzero().get() as u32),
        }
    }

    /// Answers calls until the program is gone.
    pub(super) fn serve(mut self) {
        while let Ok(Some((words, fds))) = talk::receive(&self.calls) {
            let answer = self.answer(&words, fds);
            let mut words: Words = [0; 8];
            let mut memory = None;
            match &answer {
                Ok((values, room)) => {
                    words[1..=values.len()].copy_from_slice(values);
                    memory = room.as_ref().map(|room| room.file.as_fd());
                }
                Err(refusal) => words[0] = *refusal,
            }
            let fds: Vec<_> = memory.into_iter().collect();
            if talk::send(&self.calls, &words, &fds, true).is_err() {
                break;
            }
        }
        for segment in std::mem::take(&mut self.owned) {
            self.delete(segment);
        }
    }

    fn answer(&mut self, words: &Words, mut fds: Vec<OwnedFd>) -> Answer {
        let none = Ok((Vec::new(), None));
        match words[0] {
            call::JOIN => {
                self.orders = fds.pop().map(Arc::new);
                none
            }
            call::MAKE => self.make(words[1], words[2]),
            call::ATTACH => {
                let segment = self.own(words[1])?;
                let uffd = fds.pop().ok_or(UNKNOWN)?;
                self.attach(segment, uffd.into(), words[2] as usize)?;
                none
            }
            call::FORK => self.fork(words[1], (words[2], words[4] == 1), words[3]),
            call::DELETE => {
                let segment = self.own(words[1])?;
                self.owned.remove(&segment);
                self.delete(segment);
                none
            }
            call::DISCARD => {
                let segment = self.own(words[1])?;
                self.discard(segment, words[2], words[3])?;
                none
            }
            call::LIMIT => {
                let segment = self.own(words[1])?;
                let frames = frames(words[2])?;
                self.shared.tell(Input::LimitOf { segment, frames }, false);
                none
            }
            call::UNMAPPING => {
                let segment = self.own(words[1])?;
                self.shared.tell(Input::Unmapping { segment }, false);
                none
            }
            call::STAT => self.stat(words[1]),
            call::NEXT => Ok((self.next(words[1]), None)),
            call::COUNTERS => Ok((self.counters(words[1]), None)),
            _ => Err(UNKNOWN),
        }
    }

    fn own(&self, segment: u64) -> std::result::Result<SegmentId, u64> {
        let segment = SegmentId::try_from(segment).map_err(|_| NO_SEGMENT)?;
        self.owned.get(&segment).copied().ok_or(NO_SEGMENT)
    }

    fn make(&mut self, bytes: u64, limit: u64) -> Answer {
        let pages = bytes.div_ceil(PAGE as u64);
        if pages == 0 || pages >= MOST_PAGES {
            return Err(BAD_SIZE);
        }
        let frames = frames(limit)?;
        let pages = pages as u32;
        let room = self.room(pages)?;
        let segment = room.id;
        self.shared.tell(
            Input::Make {
                segment,
                pages,
                frames,
            },
            false,
        );
        self.owned.insert(segment);
        Ok((vec![u64::from(segment), u64::from(pages)], Some(room)))
    }

    fn room(&self, pages: u32) -> std::result::Result<Arc<Room>, u64> {
        let id = {
            let mut state = self.shared.state.lock();
            state.next += 1;
            state.next - 1
        };
        let room = Room::new(id, pages, self.process).map_err(|error| {
            tracing::error!(%error, "a segment cannot be made");
            NO_ROOM
        })?;
        let room = Arc::new(room);
        let rooms = &mut self.shared.state.lock().rooms;
        rooms.insert(id, Arc::clone(&room));
        Ok(room)
    }

    fn attach(
        &self,
        segment: SegmentId,
        uffd: Uffd,
        address: usize,
    ) -> std::result::Result<(), u64> {
        let orders = self.orders.clone().ok_or(UNKNOWN)?;
        let room = self.shared.state.lock().rooms.get(&segment).cloned();
        let room = room.ok_or(NO_SEGMENT)?;
        if !room.attach(uffd, address, orders) {
            return Err(NO_SEGMENT);
        }
        room.keep();
        let shared = Arc::clone(self.shared);
        spawn("segment faults", move || room.serve(&shared)).map_err(|error| {
            tracing::error!(%error, "a segment cannot be served");
            NO_ROOM
        })
    }

    fn fork(&mut self, from: u64, (kind, unmapped): (u64, bool), limit: u64) -> Answer {
        let from = SegmentId::try_from(from).map_err(|_| NO_SEGMENT)?;
        let frames = frames(limit)?;
        // Only its own program can have done that.
        let unmapped = unmapped && self.owned.contains(&from);
        let kind = match kind {
            0 => Kind::Copy,
            1 => Kind::OnWrite,
            2 => Kind::OnReference,
            3 => Kind::CowCor,
            _ => return Err(UNKNOWN),
        };
        let parent = self.shared.state.lock().rooms.get(&from).cloned();
        let pages = parent.ok_or(NO_SEGMENT)?.pages;
        let room = self.room(pages)?;
        let to = room.id;
        {
            let mut state = self.shared.state.lock();
            // Its program may have ended meanwhile.
            if !state.rooms.contains_key(&from) {
                state.rooms.remove(&to);
                return Err(NO_SEGMENT);
            }
            let input = Input::Fork {
                from,
                to,
                kind,
                frames,
                unmapped,
            };
            self.shared.tell_locked(&mut state, input, false);
        }
        self.owned.insert(to);
        self.shared.wait_answer(to);
        Ok((vec![u64::from(to), u64::from(pages)], Some(room)))
    }

    fn delete(&self, segment: SegmentId) {
        let mut state = self.shared.state.lock();
        self.shared
            .tell_locked(&mut state, Input::Delete { segment }, false);
        if let Some(room) = state.rooms.remove(&segment) {
            room.stop();
        }
    }

    fn discard(&self, segment: SegmentId, page: u64, count: u64) -> std::result::Result<(), u64> {
        let figures = self.shared.state.lock().pages.size(segment);
        let pages = u64::from(figures.ok_or(NO_SEGMENT)?);
        let end = page.checked_add(count).ok_or(BAD_SIZE)?;
        if end > pages {
            return Err(BAD_SIZE);
        }
        let run = Run {
            page: page as u32,
            count: count as u32,
        };
        self.shared.tell(Input::Discard { segment, run }, false);
        self.shared.wait_answer(segment);
        Ok(())
    }

    fn stat(&self, segment: u64) -> Answer {
        let segment = SegmentId::try_from(segment).map_err(|_| NO_SEGMENT)?;
        let figures = self.shared.state.lock().pages.figures(segment);
        let figures = figures.ok_or(NO_SEGMENT)?;
        let words = [
            figures.pages,
            figures.frames,
            figures.limit,
            figures.dirty,
            figures.stored,
            figures.shared,
        ];
        Ok((words.map(u64::from).to_vec(), None))
    }

    fn next(&self, after: u64) -> Vec<u64> {
        let state = self.shared.state.lock();
        let next = state.rooms.iter().find(|(id, _)| u64::from(**id) > after);
        match next {
            Some((id, room)) => vec![u64::from(*id), u64::from(room.process)],
            None => vec![0, 0],
        }
    }

    fn counters(&self, from: u64) -> Vec<u64> {
        let counters = self.shared.state.lock().pages.counters();
        let words = counter_words(&counters);
        words.into_iter().skip(from as usize).take(7).collect()
    }
}

/// The counters in the order in which they are told.
pub(crate) fn counter_words(counters: &Counters) -> [u64; 15] {
    let Counters {
        faults,
        soft,
        waits,
        zeroed,
        fetched,
        ahead,
        stored,
        dropped,
        cow_marked,
        cor_marked,
        cow_faults,
        cor_faults,
        cor_written,
        copies,
        handed,
    } = *counters;
    [
        faults,
        soft,
        waits,
        zeroed,
        fetched,
        ahead,
        stored,
        dropped,
        cow_marked,
        cor_marked,
        cow_faults,
        cor_faults,
        cor_written,
        copies,
        handed,
    ]
}

/// A limit in pages; 0: none.
fn frames(limit: u64) -> std::result::Result<u32, u64> {
    match limit {
        0 => Ok(u32::MAX),
        1..LEAST_LIMIT => Err(BAD_SIZE),
        limit => Ok(u32::try_from(limit).unwrap_or(u32::MAX)),
    }
}
