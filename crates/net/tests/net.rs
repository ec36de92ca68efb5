//! The promises to the rooms, over real sockets: order, bounds, ends with their reasons,
//! reconnection.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_net::{
    BODY_BYTES_MAX, BULK_BYTES_MAX, Bulk, CloseReason, DialError, FrameError, FrameReader,
    HEADER_BYTES, Identity, Kind, Listener, QUEUE_BYTES_MAX, Timer, clock, entropy,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

pub mod support;

use support::{Event, Pair, SOON, Seen, any_port, hello, message, pair, pattern, raw_peer};

#[test]
fn frames_round_trip_both_ways() {
    let pair = pair();
    assert_ne!(pair.client_link.id(), pair.server_link.id());
    assert_eq!(pair.client_link.peer(), pair.listener.local_addr());
    let expected = if support::TLS {
        Identity::Machine {
            id: 1,
            name: "a".into(),
        }
    } else {
        Identity::Loopback
    };
    assert_eq!(*pair.server_link.identity(), expected);
    let bounds = [
        (0, 0),
        (1, 0),
        (0, 1),
        (300, 70_000),
        (BODY_BYTES_MAX, BULK_BYTES_MAX),
    ];
    for (body, bulk) in bounds {
        let (body, bulk) = (pattern(1, body), pattern(2, bulk));
        for (link, seen) in [
            (&pair.client_link, &pair.server),
            (&pair.server_link, &pair.client),
        ] {
            link.send(body.clone(), bulk.clone().into());
            link.flush();
            let (got_body, got_bulk) = seen.frame();
            assert!(
                got_body == body && got_bulk == bulk,
                "{} + {}",
                body.len(),
                bulk.len()
            );
        }
    }
    // A bulk of several parts arrives as one.
    let shared: Arc<[u8]> = pattern(3, 5000).into();
    let mut bulk = Bulk::empty();
    assert!(bulk.is_empty());
    bulk.push(vec![9; 3]);
    bulk.push_shared(Arc::clone(&shared), 4096..5000);
    bulk.push_shared(shared, 0..0);
    assert_eq!(bulk.len(), 3 + 904);
    pair.client_link.send(Vec::new(), bulk);
    pair.client_link.flush();
    assert_eq!(pair.server.frame().1[3..], pattern(3, 5000)[4096..]);
}

/// Random bytes, and valid streams with a byte changed or cut off: errors, never a panic.
#[test]
fn rubbish_never_panics_the_reader() {
    let mut random = 0x5eed_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let valid = [
        message(b"body", &[5; 100]),
        hello().to_vec(),
        message(&[6; 40], b""),
    ]
    .concat();
    let (mut whole, mut broken) = (0, 0);
    for round in 0..20_000 {
        let mut bytes = valid.clone();
        if round % 4 == 0 {
            bytes = (0..next() % 200).map(|_| next() as u8).collect();
        }
        for _ in 0..next() % 3 {
            if let Some(at) = (next() as usize).checked_rem(bytes.len()) {
                bytes[at] = next() as u8;
            }
        }
        bytes.truncate((next() % 300) as usize);
        let mut frames = FrameReader::new(bytes.as_slice());
        let mut held = 0;
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => held += HEADER_BYTES + frame.body.len() + frame.bulk.len(),
                Ok(None) => break whole += 1,
                Err(_) => break broken += 1,
            }
        }
        assert!(held <= bytes.len(), "frames hold no more than came");
    }
    assert!(
        whole > 1000 && broken > 1000,
        "both happen: {whole} {broken}"
    );
}

