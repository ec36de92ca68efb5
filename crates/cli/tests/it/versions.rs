//! Programs of different versions: where they have a version of the protocol in common they work
//! together, and where they have not both sides say which one is older, and nobody waits.

use crate::harness::cell::INSECURE;
use crate::harness::process::{run_within, text};
use crate::harness::{Cell, Scratch, ariel, real_system};
use crate::refused::{Hand, joins};
use net::{CloseReason, Entrance, Events, Link, LinkId, ListenOptions, Listener, Speaks};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use wire::{Op, Outcome, VERSION, VERSION_OLDEST};

mod recorded;

/// A command that is refused ends so soon.
const SOON: Duration = Duration::from_secs(20);

struct Deaf;

impl Events for Deaf {
    fn opened(&self, link: &Arc<Link>) {
        panic!("{} has come in", link.peer());
    }
    fn frame(&self, _: &Arc<Link>, _: &[u8], _: Vec<u8>) {}
    fn closed(&self, _: LinkId, _: &CloseReason) {}
}

pub fn speaks(oldest: u32, newest: u32, program: &str) -> Speaks {
    Speaks {
        oldest,
        newest,
        program: program.into(),
    }
}

#[test]
fn a_server_of_another_version_is_told_of_and_not_waited_for() {
    if !real_system("versions-server") {
        return;
    }
    let scratch = Scratch::new("versions-server");
    for (speaks, older) in [
        (
            speaks(VERSION + 1, VERSION + 2, "9.9"),
            "this side is older",
        ),
        (
            speaks(VERSION_OLDEST - 2, VERSION_OLDEST - 1, "0.0"),
            "the other side is older",
        ),
    ] {
        let program = speaks.program.clone();
        let options = ListenOptions {
            entrance: Entrance::InsecureLoopback,
            speaks,
            silence: Duration::from_secs(20),
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(&[any], options, Arc::new(Deaf)).unwrap();
        let addr = listener.local_addr().to_string();
        let (root, point) = (format!("{addr}:/"), scratch.dir("point"));
        let point = point.to_str().unwrap();
        for words in [
            vec!["ls", INSECURE, &root],
            vec!["mount", INSECURE, &addr, point],
            vec!["mount", "-f", INSECURE, &addr, point],
        ] {
            let output = run_within(&mut ariel(&words), SOON);
            let told = text(&output);
            assert!(!output.status.success(), "{words:?}: {told}");
            for word in [older, &format!("Ariel {program} (protocol"), "install"] {
                assert!(told.contains(word), "{words:?}: {told} lacks {word:?}");
            }
        }
    }
}

#[test]
fn clients_of_adjacent_versions_work_and_others_are_refused_in_words_on_both_sides() {
    let Some(cell) = Cell::start("versions-client") else {
        return;
    };
    if cell.is_insecure() || !real_system("versions-client") {
        return;
    }
    let (guest, addr) = (joins(&cell, "guest"), cell.addr().parse().unwrap());
    // The program before this one, another one like this, and a later one.
    for (session, both) in [
        (70, speaks(VERSION_OLDEST - 1, VERSION_OLDEST, "0.0")),
        (71, speaks(VERSION_OLDEST, VERSION, "0.1")),
        (72, speaks(VERSION, VERSION + 1, "9.9")),
    ] {
        let mut hand = Hand::speaking(addr, &guest, (session, both)).unwrap();
        let answer = hand.asks(Op::StatFs, &wire::Caller::default());
        assert!(!matches!(answer, Outcome::Refused(_)), "{answer:?}");
    }
    for (speaks, at_client, at_server) in [
        (
            speaks(VERSION + 1, VERSION + 1, "9.9"),
            "the other side is older",
            "this side is older",
        ),
        (
            speaks(VERSION_OLDEST - 1, VERSION_OLDEST - 1, "0.0"),
            "this side is older",
            "the other side is older",
        ),
    ] {
        let before = cell.server_log().len();
        let told = Hand::speaking(addr, &guest, (73, speaks)).err().unwrap();
        assert!(
            told.contains(at_client) && told.contains("install"),
            "{told}"
        );
        let said = || cell.server_log()[before..].contains(at_server);
        assert!(
            crate::harness::eventually(SOON, said),
            "{}",
            cell.server_log()
        );
    }
}
