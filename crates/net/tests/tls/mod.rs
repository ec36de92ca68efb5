//! The promises of TLS alone: who comes in, who does not, and what is told to whom.

use super::net::support::cell::{Certified, Shown, TestCell, trouble};
use super::net::support::{Seen, any_port, bind, dial, hello, hello_of, speaks};
use ariel_net::{
    Addresses, ClientTls, Dialer, Events, FrameReader, Identity, KeyPrint, Kind, ListenOptions,
    Listener, Passage, Speaks, ask, print_of_pem,
};
use rcgen::ExtendedKeyUsagePurpose as Usage;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn start(cell: &TestCell) -> (Listener, Seen) {
    let (events, seen) = Seen::new();
    (cell.bind(any_port(), events), seen)
}

/// Dials as somebody who must not come in; returns the reason that the dialer is told.
fn refused(cell: &TestCell, listener: &Listener, tls: ClientTls) -> String {
    let (events, seen) = Seen::new();
    let dialer = cell.dial(listener, tls, events);
    let told = trouble(&dialer);
    dialer.stop();
    seen.nothing_more();
    told
}

#[test]
fn only_machines_that_the_door_knows_come_in_and_others_are_told_why() {
    let (cell, other) = (TestCell::default(), TestCell::default());
    let (listener, seen) = start(&cell);
    let unknown = cell.certify(Usage::ClientAuth);
    let told = refused(&cell, &listener, ClientTls::new(unknown.pem()).unwrap());
    assert!(told.contains("nobody knows you"), "{told}");

    let pin = print_of_pem(&cell.authority).unwrap();
    let told = refused(&cell, &listener, ClientTls::pinned(pin).unwrap());
    assert!(told.contains("ariel join-token"), "{told}");

    let told = refused(&cell, &listener, other.machine("b"));
    assert!(told.contains("not of this machine's cell"), "{told}");

    // It trusts this cell's servers, and shows a certificate of another cell.
    let mut mixed = other.certify(Usage::ClientAuth);
    mixed.authority = cell.authority.clone();
    let told = refused(&cell, &listener, ClientTls::new(mixed.pem()).unwrap());
    assert!(
        told.contains("of another cell") && told.contains("ariel join"),
        "{told}"
    );

    let told = refused(
        &cell,
        &listener,
        ClientTls::new(cell.certify(Usage::ServerAuth).pem()).unwrap(),
    );
    assert!(
        !told.is_empty(),
        "a server's certificate is not a machine's"
    );
    listener.stop();
    seen.nothing_more();
}

#[test]
fn of_machines_that_are_called_only_the_one_that_was_named_is_taken() {
    let (cell, other) = (TestCell::default(), TestCell::default());
    let machine = cell.certify(Usage::ClientAuth);
    let key = print_of_pem(&machine.certificate).unwrap();
    let call = |listener: &Listener, key: KeyPrint, events: Arc<dyn Events>| {
        let shown = Arc::new(Shown(cell.machine("caller")));
        let how = (Passage::ToMachine(shown, key), speaks());
        Dialer::new(Addresses::from(listener.local_addr()), how, events).unwrap()
    };
    let (events, _called) = Seen::new();
    let listener = cell.bind_as(&machine, any_port(), events);
    let (events, _caller) = Seen::new();
    let dialer = call(&listener, key, events);
    let link = dialer.wait_connected(Duration::from_secs(5)).unwrap();
    assert_eq!(*link.identity(), Identity::Peer { key });
    dialer.stop();
    listener.stop();
    // Another machine in its place; a server, though its key is named; a machine of another cell.
    let (next, server) = (
        cell.certify(Usage::ClientAuth),
        cell.certify(Usage::ServerAuth),
    );
    let mut foreign = other.certify(Usage::ClientAuth);
    foreign.authority = cell.authority.clone();
    let of = |certified: &Certified| print_of_pem(&certified.certificate).unwrap();
    for (shown, named) in [
        (&next, key),
        (&server, of(&server)),
        (&foreign, of(&foreign)),
    ] {
        let (events, called) = Seen::new();
        let listener = cell.bind_as(shown, any_port(), events);
        let (events, caller) = Seen::new();
        let dialer = call(&listener, named, events);
        assert!(!trouble(&dialer).is_empty());
        dialer.stop();
        listener.stop();
        caller.nothing_more();
        called.nothing_more();
    }
}

