//! A dialer whose server is elsewhere: it is found, and nobody is asked or called without a pause.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_net::{
    Addresses, Bulk, CloseReason, Dialer, Events, Finder, Link, LinkId, Listener, Missing, Passage,
};
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub mod support;

use support::{Event, SOON, Seen, any_port, bind, speaks};

/// Says what it was told to, and notes what it is asked.
#[derive(Debug, Default)]
struct Told {
    says: Mutex<Vec<SocketAddr>>,
    asked: Mutex<Vec<Missing>>,
    moved: Mutex<Vec<(Addresses, Addresses)>>,
    changed: Condvar,
}

impl Told {
    /// The next of these at each question; the last one again and again.
    fn to_say(addrs: &[SocketAddr]) -> Arc<Told> {
        let says = Mutex::new(addrs.to_vec());
        Arc::new(Told {
            says,
            ..Told::default()
        })
    }

    fn asked(&self) -> Vec<Missing> {
        self.asked.lock().clone()
    }

    fn await_asked(&self, times: usize) {
        let mut asked = self.asked.lock();
        while asked.len() < times {
            let late = self.changed.wait_for(&mut asked, SOON).timed_out();
            assert!(!late, "asked {asked:?}, and not {times} times");
        }
    }
}

impl Finder for Told {
    fn find(&self, missing: Missing) -> Option<Addresses> {
        self.asked.lock().push(missing);
        self.changed.notify_all();
        let mut says = self.says.lock();
        match says.len() {
            0 => None,
            1 => Some(says[0].into()),
            _ => Some(says.remove(0).into()),
        }
    }

    fn moved(&self, from: &Addresses, to: &Addresses) {
        self.moved.lock().push((from.clone(), to.clone()));
    }
}

fn dial(addr: SocketAddr, events: Arc<dyn Events>, finder: Arc<dyn Finder>) -> Dialer {
    let how = (Passage::InsecureLoopback, speaks());
    Dialer::with_finder(addr.into(), how, events, Some(finder)).unwrap()
}

/// Sends everybody away, and notes when who came.
#[derive(Default)]
struct SendsAway {
    came: Mutex<Vec<Instant>>,
    changed: Condvar,
}

impl SendsAway {
    fn came(&self) -> usize {
        self.came.lock().len()
    }

    fn await_came(&self, times: usize) {
        let mut came = self.came.lock();
        while came.len() < times {
            let late = self.changed.wait_for(&mut came, SOON).timed_out();
            assert!(!late, "{} came, and not {times}", came.len());
        }
    }
}

impl Events for SendsAway {
    fn opened(&self, link: &Arc<Link>) {
        self.came.lock().push(Instant::now());
        self.changed.notify_all();
        link.send_elsewhere();
    }
    fn frame(&self, _: &Arc<Link>, _: &[u8], _: Vec<u8>) {}
    fn closed(&self, _: LinkId, reason: &CloseReason) {
        assert!(matches!(reason, CloseReason::Refused(_)), "{reason}");
    }
}

fn sending_away() -> (Arc<SendsAway>, Listener) {
    let events = Arc::new(SendsAway::default());
    let listener = bind(any_port(), Arc::clone(&events) as Arc<dyn Events>);
    (events, listener)
}

#[test]
fn a_server_that_is_lost_is_found_elsewhere() {
    let (events, there) = Seen::new();
    let new = bind(any_port(), events);
    let (events, here) = Seen::new();
    let old = bind(any_port(), events);
    let (events, client) = Seen::new();
    let finder = Told::to_say(&[new.local_addr()]);
    let dialer = dial(old.local_addr(), events, finder.clone());
    assert_eq!(client.opened().peer(), old.local_addr());
    here.opened();
    assert!(finder.asked().is_empty(), "nothing is missing");
    old.stop();
    client.closed();
    let link = client.opened();
    assert_eq!(link.peer(), new.local_addr());
    there.opened();
    link.send(b"on".to_vec(), Bulk::empty());
    link.flush();
    assert_eq!(there.frame().0, b"on");
    assert_eq!(dialer.addr(), new.local_addr().into());
    assert_eq!(dialer.wait_connected(SOON).unwrap().id(), link.id());
    assert_eq!(finder.asked().first(), Some(&Missing::Lost));
    let moved = (old.local_addr().into(), new.local_addr().into());
    assert_eq!(*finder.moved.lock(), [moved]);
    // Lost there, too, it is found where it was.
    let back = bind(old.local_addr(), Seen::new().0);
    finder.says.lock()[0] = back.local_addr();
    new.stop();
    client.closed();
    assert_eq!(client.opened().peer(), back.local_addr());
    dialer.stop();
    assert!(matches!(client.closed(), (_, CloseReason::Stopped)));
}

