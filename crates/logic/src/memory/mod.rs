//! How much of a machine's memory the file cache has, against everything else that wants it
//! (Nelson, chapter 6; *Virtual Memory vs. The File System*).
//!
//! Guarantees of [`Governor`]: the cache may use what nobody else wants, but for a reserve; it is
//! told to give memory back as soon as the reserve is touched, by as much as is missing, and more
//! where others are growing. Before anything is given up, growth ends; after that it comes back in
//! steps that double, so that a cache does not fill again the memory that was freed for somebody
//! else. The cache never gets less than its least. Pages of files that the kernel keeps for
//! programs are taken only by the rule of ages: [`may_take`].
//!
//! The room reads numbers of the machine, and of the control groups it is in, and tells them; it is
//! told the size, and when to look again.

#[cfg(test)]
mod tests;

use wire::Time;

const MS: Time = 1_000_000;
const SECOND: Time = 1000 * MS;
const MIB: u64 = 1 << 20;

/// How long a program's page stays that the cache could use (Nelson, section 6.5: 20 minutes).
pub const PENALTY_NS: Time = 20 * 60 * SECOND;

/// One part in so many of what is idle stays free, at least [`RESERVE_LEAST`] (in a small space:
/// one part in [`RESERVE_SMALL`] of that): a program takes so much before anybody looks again.
const RESERVE: u64 = 20;
const RESERVE_LEAST: u64 = 128 * MIB;
const RESERVE_SMALL: u64 = 2;
/// Of little room the cache is given half, again at each look, down to [`CRUMB`]: the memory that
/// its process needs beside blocks is seen only then.
const LITTLE: u64 = 256 * MIB;
const CRUMB: u64 = 4 * MIB;
/// When only one part in so many of the reserve is left, all of the cache goes.
const SPENT: u64 = 8;
/// As much as others took since the last look they may take again in this time, until after the
/// next.
const AHEAD: Time = 250 * MS;
/// Programs that all fill fresh memory take so much in a second.
const FASTEST: u64 = 4 << 30;
/// Times between two looks.
const SOONEST: Time = 10 * MS;
const LATEST: Time = SECOND;
/// How programs fare is looked at over so long.
const TROUBLE: Time = 100 * MS;
/// Parts of a million of the time between two looks. Any task stalled on memory: nothing grows.
/// All tasks: something is given up, if there is little room too. Much of that: everything is.
const SOME_PPM: u64 = 10_000;
const FULL_PPM: u64 = 10_000;
const MUCH_PPM: u64 = 100_000;
/// So much fetched again in a second is programs' memory that is missing, not chance.
const MISSED: u64 = 4 * MIB;
/// The first step of growth after memory was short.
const FIRST_STEP: u64 = 16 * MIB;

/// Sprite's rule: may the file cache take a page whose program used it last at `program`, for
/// itself, while the block that it would give up was used last at `block`? A page of several blocks
/// has the age of the youngest.
#[must_use]
pub fn may_take(program: Time, block: Time, penalty: Time) -> bool {
    program.saturating_add(penalty) < block
}

/// Limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest bytes.
    pub least: u64,
    /// Most bytes.
    pub most: u64,
    /// Added to the times when programs used their pages, ns.
    pub penalty: Time,
}

/// A machine's memory, or that of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// Memory that a program could have at once without anything of programs going to swap.
    pub available: u64,
    /// The same without taking pages of files that programs use again and again.
    pub idle: u64,
    /// Memory that nobody uses for anything.
    pub free: u64,
}

/// The memory as the room sees it at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The machine.
    pub machine: Space,
    /// The control group with the least room.
    pub group: Option<Space>,
    /// Bytes that the cache uses.
    pub used: u64,
    /// When the block was used that is given up next.
    pub oldest: Option<Time>,
    /// How long tasks were stalled on memory until now, ns: any, all.
    pub stalled: [Time; 2],
    /// Bytes until now that programs had in memory and had to fetch again.
    pub missed: u64,
}

