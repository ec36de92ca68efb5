//! A network of a test's own: a network namespace, whose loopback device can be taken down,
//! or made slow. The processes that the test starts in it live there.

use super::process::{run, text};
use super::watchdog::network_changes;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The network.
pub struct Network {
    name: String,
}

impl Network {
    /// Runs a test in a network of its own, on a thread of its own: processes that it starts
    /// inherit the network.
    pub fn within(body: impl FnOnce(&Network) + Send) {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ariel-it-{}-{number}", std::process::id());
        ip(&["netns", "add", &name]);
        // Its end removes the namespace, also when the test fails.
        let network = Network { name };
        let outcome = thread::scope(|scope| {
            let within = scope.spawn(|| {
                let space = File::open(format!("/run/netns/{}", network.name)).unwrap();
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), kind).unwrap();
                // Packets as on other networks: the loopback's own are of 64 KiB.
                ip(&["link", "set", "lo", "mtu", "1500", "up"]);
                body(&network);
            });
            within.join()
        });
        drop(network);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    /// The device is down: nothing gets through, and no connection is told of its end.
    pub fn cut(&self) {
        network_changes(true);
        ip(&["link", "set", "lo", "down"]);
    }

    /// It is up again.
    pub fn mend(&self) {
        network_changes(false);
        ip(&["link", "set", "lo", "up"]);
    }

    /// So many Mbit/s, for all of both directions.
    pub fn slow(&self, mbit: u32) {
        let rate = format!("{mbit}mbit");
        network_changes(true);
        let bucket = ["burst", "16kb", "limit", "64kb"];
        let words = [
            "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", &rate,
        ];
        tc(&[&words[..], &bucket].concat());
    }

    /// As fast as the machine again.
    pub fn fast(&self) {
        network_changes(false);
        tc(&["qdisc", "del", "dev", "lo", "root"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(words: &[&str]) {
    must("ip", words);
}

fn tc(words: &[&str]) {
    must("tc", words);
}

fn must(program: &str, words: &[&str]) {
    let output = run(Command::new(program).args(words));
    assert!(
        output.status.success(),
        "{program} {words:?}: {}",
        text(&output)
    );
}
