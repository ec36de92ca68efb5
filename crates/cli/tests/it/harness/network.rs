//! A network of a test's own: a network namespace, whose loopback device can be made to drop
//! everything, or to be slow. What the test starts in it lives there.

use super::process::{run, text};
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
    /// Runs a test in a network of its own, on a thread of its own: what that starts inherits it.
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

    /// Every packet vanishes: nobody is told.
    pub fn black_hole(&self) {
        // A bucket that no packet fits into.
        let nothing = ["rate", "8bit", "burst", "1", "limit", "1"];
        self.queue("replace", &nothing);
    }

    /// So many Mbit/s, for all of both directions.
    pub fn slow(&self, mbit: u32) {
        let rate = format!("{mbit}mbit");
        self.queue(
            "replace",
            &["rate", &rate, "burst", "16kb", "limit", "64kb"],
        );
    }

    /// As fast as the machine.
    pub fn heal(&self) {
        tc(&["qdisc", "del", "dev", "lo", "root"]);
    }

    fn queue(&self, verb: &str, how: &[&str]) {
        let mut words = vec!["qdisc", verb, "dev", "lo", "root", "tbf"];
        words.extend(how);
        tc(&words);
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