#[test]
fn every_cut_is_noticed() {
    let stream = [message(b"body", &[5; 100]), message(b"more", b"")].concat();
    let first = HEADER_BYTES + 104;
    for cut in 0..=stream.len() {
        let mut frames = FrameReader::new(&stream[..cut]);
        let mut count = 0;
        let end = loop {
            match frames.next_frame() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        assert_eq!(
            count,
            usize::from(cut >= first) + usize::from(cut == stream.len())
        );
        let between = [0, first, stream.len()].contains(&cut);
        assert_eq!(end.is_none(), between);
        assert!(between || matches!(end, Some(FrameError::Truncated)));
    }
}

#[test]
fn rubbish_closes_the_link_with_its_reason() {
    type Check = fn(&FrameError) -> bool;
    let mut large = message(b"", b"");
    large[8..12].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes());
    let cases: [(Vec<u8>, Check); 4] = [
        (vec![b'x'; 64], |error| {
            matches!(error, FrameError::BadMagic(_))
        }),
        (large, |error| matches!(error, FrameError::TooLarge { .. })),
        (hello().to_vec(), |error| {
            matches!(error, FrameError::OutOfTurn(Kind::Hello))
        }),
        (message(b"cut", b"")[..26].to_vec(), |error| {
            matches!(error, FrameError::Truncated)
        }),
    ];
    for (rubbish, check) in cases {
        let (_listener, seen, link, mut raw) = raw_peer();
        raw.write_all(&message(b"good", b"")).unwrap();
        raw.write_all(&rubbish).unwrap();
        raw.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(seen.frame().0, b"good");
        let (id, reason) = seen.closed();
        assert_eq!(id, link.id());
        assert!(
            matches!(&reason, CloseReason::Frame(error) if check(error)),
            "{reason}"
        );
        assert_eq!(raw.read(&mut [0; 10]).unwrap(), 0, "an end, not a reset");
    }
}

#[test]
fn a_stranger_is_never_told_to_the_events() {
    let (events, seen) = Seen::new();
    let listener = support::bind(any_port(), events);
    for greeting in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        message(b"", b""),
    ] {
        let mut raw = TcpStream::connect(listener.local_addr()).unwrap();
        raw.write_all(&greeting).unwrap();
        let mut theirs = Vec::new();
        raw.read_to_end(&mut theirs).unwrap();
        assert_eq!(theirs, hello());
    }
    listener.stop();
    seen.nothing_more();
}

#[test]
fn the_dialer_comes_back_after_the_server_restarted() {
    let Pair {
        listener,
        server,
        server_link,
        dialer,
        client,
        client_link,
        cell,
    } = pair();
    let addr = listener.local_addr();
    listener.stop();
    assert!(matches!(server.closed(), (id, CloseReason::Stopped) if id == server_link.id()));
    assert!(matches!(client.closed(), (id, CloseReason::Peer) if id == client_link.id()));
    server.nothing_more();
    drop(listener);

    let (events, server) = Seen::new();
    let listener = support::bind_of(cell.as_ref(), addr, events);
    let again = client.opened();
    assert!(again.id() > client_link.id());
    let server_link = server.opened();
    again.send(b"anew".to_vec(), Bulk::empty());
    again.flush();
    assert_eq!(server.frame().0, b"anew");
    assert_eq!(dialer.wait_connected(SOON).unwrap().id(), again.id());

    dialer.stop();
    assert!(matches!(client.closed(), (id, CloseReason::Stopped) if id == again.id()));
    assert!(matches!(server.closed(), (id, CloseReason::Peer) if id == server_link.id()));
    assert!(dialer.link().is_none());
    assert!(matches!(
        dialer.wait_connected(SOON),
        Err(DialError::Stopped { .. })
    ));
    listener.stop();
}

#[test]
fn order_is_kept_under_concurrent_senders() {
    const THREADS: usize = 8;
    const EACH: usize = 500;
    let pair = pair();
    // The lock is the machine's: its first decision is sent first.
    let machine = parking_lot::Mutex::new(0_u64);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for _ in 0..EACH {
                    let mut number = machine.lock();
                    let bulk = vec![*number as u8; (*number as usize * 997) % 20_000];
                    pair.client_link
                        .send(number.to_le_bytes().to_vec(), bulk.into());
                    *number += 1;
                    drop(number);
                    pair.client_link.flush();
                }
            });
        }
    });
    for number in 0..(THREADS * EACH) as u64 {
        let (body, bulk) = pair.server.frame();
        assert_eq!(u64::from_le_bytes(body.try_into().unwrap()), number);
        assert_eq!(bulk.len(), (number as usize * 997) % 20_000);
        assert!(bulk.iter().all(|byte| *byte == number as u8));
    }
    assert_eq!(pair.client_link.queued_bytes(), 0);
}

