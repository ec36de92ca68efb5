//! A move of a store to this server, while it is in use at another one: the iterative pre-copy of
//! live migration (Clark and others, NSDI 2005). Rounds copy the store's directory while programs
//! use it, until little changes; then it is closed, the last round makes the copy exact, the cell's
//! record is changed, and the store is opened here. For its clients that is a restart of the server
//! elsewhere.
//!
//! Guarantees: until the record is changed the store is the other server's, and a move that ends
//! before leaves it as it was; a move that a crash interrupts is begun again by the same command,
//! or, if the copy was whole, goes on by itself.

use super::{Stores, record_of, strange};
use cell::{Moving, Stage, StoreAnswer, StoreQuestion};
use logic::placement::Part;
use net::Addresses;
use ship::{Ask, Round, Source, Target, Told};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{Name, VolumeInfo, VolumeState, volume_numbers};

/// When a round carries no more than this, the store is closed and the last one made.
const LITTLE_BYTES: u64 = 4 << 20;
/// After so many rounds it is closed however much changes.
const ROUNDS_MAX: u32 = 10;
/// Most moves that are known, with those that have ended.
const KNOWN_MAX: usize = 256;
/// The record of a store is read again so much later, where the database did not answer.
const UNKNOWN: Duration = Duration::from_millis(500);

/// A move to here.
pub(super) struct Move {
    state: Mutex<State>,
    cancelled: AtomicBool,
}

struct State {
    first_volume: Option<u32>,
    progress: Moving,
}

impl Move {
    fn new() -> Arc<Move> {
        let progress = Moving {
            from: String::new(),
            stage: Stage::Copies { round: 1 },
            carried_bytes: 0,
            store_bytes: 0,
            pause_ms: 0,
        };
        Arc::new(Move {
            state: Mutex::new(State {
                first_volume: None,
                progress,
            }),
            cancelled: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn progress(&self) -> Moving {
        self.lock().progress.clone()
    }

    pub(super) fn first_volume(&self) -> Option<u32> {
        self.lock().first_volume
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.lock().progress.stage, Stage::Done | Stage::Failed(_))
    }

    /// Is the store closed at its server, and not served here yet?
    pub(super) fn is_closed(&self) -> bool {
        self.lock().progress.stage == Stage::Closed
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> Result<(), String> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err("the move was cancelled: the volume is where it was".into()),
            false => Ok(()),
        }
    }

    fn is_at(&self, stage: Stage) {
        self.lock().progress.stage = stage;
    }
}

/// The directory of a store at another server.
struct There<'s> {
    stores: &'s Stores,
    server: Addresses,
    first_volume: u32,
    turn: Option<u64>,
    of: &'s Move,
}

impl Source for There<'_> {
    fn ask(&self, ask: &Ask) -> Result<Told, String> {
        self.of.goes_on()?;
        let question = StoreQuestion::Ship {
            first_volume: self.first_volume,
            turn: self.turn,
            ask: ask.clone(),
        };
        match self.stores.ask(&self.server, question)? {
            StoreAnswer::Shipped(told) => Ok(told),
            _ => Err(strange()),
        }
    }
}

/// The store that has a volume, at another server.
struct Found {
    name: String,
    server: Addresses,
    first_volume: u32,
}

impl Stores {
    /// Begins a move, or says how far the one is that was begun.
    pub(super) fn begin_move(
        self: &Arc<Self>,
        volume: &str,
        number: u32,
    ) -> Result<StoreAnswer, String> {
        Name::new(volume.as_bytes()).map_err(|_| "that is no name of a volume")?;
        let mut state = self.lock();
        if let Some(known) = state.moves.get(volume).filter(|one| !one.is_over()) {
            return Ok(StoreAnswer::Moving(known.progress()));
        }
        if state.moves.len() >= KNOWN_MAX {
            state.moves.retain(|_, one| !one.is_over());
        }
        if state.moves.len() >= KNOWN_MAX {
            return Err("so many volumes move to this server: wait until some have come".into());
        }
        let new = Move::new();
        state.moves.insert(volume.to_owned(), Arc::clone(&new));
        drop(state);
        let progress = new.progress();
        let (own, of, name) = (Arc::clone(self), Arc::clone(&new), volume.to_owned());
        let run = move || {
            let ended = own.run_move(&of, (&name, number));
            let stage = match ended {
                Ok(()) => Stage::Done,
                Err(why) => Stage::Failed(why),
            };
            tracing::info!(volume = name, ?stage, "a move has ended");
            of.is_at(stage);
            own.changed.notify_all();
        };
        let started = std::thread::Builder::new().name("move".into()).spawn(run);
        match started {
            Ok(_) => Ok(StoreAnswer::Moving(progress)),
            Err(error) => {
                self.lock().moves.remove(volume);
                Err(format!("no thread can be started: {error}"))
            }
        }
    }