#[test]
fn a_peer_that_is_told_to_look_elsewhere_asks_at_once() {
    let new = bind(any_port(), Seen::new().0);
    let (events, here) = Seen::new();
    let old = bind(any_port(), events);
    let (events, client) = Seen::new();
    let finder = Told::to_say(&[new.local_addr()]);
    let dialer = dial(old.local_addr(), events, finder.clone());
    client.opened();
    let link = here.opened();
    link.send(b"last words".to_vec(), Bulk::empty());
    link.send_elsewhere();
    assert_eq!(client.frame().0, b"last words");
    assert!(matches!(client.closed(), (_, CloseReason::Elsewhere)));
    // It may have called where it was once more meanwhile.
    let mut next = client.opened();
    while next.peer() != new.local_addr() {
        here.opened().send_elsewhere();
        assert!(matches!(client.closed(), (_, CloseReason::Elsewhere)));
        next = client.opened();
    }
    assert_eq!(finder.asked().first(), Some(&Missing::Told));
    assert_eq!(dialer.addr(), new.local_addr().into());
    let link = dialer.wait_connected(SOON).unwrap();
    assert_eq!(link.peer(), new.local_addr());
    assert!(dialer.trouble().is_none());
}

/// The volume is on its way: nobody has it. A client that waits for it calls with growing pauses,
/// and is there soon after it has arrived.
#[test]
fn a_peer_that_is_sent_away_and_led_nowhere_comes_again_with_pauses() {
    let (away, old) = sending_away();
    let (events, client) = Seen::new();
    let finder = Told::to_say(&[]);
    let began = Instant::now();
    let dialer = dial(old.local_addr(), events, finder.clone());
    away.await_came(12);
    let (time, came, asked) = (began.elapsed(), away.came(), finder.asked());
    // With the first pause again and again, of 40 ms at most, it were less.
    assert!(
        time > Duration::from_millis(700),
        "{came} calls in {time:?}"
    );
    // One for each that was told, and those for lost links in each second.
    let most = came + 2 + time.as_secs() as usize;
    assert!(asked.len() <= most, "{} questions: {asked:?}", asked.len());
    assert!(asked.iter().filter(|why| **why == Missing::Told).count() >= came / 2);
    let new = bind(any_port(), Seen::new().0);
    finder.says.lock().push(new.local_addr());
    let arrived = |event: Event| match event {
        Event::Opened(link) => link.peer() == new.local_addr(),
        _ => false,
    };
    while !arrived(client.next()) {}
    assert_eq!(dialer.addr(), new.local_addr().into());
}

#[test]
fn who_is_sent_in_circles_goes_slowly() {
    let ((away_a, a), (away_b, b)) = (sending_away(), sending_away());
    let turns: Vec<SocketAddr> = [b.local_addr(), a.local_addr()].repeat(500);
    let finder = Told::to_say(&turns);
    let began = Instant::now();
    let _dialer = dial(a.local_addr(), Seen::new().0, finder);
    away_b.await_came(10);
    let (time, came) = (began.elapsed(), away_a.came() + away_b.came());
    // A turn in each second is made at once, and lets the pauses begin anew: about seven calls.
    assert!(time > Duration::from_secs(1), "{came} calls in {time:?}");
    assert!(away_a.came() > 1, "it came back");
}

#[test]
fn while_a_server_is_lost_it_is_asked_for_ever_less_often() {
    // At an address of its own: a listener of another test may be given the port again.
    let gone = bind(SocketAddr::from(([127, 0, 0, 2], 0)), Seen::new().0);
    let addr = gone.local_addr();
    gone.stop();
    drop(gone);
    // The same place in other words is no other place.
    let finder = Told::to_say(&[addr]);
    let began = Instant::now();
    let dialer = dial(addr, Seen::new().0, finder.clone());
    finder.await_asked(3);
    let (time, asked) = (began.elapsed(), finder.asked());
    assert!(time >= Duration::from_millis(3300), "3 times in {time:?}");
    assert!(asked.iter().all(|why| *why == Missing::Lost), "{asked:?}");
    assert!(finder.moved.lock().is_empty());
    assert_eq!(dialer.addr(), addr.into());
}

/// Answers when it is let go.
#[derive(Debug, Default)]
struct Slow {
    asked: Mutex<bool>,
    changed: Condvar,
    gate: Mutex<()>,
}

impl Finder for Slow {
    fn find(&self, _: Missing) -> Option<Addresses> {
        *self.asked.lock() = true;
        self.changed.notify_all();
        drop(self.gate.lock());
        None
    }
    fn moved(&self, _: &Addresses, _: &Addresses) {}
}

#[test]
fn nobody_waits_for_a_slow_answer() {
    let (events, server) = Seen::new();
    let listener = bind(any_port(), events);
    let addr = listener.local_addr();
    let (events, client) = Seen::new();
    let finder = Arc::new(Slow::default());
    let dialer = dial(addr, events, Arc::clone(&finder) as Arc<dyn Finder>);
    client.opened();
    let held = finder.gate.lock();
    server.opened().send_elsewhere();
    client.closed();
    let mut asked = finder.asked.lock();
    while !*asked {
        assert!(!finder.changed.wait_for(&mut asked, SOON).timed_out());
    }
    drop(asked);
    // It has come back before the answer, and ends before it.
    client.opened();
    thread::scope(|scope| {
        let stopping = scope.spawn(|| dialer.stop());
        while !matches!(client.next(), Event::Closed(_, CloseReason::Stopped)) {}
        stopping.join().unwrap();
    });
    drop(held);
}
