//! The size of a cache on model machines: idle memory is used, memory that others want is given
//! back in time, whatever they do.

use super::*;
use std::vec::Vec;

const GIB: u64 = 1 << 30;

const BOUNDS: Bounds = Bounds {
    least: 4 * MIB,
    most: 64 * GIB,
    penalty: PENALTY_NS,
};

/// A machine whose programs use memory, with a cache that takes and gives what it is told.
struct Machine {
    total: u64,
    programs: u64,
    used: u64,
    now: Time,
    /// The bytes that the cache is to have filled in a second.
    wants: u64,
    missed: u64,
    stalled: Time,
    /// The most that programs lacked, ever.
    lacked: u64,
    governor: Governor,
    size: u64,
    look_at: Time,
    pressed: Vec<Pressed>,
}

impl Machine {
    fn new(total: u64, bounds: Bounds) -> Self {
        Self {
            total,
            programs: total / 20,
            used: 0,
            now: SECOND,
            wants: 2 * GIB,
            missed: 0,
            stalled: 0,
            lacked: 0,
            governor: Governor::new(bounds),
            size: bounds.least,
            look_at: 0,
            pressed: Vec::new(),
        }
    }

    fn sample(&self) -> Sample {
        let free = self.total.saturating_sub(self.programs + self.used);
        Sample {
            machine: Space {
                total: self.total,
                available: free,
                idle: free,
                free,
            },
            group: None,
            used: self.used,
            oldest: Some(self.now),
            stalled: [self.stalled; 2],
            missed: self.missed,
        }
    }

    /// A hundredth of a second, in which programs grow to so much by so much at most.
    fn step(&mut self, target: u64, rate: u64) {
        self.now += 10 * MS;
        self.programs = match target > self.programs {
            true => target.min(self.programs + rate / 100),
            false => target,
        };
        let over = (self.programs + self.used).saturating_sub(self.total);
        self.lacked = self.lacked.max(over);
        self.used = self.size.min(self.used + self.wants / 100);
        if self.now >= self.look_at {
            let decision = self.governor.handle(self.now, &self.sample());
            (self.size, self.look_at) = (decision.size, decision.look_at);
            self.pressed.push(decision.pressed);
            // Memory that it must give up is gone before the next step.
            self.used = self.used.min(self.size);
        }
    }

    fn run(&mut self, seconds: u64, target: u64, rate: u64) {
        for _ in 0..seconds * 100 {
            self.step(target, rate);
        }
    }
}

#[test]
fn what_is_idle_is_used_and_what_a_program_wants_is_given_back_before_it_lacks_it() {
    for rate in [GIB / 4, GIB, 3 * GIB] {
        let mut machine = Machine::new(24 * GIB, BOUNDS);
        machine.run(30, GIB, GIB);
        assert!(machine.used > 21 * GIB, "{} is little", machine.used);
        machine.run(100, 22 * GIB, rate);
        assert_eq!(machine.lacked, 0, "at {rate} bytes a second");
        assert!(machine.pressed.contains(&Pressed::Machine));
        machine.run(1, GIB, GIB);
        machine.run(59, GIB, GIB);
        let idle = machine.total - machine.programs;
        assert!(
            machine.used >= idle / 100 * 95,
            "{} of {idle}",
            machine.used
        );
    }
}

#[test]
fn growth_ends_before_anything_is_given_up_and_comes_back_in_steps() {
    let mut machine = Machine::new(24 * GIB, BOUNDS);
    machine.wants = GIB / 4;
    machine.run(40, GIB, GIB);
    let before = machine.used;
    machine.stalled += 100 * MS;
    machine.run(2, GIB, GIB);
    // There is much room: nothing is given up, but for a second the cache does not grow.
    assert!(machine.used >= before && machine.used < before + GIB / 2);
    assert!(!machine.pressed.contains(&Pressed::Stalls));
    machine.run(10, GIB, GIB);
    assert!(machine.used > before + GIB);
}