#[test]
fn a_slow_reader_gets_big_bulks_whole_and_nobody_waits_for_it() {
    let (_listener, _seen, link, raw) = raw_peer();
    for number in 0..20 {
        link.send(vec![number], pattern(number.into(), BULK_BYTES_MAX).into());
        link.flush();
    }
    // More than the kernel's buffers hold: had flush waited for the reader, we were not here.
    assert!(link.queued_bytes() > 8 << 20, "{}", link.queued_bytes());
    link.send_behind(b"last".to_vec(), Bulk::empty());
    link.send(b"swift".to_vec(), Bulk::empty());
    let mut frames = FrameReader::new(raw);
    let (mut number, mut swift_at) = (0, None);
    while number < 20 {
        let frame = frames.next_frame().unwrap().unwrap();
        if frame.body == b"swift" {
            swift_at = Some(number);
            continue;
        }
        assert_eq!(frame.body, [number]);
        assert!(
            frame.bulk == pattern(number.into(), BULK_BYTES_MAX),
            "bulk {number}"
        );
        number += 1;
    }
    assert!(swift_at.is_some_and(|at| at < 15), "{swift_at:?}");
    link.flush();
    assert_eq!(frames.next_frame().unwrap().unwrap().body, b"last");
}

/// The room above puts off work that would make a congested link more so: it is told when to go on.
#[test]
fn the_end_of_congestion_is_told() {
    let (_listener, seen, link, raw) = raw_peer();
    assert!(!link.is_congested());
    for number in 0..10 {
        link.send(vec![number], pattern(number.into(), BULK_BYTES_MAX).into());
        link.flush();
    }
    assert!(link.is_congested());
    let mut frames = FrameReader::new(raw);
    for _ in 0..10 {
        frames.next_frame().unwrap().unwrap();
    }
    assert_eq!(seen.room(), link.id());
    assert!(!link.is_congested());
    seen.nothing_more();
}

/// The peer's kernel acknowledges what it is sent, but the peer says nothing.
#[test]
fn a_silent_peer_is_given_up() {
    let silence = Duration::from_millis(300);
    let (events, seen) = Seen::new();
    let listener = Listener::bind(&[any_port()], support::plain(silence), events).unwrap();
    let mut raw = TcpStream::connect(listener.local_addr()).unwrap();
    raw.write_all(&hello()).unwrap();
    let link = seen.opened();
    for _ in 0..5 {
        thread::sleep(silence / 3);
        raw.write_all(&message(b"here", b"")).unwrap();
        assert_eq!(seen.frame().0, b"here");
    }
    let since_ns = clock::now_ns();
    let (id, reason) = seen.closed();
    let took = Duration::from_nanos(clock::now_ns() - since_ns);
    assert_eq!(id, link.id());
    assert!(matches!(reason, CloseReason::Silent), "{reason}");
    assert!(took < SOON / 4, "{took:?}: nobody waits for its end");
}

/// A network that swallows everything: connections are made, and nothing comes back.
#[test]
fn the_dialer_soon_finds_a_network_that_has_come_back() {
    let black_hole = TcpListener::bind(any_port()).unwrap();
    let addr = black_hole.local_addr().unwrap();
    let (client_events, client) = Seen::new();
    let dialer = support::dial(addr, client_events);
    let held: Vec<TcpStream> = (0..3).map(|_| black_hole.accept().unwrap().0).collect();
    let (mut raw, _) = black_hole.accept().unwrap();
    client.nothing_more();
    let back_ns = clock::now_ns();
    // The attempt in progress is one of those that are swallowed.
    drop(held);
    let mut next = black_hole.accept().unwrap().0;
    next.write_all(&hello()).unwrap();
    client.opened();
    let took = Duration::from_nanos(clock::now_ns() - back_ns);
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    let mut theirs = Vec::new();
    // The swallowed attempt has ended.
    let _ = raw.read_to_end(&mut theirs);
    dialer.stop();
}

