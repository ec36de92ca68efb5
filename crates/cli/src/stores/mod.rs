//! The further stores of a server: made when a volume is to have one of its own, served, and moved
//! from server to server while they are in use.
//!
//! Guarantees: a store is served while the cell's record of it names this server and no other
//! ([`logic::placement::Placement`]); a store that was closed for another server which does not
//! take it over is served again by itself; the copy of one that another server has is removed only
//! when that server serves it. `moving` copies a store to here. Stores of replicas do not move, and
//! have rules of their own, in `replicas` and `releases`.

mod keeper;
mod leaving;
mod load;
mod moving;
mod places;
mod releases;
mod replicas;

pub(crate) use keeper::Keeper;

use crate::gate::Gatekeeper;
use crate::{servers, trust};
use cell::{AskError, Cell, Listed, Role, StoreAnswer, StoreQuestion};
use logic::placement::{Part, Placement};
use moving::Move;
use net::Addresses;
use places::Places;
use releases::Sites;
use server::Server;
use ship::Answerer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use wire::{VolumeInfo, volume_numbers};

/// For so long at most it is waited for where a store comes to that is on its way.
const SETTLED: Duration = Duration::from_secs(5);
/// More than so many do not wait: their threads are needed.
const WAITING_MAX: usize = 64;
/// A store that was closed for another server is served here again when that one has asked nothing
/// about it for so long.
const SILENCE: Duration = Duration::from_secs(10);

/// The further stores of a server.
pub(crate) struct Stores {
    server: Weak<Server>,
    gate: Arc<Gatekeeper>,
    credentials: PathBuf,
    places: Places,
    /// The server's name; `None`: the cell has no other one, and there are no records.
    own: Option<String>,
    /// The server's number in the numbers of volumes.
    number: u32,
    /// Held while a record is changed, and what follows from it is done.
    acting: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// The replicas that are here.
    sites: Sites,
}

#[derive(Default)]
struct State {
    ending: bool,
    /// So many askers wait until it is settled where stores are.
    waiting: usize,
    /// Stores whose directories are here, and that are not served.
    closed: BTreeMap<u32, Closed>,
    moves: BTreeMap<String, Arc<Move>>,
    answerers: BTreeMap<u32, Arc<Answerer>>,
}

impl State {
    /// Is a store between two servers?
    fn is_moving(&self) -> bool {
        let leaves = self.closed.values().any(|closed| closed.turn != 0);
        leaves || self.moves.values().any(|one| one.is_closed())
    }
}

/// A store that is closed.
#[derive(Clone, Copy, Debug)]
struct Closed {
    /// In this turn, for another server; 0: that one has it, or it could not be opened here.
    turn: u64,
    /// This run of the server has closed it, with nothing left to be recovered.
    in_order: bool,
    /// When that one asked something about it last.
    asked: Instant,
    /// It is not looked at before.
    not_before: Instant,
}

/// The reason when a server answers something else than what it was asked.
fn strange() -> String {
    AskError::Strange.to_string()
}

/// The number of a store in the cell's records.
fn record_of(first_volume: u32) -> u32 {
    volume_numbers::store(first_volume)
}

impl Stores {
    /// Serves the further stores of a server that has just begun, and answers questions about them.
    pub(crate) fn begin(
        server: &Arc<Server>,
        gate: &Arc<Gatekeeper>,
        data: &Path,
    ) -> Result<Keeper, String> {
        let stores = Arc::new(Stores {
            server: Arc::downgrade(server),
            gate: Arc::clone(gate),
            credentials: Cell::credentials(&trust::cell_dir(data), Role::Administrator),
            places: Places::new(data),
            own: gate.0.server_name(),
            number: volume_numbers::server(server.first_volume()),
            acting: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            sites: Sites::default(),
        });
        for first_volume in stores.places.begin()? {
            // The others are served all the same, and the keeper tries again.
            if let Err(error) = stores.find_part(first_volume) {
                tracing::error!(first_volume, error, "a further store is not served");
                stores.note_closed(first_volume, 0);
            }
        }
        if stores.own.is_some()
            && let Err(error) = stores.look_at_records()
        {
            tracing::error!(error, "no replica is served before the database answers");
        }
        let answers = Arc::downgrade(&stores);
        gate.0.tell_stores(Box::new(move |question| {
            let stores = answers.upgrade();
            stores.map_or_else(|| Err("the server ends".into()), |it| it.answer(question))
        }));
        Keeper::start(stores)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self) -> &Cell {
        self.gate.0.cell()
    }

    fn server(&self) -> Result<Arc<Server>, String> {
        self.server
            .upgrade()
            .ok_or_else(|| "the server ends".into())
    }