    fn run_move(&self, of: &Move, (volume, number): (&str, u32)) -> Result<(), String> {
        let own = self.own()?;
        let found = self.find(volume, number)?;
        let first_volume = found.first_volume;
        self.claim(of, &found)?;
        let mut there = There {
            stores: self,
            server: found.server.clone(),
            first_volume,
            turn: None,
            of,
        };
        let coming = self.places.coming(first_volume)?;
        let mut copy = Target::open(&coming).map_err(|error| error.to_string())?;
        let moved = self.copy_in_use(&there, &mut copy).and_then(|()| {
            let began = Instant::now();
            of.is_at(Stage::Closed);
            let turn = self.close_there(&found, own)?;
            there.turn = Some(turn);
            let ended = self.take(&there, (&mut copy, &coming), turn);
            let pause_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            of.lock().progress.pause_ms = pause_ms.max(1);
            if ended.is_err() {
                self.give_back(&found, turn);
            }
            ended
        });
        if moved.is_err()
            && let Err(error) = self.places.stop_coming(first_volume)
        {
            tracing::warn!(error, "the copy of a store stays behind");
        }
        moved
    }

    /// The store is this move's from now on, if it is where it was found, and no other move has it.
    /// A copy that is here begins the new one.
    fn claim(&self, of: &Move, found: &Found) -> Result<(), String> {
        let _acting = self.act();
        let first_volume = found.first_volume;
        if self.is_moving(first_volume) {
            return Err("its store moves already, with another volume that is in it".into());
        }
        let record = self.record(first_volume)?;
        if record.server != found.name {
            return Err("it has just moved: see `ariel volume list --all`".into());
        }
        let whole_of = self.places.whole_of(first_volume);
        if let Part::Takes(_) = record.part(self.own()?, whole_of) {
            return Err("an earlier move is just taken to its end: try again".into());
        }
        {
            let mut mine = of.lock();
            mine.first_volume = Some(first_volume);
            mine.progress.from.clone_from(&found.name);
        }
        self.lock().closed.remove(&first_volume);
        self.places.begin_with_left(first_volume)
    }

    /// Finds the server that has a volume in a store that can move: the record says it.
    fn find(&self, volume: &str, number: u32) -> Result<Found, String> {
        let first_volume = first_of(number, volume)?;
        if self.is_replica(first_volume)? {
            return Err(format!(
                "{volume} is a replica, and does not move: `ariel volume replicate --on SERVER` \
                 makes one there, and `--not-on SERVER` takes one away"
            ));
        }
        let name = self.record(first_volume)?.server;
        if self.own.as_deref() == Some(&name) {
            return Err(format!("{volume} is on this server already"));
        }
        let server = self.line_of(&name)?;
        let there = self.volumes_at(&server)?;
        let is_it = |info: &VolumeInfo| info.id == number && info.state == VolumeState::Present;
        if !there.iter().any(is_it) {
            return Err(format!(
                "{name} does not serve {volume} now: see `ariel volume list --all`, and its log"
            ));
        }
        names_are_free(&self.server()?.volumes(), &there, first_volume)?;
        Ok(Found {
            name,
            server,
            first_volume,
        })
    }

    /// Copies a store that is in use, until little changes.
    fn copy_in_use(&self, there: &There<'_>, copy: &mut Target) -> Result<(), String> {
        let mut before = u64::MAX;
        for round in 1..=ROUNDS_MAX {
            there.of.is_at(Stage::Copies { round });
            let base = there.of.progress().carried_bytes;
            let carried = copy.round(there, &mut |now| note(there.of, base, now));
            let carried = carried.map_err(|error| error.to_string())?;
            note(there.of, base, carried);
            let bytes = carried.carried_bytes;
            // It changes as fast as it is copied: more rounds would bring nothing.
            if bytes <= LITTLE_BYTES || bytes > before / 2 {
                break;
            }
            before = bytes;
        }
        there.of.goes_on()
    }