/// The end of a link that is given up waits for nobody, and the next one is made at once.
#[test]
fn a_link_that_is_given_up_is_made_anew() {
    let pair = pair();
    pair.client_link
        .send(b"1".to_vec(), pattern(1, BULK_BYTES_MAX).into());
    let since_ns = clock::now_ns();
    pair.client_link.abort(CloseReason::Silent);
    let (id, reason) = pair.client.closed();
    assert_eq!(id, pair.client_link.id());
    assert!(matches!(reason, CloseReason::Silent), "{reason}");
    let next = pair.client.opened();
    assert_ne!(next.id(), id);
    let took = Duration::from_nanos(clock::now_ns() - since_ns);
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    pair.dialer.stop();
    pair.listener.stop();
}

/// The peer has sent what is never read, which would make a plain close reset the connection.
#[test]
fn closing_flushes_the_last_frames_and_does_not_reset() {
    let (_listener, seen, link, mut raw) = raw_peer();
    for _ in 0..10 {
        link.send(b"reply".to_vec(), pattern(1, BULK_BYTES_MAX).into());
    }
    link.close(CloseReason::Refused("enough".into()));
    link.send(b"too late".to_vec(), Bulk::empty());
    link.flush();
    for _ in 0..3 {
        raw.write_all(&message(b"unheard", &[1; 100_000])).unwrap();
    }
    // The last holder but the reader: the socket closes when the reader is done.
    drop(link);
    let mut frames = FrameReader::new(&raw);
    for _ in 0..10 {
        assert_eq!(
            frames.next_frame().unwrap().unwrap().bulk,
            pattern(1, BULK_BYTES_MAX)
        );
    }
    assert!(frames.next_frame().unwrap().is_none(), "then the end");
    raw.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(seen.closed(), (_, CloseReason::Refused(why)) if why == "enough"));
    seen.nothing_more();
}

#[test]
fn a_peer_that_never_ends_is_cut_off_in_time() {
    for queued in [0, 10] {
        let (listener, seen, link, raw) = raw_peer();
        for _ in 0..queued {
            link.send(Vec::new(), vec![0; BULK_BYTES_MAX].into());
        }
        let start_ns = clock::now_ns();
        listener.stop();
        let took_ns = clock::now_ns() - start_ns;
        assert!(
            took_ns >= ariel_net::LINGER_NS,
            "it had its time: {took_ns} ns"
        );
        assert!(took_ns < 5 * ariel_net::LINGER_NS, "{took_ns} ns");
        assert!(matches!(seen.closed(), (_, CloseReason::Stopped)));
        drop(raw);
    }
}

#[test]
fn replies_to_a_peer_that_said_all_still_leave() {
    let (_listener, seen, _link, mut raw) = raw_peer();
    let bulk = pattern(5, BULK_BYTES_MAX);
    for _ in 0..8 {
        raw.write_all(&message(b"echo", &bulk)).unwrap();
    }
    raw.shutdown(std::net::Shutdown::Write).unwrap();
    let mut frames = FrameReader::new(&raw);
    for _ in 0..8 {
        let frame = frames.next_frame().unwrap().unwrap();
        assert!(frame.body == b"reply" && frame.bulk == bulk);
    }
    assert!(frames.next_frame().unwrap().is_none());
    assert!(matches!(seen.closed(), (_, CloseReason::Peer)));
}

/// Answers to short frames that came together leave together, and before the reading thread waits
/// for a frame of which only a part is there.
#[test]
fn replies_to_frames_that_came_together_leave_together() {
    let (_listener, _seen, _link, mut raw) = raw_peer();
    let (echo, reply) = (message(b"echo", b""), message(b"reply", b""));
    let mut burst = echo.repeat(5);
    burst.extend_from_slice(&echo[..echo.len() - 1]);
    raw.write_all(&burst).unwrap();
    let mut came = vec![0; 10 * reply.len()];
    let len = raw.read(&mut came).unwrap();
    assert_eq!(came[..len], reply.repeat(5));
    raw.write_all(&echo[echo.len() - 1..]).unwrap();
    let len = raw.read(&mut came).unwrap();
    assert_eq!(came[..len], reply);
}