    /// Decides about a store whose directory is found here at the start.
    fn find_part(&self, first_volume: u32) -> Result<(), String> {
        if self.is_replica(first_volume)? {
            return Ok(());
        }
        let part = match &self.own {
            None => Part::Serves,
            Some(own) => {
                let record = self.record(first_volume)?;
                record.part(own, self.places.whole_of(first_volume))
            }
        };
        // The keeper sees to all that is not served.
        match part {
            Part::Serves => {
                self.note_closed(first_volume, 0);
                self.open(first_volume)?;
                self.remove_if_empty(first_volume)?;
            }
            Part::Leaves(turn) | Part::Takes(turn) => self.note_closed(first_volume, turn),
            Part::Nothing => self.note_closed(first_volume, 0),
        }
        tracing::info!(first_volume, ?part, "a further store is here");
        Ok(())
    }

    /// Removes a store whose volumes are all purged. Its record stays, so that no older copy at
    /// another server counts.
    fn remove_if_empty(&self, first_volume: u32) -> Result<(), String> {
        let server = self.server()?;
        if !server.is_empty(first_volume) {
            return Ok(());
        }
        if self.own.is_some() {
            let record = self.record(first_volume)?;
            if !self.place(first_volume, &record, &record.removed())? {
                return Ok(());
            }
        }
        let closed = server.close_store(first_volume);
        closed.map_err(|error| error.to_string())?;
        let aside = self.places.set_aside(first_volume)?;
        self.places.remove_aside(&aside)?;
        tracing::info!(first_volume, "a store without volumes is removed");
        Ok(())
    }

    fn own(&self) -> Result<&str, String> {
        let own = self.own.as_deref();
        own.ok_or_else(|| {
            "the cell has one server only: `ariel serve --join` adds one, in a cell whose database \
             is in etcd"
                .into()
        })
    }

    /// The record of a store.
    fn record(&self, first_volume: u32) -> Result<Placement, String> {
        let record = self.placement(first_volume)?;
        record.ok_or_else(|| {
            "the cell's database has no record of this store: was it restored from an older copy? \
             The store is left alone"
                .into()
        })
    }

    fn placement(&self, first_volume: u32) -> Result<Option<Placement>, String> {
        let record = self.cell().placement(record_of(first_volume));
        record.map_err(|error| error.to_string())
    }

    /// Changes a record; false: it was another one.
    fn place(&self, first_volume: u32, from: &Placement, to: &Placement) -> Result<bool, String> {
        let placed = self
            .cell()
            .place_store(record_of(first_volume), Some(from), Some(to));
        placed.map_err(|error| error.to_string())
    }

    /// Serves a store that is here; the caller holds `acting`, but at the start.
    fn open(&self, first_volume: u32) -> Result<(), String> {
        if self.lock().ending {
            return Err("the server ends".into());
        }
        let server = self.server()?;
        let opened = server.open_store(&self.places.store(first_volume), first_volume);
        opened.map_err(|error| error.to_string())?;
        self.is_open(first_volume);
        Ok(())
    }

    fn is_open(&self, first_volume: u32) {
        self.places.is_served(first_volume);
        self.lock().closed.remove(&first_volume);
        self.changed.notify_all();
    }

    fn note_closed(&self, first_volume: u32, turn: u64) {
        let asked = Instant::now();
        let closed = Closed {
            turn,
            in_order: false,
            asked,
            not_before: asked,
        };
        self.lock().closed.insert(first_volume, closed);
    }

    fn answer(self: &Arc<Self>, question: StoreQuestion) -> Result<StoreAnswer, String> {
        match question {
            StoreQuestion::Volumes => {
                self.wait_settled();
                Ok(StoreAnswer::Volumes(Listed::of(&self.shown()?)))
            }
            StoreQuestion::Make => self.make().map(StoreAnswer::Made),
            StoreQuestion::Ship {
                first_volume,
                turn,
                ask,
            } => self.ship((first_volume, turn), &ask),
            StoreQuestion::Leave { first_volume, to } => {
                self.leave(first_volume, &to).map(StoreAnswer::Left)
            }
            StoreQuestion::TakeBack { first_volume, turn } => {
                self.take_back(first_volume, turn)?;
                Ok(StoreAnswer::Done)
            }
            StoreQuestion::Serves { first_volume } => match self.server()?.serves(first_volume) {
                true => Ok(StoreAnswer::Done),
                false => Err("the store is not served here".into()),
            },
            StoreQuestion::Replicate { volume, name } => {
                self.replicate(volume, &name).map(StoreAnswer::Made)
            }
            StoreQuestion::Unreplicate { volume } => {
                self.unreplicate(volume)?;
                Ok(StoreAnswer::Done)
            }
            StoreQuestion::Replicas { volume } => self.replicas(volume).map(StoreAnswer::Replicas),
            StoreQuestion::Replicated => self.replicated().map(StoreAnswer::Replicated),
            StoreQuestion::Site { first_volume } => self.site(first_volume),
            StoreQuestion::Load => self.load().map(StoreAnswer::Load),
            StoreQuestion::BeginRelease { volume } => {
                self.begin_release(volume).map(StoreAnswer::Replicas)
            }
            StoreQuestion::Release {
                volume,
                release,
                turn,
            } => self.release(volume, release, turn),
            StoreQuestion::Move { volume, number } => self.begin_move(&volume, number),
            StoreQuestion::Progress { volume } => {
                let found = self.lock().moves.get(&volume).cloned();
                let found = found.ok_or_else(|| {
                    format!("no move of {volume} to this server is known: begin it again")
                })?;
                Ok(StoreAnswer::Moving(found.progress()))
            }
            StoreQuestion::Cancel { volume } => {
                let found = self.lock().moves.get(&volume).cloned();
                let found = found.filter(|one| !one.is_over());
                let found =
                    found.ok_or_else(|| format!("{volume} does not move to this server"))?;
                found.cancel();
                Ok(StoreAnswer::Moving(found.progress()))
            }
        }
    }