#[test]
fn a_machine_cannot_pass_for_a_server() {
    let cell = TestCell::default();
    let machine = cell.certify(Usage::ClientAuth);
    let server = ariel_net::ServerTls::new(machine.pem()).unwrap();
    struct False(ariel_net::ServerTls);
    impl ariel_net::Door for False {
        fn tls(&self) -> ariel_net::ServerTls {
            self.0.clone()
        }
        fn admit(&self, _: ariel_net::KeyPrint) -> Result<ariel_net::Identity, String> {
            panic!("the client must have gone before")
        }
        fn answer(&self, _: Option<ariel_net::KeyPrint>, _: &[u8]) -> Vec<u8> {
            panic!("the client must have gone before")
        }
    }
    let (events, _seen) = Seen::new();
    let options = ListenOptions {
        entrance: ariel_net::Entrance::Tls(Arc::new(False(server))),
        speaks: speaks(),
        silence: Duration::from_secs(20),
    };
    let listener = Listener::bind(&[any_port()], options, events).unwrap();
    let told = refused(&cell, &listener, cell.machine("a"));
    assert!(told.contains("not of this machine's cell"), "{told}");
    let pinned = ClientTls::pinned(print_of_pem(&cell.authority).unwrap()).unwrap();
    let addr = Addresses::from(listener.local_addr());
    assert!(ask(&addr, &pinned, b"join me").is_err());
}

#[test]
fn a_machine_that_is_shut_out_loses_its_link_and_is_told() {
    let cell = TestCell::default();
    let (listener, server) = start(&cell);
    let (events, client) = Seen::new();
    let dialer = cell.dial(&listener, cell.machine("a"), events);
    client.opened();
    server.opened();
    cell.revoke_all("machine a was revoked: ask for another line");
    listener.shut_out(2, "another machine");
    listener.shut_out(1, "you were revoked");
    let (_, reason) = client.closed();
    assert_eq!(reason.to_string(), "you were revoked");
    // The end was told while the dialer still had the link: it is not told of the next attempt.
    let end = Instant::now() + Duration::from_secs(10);
    let asks = |dialer: &Dialer| dialer.trouble().is_some_and(|t| t.contains("another line"));
    while !asks(&dialer) && Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(asks(&dialer), "{:?}", dialer.trouble());
}

#[test]
fn whoever_speaks_without_tls_is_told_on_both_sides() {
    let cell = TestCell::default();
    let (listener, seen) = start(&cell);
    let (events, _client) = Seen::new();
    let dialer = dial(listener.local_addr(), events);
    let told = trouble(&dialer);
    assert!(
        told.contains("wants TLS") && told.contains("--insecure-loopback"),
        "{told}"
    );
    seen.nothing_more();

    let (events, _server) = Seen::new();
    let plain = bind(any_port(), events);
    let told = refused(&cell, &plain, cell.machine("a"));
    assert!(told.contains("without TLS"), "{told}");
}

