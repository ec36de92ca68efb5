//! Which volumes should move between servers, given their work and their room: a function of
//! these alone.
//!
//! Guarantees: each move makes the unevenness of the servers smaller by a good part, so following a
//! plan ends; no volume moves twice; no disk becomes fuller than [`FULL`] by a move, or is brought
//! there by one that makes room elsewhere.

/// A disk is full enough when this part of it is in use.
const FULL: f64 = 0.85;
/// A fuller disk counts as so much unevenness for each hundredth above.
const OVERFULL: f64 = 0.05;
/// A move is worth its trouble if it takes away so much unevenness. Two servers with all of the
/// work on one of them are uneven by 0.5; with 60 and 40 % of it, by 0.02.
const WORTH: f64 = 0.02;
/// Servers that have less to do than this, units/s in all, are not compared by it: chance would
/// decide.
const QUIET: f64 = 20.0;
/// The copy of a store grows while it is made.
const ROOM: f64 = 1.25;

/// A store that may move, or not.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// The volume that moves; `None`: it stays.
    pub(super) volume: Option<String>,
    pub(super) bytes: u64,
    /// Units/s.
    pub(super) work: f64,
}

/// A server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) disk_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) stores: Vec<Store>,
}

impl Server {
    /// Units/s of all of its stores.
    pub(super) fn work(&self) -> f64 {
        self.stores.iter().map(|store| store.work).sum()
    }

    /// The part of its disk that is in use when so many bytes more are.
    pub(super) fn fullness(&self, more: f64) -> f64 {
        let used = self.disk_bytes.saturating_sub(self.free_bytes) as f64 + more;
        used / self.disk_bytes.max(1) as f64
    }
}

/// One move.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) volume: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) bytes: u64,
    /// Units/s of both servers afterwards.
    pub(super) work: (f64, f64),
}

/// How uneven servers are: 0 at best, less than 1 by their work.
fn unevenness(servers: &[Server]) -> f64 {
    let all: f64 = servers.iter().map(Server::work).sum();
    let even = 1.0 / servers.len().max(1) as f64;
    let square = |server: &Server| (server.work() / all).powi(2);
    let work = match all < QUIET {
        true => 0.0,
        false => servers.iter().map(square).sum::<f64>() - even,
    };
    let over = |server: &Server| (server.fullness(0.0) - FULL).max(0.0) * 100.0 * OVERFULL;
    work + servers.iter().map(over).sum::<f64>()
}

/// The servers after a store has moved.
fn moved(servers: &[Server], (from, store, to): (usize, usize, usize)) -> Vec<Server> {
    let mut after = servers.to_vec();
    let store = after[from].stores.remove(store);
    after[from].free_bytes += store.bytes;
    after[to].free_bytes = after[to].free_bytes.saturating_sub(store.bytes);
    after[to].stores.push(Store {
        volume: None,
        ..store
    });
    after
}

/// The moves that are possible now.
fn possible(servers: &[Server]) -> Vec<(usize, usize, usize)> {
    let mut all = Vec::new();
    for (from, server) in servers.iter().enumerate() {
        for (at, store) in server.stores.iter().enumerate() {
            if store.volume.is_none() {
                continue;
            }
            let fits = |to: &Server| to.fullness(store.bytes as f64 * ROOM) <= FULL;
            let others = servers.iter().enumerate();
            let others = others.filter(|(to, other)| *to != from && fits(other));
            all.extend(others.map(|(to, _)| (from, at, to)));
        }
    }
    all
}