    fn close_there(&self, found: &Found, own: &str) -> Result<u64, String> {
        let question = StoreQuestion::Leave {
            first_volume: found.first_volume,
            to: own.to_owned(),
        };
        match self.ask(&found.server, question)? {
            StoreAnswer::Left(turn) => Ok(turn),
            _ => Err(strange()),
        }
    }

    /// Makes the copy exact, and takes the store over.
    fn take(
        &self,
        there: &There<'_>,
        (copy, coming): (&mut Target, &Path),
        turn: u64,
    ) -> Result<(), String> {
        let base = there.of.progress().carried_bytes;
        let last = copy.last_round(there, &mut |now| note(there.of, base, now));
        note(there.of, base, last.map_err(|error| error.to_string())?);
        server::has_come(coming).map_err(|error| format!("{}: {error}", coming.display()))?;
        let first_volume = there.first_volume;
        self.places.has_come(first_volume, turn)?;
        // The store cannot be given back before this server knows the record.
        while !self.wins(first_volume, turn)? {
            self.await_database()?;
        }
        let opened = {
            let _acting = self.act();
            self.open(first_volume)
        };
        opened.map_err(|error| {
            // The keeper tries again.
            self.note_closed(first_volume, 0);
            format!("it is on this server now, but cannot be opened, which is tried again: {error}")
        })
    }

    /// The database did not answer, and tells nobody when it does again: it is asked anew a little
    /// later, unless the server ends before.
    fn await_database(&self) -> Result<(), String> {
        let state = self.lock();
        let ends = |state: &mut super::State| !state.ending;
        let waited = self.changed.wait_timeout_while(state, UNKNOWN, ends);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.ending {
            true => Err("the server ends, and takes the move to its end when it starts".into()),
            false => Ok(()),
        }
    }

    /// Does the record name this server by now? An error: the other one has taken the store back.
    fn wins(&self, first_volume: u32, turn: u64) -> Result<bool, String> {
        let _acting = self.act();
        match self.win(first_volume, turn) {
            Ok(true) => Ok(true),
            Ok(false) => {
                let aside = self.places.set_aside(first_volume)?;
                self.places.remove_aside(&aside)?;
                Err("the other server has taken the volume back: begin again".into())
            }
            Err(error) => {
                tracing::warn!(
                    store = record_of(first_volume),
                    error,
                    "it is not known yet which server has a store"
                );
                Ok(false)
            }
        }
    }

    /// The other server serves the store again at once, if it can be told.
    fn give_back(&self, found: &Found, turn: u64) {
        let first_volume = found.first_volume;
        let question = StoreQuestion::TakeBack { first_volume, turn };
        if let Err(error) = self.ask(&found.server, question) {
            tracing::warn!(error, "a store is given back when its server notices");
        }
    }
}

fn note(of: &Move, base: u64, now: Round) {
    let mut state = of.lock();
    state.progress.carried_bytes = base + now.carried_bytes;
    state.progress.store_bytes = now.of_bytes;
}

/// The first volume of the store in which a volume is, if that is not a server's first store.
fn first_of(number: u32, volume: &str) -> Result<u32, String> {
    volume_numbers::first_beside(number).ok_or_else(|| {
        format!(
            "{volume} shares its store with other volumes of its server, and only a volume with a \
             store of its own moves: make one with `ariel volume create --own-store`, and bring \
             the files there with `ariel volume send` and `receive`"
        )
    })
}

/// No volume that is here has the name of one that would come.
fn names_are_free(
    here: &[VolumeInfo],
    there: &[VolumeInfo],
    first_volume: u32,
) -> Result<(), String> {
    let store = record_of(first_volume);
    let counts = |info: &&VolumeInfo| !matches!(info.state, VolumeState::Deleted(_));
    let come = there.iter().filter(counts);
    let come = come.filter(|info| record_of(info.id) == store);
    let is_taken = |info: &&VolumeInfo| {
        let mut here = here.iter().filter(counts);
        here.any(|other| other.name == info.name)
    };
    let taken: Vec<String> = come
        .filter(is_taken)
        .map(|info| info.name.to_string())
        .collect();
    match taken.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "this server has volumes called {} already, as volumes of this store are called: \
             rename them first",
            taken.join(", ")
        )),
    }
}
