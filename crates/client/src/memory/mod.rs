//! A cache whose size varies: looks at the machine, asks `logic::memory` how much the cache may
//! use, and has the cache give up what is more.
//!
//! Guarantees: memory that is given up is back at the machine when [`Core::allow`] returns, but for
//! blocks that are on their way somewhere. The client's lock is held for a bounded number of blocks
//! at a time, and not while pages go back. One thread looks; it waits for the time of the next
//! look, or for the kernel to say that tasks stand still for want of memory.

mod group;
mod sight;
mod stalls;

use crate::core::Core;
use crate::front::Memory;
use logic::memory::{Bounds, Decision, Governor, Sample};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sight::Sight;
use stalls::Stalls;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread;
use wire::limits::BLOCK_BYTES;

/// The cost of a block beside its bytes: its places in tables.
const BESIDE: u64 = 256;
const COST: u64 = BLOCK_BYTES as u64 + BESIDE;
/// Each known object takes about so many bytes; a quarter of the cache's size is for those that
/// nobody uses.
const OBJECT: u64 = 600;
const OBJECTS_PART: u64 = 4;
const OBJECTS_LEAST: u64 = 8_192;
const OBJECTS_MOST: u64 = 435_200;
/// Where it cannot be seen how the machine is, the cache has this size: 256 MiB.
const BLIND: u64 = 256 << 20;
/// Free pages that stay, so that the next blocks need no call: 256 KiB.
const KEPT: usize = 64;

/// Most changed blocks: 256 MiB. They cannot be given up before they are written back.
pub(crate) const DIRTY: u32 = 65_536;

/// How many blocks fit into so many bytes.
pub(crate) fn slots(bytes: u64) -> u32 {
    u32::try_from(bytes / COST).unwrap_or(u32::MAX - 1)
}

/// All memory of this machine.
pub(crate) fn total() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    sight::number(&meminfo, "MemTotal").map_or(BLIND, |kib| kib << 10)
}

fn objects(bytes: u64) -> usize {
    (bytes / OBJECTS_PART / OBJECT).clamp(OBJECTS_LEAST, OBJECTS_MOST) as usize
}

/// Ends the thread that looks.
pub(crate) struct Watch(OwnedFd);

impl Watch {
    /// Starts to look. The first size is that of the first look, but for a moment.
    ///
    /// # Errors
    /// No thread can be started, or no descriptor is free.
    pub(crate) fn start(core: &Arc<Core>, bounds: Bounds) -> io::Result<Watch> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = rustix::io::fcntl_dupfd_cloexec(&stop, 0)?;
        core.allow(&Decision {
            size: bounds.least,
            pressed: logic::memory::Pressed::Nothing,
            look_at: 0,
        });
        let core = Arc::downgrade(core);
        let run = move || look(&core, bounds, &stopped);
        thread::Builder::new().name("memory".into()).spawn(run)?;
        Ok(Watch(stop))
    }

    /// The thread ends soon.
    pub(crate) fn stop(&self) {
        // It fails only when it was stopped 2^64 times.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

fn look(core: &Weak<Core>, bounds: Bounds, stopped: &OwnedFd) {
    // A program that takes memory does not wait for a processor either, and when it has taken all
    // of it the kernel ends somebody.
    crate::priority::go_before_others();
    let mut governor = Governor::new(bounds);
    let mut sight = Sight::default();
    let mut stalls = Stalls::start(sight.groups());
    loop {
        let Some(core) = core.upgrade() else { return };
        let now = net::clock::now_ns();
        let Some(seen) = sight.look(now) else {
            tracing::warn!(
                "/proc/meminfo cannot be read: the cache does not go by the machine's memory; \
                 set --cache-mib"
            );
            return core.blind(BLIND.clamp(bounds.least, bounds.most));
        };
        let (used, oldest) = core.uses();
        let decision = governor.handle(
            now,
            &Sample {
                used,
                oldest,
                ..seen
            },
        );
        core.allow(&decision);
        drop(core);
        let left = decision.look_at.saturating_sub(net::clock::now_ns());
        if wait(&mut stalls, stopped, left) {
            return;
        }
    }
}

/// Waits for so long, or until tasks stand still. True: it is over.
fn wait(stalls: &mut Stalls, stopped: &OwnedFd, left_ns: u64) -> bool {
    const SECOND_NS: u64 = 1_000_000_000;
    let timeout = Timespec {
        tv_sec: (left_ns / SECOND_NS) as i64,
        tv_nsec: (left_ns % SECOND_NS) as _,
    };
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
    fds.extend(stalls.fds().map(|fd| PollFd::new(fd, PollFlags::PRI)));
    if poll(&mut fds, Some(&timeout)).is_err() {
        return false; // a signal
    }
    let ended = !fds[0].revents().is_empty();
    let gone: Vec<bool> = fds[1..]
        .iter()
        .map(|fd| fd.revents().contains(PollFlags::ERR))
        .collect();
    drop(fds);
    stalls.forget(&gone);
    ended
}

impl Core {
    /// How much memory the cache takes, and when the block was used that it gives up next.
    fn uses(&self) -> (u64, Option<u64>) {
        let state = self.state();
        let beside = u64::from(state.machine.used_slots()) * BESIDE;
        let pages = self.pool().resident() as u64;
        (
            pages * u64::from(BLOCK_BYTES) + beside,
            state.machine.oldest_use(),
        )
    }

    /// The size does not vary after all.
    fn blind(&self, size: u64) {
        self.allow(&Decision {
            size,
            pressed: logic::memory::Pressed::Nothing,
            look_at: 0,
        });
    }

    /// The cache may use so much from now on; blocks beyond that go.
    fn allow(&self, decision: &Decision) {
        let (slots, objects) = (slots(decision.size), objects(decision.size));
        let before = self.pool().resident();
        let pressed = decision.pressed != logic::memory::Pressed::Nothing;
        let goes = pressed || before > slots as usize;
        if goes {
            net::spare::clear();
        }
        let keep = KEPT.min(slots as usize / 4);
        let mut given_back = 0;
        while self.shrink(slots, objects) {
            if goes {
                // The memory of each step goes back before the next: a program may take all that
                // is free in the time of a few.
                self.state().release_freed();
                given_back += self.pool().trim(keep) as u64;
            }
        }
        if goes {
            self.state().release_free();
            given_back += self.pool().trim(keep) as u64;
        }
        let used = self.state().machine.used_slots() as usize;
        let mut memory = self.memory().lock();
        *memory = Memory {
            varies: true,
            size: decision.size,
            resident: self.pool().resident() as u64 * u64::from(BLOCK_BYTES),
            pressed: decision.pressed.word(),
            given_back: memory.given_back + given_back * u64::from(BLOCK_BYTES),
            presses: memory.presses + u64::from(pressed),
            ..*memory
        };
        drop(memory);
        if pressed {
            self.front().released();
        }
        if given_back > 0 {
            tracing::debug!(
                pressed = decision.pressed.word(),
                given_back,
                used,
                "the cache has given memory back"
            );
        }
    }
}