#[test]
fn an_overrun_closes_the_link_and_leaves_no_gap() {
    let (_listener, seen, link, raw) = raw_peer();
    let shared: Arc<[u8]> = vec![0; BULK_BYTES_MAX].into();
    // Far more than the bound and the kernel's buffers; the frames after the lost one are small.
    for number in 0..160_u8 {
        link.send(vec![number], Arc::clone(&shared).into());
        link.flush();
        link.send(vec![number], Bulk::empty());
        assert!(link.queued_bytes() <= QUEUE_BYTES_MAX);
    }
    let (_, reason) = seen.closed();
    let most = QUEUE_BYTES_MAX;
    assert!(matches!(reason, CloseReason::Overrun { queued_bytes } if queued_bytes > most));
    let mut frames = FrameReader::new(raw);
    let (mut long, mut short) = (0..160_u8, 0..160_u8);
    while let Ok(Some(frame)) = frames.next_frame() {
        let lane = if frame.bulk.is_empty() {
            &mut short
        } else {
            &mut long
        };
        assert_eq!(lane.next(), Some(frame.body[0]));
    }
}

#[test]
fn an_oversized_message_closes_the_link_that_made_it() {
    let pair = pair();
    pair.client_link
        .send(vec![0; BODY_BYTES_MAX + 1], Bulk::empty());
    let (_, reason) = pair.client.closed();
    assert!(
        matches!(reason, CloseReason::Unsendable(FrameError::TooLarge { .. })),
        "{reason}"
    );
}

#[test]
fn a_violation_found_by_an_event_closes_the_link() {
    let pair = pair();
    pair.client_link.send(b"violate".to_vec(), Bulk::empty());
    pair.client_link
        .send(b"not delivered".to_vec(), Bulk::empty());
    pair.client_link.flush();
    assert!(matches!(pair.server.closed(), (_, CloseReason::Refused(_))));
    assert!(matches!(pair.client.closed(), (_, CloseReason::Peer)));
}

#[test]
fn a_panic_of_an_event_ends_only_its_link() {
    let pair = pair();
    pair.client_link.send(b"panic".to_vec(), Bulk::empty());
    pair.client_link.flush();
    assert!(matches!(pair.server.closed(), (_, CloseReason::Refused(_))));
    pair.client.closed();
    pair.client.opened();
    pair.server.opened();
    pair.listener.stop();
}

/// Both ends stop, with traffic: nothing hangs, and each link opened is closed once.
#[test]
fn stopping_under_traffic_ends() {
    for round in 0..20 {
        let pair = pair();
        let link = Arc::clone(&pair.client_link);
        let sender = thread::spawn(move || {
            for _ in 0..200 {
                link.send(b"echo".to_vec(), vec![0; 30_000].into());
                link.flush();
            }
        });
        if round % 2 == 0 {
            pair.dialer.stop();
            pair.listener.stop();
        } else {
            pair.listener.stop();
            pair.dialer.stop();
        }
        sender.join().unwrap();
        for seen in [&pair.server, &pair.client] {
            while !matches!(seen.next(), Event::Closed(..)) {}
            seen.nothing_more();
        }
    }
}

