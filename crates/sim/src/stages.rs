//! The stages of a run, the same in every world: the server starts and the machines mount; one of
//! them prepares a small tree; programs run everywhere, while faults happen; the faults stop and
//! every call must end; every machine looks at everything once more, writes everything back and
//! says goodbye; then the judge is asked.

use crate::disk::Units;
use crate::exec::Signal;
use crate::judge::{self, Case, Judged, Left};
use crate::numbering::Stage;
use crate::plan;
use crate::program::Program;
use crate::room::Room;
use crate::world::{NOBODY, SECOND, World};
use crate::wrong::wrong;
use logic::client::{self, Call, Done};
use std::cell::Cell;
use std::rc::Rc;
use wire::{Kind, Time};

const MS: Time = 1_000_000;
/// The longest that a call may take where nothing is lost and nobody dies, unless the network is so
/// slow that it may be behind all others; see `prompt_ns`.
const PROMPT_NS: Time = SECOND;
/// Exchanges that a call has to itself, when all want the same: the call before it is confirmed,
/// what others have been told is taken back, the call itself, and one that crossed another.
const EXCHANGES: Time = 4;
/// And two where more than a quarter of the calls are renames: one is put back so that another can
/// go first, and its kernel looks the names up again, and asks for the directory's attributes.
const LOOKS_AGAIN: Time = 2;

impl World {
    pub(crate) fn stages(self: &Rc<Self>) -> Option<Judged> {
        self.servers_begin();
        let go = Signal::new(&self.sched);
        let first = (1..=self.plan.clients).filter(|&host| self.only.has_machine(host));
        let rooms: Vec<Rc<Room>> = first.map(|host| self.add_host(host)).collect();
        self.last_host.set(self.plan.clients);
        self.begin_host(&rooms[0], &go, true);
        let ended = |world: &Self| world.running.borrow().values().all(|count| *count == 0);
        if !self.until(30 * SECOND, "the preparation", || ended(self)) {
            return None;
        }
        for room in &rooms {
            self.begin_host(room, &go, false);
        }
        self.schedule_faults();
        let faults_end = self.faults_end.get();
        self.lift_limits(faults_end.max(self.sched.now() + self.plan.span_ns));
        let patience = 60 * SECOND + 6 * self.plan.server.lease_ns;
        let quiet = || ended(self) && self.sched.now() >= faults_end && self.settled();
        let wait = faults_end - self.sched.now() + patience;
        if !self.until(wait, "a call", quiet) {
            return None;
        }
        let undisturbed = !self.plan.costs().late;
        let longest_ns = self.history.longest_ns.get();
        let most_ns = self.prompt_ns();
        if undisturbed && longest_ns > most_ns {
            self.fail(wrong!(
                "a call took {} ms, in place of {} at most, and nothing was lost",
                longest_ns / MS,
                most_ns / MS
            ));
        }
        self.last_look()?;
        self.judge()
    }

    /// From then on there is room for everything: all that waited for it goes on by itself.
    fn lift_limits(self: &Rc<Self>, at: Time) {
        let world = Rc::clone(self);
        self.sched.at(at, move || {
            world.lift_limits_now();
        });
    }

    /// The store may be between two servers at that time.
    fn lift_limits_now(self: &Rc<Self>) {
        if self.settled() || self.servers.len() == 1 {
            return self.server().disk_mut().limit(None);
        }
        let world = Rc::clone(self);
        let soon = self.sched.now() + MS;
        self.sched.at(soon, move || world.lift_limits_now());
    }

    /// Where all programs want the same object, a call may come behind one of each.
    fn prompt_ns(&self) -> Time {
        let (plan, weather) = (&self.plan, &self.plan.weather);
        let exchange_ns = 2 * (weather.most_ns() + plan.notify_ns);
        let of_each = plan.programs + u32::from(self.makes_snapshots());
        let programs = u64::from(plan.clients) * u64::from(of_each);
        let moves = [
            plan::Kind::Rename,
            plan::Kind::MoveDir,
            plan::Kind::Exchange,
        ];
        let moves: u64 = moves.map(|kind| plan.weights[kind as usize]).iter().sum();
        let often = moves * 4 > plan.weights.iter().sum();
        let exchanges = EXCHANGES + if often { LOOKS_AGAIN } else { 0 };
        PROMPT_NS.max(programs * exchanges * exchange_ns)
    }