/// The cause that makes the cache smaller than it could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressed {
    /// Nothing.
    #[default]
    Nothing,
    /// The machine has little memory left.
    Machine,
    /// The control group has.
    Group,
    /// Programs stand still for want of memory.
    Stalls,
    /// Programs fetch again what they had in memory.
    Misses,
}

impl Pressed {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Machine => "machine",
            Self::Group => "group",
            Self::Stalls => "stalls",
            Self::Misses => "misses",
        }
    }
}

/// The decision that follows from a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// So many bytes the cache may use.
    pub size: u64,
    /// Why no more.
    pub pressed: Pressed,
    /// When to look again.
    pub look_at: Time,
}

/// The numbers that are kept from the last look.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Time,
    /// The memory of the cache and the unused memory together: in the machine, in the group.
    whole: [Option<u64>; 2],
}

/// How programs fared, up to some time.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    at: Time,
    stalled: [Time; 2],
    missed: u64,
    /// Until then they fared well.
    calm: bool,
}

impl Trouble {
    fn of(now: Time, sample: &Sample) -> Self {
        Self {
            at: now,
            stalled: sample.stalled,
            missed: sample.missed,
            calm: true,
        }
    }
}

/// Decides about the size of one cache.
#[derive(Clone, Debug)]
pub struct Governor {
    bounds: Bounds,
    last: Option<Last>,
    trouble: Option<Trouble>,
    /// When programs last missed what they had; `None`: not that anybody knows.
    missed_at: Option<Time>,
    /// By how much the cache may grow in a second, and when that was raised last; `None`: since
    /// memory was never short, or not for long, by as much as there is.
    step: Option<(u64, Time)>,
}

/// A space at a look.
struct Room {
    space: Space,
    why: Pressed,
    reserve: u64,
    /// The memory that is to stay free until after the next look.
    wanted: u64,
}