#[test]
fn other_machines_are_refused_with_the_cure() {
    for addr in [
        "0.0.0.0:0",
        "192.0.2.1:7000",
        "[::]:0",
        "[2001:db8::1]:7000",
    ] {
        let addr: SocketAddr = addr.parse().unwrap();
        let (events, _seen) = Seen::new();
        let bind = Listener::bind(&[addr], support::plain(SOON), Arc::clone(&events));
        let error = bind.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let dialer = support::dial(addr, events);
        let trouble = dialer.wait_connected(Duration::from_secs(2)).err().unwrap();
        for text in [error.to_string(), trouble.to_string()] {
            assert!(text.contains("leave that option out"), "{text}");
        }
    }
    for addr in [
        "127.0.0.1:1",
        "127.3.2.1:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert_eq!(
            Identity::check(addr.parse().unwrap()),
            Ok(Identity::Loopback)
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_reported() {
    let (events, seen) = Seen::new();
    // A bound port that nobody listens at any more.
    let addr = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let dialer = support::dial(addr, events);
    let error = dialer
        .wait_connected(Duration::from_millis(200))
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(
        text.contains("refused") && text.contains("start the server"),
        "{text}"
    );
    dialer.stop();
    seen.nothing_more();
}

#[test]
fn the_timer_calls_at_the_earliest_deadline() {
    let (sender, calls) = mpsc::channel();
    let (next_sender, next) = mpsc::channel::<Option<u64>>();
    let timer = Timer::new(Box::new(move || {
        let _ = sender.send(clock::now_ns());
        next.recv().unwrap_or(None)
    }))
    .unwrap();
    let start_ns = clock::now_ns();
    timer.set(start_ns + 3_600_000_000_000);
    timer.set(start_ns + 30_000_000);
    timer.set(start_ns + 60_000_000);
    let first_ns = calls.recv_timeout(SOON).unwrap();
    assert!(first_ns >= start_ns + 30_000_000);
    // A time that is set while the callback runs is not lost, even if the callback knows of
    // nothing.
    timer.set(start_ns + 50_000_000);
    next_sender.send(None).unwrap();
    assert!(calls.recv_timeout(SOON).unwrap() >= start_ns + 50_000_000);
    // The returned deadline counts.
    next_sender.send(Some(start_ns + 80_000_000)).unwrap();
    assert!(calls.recv_timeout(SOON).unwrap() >= start_ns + 80_000_000);
    next_sender
        .send(Some(start_ns + 3_600_000_000_000))
        .unwrap();
    // An earlier deadline wakes the thread that waits for the late one.
    let early = calls.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "an hour is not over");
    timer.set(clock::now_ns());
    calls.recv_timeout(SOON).unwrap();
    next_sender.send(None).unwrap();
    timer.stop();
    assert!(calls.try_recv().is_err());
}

#[test]
fn the_clock_advances_and_the_other_one_is_wall_time() {
    let mut last_ns = clock::now_ns();
    for _ in 0..10_000 {
        let now_ns = clock::now_ns();
        assert!(now_ns >= last_ns);
        last_ns = now_ns;
    }
    // A file written now carries the kernel's wall time, which its tick may hold back.
    let shown_ns = clock::wall_ns();
    let probe = tempfile::NamedTempFile::new().unwrap();
    let modified = probe.as_file().metadata().unwrap().modified().unwrap();
    let wall_ns = modified
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    assert!(
        wall_ns.abs_diff(shown_ns) < 5_000_000_000,
        "{wall_ns} {shown_ns}"
    );
}

#[test]
fn entropy_differs() {
    let mut seeds: Vec<u64> = (0..100).map(|_| entropy::seed()).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 100);
    assert!((0..100).all(|_| entropy::session_id() != 0));
}

/// Time and randomness come in at one place each, or runs could not be replayed.
#[test]
fn the_clock_and_entropy_are_read_in_one_file_each() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap();
    let clocks = ["Instant::", "time::Instant", "SystemTime", "clock_gettime"];
    let sources = ["getrandom", "/dev/urandom", "/dev/random", "RandomState"];
    let mut files = 0;
    for name in ["wire", "logic", "store", "net", "server", "client", "sim"] {
        let mut folders = vec![crates.join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let is = |file: &str| path == crates.join("net/src").join(file);
                let names = |words: &[&str]| words.iter().any(|word| text.contains(word));
                assert!(
                    is("clock.rs") == names(&clocks),
                    "{}: clock",
                    path.display()
                );
                assert!(
                    is("entropy.rs") == names(&sources),
                    "{}: entropy",
                    path.display()
                );
            }
        }
    }
    assert!(files > 10, "the sources were found: {files}");
}
