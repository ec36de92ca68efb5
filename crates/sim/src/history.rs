//! The programs' changes and sights: the judge's only source, with the disk's own record of
//! changes.

use crate::disk::Units;
use logic::client::Event;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Name, Time};

/// A change that a program asked for.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Write {
        fid: Fid,
        unit: u64,
        values: Units,
    },
    /// One unit through a shared mapping, of a file that is longer.
    Store {
        fid: Fid,
        unit: u64,
        value: u64,
    },
    Append {
        fid: Fid,
        values: Units,
    },
    Size {
        fid: Fid,
        units: u64,
    },
    Mode {
        fid: Fid,
        mode: u16,
    },
    /// An extended attribute is set; 0: is removed.
    Label {
        fid: Fid,
        label: u64,
    },
    /// Units come to be zero, and the file at least as long as that, or as `end` says.
    Zero {
        fid: Fid,
        units: (u64, u64),
        end: u64,
    },
    /// So many units at most of a file, from this one on, come to a file, from that one on.
    Copy {
        from: (Fid, u64),
        to: (Fid, u64),
        count: u64,
    },
    /// The object made is known when the call has returned.
    Make {
        dir: Fid,
        name: Name,
        mode: u16,
        fid: Option<Fid>,
    },
    Link {
        dir: Fid,
        name: Name,
        fid: Fid,
    },
    /// The object that the kernel had looked up is known when the call has returned.
    Remove {
        dir: Fid,
        name: Name,
        fid: Option<Fid>,
    },
    Rename {
        from: (Fid, Name),
        to: (Fid, Name),
        fid: Option<Fid>,
    },
    /// Each of two names comes to mean what the other one meant.
    Exchange {
        names: [(Fid, Name); 2],
    },
}

impl Effect {
    /// The names that it is about.
    pub(crate) fn names(&self) -> Vec<(Fid, Name)> {
        match self {
            Self::Make { dir, name, .. }
            | Self::Link { dir, name, .. }
            | Self::Remove { dir, name, .. } => vec![(*dir, name.clone())],
            Self::Rename { from, to, .. } => vec![from.clone(), to.clone()],
            Self::Exchange { names } => names.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The fate of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never returned, or with an error that leaves it open.
    Open,
    Done,
    Failed,
}

/// A change and its time.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) host: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) fate: Fate,
    pub(crate) effect: Effect,
}

/// Something that a program was shown.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Units of a file from this one on; with the end of the file after them, or, if that is
    /// doubtful, with an end that it may have had before.
    Units {
        fid: Fid,
        unit: u64,
        values: Units,
        ended: bool,
        doubtful: bool,
    },
    /// A size, how many bytes it occupies, a mode, and when it was modified, changed and made.
    Attr {
        fid: Fid,
        units: u64,
        used: u64,
        mode: u16,
        times: [Time; 2],
        born: Time,
    },
    /// An extended attribute; 0: there is none.
    Label { fid: Fid, label: u64 },
    /// The object of a name.
    Name {
        dir: Fid,
        name: Name,
        fid: Option<Fid>,
    },
    /// A name exists.
    Present { dir: Fid, name: Name },
    /// Two names name this, at one moment: so said a rename that had nothing to do.
    Twins { names: [(Fid, Name); 2], fid: Fid },
}

/// A sight and its time.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) host: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) seen: Seen,
}

/// An entry of a listing, as its client said it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) dir: Fid,
    pub(crate) name: Name,
    pub(crate) fid: Fid,
    pub(crate) position: u64,
}

/// A call under way.
#[derive(Clone, Debug)]
struct Running {
    host: u32,
    what: String,
    since: Time,
}

/// A file made stable: host, file, when the call began and ended.
pub(crate) type Synced = (u32, Fid, (u64, u64));