/// The moves, in the order in which they are to be made.
pub(super) fn plan(mut servers: Vec<Server>) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        let before = unevenness(&servers);
        let tried = possible(&servers).into_iter().map(|step| {
            let after = moved(&servers, step);
            (before - unevenness(&after), step, after)
        });
        let best = tried.max_by(|one, other| one.0.total_cmp(&other.0));
        let Some((gain, (from, at, to), after)) = best.filter(|(gain, ..)| *gain >= WORTH) else {
            return steps;
        };
        debug_assert!(gain > 0.0);
        let store = &servers[from].stores[at];
        steps.push(Step {
            volume: store.volume.clone().unwrap_or_default(),
            from: servers[from].name.clone(),
            to: servers[to].name.clone(),
            bytes: store.bytes,
            work: (after[from].work(), after[to].work()),
        });
        servers = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GB: u64 = 1 << 30;

    fn store(volume: &str, gb: u64, work: f64) -> Store {
        Store {
            volume: (!volume.is_empty()).then(|| volume.to_owned()),
            bytes: gb * GB,
            work,
        }
    }

    fn server(name: &str, (disk, free): (u64, u64), stores: &[Store]) -> Server {
        Server {
            name: name.to_owned(),
            disk_bytes: disk * GB,
            free_bytes: free * GB,
            stores: stores.to_vec(),
        }
    }

    fn told(servers: &[Server]) -> Vec<(String, String)> {
        let steps = plan(servers.to_vec()).into_iter();
        steps.map(|step| (step.volume, step.to)).collect()
    }

    fn pair(volume: &str, to: &str) -> (String, String) {
        (volume.to_owned(), to.to_owned())
    }

    #[test]
    fn work_is_shared_by_the_move_that_evens_it_most() {
        let stores = [
            store("", 5, 100.0),
            store("a", 1, 900.0),
            store("b", 1, 500.0),
        ];
        let busy = server("one", (100, 80), &stores);
        let idle = server("two", (100, 80), &[]);
        assert_eq!(told(&[busy.clone(), idle]), [pair("a", "two")]);
        assert!(plan(vec![busy]).is_empty(), "there is no other server");
    }

    #[test]
    fn what_is_even_quiet_or_bound_to_its_server_stays() {
        let even = |name| server(name, (100, 80), &[store(name, 1, 500.0)]);
        assert!(told(&[even("one"), even("two")]).is_empty());
        let quiet = server("one", (100, 80), &[store("a", 1, 5.0), store("b", 1, 5.0)]);
        let none = server("two", (100, 80), &[]);
        assert!(told(&[quiet, none.clone()]).is_empty());
        let bound = server(
            "one",
            (100, 80),
            &[store("", 1, 900.0), store("", 1, 500.0)],
        );
        assert!(told(&[bound, none]).is_empty());
    }

    #[test]
    fn a_full_disk_gets_room_if_another_one_has_it() {
        let full = server(
            "one",
            (100, 5),
            &[store("small", 1, 0.0), store("large", 30, 0.0)],
        );
        let roomy = server("two", (200, 150), &[]);
        assert_eq!(told(&[full.clone(), roomy]), [pair("large", "two")]);
        let tight = server("two", (100, 40), &[]);
        let steps = told(&[full, tight]);
        assert_eq!(steps, [pair("small", "two")], "the large one does not fit");
    }

    fn any_server() -> impl Strategy<Value = Server> {
        let stores = (any::<bool>(), 0u64..60, 0.0..1000.0f64);
        let stores = prop::collection::vec(stores, 0..6);
        (50u64..400, 0.0..1.0f64, stores).prop_map(|(disk, free, stores)| {
            let stores = stores.into_iter();
            let stores = stores.map(|(moves, gb, work)| Store {
                volume: moves.then(String::new),
                bytes: gb * GB,
                work,
            });
            let free = (disk as f64 * free) as u64;
            server("", (disk, free), &stores.collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn any_plan_evens_ends_and_fills_no_disk(
            mut servers in prop::collection::vec(any_server(), 1..6)
        ) {
            for (at, server) in servers.iter_mut().enumerate() {
                server.name = format!("server-{at}");
                for (n, store) in server.stores.iter_mut().enumerate() {
                    store.volume = store.volume.take().map(|_| format!("v{at}-{n}"));
                }
            }
            let mut now = servers.clone();
            let mut seen = std::collections::BTreeSet::new();
            for step in plan(servers) {
                prop_assert!(seen.insert(step.volume.clone()), "it moves twice");
                let before = unevenness(&now);
                let place = |name: &str| now.iter().position(|of| of.name == name).unwrap();
                let (from, to) = (place(&step.from), place(&step.to));
                let is = |store: &Store| store.volume.as_deref() == Some(&step.volume);
                let at = now[from].stores.iter().position(is).unwrap();
                now = moved(&now, (from, at, to));
                prop_assert!(unevenness(&now) <= before - WORTH);
                prop_assert!(now[to].fullness(0.0) <= FULL);
            }
        }
    }
}