    /// Every machine looks at everything, writes everything back and leaves.
    fn last_look(self: &Rc<Self>) -> Option<()> {
        self.trace(|| "the last look".into());
        let left = Rc::new(Cell::new(0));
        for room in self.alive() {
            let (world, left) = (Rc::clone(self), Rc::clone(&left));
            left.set(left.get() + 1);
            let host = room.host;
            let look = async move {
                if let Some(kernel) = room.kernel() {
                    Program::new(&world, &kernel, (room.host, 0))
                        .look_around()
                        .await;
                }
                left.set(left.get() - 1);
            };
            self.as_machine(host, Stage::Looks, || self.sched.spawn(NOBODY, look));
        }
        let patience = 60 * SECOND + 6 * self.plan.server.lease_ns;
        if !self.until(patience, "the last look", || left.get() == 0) {
            return None;
        }
        self.pass(50 * MS)?; // the last files are closed
        let abandoned = |room: &Rc<Room>| room.with(client::Client::figures).abandoned;
        let ended = || self.alive().iter().all(|room| abandoned(room) == 0);
        if !self.until(patience, "what was abandoned", ended) {
            return None;
        }
        for room in self.alive() {
            self.check_nothing_leaks(&room);
        }
        self.tell_watchers()?;
        for room in self.alive() {
            let (world, left) = (Rc::clone(self), Rc::clone(&left));
            left.set(left.get() + 1);
            self.sched.kill(room.host);
            self.sched.spawn(room.host, async move {
                let call = world
                    .history
                    .call(room.host, "Leave".into(), world.sched.now());
                let reply = room
                    .call(&world, Call::Leave, Units::new(), false)
                    .wait()
                    .await;
                if reply.done != Done::Nothing {
                    world.fail(wrong!("leaving was answered with {:?}", reply.done));
                }
                world.history.returned(call, world.sched.now());
                left.set(left.get() - 1);
                if room.keeps_bytes() {
                    world.fail(wrong!("h{} left with bytes of requests", room.host));
                }
                if room.with(client::Client::figures).dirty > 0 {
                    world.fail(wrong!("h{} left with dirty blocks", room.host));
                }
            });
        }
        if !self.until(patience, "leaving", || left.get() == 0) {
            return None;
        }
        if !self.until(patience, "the liar's goodbye", || self.liar_has_left()) {
            return None;
        }
        // The last messages arrive, and nameless objects linger no more.
        self.net.stay_apart();
        self.pass(SECOND + self.plan.server.linger_ns)
    }

    /// All calls are answered, and all files closed: so they are for the machine, whatever became
    /// of calls whose callers did not wait.
    fn check_nothing_leaks(&self, room: &Room) {
        let (host, opens) = (room.host, room.with(client::Client::figures).opens);
        if opens > 0 || room.has_orphans() {
            let orphans = room.has_orphans();
            self.fail(wrong!(
                "h{host} has {opens} opens left, bytes of abandoned writes: {orphans}"
            ));
        }
    }

    /// Watching programs are told all changes so far.
    fn tell_watchers(self: &Rc<Self>) -> Option<()> {
        if self.watchers_of_each() == 0 {
            return Some(());
        }
        let patience = 60 * SECOND + 6 * self.plan.server.lease_ns;
        if !self.until(patience, "telling the watchers", || self.all_told()) {
            return None;
        }
        let hosts = self.alive().iter().map(|room| room.host).collect();
        self.told.replace(Some((hosts, self.sched.moment())));
        Some(())
    }

    /// Lets time pass.
    fn pass(&self, ns: Time) -> Option<()> {
        let end = self.sched.now() + ns;
        self.sched.at(end, || ());
        self.until(2 * ns, "nothing", || self.sched.now() >= end)
            .then_some(())
    }

    fn judge(self: &Rc<Self>) -> Option<Judged> {
        // A machine that vanished keeps what it had until another one wants it.
        let left_over = self
            .server()
            .left_over()
            .filter(|_| !self.plan.loses_anybody());
        if let Some(left_over) = left_over {
            self.fail(wrong!("the server has something left: {left_over}"));
        }
        let mut disk = self.server().disk_mut();
        let broken = disk.broken.take();
        if let Some(wrong) = broken {
            self.fail(wrong);
        }
        if let Err(what) = disk.settle() {
            self.fail(wrong!("the disk does not come to rest: {what}"));
            return None;
        }
        if let Err(what) = disk.mend() {
            self.fail(wrong!("rot is not noticed: {what}"));
        }
        if let Err(what) = disk.check() {
            self.fail(wrong!("the disk is damaged: {what}"));
        }
        let mut left = Left::default();
        for (fid, attr) in disk.files() {
            match attr.kind {
                Kind::File if attr.nlink > 0 => {
                    left.files.insert(fid, (attr.mode, disk.content(fid)));
                }
                Kind::Directory => {
                    left.files.insert(fid, (attr.mode, Vec::new()));
                    left.names.extend(disk.names(fid));
                }
                _ => {}
            }
        }
        let snapshots = self.snapshots.borrow();
        let snapshots = snapshots.iter();
        let snapshots = snapshots.map(|one| ((one.begin, one.end), one.left(&mut disk)));
        let snapshots: Vec<_> = snapshots.collect();
        let told = self.told.borrow();
        let applied = std::mem::take(&mut disk.applied);
        let (undone, applied): (Vec<_>, Vec<_>) =
            applied.into_iter().partition(|change| change.undone);
        let case = Case {
            history: &self.history,
            applied: &applied,
            undone: &undone,
            restored: &disk.restored,
            powerless: disk.powerless,
            sessions: &self.sessions.borrow(),
            left: &left,
            snapshots: &snapshots,
            watchers: &self.watchers.0.borrow(),
            told: told.as_ref(),
            moment: self.sched.moment() + 1,
            walls: disk.walls.get(),
        };
        match judge::judge(&case) {
            Ok(judged) => Some(judged),
            Err(wrong) => {
                self.fail(wrong);
                None
            }
        }
    }
}
