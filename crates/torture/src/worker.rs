//! A worker: one process at one mount. It is told what to do line by line and answers each line
//! with what it saw; while it works it does nothing else, so that saying does not disturb seeing.

use crate::files::{Files, Trouble, Want, Way};
use crate::history::{Action, Moved, Object, Operation};
use crate::names::identity;
use crate::plan::{Abilities, Clock, NAMES, Order, Plan, Reply, SLOTS};
use crate::random::Random;
use crate::record::{seconds, value};
use rustix::io::Errno;
use std::io::{BufRead, Write};
use std::time::Duration;

/// How often a mount that is gone is looked for; nothing tells when it is back.
const LOOK: Duration = Duration::from_millis(20);
/// How many times: 90 seconds.
const LOOKS: u32 = 4500;

/// Most processes that change sizes in one round.
const SIZE_CHANGERS: u32 = 6;

struct Worker<'a> {
    plan: &'a Plan,
    clock: Clock,
    files: Option<Files>,
    /// When `files` were found: their descriptors lead to the mount of then, or a later one.
    opened_ns: u64,
    counter: u32,
}

/// Works until the input ends.
pub fn work(
    plan: &Plan,
    clock: Clock,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    let mut worker = Worker {
        plan,
        clock,
        files: None,
        opened_ns: 0,
        counter: 1,
    };
    for line in input.lines() {
        let order: Order = serde_json::from_str(&line?)?;
        let reply = worker.carry_out(order);
        let mut line = serde_json::to_vec(&reply)?;
        line.push(b'\n');
        output.write_all(&line)?;
        output.flush()?;
    }
    Ok(())
}

/// Does this error say that the mount or its server is gone, not what became of the operation? When
/// the daemon of a FUSE mount dies, calls under way end with `CONNABORTED`; with `CANCELED` if
/// the kernel was just handing it over by io_uring; later calls end with `NOTCONN`.
fn is_loss(error: Errno) -> bool {
    [
        Errno::IO,
        Errno::NOTCONN,
        Errno::CONNABORTED,
        Errno::CANCELED,
        Errno::CONNRESET,
        Errno::CONNREFUSED,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::SHUTDOWN,
        Errno::NODEV,
        Errno::NXIO,
        Errno::INTR,
        Errno::PIPE,
    ]
    .contains(&error)
}