#[test]
fn programs_that_all_stand_still_get_everything_at_once() {
    let mut machine = Machine::new(4 * GIB, BOUNDS);
    machine.run(10, GIB, GIB);
    assert!(machine.used > 2 * GIB);
    for _ in 0..30 {
        machine.stalled += 5 * MS;
        machine.step(GIB, GIB);
    }
    assert!(machine.pressed.contains(&Pressed::Stalls));
    assert_eq!(machine.size, BOUNDS.least);
}

#[test]
fn what_programs_had_to_fetch_again_is_not_taken_for_the_length_of_the_penalty() {
    let space = Space {
        total: 24 * GIB,
        available: 20 * GIB,
        idle: 16 * GIB,
        free: 2 * GIB,
    };
    let mut sample = Sample {
        machine: space,
        oldest: Some(0),
        ..Sample::default()
    };
    let mut governor = Governor::new(BOUNDS);
    let first = governor.handle(SECOND, &sample).size;
    assert_eq!(first, 15 * GIB, "what programs use again and again stays");
    sample.missed += GIB;
    governor.handle(2 * SECOND, &sample);
    let mut now = 2 * SECOND;
    let mut settle = |governor: &mut Governor, sample: &mut Sample, to: Time| {
        let mut size = 0;
        while now < to {
            now += SECOND;
            sample.oldest = Some(now);
            size = governor.handle(now, sample).size;
        }
        size
    };
    let young = settle(&mut governor, &mut sample, PENALTY_NS);
    assert_eq!(young, GIB, "only what nobody uses");
    let old = settle(&mut governor, &mut sample, 2 * PENALTY_NS);
    assert_eq!(old, 15 * GIB);
    assert!(may_take(5, 26, 20) && !may_take(6, 26, 20));
}

#[test]
fn a_small_group_counts_before_a_large_machine() {
    let group = |available: u64| Space {
        total: 64 * MIB,
        available,
        idle: available,
        free: available,
    };
    let mut sample = Sample {
        machine: Space {
            total: 24 * GIB,
            available: 20 * GIB,
            idle: 20 * GIB,
            free: 20 * GIB,
        },
        group: Some(group(40 * MIB)),
        ..Sample::default()
    };
    let mut governor = Governor::new(BOUNDS);
    let decision = governor.handle(SECOND, &sample);
    // Half of what is not kept back, with a look at once when there is something to give.
    assert_eq!(decision.size, 4 * MIB);
    assert_eq!(decision.look_at, SECOND + 10 * SOONEST);
    sample.group = Some(group(52 * MIB));
    assert_eq!(governor.handle(2 * SECOND, &sample).size, 10 * MIB);
    (sample.used, sample.group) = (24 * MIB, Some(group(20 * MIB)));
    let decision = governor.handle(2 * SECOND, &sample);
    assert_eq!(decision.pressed, Pressed::Group);
    assert_eq!(decision.look_at, 2 * SECOND + SOONEST);
    assert!(decision.size < 12 * MIB, "{decision:?}");
    sample.group = Some(group(0));
    assert_eq!(governor.handle(3 * SECOND, &sample).size, BOUNDS.least);
}

/// Programs that grow and shrink at random, at up to 4 GB/s: they never lack what they want, and
/// the size stays within its bounds.
#[test]
fn whatever_programs_do_they_do_not_lack_memory() {
    for seed in 1..=300_u64 {
        let mut state = seed;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed);
            (state >> 33) % below
        };
        let total = GIB << random(6);
        let bounds = Bounds {
            most: GIB << random(8),
            ..BOUNDS
        };
        let mut machine = Machine::new(total, bounds);
        // A tenth of a small machine's memory is gone sooner than anybody can look.
        let fastest = (4 * GIB).min(total / 2);
        for _ in 0..20 {
            let target = total / 100 * (1 + random(90));
            machine.wants = MIB << random(12);
            machine.run(1 + random(8), target, fastest / (1 + random(20)));
            assert!((bounds.least..=bounds.most).contains(&machine.size));
        }
        assert_eq!(machine.lacked, 0, "seed {seed}, {} GiB", total / GIB);
    }
}