#[test]
fn versions_that_do_not_meet_are_refused_on_both_sides_with_which_is_older() {
    let cell = TestCell::default();
    let (listener, _server) = start(&cell);
    let (events, _client) = Seen::new();
    let newer = Speaks {
        oldest: 5,
        newest: 9,
        program: "0.9".into(),
    };
    let passage = Passage::Tls(Arc::new(Shown(cell.machine("a"))));
    let addr = Addresses::from(listener.local_addr());
    let dialer = Dialer::new(addr, (passage, newer), events).unwrap();
    let told = trouble(&dialer);
    assert!(told.contains("the other side is older"), "{told}");
    assert!(told.contains("0.4 (protocol 3 to 4)"), "{told}");

    // The other side's last frame, before it ends the connection.
    let (events, _server) = Seen::new();
    let plain = bind(any_port(), events);
    let mut raw = TcpStream::connect(plain.local_addr()).unwrap();
    raw.write_all(&hello_of(5, 9, "0.9")).unwrap();
    let mut frames = FrameReader::new(&raw);
    assert_eq!(frames.next_frame().unwrap().unwrap().kind, Kind::Hello);
    assert!(frames.next_frame().unwrap().is_none(), "it ends in order");
}

#[test]
fn a_question_is_answered_also_to_strangers_who_know_the_authority() {
    let (cell, other) = (TestCell::default(), TestCell::default());
    let (listener, seen) = start(&cell);
    let addr = Addresses::from(listener.local_addr());
    let long = vec![b'x'; 16 << 10];
    let known = ask(&addr, &cell.machine("a"), &long).unwrap();
    assert_eq!(known, [b"known: ", &long[..]].concat());
    let pinned = |cell: &TestCell| ClientTls::pinned(print_of_pem(&cell.authority).unwrap());
    let stranger = ask(&addr, &pinned(&cell).unwrap(), b"join me").unwrap();
    assert_eq!(stranger, b"stranger: join me");
    let told = ask(&addr, &pinned(&other).unwrap(), b"join me").unwrap_err();
    assert!(told.contains("not of this machine's cell"), "{told}");
    let too_long = vec![b'x'; (16 << 10) + 1];
    assert!(ask(&addr, &cell.machine("b"), &too_long).is_err());
    listener.stop();
    seen.nothing_more();
}

#[test]
fn handshakes_that_do_not_go_on_end_and_keep_nobody_out() {
    let cell = TestCell::default();
    let (listener, server) = start(&cell);
    let began = Instant::now();
    let connect = || TcpStream::connect(listener.local_addr()).unwrap();
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let mut rubbish = connect();
    // An error means that it was ended already.
    let _ = rubbish.write_all(&[0xff; 100_000]);
    // Two failures of one handshake, if all of it were looked at.
    let mut zeros = connect();
    let _ = zeros.write_all(&[0; 4096]);
    let mut huge = connect();
    let _ = huge.write_all(&[0x16, 3, 1, 0xff, 0xff]);
    // One that goes on for ever, a byte at a time.
    let slow = connect();
    let (events, client) = Seen::new();
    let dialer = cell.dial(&listener, cell.machine("a"), events);
    client.opened();
    server.opened();
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "nobody waits for them"
    );
    let drip = std::thread::spawn(move || {
        let mut slow = slow;
        let record = [&[0x16, 3, 1, 0x40, 0][..], &[1; 200]].concat();
        // As a peer that sends slowly: that is what is tested.
        for byte in record {
            std::thread::sleep(Duration::from_millis(100));
            if slow.write_all(&[byte]).is_err() {
                return Instant::now();
            }
        }
        panic!("it was never ended");
    });
    for mut socket in silent.into_iter().chain([rubbish, zeros, huge]) {
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut all = Vec::new();
        // The end, or a reset: but no waiting.
        if let Err(error) = socket.read_to_end(&mut all) {
            assert_ne!(
                error.kind(),
                std::io::ErrorKind::WouldBlock,
                "it is not ended"
            );
        }
    }
    let ended = drip.join().unwrap();
    assert!(
        ended - began < Duration::from_secs(15),
        "{:?}",
        ended - began
    );
    assert!(dialer.link().is_some());
    // The greeting of a peer without TLS is no handshake either.
    let mut old = connect();
    old.write_all(&hello()).unwrap();
    let told = FrameReader::new(&old).next_frame().unwrap().unwrap().kind;
    assert_eq!(told, Kind::Refused);
}