impl Worker<'_> {
    fn carry_out(&mut self, order: Order) -> Reply {
        let mut reply = Reply::default();
        let result = match order {
            Order::Setup => Files::set_up(self.plan)
                .map(|can| reply.can = can)
                .and_then(|()| self.found().map(drop)),
            Order::Find => self.found().map(drop),
            Order::Begin { round } => self.begin(round),
            Order::Work {
                round,
                operations,
                can,
            } => {
                self.round(round, operations, can, &mut reply.operations);
                Ok(())
            }
            Order::End { round } => {
                self.end(round, &mut reply.operations);
                Ok(())
            }
            Order::Clean => {
                self.files = None;
                let removed = std::fs::remove_dir_all(self.plan.mount.join(&self.plan.dir));
                reply.error = removed.err().map(|error| error.to_string());
                return reply;
            }
        };
        if let Err(error) = result {
            let mount = self.plan.mount.display();
            reply.error = Some(format!("{mount}: {}: {error}", self.plan.dir));
        }
        reply
    }

    /// The run's directory, found again when the mount was gone.
    fn found(&mut self) -> Result<&mut Files, Errno> {
        let mut looks = 0;
        while self.files.is_none() {
            // Without crashes it must be there; but a file system whose caches live for a second
            // may not show it at once.
            let patience = if self.plan.kills { LOOKS } else { LOOKS / 15 };
            self.opened_ns = (self.clock)();
            match Files::find(self.plan) {
                Ok(files) => self.files = Some(files),
                Err(error) if looks >= patience => return Err(error),
                // Nothing tells when another machine's change will be shown, or a mount is back.
                Err(_) => std::thread::sleep(LOOK),
            }
            looks += 1;
        }
        self.files.as_mut().ok_or(Errno::NOENT)
    }

    fn begin(&mut self, round: u64) -> Result<(), Errno> {
        let (plan, mut tries) = (self.plan, 0);
        loop {
            match self.found()?.make_logs(plan, round) {
                Err(error) if plan.kills && is_loss(error) && tries < LOOKS => {
                    // A dead mount may still find the directory by a name that its kernel keeps,
                    // and nothing tells when it is back.
                    self.files = None;
                    tries += 1;
                    std::thread::sleep(LOOK);
                }
                result => return result,
            }
        }
    }

    fn end(&mut self, round: u64, seen: &mut Vec<Operation>) {
        let way = Way {
            long: false,
            choice: 1,
            can: Abilities::default(),
        };
        for file in 0..self.plan.logs() {
            let object = Object::Log { round, file };
            self.one(object, &Want::Do(Action::ReadLog(Vec::new())), way, seen);
        }
        let plan = self.plan;
        if let Ok(files) = self.found() {
            files.forget_logs();
            files.remove_logs(plan, round);
        }
    }

    fn round(&mut self, round: u64, operations: u32, can: Abilities, seen: &mut Vec<Operation>) {
        let purpose = (round << 16) | (u64::from(self.plan.process) + 1);
        let mut random = Random::of(self.plan.seed, purpose);
        // All workers of a round prefer the same objects, and go at the same pace.
        let common = Random::of(self.plan.seed, round << 16).next();
        if let Some(files) = &mut self.files {
            files.forget_logs();
        }
        for _ in 0..operations {
            let (object, want) = self.choose((round, common), can, &mut random);
            let way = Way {
                long: random.one_in(2),
                choice: random.next(),
                can,
            };
            if !self.one(object, &want, way, seen) {
                return;
            }
            if random.one_in(40)
                && let Some(files) = &mut self.files
            {
                files.close_one(random.next());
            }
            if common.is_multiple_of(3) {
                // Nothing is waited for: a pause is part of the load, drawn like an operation, so
                // that caches fill and rights are given.
                std::thread::sleep(Duration::from_micros(random.below(1500)));
            }
        }
    }

    /// One operation; false when the mount is gone for good.
    fn one(&mut self, object: Object, want: &Want, way: Way, seen: &mut Vec<Operation>) -> bool {
        let (mount, process) = (self.plan.mount_number, self.plan.process);
        let clock = self.clock;
        if self.found().is_err() {
            return false;
        }
        let opened_ns = self.opened_ns;
        let begin_ns = clock();
        let Ok(files) = self.found() else {
            return false;
        };
        let result = files.perform(object, want, way);
        let end_ns = clock();
        let operation = |action, known| Operation {
            object,
            mount,
            process,
            opened_ns,
            begin_ns,
            end_ns,
            known,
            action,
        };
        match (result, want) {
            (Ok(actions), _) => {
                seen.extend(actions.into_iter().map(|action| operation(action, true)));
            }
            (Err(Trouble::Wrong(what)), _) => seen.push(operation(Action::Wrong(what), true)),
            (Err(Trouble::Sys(error)), want) if self.plan.kills && is_loss(error) => {
                self.files = None;
                if let Want::Do(action) = want
                    && !action.observes()
                {
                    let action = tried(action, object, way.can);
                    seen.push(operation(action, false));
                }
            }
            (Err(Trouble::Sys(error)), want) => {
                let asked = match want {
                    Want::Do(action) => asked(action),
                    Want::List => "list".to_owned(),
                };
                let what = format!("{asked}: failed: {error}");
                seen.push(operation(Action::Wrong(what), true));
            }
        }
        true
    }

    fn choose(
        &mut self,
        (round, common): (u64, u64),
        can: Abilities,
        random: &mut Random,
    ) -> (Object, Want) {
        let hot = !random.one_in(3);
        let mut pick = |count: u32, salt: u32| {
            let any = if hot { common >> salt } else { random.next() };
            (any % u64::from(count)) as u32
        };
        let file = pick(self.plan.files, 8);
        let slot = pick(SLOTS.len() as u32, 16);
        let size = pick(self.plan.size_files(), 24);
        let log = pick(self.plan.logs(), 32);
        let group = pick(self.plan.groups(), 40);
        let file_a = pick(self.plan.attribute_files(), 48);
        let fresh = value(self.plan.process, self.counter);
        self.counter += 1;
        match random.below(22) {
            0..=4 => (
                Object::Register { file, slot },
                Want::Do(Action::Read(Vec::new())),
            ),
            5..=8 => (
                Object::Register { file, slot },
                Want::Do(Action::Write(fresh)),
            ),
            9..=11 => (Object::Size { file: size }, self.choose_size(round, random)),
            12..=14 => {
                let action = match random.below(8) {
                    0..=3 => Action::Append(fresh),
                    4 => Action::LogLength(0),
                    _ => Action::ReadLog(Vec::new()),
                };
                (Object::Log { round, file: log }, Want::Do(action))
            }
            15..=19 => (Object::Names { group }, choose_name(random, can, fresh)),
            _ => choose_attribute(random, can, file_a, fresh),
        }
    }

    /// The orders of concurrent changes of a size are as many as their subsets, so few processes
    /// make any in one round.
    fn choose_size(&self, round: u64, random: &mut Random) -> Want {
        let others = u64::from(self.plan.processes.div_ceil(SIZE_CHANGERS));
        if !(round + u64::from(self.plan.process)).is_multiple_of(others) {
            return Want::Do(Action::Size(0));
        }
        // Sizes differ for long, between processes for ever (as far as there are 64 at most).
        let own = u64::from(self.plan.process % 64);
        let size = 64 * (u64::from(self.counter) % 2048) + own + 1;
        Want::Do(match random.below(10) {
            0 => Action::SetSize(0),
            1..=2 => Action::SetSize(size),
            3..=4 => Action::GrowTo(size),
            _ => Action::Size(0),
        })
    }
}