impl Governor {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            last: None,
            trouble: None,
            missed_at: None,
            step: None,
        }
    }

    /// Takes in how the machine is.
    pub fn handle(&mut self, now: Time, sample: &Sample) -> Decision {
        let rooms = self.rooms(now, sample);
        let (mut size, mut pressed) = (self.bounds.most, Pressed::Nothing);
        for room in &rooms {
            let (fits, short) = self.fits(room, sample);
            size = size.min(fits);
            if short {
                pressed = room.why;
            }
        }
        let tight = rooms
            .iter()
            .any(|room| room.space.available < 4 * room.reserve);
        let (bearable, why, calm) = self.bears(now, sample, tight);
        if bearable < size && why != Pressed::Nothing {
            (size, pressed) = (bearable, why);
        }
        let calm = calm && pressed == Pressed::Nothing;
        size = size.min(self.grows(now, sample.used, calm));
        let soonest = rooms.iter().map(|room| room.space.available / 2).min();
        let wait = soonest.map_or(LATEST, |bytes| {
            bytes.saturating_mul(SECOND / MIB) / (FASTEST / MIB)
        });
        self.note(now, sample);
        Decision {
            size: size.clamp(self.bounds.least, self.bounds.most),
            pressed,
            look_at: now + wait.clamp(self.soonest(sample.used), LATEST),
        }
    }

    fn rooms(&self, now: Time, sample: &Sample) -> alloc::vec::Vec<Room> {
        let whys = [Pressed::Machine, Pressed::Group];
        let spaces = [Some(sample.machine), sample.group];
        let room = |(at, space): (usize, Option<Space>)| {
            let space = space?;
            let whole = sample.used + space.available;
            let least = RESERVE_LEAST.min(space.total / RESERVE_SMALL);
            let reserve = (whole / RESERVE).max(least);
            let fallen = self.last.and_then(|last| {
                let taken = last.whole[at]?.saturating_sub(whole);
                let since = now.saturating_sub(last.at).max(MS);
                Some((u128::from(taken) * u128::from(AHEAD) / u128::from(since)) as u64)
            });
            Some(Room {
                space,
                why: whys[at],
                reserve,
                wanted: reserve + fallen.unwrap_or(0),
            })
        };
        spaces.into_iter().enumerate().filter_map(room).collect()
    }

    /// How large the cache may be in a space, and whether that is less than it is.
    fn fits(&self, room: &Room, sample: &Sample) -> (u64, bool) {
        let Space {
            available,
            idle,
            free,
            ..
        } = room.space;
        if available < room.reserve / SPENT {
            return (self.bounds.least, true);
        }
        if available < room.wanted {
            let missing = room.wanted - available;
            return (sample.used.saturating_sub(missing), true);
        }
        // Programs had used shortly before the pages that they have missed; nothing that young is
        // taken.
        let block = sample.oldest.unwrap_or(Time::MAX);
        let programs = self.missed_at;
        let takes = programs.is_none_or(|used| may_take(used, block, self.bounds.penalty));
        let there = if takes { idle } else { free.min(idle) };
        let grows = match there.saturating_sub(room.wanted) {
            few @ CRUMB..LITTLE => few / 2,
            grows => grows,
        };
        (sample.used + grows, false)
    }

    /// How large the cache may be while programs stand still, or miss what they had; why; and
    /// whether they do not.
    fn bears(&mut self, now: Time, sample: &Sample, tight: bool) -> (u64, Pressed, bool) {
        let Some(last) = self.trouble else {
            self.trouble = Some(Trouble::of(now, sample));
            return (u64::MAX, Pressed::Nothing, true);
        };
        let since = now.saturating_sub(last.at);
        if since < TROUBLE {
            return (u64::MAX, Pressed::Nothing, last.calm);
        }
        let part = |at: usize| {
            let stalled = sample.stalled[at].saturating_sub(last.stalled[at]);
            stalled.saturating_mul(1_000_000) / since
        };
        let (some, full) = (part(0), part(1));
        let missed = sample.missed.saturating_sub(last.missed);
        let many = missed.saturating_mul(SECOND / MS) / (since / MS) > MISSED;
        if many {
            self.missed_at = Some(now);
        }
        let calm = some < SOME_PPM && !many;
        self.trouble = Some(Trouble {
            calm,
            ..Trouble::of(now, sample)
        });
        if !tight {
            // Reads of our own stall, too; with room left nobody stands still for want of it.
            return (u64::MAX, Pressed::Nothing, calm);
        }
        if full >= FULL_PPM {
            // A tenth of the time: all of it goes; a hundredth: a hundredth of it.
            let share = (full * 1000 / MUCH_PPM).min(1000);
            let goes = (u128::from(sample.used) * u128::from(share * share) / 1_000_000) as u64;
            return (sample.used - goes, Pressed::Stalls, false);
        }
        if many {
            let goes = missed.saturating_mul(4);
            return (sample.used.saturating_sub(goes), Pressed::Misses, false);
        }
        (u64::MAX, Pressed::Nothing, calm)
    }

    /// How large the cache may be by how fast it may grow.
    fn grows(&mut self, now: Time, used: u64, calm: bool) -> u64 {
        if !calm {
            self.step = Some((0, now));
            return used;
        }
        let Some((step, raised)) = self.step else {
            return u64::MAX;
        };
        if now < raised + SECOND {
            return used.saturating_add(step);
        }
        let step = (2 * step).max(FIRST_STEP);
        self.step = (step < self.bounds.most).then_some((step, now));
        used.saturating_add(step)
    }

    /// A cache that has nothing to give need not hurry.
    fn soonest(&self, used: u64) -> Time {
        match used > self.bounds.least + CRUMB {
            true => SOONEST,
            false => 10 * SOONEST,
        }
    }

    fn note(&mut self, now: Time, sample: &Sample) {
        let whole = |space: Space| sample.used + space.available;
        self.last = Some(Last {
            at: now,
            whole: [Some(whole(sample.machine)), sample.group.map(whole)],
        });
    }
}
