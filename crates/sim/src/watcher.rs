//! Watching programs, and the changes sent to them: [`judge`](crate::judge) compares these with the
//! disk's own record.

use crate::coverage::Rare;
use crate::disk::Units;
use crate::room::Room;
use crate::world::World;
use logic::client::Input;
use std::cell::RefCell;
use std::rc::Rc;
use wire::{Change, Fid, Kind, Refusal, WatchId};

/// Something that one of them was told.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// Changes made up to now may have been missed.
    Missed {
        moment: u64,
    },
    Change(Change),
    /// Nothing more comes.
    End,
}

/// A watching program.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub(crate) host: u32,
    pub(crate) watch: WatchId,
    pub(crate) fid: Fid,
    pub(crate) recursive: bool,
    /// When he asked, and when he was told that it has begun.
    pub(crate) asked: u64,
    pub(crate) begun: Option<u64>,
    pub(crate) news: Vec<News>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Watchers(pub(crate) RefCell<Vec<Watcher>>);

impl Watchers {
    /// A machine is told something.
    pub(crate) fn told(
        &self,
        moment: u64,
        (host, watch): (u32, WatchId),
        (missed, changes): (bool, Vec<Change>),
        end: Option<Refusal>,
    ) -> u128 {
        let mut all = self.0.borrow_mut();
        let own = all.iter_mut().find(|w| (w.host, w.watch) == (host, watch));
        let Some(own) = own else {
            return 0;
        };
        own.begun.get_or_insert(moment);
        let mut met = Rare::Watched.bit();
        if missed {
            own.news.push(News::Missed { moment });
            met |= Rare::WatchMissed.bit();
        }
        own.news.extend(changes.into_iter().map(News::Change));
        if end.is_some() {
            own.news.push(News::End);
            met |= Rare::WatchEnded.bit();
        }
        met
    }
}

impl World {
    /// Some on this machine watch from now on: the tree, or something in it.
    pub(crate) fn start_watchers(self: &Rc<Self>, room: &Rc<Room>) {
        for watch in 1..=u64::from(self.watchers_of_each()) {
            let (fid, recursive) = self.something_to_watch();
            self.watchers.0.borrow_mut().push(Watcher {
                host: room.host,
                watch,
                fid,
                recursive,
                asked: self.sched.moment(),
                begun: None,
                news: Vec::new(),
            });
            let input = Input::Watch {
                watch,
                fid,
                recursive,
            };
            room.input(self, input, Units::new());
        }
    }

    fn something_to_watch(&self) -> (Fid, bool) {
        let root = Fid::root(1);
        let mut rng = self.rng.borrow_mut();
        let recursive = rng.chance(500);
        if rng.chance(500) {
            return (root, recursive);
        }
        let mut files = self.server().disk().files();
        files.retain(|(_, attr)| attr.kind == Kind::Directory || rng.chance(300));
        let at = rng.below(files.len() as u64) as usize;
        (files.get(at).map_or(root, |(fid, _)| *fid), recursive)
    }

    /// Have those who watch on machines that are there been told everything?
    pub(crate) fn all_told(&self) -> bool {
        let rooms = self.alive();
        let mine = rooms.iter().map(|room| room.session()).collect();
        let asks = |room: &Rc<Room>| room.with(|machine| machine.figures().unwatched > 0);
        self.server().all_told(&mine) && !rooms.iter().any(asks)
    }
}