fn choose_attribute(random: &mut Random, can: Abilities, file: u32, fresh: u64) -> (Object, Want) {
    let object = if can.xattrs && random.one_in(2) {
        Object::Xattr { file }
    } else {
        Object::Time { file }
    };
    // Of a long run the last values do not fit into a time.
    let fits = seconds(fresh).is_some();
    let want = if fits && random.one_in(2) {
        Action::Write(fresh)
    } else {
        Action::Read(Vec::new())
    };
    (object, Want::Do(want))
}

fn choose_name(random: &mut Random, can: Abilities, fresh: u64) -> Want {
    let name = random.below(u64::from(NAMES)) as u8;
    let to = (name + 1 + random.below(u64::from(NAMES) - 1) as u8) % NAMES;
    let done = true;
    let from = name;
    Want::Do(match random.below(12) {
        0..=2 => Action::Create {
            name,
            id: fresh,
            done,
        },
        3..=4 => Action::Remove { name, done },
        5 if can.exchange => Action::Move {
            from,
            to,
            moved: Moved::Done,
        },
        6 if can.exchange => Action::Exchange { from, to, done },
        5..=7 => Action::Rename { from, to, done },
        8..=10 => Action::Look { name, found: None },
        _ => return Want::List,
    })
}

/// The action that may have happened, when the outcome got lost.
fn tried(action: &Action, object: Object, can: Abilities) -> Action {
    match (action, object) {
        (Action::Create { name, id, .. }, Object::Names { group }) => Action::Create {
            name: *name,
            id: identity(group, can, *id),
            done: true,
        },
        _ => action.clone(),
    }
}

/// The call, without an outcome.
fn asked(action: &Action) -> String {
    let all = action.to_string();
    all.split(':').next().unwrap_or_default().to_owned()
}