    /// A store that is on its way is nowhere for a moment: an asker is answered when it is known
    /// where it has come, as a rule.
    fn wait_settled(&self) {
        let limit = Instant::now() + SETTLED;
        let mut state = self.lock();
        if state.waiting >= WAITING_MAX {
            return;
        }
        state.waiting += 1;
        while state.is_moving() && !state.ending {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= 1;
    }

    /// The number of the first volume of one more store.
    fn new_store(&self, cure: &str) -> Result<u32, String> {
        let number = self.places.next_number()?;
        let first_volume = volume_numbers::first_of_further(self.number, number);
        let first_volume = first_volume.ok_or_else(|| {
            format!(
                "this server has made {} stores for volumes and replicas, and has no number for \
                 one more: {cure}",
                volume_numbers::STORE_MAX
            )
        })?;
        // The server's directory may be an older copy.
        let is_known = self.own.is_some()
            && (self.placement(first_volume)?.is_some() || self.is_replica(first_volume)?);
        match is_known {
            true => Err("the cell knows a store of this number: try again".into()),
            false => Ok(first_volume),
        }
    }

    /// Makes a store, and serves it.
    fn make(&self) -> Result<u32, String> {
        let _acting = self.act();
        let cure = "make the volume without `--own-store`, or on another server";
        let first_volume = self.new_store(cure)?;
        if let Some(own) = &self.own {
            let made = Placement::made(own);
            let store = record_of(first_volume);
            let placed = self.cell().place_store(store, None, Some(&made));
            if !placed.map_err(|error| error.to_string())? {
                return Err("the cell knows a store of this number: try again".into());
            }
        }
        let server = self.server()?;
        let made = server.make_store(&self.places.store(first_volume), first_volume);
        made.map_err(|error| error.to_string())?;
        Ok(first_volume)
    }

    /// Does a store move between servers at this moment? Nobody could tell it that groups change.
    pub(crate) fn has_moving(&self) -> bool {
        self.lock().is_moving()
    }

    fn act(&self) -> MutexGuard<'_, ()> {
        self.acting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a store of which the whole copy is here, unless a new move has begun with that
    /// copy, or it was taken back.
    fn take_over(&self, first_volume: u32, turn: u64) -> Result<(), String> {
        let _acting = self.act();
        let is_here = self.lock().closed.contains_key(&first_volume);
        match is_here && self.win(first_volume, turn)? {
            true => self.open(first_volume),
            false => Ok(()),
        }
    }

    /// Has the record name this server; false: the store was taken back. The caller holds `acting`.
    fn win(&self, first_volume: u32, turn: u64) -> Result<bool, String> {
        let own = self.own()?;
        let record = self.record(first_volume)?;
        if record.part(own, Some(turn)) == Part::Serves {
            return Ok(true);
        }
        let Some(next) = record.arrive(own, turn) else {
            return Ok(false);
        };
        match self.place(first_volume, &record, &next)? {
            true => Ok(true),
            // An earlier attempt may have come late: the record is read again.
            false => Err("the record of the store changes".into()),
        }
    }

    /// The addresses of another server of the cell.
    fn line_of(&self, name: &str) -> Result<Addresses, String> {
        let servers = self.cell().servers().map_err(|error| error.to_string())?;
        let line = servers.into_iter().find(|line| line.name == name);
        let addresses = line.and_then(|line| line.addresses?.parse().ok());
        addresses.ok_or_else(|| format!("{name} does not run: see `ariel cell servers`"))
    }

    /// Asks another server about stores.
    fn ask(&self, at: &Addresses, question: StoreQuestion) -> Result<StoreAnswer, String> {
        servers::ask_about((at, &self.credentials), question)
    }

    fn volumes_at(&self, at: &Addresses) -> Result<Vec<VolumeInfo>, String> {
        let listed = match self.ask(at, StoreQuestion::Volumes)? {
            StoreAnswer::Volumes(listed) => listed.volumes(),
            _ => None,
        };
        listed.ok_or_else(strange)
    }
}