/// Everything that was recorded.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) changes: RefCell<Vec<Change>>,
    pub(crate) sights: RefCell<Vec<Sight>>,
    pub(crate) listed: RefCell<Vec<Entry>>,
    /// Hosts that may have lost what they had not written back, and when.
    pub(crate) losses: RefCell<Vec<(u32, u64)>>,
    /// Hosts from which something was taken, since they were silent, and when.
    pub(crate) absences: RefCell<Vec<(u32, u64)>>,
    /// Machines that are gone, or whose sessions have been ended.
    pub(crate) over: RefCell<BTreeSet<u32>>,
    /// Files of which machines have reported lost bytes; the next sync of each returns that.
    pub(crate) told: RefCell<BTreeSet<(u32, Fid)>>,
    /// How many changes machines have said to be lost.
    pub(crate) unmade: RefCell<BTreeMap<u32, u64>>,
    /// Files made stable.
    pub(crate) syncs: RefCell<Vec<Synced>>,
    running: RefCell<BTreeMap<u64, Running>>,
    last_call: Cell<u64>,
    pub(crate) longest_ns: Cell<Time>,
}

impl History {
    pub(crate) fn begin(&self, host: u32, begin: u64, effect: Effect) -> usize {
        let mut changes = self.changes.borrow_mut();
        changes.push(Change {
            host,
            begin,
            end: u64::MAX,
            fate: Fate::Open,
            effect,
        });
        changes.len() - 1
    }

    /// The call returned. A change that an error leaves open has no end.
    pub(crate) fn end(&self, change: usize, end: u64, fate: Fate) {
        let change = &mut self.changes.borrow_mut()[change];
        change.fate = fate;
        if fate != Fate::Open {
            change.end = end;
        }
    }

    /// The object that was made, moved or removed, as far as the kernel knows.
    pub(crate) fn about(&self, change: usize, object: Fid) {
        if let Effect::Make { fid, .. } | Effect::Remove { fid, .. } | Effect::Rename { fid, .. } =
            &mut self.changes.borrow_mut()[change].effect
        {
            *fid = Some(object);
        }
    }

    pub(crate) fn saw(&self, host: u32, (begin, end): (u64, u64), seen: Seen) {
        self.sights.borrow_mut().push(Sight {
            host,
            begin,
            end,
            seen,
        });
    }

    pub(crate) fn synced(&self, host: u32, fid: Fid, time: (u64, u64)) {
        self.syncs.borrow_mut().push((host, fid, time));
    }

    pub(crate) fn lost(&self, host: u32, moment: u64) {
        self.losses.borrow_mut().push((host, moment));
    }

    /// A client has said that something is lost.
    pub(crate) fn admits(&self, host: u32, event: &Event) {
        match event {
            Event::DataLost { fid, .. } => drop(self.told.borrow_mut().insert((host, *fid))),
            Event::ChangesLost { count } => {
                *self.unmade.borrow_mut().entry(host).or_default() += *count;
            }
            _ => {}
        }
    }

    /// A client's silence cost it something; its changes are kept.
    pub(crate) fn away(&self, host: u32, moment: u64) {
        self.absences.borrow_mut().push((host, moment));
        self.lost(host, moment);
    }

    pub(crate) fn call(&self, host: u32, what: String, since: Time) -> u64 {
        self.last_call.set(self.last_call.get() + 1);
        let running = Running { host, what, since };
        self.running
            .borrow_mut()
            .insert(self.last_call.get(), running);
        self.last_call.get()
    }

    pub(crate) fn returned(&self, call: u64, now: Time) {
        if let Some(running) = self.running.borrow_mut().remove(&call) {
            self.longest_ns
                .set(self.longest_ns.get().max(now - running.since));
        }
    }

    /// A call returned that may take as long as others like.
    pub(crate) fn forgotten(&self, call: u64) {
        self.running.borrow_mut().remove(&call);
    }

    /// Calls of a machine that vanished end nowhere.
    pub(crate) fn gone(&self, host: u32) {
        self.over.borrow_mut().insert(host);
        self.running
            .borrow_mut()
            .retain(|_, running| running.host != host);
    }

    /// Calls that have not returned, and how many there were.
    pub(crate) fn unreturned(&self, now: Time) -> Vec<String> {
        let ms = |since: Time| (now - since) / 1_000_000;
        let running = self.running.borrow();
        running
            .values()
            .map(|r| format!("h{} {} for {} ms", r.host, r.what, ms(r.since)))
            .collect()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.last_call.get()
    }
}
